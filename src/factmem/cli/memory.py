"""`factmem memory`: builds one associative memory and tests it on every association."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.options import EvaluationOptions, check_array_size, check_positive, check_seed
from factmem.cli.progress import progress
from factmem.cli.render import (
    TIME_LABELS,
    CommandResult,
    OutputOptions,
    render_table,
    requirement_notes,
)
from factmem.experiments.memory_methods import MEMORY_METHODS

if TYPE_CHECKING:
    from factmem.memories import Associations, Memory

__all__ = ["memory"]

_METHODS = "\n".join(f"- {name}: {method.summary}" for name, method in MEMORY_METHODS.items())
_METHOD_HELP = f"How the memory is built:\n\n{_METHODS}"


@Parameter(name="*")
@dataclass(frozen=True)
class MemoryOptions:
    """The associations, and the size of the memory."""

    dim: int
    """d, the dimension of keys and values."""
    facts: int
    """N, the number of associations."""
    outputs: int | None = None
    """M, the number of possible values (default: N)."""
    target: Literal["identity", "permutation", "blocks"] | None = None
    """The map f* from keys to values; blocks is ⌊xM/N⌋ (default: identity, or blocks if M is
    smaller than N)."""
    width: int | None = None
    """m, the number of neurons of an MLP memory; for tangent, the number of pairs of neurons."""
    rank: int | None = None
    """m, the rank of a low-rank memory."""
    degree: int | None = None
    """k, the degree of the Hermite polynomial for hermite and tangent (default: 2)."""
    seed: int = 0
    """Seed of the embeddings and of the method."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_positive(dim=self.dim, facts=self.facts, outputs=self.outputs)
        check_array_size(max(self.facts, self.outputs or 1, self.width or 1, self.dim), self.dim)
        check_seed(self.seed)


@Parameter(name="*")
@dataclass(frozen=True)
class PerturbationOptions:
    """Changes to the weights before the test."""

    bits: int | None = None
    """Round every weight to this many bits before the test."""
    weight_noise: float | None = None
    """σ: multiply every weight by 1 + σg before the test, with g standard normal."""
    precision: bool = False
    """Also find the fewest bits and the largest σ at which every association is recalled."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        if self.bits is not None and not 1 <= self.bits <= 24:
            raise FactmemError(f"--bits must be from 1 to 24, got {self.bits}")
        if self.weight_noise is not None and not 0 <= self.weight_noise <= 1e6:
            raise FactmemError(f"--weight-noise must be from 0 to 1e6, got {self.weight_noise}")


def memory(
    method: Annotated[str, Parameter(help=_METHOD_HELP)],
    /,
    *,
    task: MemoryOptions,
    perturbation: PerturbationOptions = PerturbationOptions(),
    evaluation: EvaluationOptions = EvaluationOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Build one associative memory and test it on every association.

    The embeddings are random unit vectors.
    """
    chosen = MEMORY_METHODS[method]
    task.check()
    perturbation.check()
    evaluation.check()
    from factmem.experiments.memory_spec import MemorySpec

    spec = MemorySpec(method=method, **asdict(task))
    with progress(output, method, chosen.max_steps) as report:
        result = spec.run(report)
    associations, key = result.instance.associations, result.instance.test_key
    score = _perturb(result.model, perturbation, key).score(associations)
    data = {
        "method": method,
        "dim": associations.dim,
        "facts": associations.facts,
        "outputs": associations.outputs,
        "seed": task.seed,
        **result.metrics,
        "bits_per_weight": perturbation.bits,
        "weight_noise": perturbation.weight_noise,
        "parameters": score.parameters,
        "accuracy": score.accuracy,
        "min_margin": score.min_margin,
        "min_relative_margin": score.min_relative_margin,
        "bits_per_parameter": score.bits_per_parameter,
        **(_precision(result.model, associations, key) if perturbation.precision else {}),
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }
    passed = evaluation.passed(score.accuracy)
    title = f"{method}: {chosen.summary}"
    notes = [result.status.sentence, *requirement_notes(passed, evaluation.require)]
    return CommandResult(data, lambda: render_table(title, _LABELS, data, notes), output, passed)


def _perturb(memory: "Memory", perturbation: PerturbationOptions, key: Any) -> "Memory":
    from factmem.memories import noisy, rounded

    if perturbation.bits is not None:
        memory = rounded(memory, perturbation.bits)
    if perturbation.weight_noise is not None:
        memory = noisy(memory, perturbation.weight_noise, key=key)
    return memory


def _precision(memory: "Memory", associations: "Associations", key: Any) -> dict[str, Any]:
    from factmem.memories import bits_needed, noise_tolerated

    return {
        "bits_needed": bits_needed(memory, associations),
        "noise_tolerated": noise_tolerated(memory, associations, key=key),
    }


_LABELS = {
    "dim": "dimension d",
    "facts": "associations N",
    "outputs": "outputs M",
    "width": "width m",
    "neurons": "neurons",
    "rank": "rank m",
    "degree": "degree k",
    "verdict": "storing all associations",
    "proved_margin": "proved lower bound on the margin",
    "certificate_residual": "certificate residual",
    "certificate_threshold": "certificate threshold",
    "bits_per_weight": "bits per weight after rounding",
    "weight_noise": "weight noise σ",
    "parameters": "parameters",
    "accuracy": "accuracy",
    "best_accuracy": "best accuracy during training",
    "min_margin": "smallest margin",
    "min_relative_margin": "smallest relative margin",
    "bits_per_parameter": "bits per parameter",
    "bits_needed": "fewest bits per weight",
    "noise_tolerated": "largest weight noise σ",
    "iterations": "iterations",
    "steps": "steps",
    "status": "status",
    **TIME_LABELS,
}
