"""`factmem construct`: the weights of Theorem 3 or 4, or compiled ones, tested on every fact."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.cli.answer import Answer, Output
from factmem.cli.asked import Facts, check_facts, sizes_of, table_of
from factmem.cli.checks import check_accuracy, check_numbers, check_positive, check_width
from factmem.cli.progress import progress
from factmem.cli.shown import shown

if TYPE_CHECKING:
    from factmem.facts import PromptDistribution
    from factmem.transformer import Construction

__all__ = ["construct"]

Method = Literal["attention", "mlp", "compiled"]

_LEAST_DIM, _LARGEST_DIM = 2**8, 2**14
"""Tables are limited as if they had at least the first; the second takes minutes to factorize."""
_SUMMARIES = {
    "attention": "Theorem 3, attention alone",
    "mlp": "Theorem 4, attention and an MLP",
    "compiled": "compiled, with a certificate",
}


@Parameter(name="*")
@dataclass(frozen=True)
class Size:
    """How large the transformer is."""

    dim: int | None = None
    """d, the dimension of embeddings (compiled: searched for if left out)."""
    head_dim: int | None = None
    """d_h, the dimension of a head."""
    heads: int | None = None
    """H, compiled only; the theorems have as many as their blocks need."""
    width: int | None = None
    """m, the neurons of the MLP; 0 is attention alone (compiled only)."""
    block: int | None = None
    """How many tokens a head (mlp: a group of heads) serves; attention and mlp only."""


@Parameter(name="*")
@dataclass(frozen=True)
class Trial:
    """What the transformer is asked once it is built."""

    prompts: int = 8
    """Sampled prompts for each fact, besides those with the worst noise."""
    require: float | None = None
    """Exit with code 1 if the accuracy (compiled: the certified accuracy) is below this."""


def construct(
    method: Method,
    /,
    *,
    facts: Facts = Facts(),
    size: Size = Size(),
    trial: Trial = Trial(),
    output: Output = Output(),
) -> Answer:
    """Write a table of facts into transformer weights, and test every fact among noise.

    METHOD is attention (Theorem 3), mlp (Theorem 4) or compiled: fitted to a shape, or to the
    smallest that is found if no shape is given, with a certificate that holds for every prompt.
    """
    _check(method, facts, size, trial)
    table = table_of(facts)
    import jax
    import jax.random as jr

    from factmem._core.timing import Stopwatch
    from factmem.facts import PromptDistribution
    from factmem.transformer import recall

    asked = PromptDistribution.of(table, noise=facts.noise, length=facts.length)
    keys = jr.split(jr.key(facts.seed), 3)
    with progress(output, method) as report, Stopwatch() as watch:
        built, details = _BUILDERS[method](keys[0], keys[1], asked, size, report)
        jax.block_until_ready(built.model)
    found = recall(built.model, asked, keys[2], trial.prompts)
    data = {
        "method": method,
        **sizes_of(table, facts, built.model),
        "block": built.blocks.sum(axis=1).max(),
        "prompts": found.prompts,
        "accuracy": found.accuracy,
        "min_margin": found.min_margin,
        "relative_margin": found.relative_margin,
        "denoiser_margin": built.denoiser_margin,
        "beta": built.beta,
        **details,
        "notes": list(built.notes),
        "seconds": watch.seconds,
        "compile_seconds": watch.compile_seconds,
    }
    reached = data.get("certified_accuracy", found.accuracy)
    holds = trial.require is None or reached >= trial.require
    notes = [f"Note: {note}" for note in built.notes]
    notes += [] if holds else [f"The accuracy is below the {trial.require} that was required."]
    return Answer(data, lambda: shown(_SUMMARIES[method], _LABELS, data, notes), output, holds)


def _check(method: Method, facts: Facts, size: Size, trial: Trial) -> None:
    """What can be said before anything is loaded."""
    check_facts(facts)
    check_positive(
        dim=size.dim,
        head_dim=size.head_dim,
        heads=size.heads,
        block=size.block,
        prompts=trial.prompts,
    )
    if size.dim is not None and size.dim > _LARGEST_DIM:
        raise FactmemError(f"--dim is at most {_LARGEST_DIM}, not {size.dim}")
    check_numbers(facts.tokens, max(size.dim or 1, _LEAST_DIM))
    check_accuracy(trial.require)
    {"attention": _check_attention, "mlp": _check_mlp, "compiled": _check_compiled}[method](size)


def _check_attention(size: Size) -> None:
    _refuse("attention", size, "heads", "width")
    _given("attention", size, "dim")
    _given("attention", size, "head_dim")


def _check_mlp(size: Size) -> None:
    _refuse("mlp", size, "heads")
    dim = _given("mlp", size, "dim")
    _given("mlp", size, "head_dim")
    check_positive(width=_given("mlp", size, "width"))
    check_numbers(_given("mlp", size, "width"), dim)


def _check_compiled(size: Size) -> None:
    _refuse("compiled", size, "block")
    shape = (size.heads, size.head_dim, size.width)
    if shape == (None, None, None):
        return
    if None in shape:
        raise FactmemError("compiled takes --heads, --head-dim and --width together, or none")
    dim, head_dim = _given("compiled", size, "dim"), _given("compiled", size, "head_dim")
    width = _given("compiled", size, "width")
    check_width(width)
    check_numbers(max(width, _given("compiled", size, "heads") * head_dim), dim)


def _given(method: str, size: Size, name: str) -> int:
    value = getattr(size, name)
    if value is None:
        raise FactmemError(f"{method} needs --{name.replace('_', '-')}")
    return value


def _refuse(method: str, size: Size, *useless: str) -> None:
    for name in useless:
        if getattr(size, name) is not None:
            raise FactmemError(f"{method} has no --{name.replace('_', '-')}")


def _attention(
    embedding_key: Any,
    key: Any,
    asked: "PromptDistribution",
    size: Size,
    report: Report,
) -> "tuple[Construction, dict[str, Any]]":
    from factmem.transformer import THEORY, Embeddings, attention_construction

    dim, head_dim = (_given("attention", size, name) for name in ("dim", "head_dim"))
    phi = Embeddings.draw(embedding_key, dim, asked.vocabulary, THEORY)
    built = attention_construction(key, asked, phi, head_dim, block=size.block)
    return built, {}


def _mlp(
    embedding_key: Any,
    key: Any,
    asked: "PromptDistribution",
    size: Size,
    report: Report,
) -> "tuple[Construction, dict[str, Any]]":
    from factmem.transformer import THEORY, Embeddings, mlp_construction

    dim, head_dim, width = (_given("mlp", size, name) for name in ("dim", "head_dim", "width"))
    phi = Embeddings.draw(embedding_key, dim, asked.vocabulary, THEORY)
    built = mlp_construction(key, asked, phi, head_dim, width, block=size.block)
    return built, {}


def _compiled(
    embedding_key: Any,
    key: Any,
    asked: "PromptDistribution",
    size: Size,
    report: Report,
) -> "tuple[Construction, dict[str, Any]]":
    from factmem.transformer import EXPERIMENTS, Embeddings, Shape, compile_facts, compile_smallest

    def embeddings(dim: int) -> Embeddings:
        return Embeddings.draw(embedding_key, dim, asked.vocabulary, EXPERIMENTS)

    if size.heads is None:
        built, probes = compile_smallest(key, asked, embeddings, size.dim, report=report)
    else:
        sizes = (_given("compiled", size, name) for name in ("dim", "heads", "head_dim", "width"))
        shape = Shape(*sizes)
        built, probes = compile_facts(key, asked, embeddings(shape.dim), shape, report=report), ()
    details = {
        "certified_accuracy": built.certificate.certified_accuracy,
        "min_certified_margin": built.certificate.min_certified_margin,
        "leak": built.certificate.leaks.max(),
        "bits": 16,
        "iterations": built.iterations,
        "outcome": built.outcome.value,
        "tried": [
            {
                "dim": probe.shape.dim,
                "heads": probe.shape.heads,
                "head_dim": probe.shape.head_dim,
                "width": probe.shape.width,
                "parameters": probe.shape.parameters,
                "certified_accuracy": probe.certified_accuracy,
            }
            for probe in probes
        ],
    }
    return built, details


_BUILDERS = {"attention": _attention, "mlp": _mlp, "compiled": _compiled}

_LABELS = {
    "facts": "facts",
    "subjects": "subjects S",
    "relations": "relations R",
    "answers_per_relation": "answers of a relation D",
    "dim": "dimension d",
    "heads": "heads H",
    "head_dim": "dimension of a head d_h",
    "width": "width m",
    "block": "tokens that a head reads, at most",
    "parameters": "parameters",
    "stored_numbers": "stored numbers, tables included",
    "facts_per_parameter": "facts per parameter",
    "bits": "bits a weight",
    "prompts": "prompts for each fact",
    "accuracy": "accuracy",
    "certified_accuracy": "certified accuracy",
    "min_margin": "smallest margin",
    "min_certified_margin": "smallest certified margin",
    "relative_margin": "smallest relative margin",
    "denoiser_margin": "margin of the denoiser",
    "beta": "sharpness β",
    "leak": "attention that may stray",
    "iterations": "iterations",
    "outcome": "it ended because",
    "seconds": "seconds",
    "compile_seconds": "seconds of compilation besides",
}
