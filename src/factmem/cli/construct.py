"""`factmem construct`: constructs or compiles a transformer and tests it on every fact."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.options import (
    CheckpointOptions,
    EvaluationOptions,
    FactOptions,
    check_array_size,
    check_positive,
    check_width,
    flag,
)
from factmem.cli.progress import progress
from factmem.cli.render import (
    TIME_LABELS,
    CommandResult,
    OutputOptions,
    render_table,
    requirement_notes,
)
from factmem.experiments.transformer_methods import TRANSFORMER_METHODS

if TYPE_CHECKING:
    from factmem.experiments.transformer_methods import TransformerMethod
    from factmem.transformer import Probe, Shape

__all__ = ["construct"]

Method = Literal["attention", "mlp", "compiled"]

_MIN_DIM_FOR_LIMITS, _MAX_DIM = 2**8, 2**14
"""The limit on table sizes assumes at least the first d. The second is the largest d allowed, since
factorizing a matrix of this size takes minutes."""


@Parameter(name="*")
@dataclass(frozen=True)
class ConstructionOptions:
    """The shape of the transformer."""

    dim: int | None = None
    """d, the embedding dimension (compiled: searched for if not given)."""
    head_dim: int | None = None
    """d_h, the dimension of a head."""
    heads: int | None = None
    """H, the number of attention heads (compiled only; otherwise it follows from --block-size)."""
    width: int | None = None
    """m, the width of the MLP; 0 means attention only (mlp and compiled)."""
    block_size: int | None = None
    """Number of tokens per head, or per group of heads for mlp (attention and mlp only)."""
    embedding: Literal["gaussian", "sphere"] | None = None
    """Distribution of the embeddings (compiled only; default gaussian). With many answers in
    few dimensions only those on the sphere can all be decoded."""
    time_limit: float | None = None
    """Seconds after which the search for the smallest shape starts no further compilation (compiled
    without a shape only)."""

    def check(self, method: Method) -> None:
        """Raise FactmemError if an option is invalid or missing for a method."""
        check_positive(
            dim=self.dim, head_dim=self.head_dim, heads=self.heads, block_size=self.block_size
        )
        if self.dim is not None and self.dim > _MAX_DIM:
            raise FactmemError(f"--dim must be at most {_MAX_DIM}, got {self.dim}")
        {
            "attention": self._check_attention,
            "mlp": self._check_mlp,
            "compiled": self._check_compiled,
        }[method]()

    def require(self, method: Method, *names: str) -> tuple[int, ...]:
        """Return sizes that a method needs.

        Raises:
            FactmemError: one of them was not given.
        """
        for name in names:
            if getattr(self, name) is None:
                raise FactmemError(f"{flag(name)} is required for {method}")
        return tuple(getattr(self, name) for name in names)

    def shape(self, method: Method) -> "Shape | None":
        """Return the shape; None if the compiler searches for the smallest one."""
        from factmem.transformer import Shape

        if method == "attention":
            dim, head_dim = self.require(method, "dim", "head_dim")
            return Shape(dim, 1, head_dim)  # the construction chooses the number of heads
        if method == "mlp":
            dim, head_dim, width = self.require(method, "dim", "head_dim", "width")
            return Shape(dim, 1, head_dim, width)
        if self.heads is None:
            return None
        return Shape(*self.require(method, "dim", "heads", "head_dim", "width"))

    def _reject(self, method: Method, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise FactmemError(f"{flag(name)} cannot be used with {method}")

    def _check_attention(self) -> None:
        self._reject("attention", "heads", "width", "embedding", "time_limit")
        self.require("attention", "dim", "head_dim")

    def _check_mlp(self) -> None:
        self._reject("mlp", "heads", "embedding", "time_limit")
        dim, _, width = self.require("mlp", "dim", "head_dim", "width")
        check_positive(width=width)
        check_array_size(width, dim)

    def _check_compiled(self) -> None:
        self._reject("compiled", "block_size")
        if (self.heads, self.head_dim, self.width) == (None, None, None):
            if self.time_limit is not None and not self.time_limit >= 0:
                raise FactmemError(f"--time-limit must be at least 0, got {self.time_limit:g}")
            return
        if self.time_limit is not None:
            raise FactmemError("--time-limit cannot be used with a shape")
        dim, heads, head_dim, width = self.require("compiled", "dim", "heads", "head_dim", "width")
        check_width(width)
        check_array_size(max(width, heads * head_dim), dim)


def construct(
    method: Method,
    /,
    *,
    facts: FactOptions = FactOptions(),
    shape: ConstructionOptions = ConstructionOptions(),
    checkpoint: CheckpointOptions = CheckpointOptions(),
    prompts: int = 8,
    evaluation: EvaluationOptions = EvaluationOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Write a table of facts into the weights of a transformer and test every fact.

    The methods attention and mlp are the constructions of Theorems 3 and 4. The method compiled
    fits the weights of a given shape and certifies, for every fact, that no noise changes the
    answer. If no shape is given, factmem searches for the smallest one. With compiled, --require
    applies to the certified accuracy.

    Args:
        method: How the weights are chosen.
        prompts: Number of sampled prompts per fact, in addition to worst-case prompts.
    """
    facts.check()
    check_positive(prompts=prompts)
    evaluation.check()
    check_array_size(facts.min_tokens, max(shape.dim or 1, _MIN_DIM_FOR_LIMITS))
    shape.check(method)
    checkpoint.check()
    if checkpoint.checkpoint is not None and shape.shape(method) is None:
        raise FactmemError("--checkpoint requires a shape: a search for the smallest has none")
    if checkpoint.checkpoint is not None and method != "compiled":
        raise FactmemError(f"--checkpoint cannot be used with {method}")
    from factmem.experiments.transformer_spec import TransformerSpec

    spec = TransformerSpec(
        table=facts.table_spec(),
        shape=shape.shape(method),
        method=_method(method, shape),
        prompts=facts.prompt_spec(),
        seed=facts.seed,
    )
    resumed = checkpoint.prepare()
    with progress(output, method, unit="iteration") as report:
        result = spec.run(report, checkpoint=checkpoint.checkpoint)
    built = result.built
    sampled = result.instance.prompts.facts * prompts  # reports add the worst-case prompts
    with progress(output, "recall", sampled, unit="prompt") as report:
        recalled = result.instance.recall(result.model, prompts, report)
    data = {
        "method": method,
        **facts.describe(result.instance.table, result.model),
        "block_size": built.blocks.sum(axis=1).max(),
        "prompts": recalled.prompts_checked,
        "accuracy": recalled.accuracy,
        "min_margin": recalled.min_margin,
        "min_relative_margin": recalled.min_relative_margin,
        **result.metrics,
        "status": result.status.label,
        **({"probes": _probes(built.probes), "resumed": resumed} if method == "compiled" else {}),
        "notes": list(built.notes),
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }
    passed = evaluation.passed(data.get("certified_accuracy", recalled.accuracy))
    notes = [result.status.sentence, *(f"Note: {note}" for note in built.notes)]
    notes += requirement_notes(passed, evaluation.require)
    title = f"{method}: {spec.method.summary}"
    return CommandResult(data, lambda: render_table(title, _LABELS, data, notes), output, passed)


def _method(method: Method, shape: ConstructionOptions) -> "TransformerMethod":
    build: Any = TRANSFORMER_METHODS[method]
    if method == "compiled":
        embedding = shape.embedding or "gaussian"
        return build(dim=shape.dim, embedding=embedding, time_limit=shape.time_limit)
    return build(block_size=shape.block_size)


def _probes(probes: "Sequence[Probe]") -> list[dict[str, Any]]:
    return [
        {
            "dim": probe.shape.dim,
            "heads": probe.shape.heads,
            "head_dim": probe.shape.head_dim,
            "width": probe.shape.width,
            "parameters": probe.shape.parameters,
            "certified_accuracy": probe.certified_accuracy,
        }
        for probe in probes
    ]


_LABELS = {
    "facts": "facts",
    "subjects": "subjects S",
    "relations": "relations R",
    "answers_per_relation": "answers per relation D",
    "dim": "dimension d",
    "heads": "heads H",
    "head_dim": "head dimension d_h",
    "width": "width m",
    "block_size": "max tokens per head",
    "parameters": "parameters",
    "total_parameters": "parameters including embeddings",
    "facts_per_parameter": "facts in the table per parameter",
    "bits_per_weight": "bits per weight",
    "prompts": "prompts per fact",
    "accuracy": "accuracy",
    "certified_accuracy": "certified accuracy",
    "min_margin": "smallest margin",
    "min_certified_margin": "smallest certified margin",
    "min_relative_margin": "smallest relative margin",
    "denoiser_margin": "denoiser margin",
    "beta": "sharpness β",
    "max_attention_leak": "max attention leak",
    "iterations": "iterations",
    "status": "status",
    **TIME_LABELS,
}
