"""How many facts a one-layer transformer stores."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from factmem._core.errors import FactmemError
from factmem.experiments.capacity_problem import CapacityProblem, check_criterion, check_sizes
from factmem.experiments.search import PaperSearch
from factmem.experiments.specs import PromptSpec, TableSpec
from factmem.experiments.task import Experiment, Task
from factmem.experiments.transformer_spec import TransformerSpec
from factmem.transformer.shape import Shape

if TYPE_CHECKING:
    from factmem.experiments.transformer_methods import TransformerMethod

__all__ = ["ProtocolName", "Scaling", "TransformerCapacityProblem", "measure_transformer"]

ProtocolName = Literal["paper", "best", "quick", "compiled"]
Scaling = Literal["s=r", "s=r2", "d=s=r"]

_DENSITY = {"paper": 0.11, "best": 0.21, "quick": 0.135, "compiled": 0.15}
"""Facts per parameter in (32, 8, 4, 32) with S = R and D = 8: see docs/capacity.md."""
_EARLY_STOPPING = ((0.25, 0.75), (0.5, 0.93))
"""Training by `paper` ends early if its best accuracy is below 75% after a quarter of the steps,
or below 93% after half of them: docs/capacity.md has the evidence."""
_PADDING, _PADDING_GROWTH = 1.35, 1.5
"""The size for which quick training is compiled, over the expected size; and how it grows."""


@dataclass(frozen=True)
class TransformerCapacityProblem(CapacityProblem):
    """How many facts a transformer stores. A size is S.

    Args:
        shape: d, H, d_h and m; width 0 is attention alone.
        answers: D; None if it grows with S.
        protocol: trained as in the `paper`, trained for the most facts (`best`), trained in
            seconds (`quick`), or `compiled` with a certificate.
        scaling: S = R; S = R², with R = ⌊√S⌋; or D = S = R.
        criterion: the accuracy that counts as stored. For training, one of the checks must be above
            it (1: all prompts of the check are right). For `compiled`, the certified accuracy.
        noise: number of distinct noise tokens; S + R by default.
        length: T, the number of tokens in a prompt.
        no_early_stopping: never stop training early; see `stops_early`.
        ratio: the width of the final bracket in S, as upper/lower. Where S = R the facts have its
            square.

    Raises:
        FactmemError: a value is out of range.
    """

    shape: Shape
    answers: int | None = 8
    protocol: ProtocolName = "paper"
    scaling: Scaling = "s=r"
    criterion: float = 0.99
    noise: int | None = None
    length: int = 32
    no_early_stopping: bool = False
    ratio: float = 1.05  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        shape = self.shape
        check_sizes(dim=shape.dim, heads=shape.heads, head_dim=shape.head_dim)
        check_criterion(self.criterion)
        if (self.answers is None) != (self.scaling == "d=s=r"):
            raise FactmemError("answers must be given, except for scaling d=s=r, which sets D = S")
        if self.answers is not None and self.answers < 1:
            raise FactmemError(f"answers must be at least 1, got {self.answers}")

    @property
    def dim(self) -> int:
        """d."""
        return self.shape.dim

    @property
    def parameters(self) -> int:
        """The number of parameters of the shape."""
        return self.shape.parameters

    @property
    def expected_facts_per_parameter(self) -> float:
        """The facts per parameter that the shape (32, 8, 4, 32) stores by this protocol."""
        # The same bits make more facts if there are fewer answers; measured with 8.
        answers = self.answers or max(2.0, math.sqrt(_DENSITY[self.protocol] * self.parameters))
        return _DENSITY[self.protocol] * 3 / max(1.0, math.log2(answers))

    @property
    def stops_early(self) -> bool:
        """Whether training that is far from the criterion is ended early.

        Only in the setting in which verdicts with and without this rule were compared: the paper's
        protocol at 99% with S = R, D = 8, T = 32, |N| = S + R and an MLP.
        """
        setting = (self.protocol, self.criterion, self.scaling, self.answers, self.length)
        compared = setting == ("paper", 0.99, "s=r", 8, 32) and self.noise is None
        return compared and self.shape.width > 0 and not self.no_early_stopping

    @property
    def paper_search(self) -> PaperSearch:
        """Bisection of S between 8 and 512, until the ends are adjacent."""
        return PaperSearch(8, 512)

    def table_sizes(self, size: int) -> tuple[int, int, int]:
        """Return S, R and D."""
        relations = math.isqrt(size) if self.scaling == "s=r2" else size
        return size, relations, size if self.answers is None else self.answers

    def facts(self, size: int) -> int:
        """Return S·R."""
        subjects, relations, _ = self.table_sizes(size)
        return subjects * relations

    def spec(self, size: int, seed: int) -> TransformerSpec:
        """Return the transformer of S = size."""
        return TransformerSpec(
            table=TableSpec.random(*self.table_sizes(size)),
            shape=self.shape,
            method=self._method(size),
            prompts=PromptSpec(noise=self.noise, length=self.length),
            seed=seed,
        )

    def task(self, size: int, seed: int) -> Task:
        """Return the measurement at S = size."""
        return self.task_of(self.spec(size, seed))

    def task_of(self, spec: TransformerSpec) -> Task:
        """Return the measurement of a transformer, possibly with a changed method."""
        extra = {"protocol": self.protocol, "criterion": self.criterion}
        return Task(EXPERIMENT, {**spec.config(), **extra})

    def _method(self, size: int) -> "TransformerMethod":
        if self.protocol == "compiled":
            from factmem.experiments.transformer_methods.compiled import Compile

            return Compile()
        from factmem.experiments.transformer_methods.trained import Train
        from factmem.training import BEST, PAPER, QUICK

        protocol = {"paper": PAPER, "best": BEST, "quick": QUICK}[self.protocol]
        # A criterion of 1 means above this: all prompts of a check.
        all_prompts = 1 - 0.5 / protocol.test_prompts
        early_stopping = _EARLY_STOPPING if self.stops_early else protocol.early_stopping
        protocol = replace(
            protocol,
            criterion=min(self.criterion, all_prompts),
            early_stopping=() if self.no_early_stopping else early_stopping,
        )
        # Most of the time of a quick training would be compilation.
        padding = self._search_padding(size) if self.protocol == "quick" else None
        return Train(protocol=protocol, padding=padding)

    def _search_padding(self, size: int) -> dict[str, int]:
        """Return sizes a little above the expected ones, which most sizes of a search share."""
        largest = _PADDING * self.size_of(self.expected_facts)
        while size > largest:
            largest *= _PADDING_GROWTH
        return self.padding(round(largest))

    def padding(self, size: int) -> dict[str, int]:
        """Return the subjects, relations, noise tokens, answers and facts of a size."""
        subjects, relations, answers = self.table_sizes(size)
        return {
            "subjects": subjects,
            "relations": relations,
            "noise": subjects + relations if self.noise is None else self.noise,
            "answers": relations * answers,
            "facts": subjects * relations,
        }


def measure_transformer(*, protocol: str, criterion: float, **config: Any) -> dict[str, Any]:
    """Train or compile one transformer and decide whether it stores its table.

    A padded training is not tested on all facts, because that would compile further programs.

    Args:
        protocol: its name, for listings.
        criterion: the accuracy that counts as stored.
        config: a `TransformerSpec` as JSON data.
    """
    spec = TransformerSpec.from_config(config)
    assert spec.shape is not None
    facts = spec.table.draw(spec.seed).facts
    sizes = {"facts": facts, "parameters": spec.shape.parameters}
    try:
        result = spec.run()
    except FactmemError as error:
        if config["method"] != "compiled":
            raise
        # The compiler explains why this shape cannot store the table.
        return {"stored": False, "status": "impossible", "reason": str(error), **sizes}
    if config["method"] == "compiled":
        certified = result.built.certificate.certified_accuracy
        metrics = {"stored": certified >= criterion, **result.metrics}
    else:
        metrics = {"stored": result.built.best.success, **result.metrics}
    if not metrics["stored"] or config.get("padding") is not None:
        return {**metrics, **sizes}
    return {**metrics, **sizes, **result.instance.recall_metrics(result.model)}


EXPERIMENT = Experiment("transformer", 3, measure_transformer)
