"""`factmem memory METHOD`: builds one associative memory and tests it on every association."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.answer import Answer, Output
from factmem.cli.checks import check_accuracy, check_numbers, check_positive, check_seed
from factmem.cli.progress import progress
from factmem.cli.shown import shown
from factmem.experiments.memory_methods import build, drawn, method_named

if TYPE_CHECKING:
    from factmem.memories import Associations, Memory

__all__ = ["memory"]


@Parameter(name="*")
@dataclass(frozen=True)
class Task:
    """What is to be remembered, and how large the memory is."""

    dim: int
    """d, the dimension of keys and values."""
    facts: int
    """N, the number of associations."""
    outputs: int | None = None
    """M, the number of values to decode over (default: as many as facts)."""
    target: Literal["identity", "permutation", "blocks"] | None = None
    """f*; blocks is ⌊xM/N⌋ (default: identity, or blocks if there are fewer outputs than facts)."""
    width: int | None = None
    """m, neurons of an MLP memory; pairs of neurons for tangent."""
    rank: int | None = None
    """m, the rank of a low-rank memory."""
    degree: int | None = None
    """k, the degree of the Hermite polynomial for hermite and tangent (default: 2)."""
    seed: int = 0
    """Randomness of embeddings and method."""


@Parameter(name="*")
@dataclass(frozen=True)
class Trial:
    """What the memory must stand once it is built."""

    bits: int | None = None
    """Round every weight to this many bits before testing."""
    weight_noise: float | None = None
    """Multiply every weight by 1 + σg before testing; this is σ."""
    precision: Annotated[bool, Parameter(negative=())] = False
    """Also find the fewest bits and the most noise at which all is recalled."""
    require: float | None = None
    """Exit with code 1 if the accuracy is below this."""


def memory(
    method: str, /, *, task: Task, trial: Trial = Trial(), output: Output = Output()
) -> Answer:
    """Build one associative memory on random unit embeddings and test it on every association.

    METHOD is one of hebbian, low-rank, hermite, tangent (the paper's constructions), maximal (the
    best linear memory, with a proof), fitted-features, fitted-relu, fitted-bilinear (MLPs fitted
    by L-BFGS), trained-linear, trained-mlp (the paper's training).
    """
    chosen = method_named(method)
    _check(task, trial)
    import jax

    from factmem._core.timing import Stopwatch

    associations, method_key, trial_key = drawn(
        task.seed, task.facts, task.dim, task.outputs, task.target
    )
    told = {"width": task.width, "rank": task.rank, "degree": task.degree}
    sizes = {name: size for name, size in told.items() if size is not None}
    with progress(output, method, chosen.steps) as report, Stopwatch() as watch:
        built = build(method, method_key, associations, report, **sizes)
        jax.block_until_ready(built.memory)
    tested = _tried(built.memory, trial, trial_key)
    score = tested.score(associations)
    data = {
        "method": method,
        "dim": associations.dim,
        "facts": associations.facts,
        "outputs": associations.outputs,
        "seed": task.seed,
        **built.details,
        "bits": trial.bits,
        "weight_noise": trial.weight_noise,
        "parameters": score.parameters,
        "accuracy": score.accuracy,
        "min_margin": score.min_margin,
        "relative_margin": score.relative_margin,
        "bits_per_parameter": score.bits_per_parameter,
        **(_precision(built.memory, associations, trial_key) if trial.precision else {}),
        "seconds": watch.seconds,
        "compile_seconds": watch.compile_seconds,
    }
    holds = trial.require is None or score.accuracy >= trial.require
    title = f"{method}: {chosen.summary}"
    notes = [] if holds else [f"The accuracy is below the {trial.require} that was required."]
    return Answer(data, lambda: shown(title, _LABELS, data, notes), output, holds)


def _check(task: Task, trial: Trial) -> None:
    """What can be said before jax is loaded."""
    check_positive(dim=task.dim, facts=task.facts, outputs=task.outputs)
    check_numbers(max(task.facts, task.outputs or 1, task.width or 1, task.dim), task.dim)
    if trial.bits is not None and not 1 <= trial.bits <= 24:
        raise FactmemError(f"--bits is from 1 to 24, not {trial.bits}")
    if trial.weight_noise is not None and not 0 <= trial.weight_noise <= 1e6:
        raise FactmemError(f"--weight-noise is from 0 to 1e6, not {trial.weight_noise}")
    check_seed(task.seed)
    check_accuracy(trial.require)


def _tried(memory: "Memory", trial: Trial, key: Any) -> "Memory":
    from factmem.memories import noisy, rounded

    if trial.bits is not None:
        memory = rounded(memory, trial.bits)
    if trial.weight_noise is not None:
        memory = noisy(memory, key, trial.weight_noise)
    return memory


def _precision(memory: "Memory", associations: "Associations", key: Any) -> dict[str, Any]:
    from factmem.memories import bits_needed, noise_tolerated

    return {
        "bits_needed": bits_needed(memory, associations),
        "noise_tolerated": noise_tolerated(memory, associations, key),
    }


_LABELS = {
    "dim": "dimension d",
    "facts": "associations N",
    "outputs": "values M",
    "width": "width m",
    "neurons": "neurons",
    "rank": "rank m",
    "degree": "degree k",
    "verdict": "verdict: storing them all is",
    "proved_margin": "smallest margin, at least",
    "certificate_residual": "residual of the proof",
    "certificate_threshold": "must be below",
    "bits": "weights rounded to bits",
    "weight_noise": "noise of weights",
    "parameters": "parameters",
    "accuracy": "accuracy",
    "best_accuracy": "best accuracy at a check",
    "min_margin": "smallest margin",
    "relative_margin": "smallest relative margin",
    "bits_per_parameter": "bits per parameter",
    "bits_needed": "fewest bits a weight",
    "noise_tolerated": "most noise of weights",
    "iterations": "iterations",
    "steps": "steps",
    "outcome": "it ended because",
    "seconds": "seconds",
    "compile_seconds": "seconds of compilation besides",
}
