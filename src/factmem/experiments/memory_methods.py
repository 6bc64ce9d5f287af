"""Every way to make an associative memory, by name. Importing this loads no jax."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factmem import memories, training
from factmem._core.errors import FactmemError, visible
from factmem._core.progress import Report

if TYPE_CHECKING:
    from jaxtyping import Array, Key

    from factmem.memories import Associations, Memory
    from factmem.memories.associations import Target

__all__ = ["METHODS", "Built", "Method", "build", "drawn", "method_named"]


@dataclass(frozen=True)
class Built:
    """A memory, and what its method has to say about it as JSON data."""

    memory: "Memory"
    details: Mapping[str, Any]


Sizes = Mapping[str, int]
Builder = Callable[["Key[Array, '']", "Associations", Sizes, Report | None], Built]


@dataclass(frozen=True)
class Method:
    """One way to make a memory.

    Args:
        builder: makes it.
        needs: the sizes that it must be told: `width` (neurons of an MLP; pairs of neurons for
            `tangent`) or `rank` (of a linear memory).
        takes: those that it may be told besides: `degree` (k of the Hermite polynomial).
        steps: how many steps it takes at most, where that is known.
        summary: a few words.
    """

    builder: Builder
    summary: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    steps: int | None = None


def build(
    method: str,
    key: "Key[Array, '']",
    associations: "Associations",
    report: Report | None = None,
    **sizes: int,
) -> Built:
    """Makes a memory of these associations.

    Args:
        method: a name in `METHODS`.
        key: randomness of the method itself.
        associations: what to store.
        report: told how far it is: steps, and the loss (fits) or the accuracy (training).
        sizes: what the method needs or takes, such as `width=1024`.

    Raises:
        FactmemError: no such method, a size that it needs and was not told, or one that it has
            no use for.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.memories import Associations
        >>> pairs = Associations.draw(jr.key(0), facts=64, dim=64)
        >>> build("hebbian", jr.key(1), pairs).memory.score(pairs).accuracy
        1.0
    """
    chosen = method_named(method)
    for name in chosen.needs:
        if name not in sizes:
            raise FactmemError(f"{method} needs a {name}")
    for name in sizes:
        if name not in (*chosen.needs, *chosen.takes):
            raise FactmemError(f"{method} has no {name}")
    return chosen.builder(key, associations, sizes, report)


def drawn(
    seed: int, facts: int, dim: int, outputs: int | None = None, target: "Target | None" = None
) -> "tuple[Associations, Key[Array, ''], Key[Array, '']]":
    """All that a seed stands for: the associations, the key of the method and one for a trial.

    Those of more facts begin with those of fewer, with the same values: whatever stores more of
    them stores fewer, as long as there are as many outputs as facts.

    Args:
        seed: of all randomness.
        facts, dim, outputs, target: see `Associations.draw`.
    """
    import jax.random as jr

    keys = jr.split(jr.key(seed), 3)
    pairs = memories.Associations.draw(keys[0], facts, dim, outputs, target)
    return pairs, keys[1], keys[2]


def method_named(name: str) -> Method:
    """The method of this name.

    Raises:
        FactmemError: there is none; the message lists those that there are.
    """
    try:
        return METHODS[name]
    except KeyError:
        raise FactmemError(f"no method '{visible(name)}'; there are {', '.join(METHODS)}") from None


def _hebbian(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    return Built(memories.hebbian(associations), {})


def _low_rank(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    return Built(memories.low_rank(key, associations, sizes["rank"]), {"rank": sizes["rank"]})


def _hermite(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    degree = sizes.get("degree", 2)
    memory = memories.hermite_memory(key, associations, sizes["width"], degree)
    return Built(memory, {"width": sizes["width"], "degree": degree})


def _tangent(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    degree = sizes.get("degree", 2)
    tangent = memories.tangent_memory(key, associations, sizes["width"], degree)
    memory = memories.paired_neurons(tangent)
    return Built(memory, {"width": sizes["width"], "neurons": 2 * sizes["width"], "degree": degree})


def _maximal(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    best = memories.maximal(associations, report=report)
    proof = best.infeasibility
    feasible = {"feasible": True, "infeasible": False}.get(best.verdict.value)
    details = {
        "verdict": best.verdict.value,
        "feasible": feasible,
        "proved_margin": best.proved_margin,
        "certificate_residual": None if proof is None else proof.residual,
        "certificate_threshold": None if proof is None else proof.threshold,
        "iterations": best.minimum.iterations,
        "outcome": best.minimum.outcome.value,
    }
    return Built(best.memory, details)


def _fitted(name: str) -> Builder:
    def builder(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
        fit = getattr(memories, name)(key, associations, sizes["width"], report=report)
        details = {
            "width": sizes["width"],
            "complete": fit.complete,
            "iterations": fit.iterations,
            "outcome": fit.outcome.value,
        }
        return Built(fit.memory, details)

    return builder


def _trained_linear(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    start = training.linear_start(key, associations.dim)
    return _trained(start, associations, training.LINEAR_PROTOCOL, report)


def _trained_mlp(key: Any, associations: Any, sizes: Sizes, report: Any) -> Built:
    start = training.mlp_start(key, associations.dim, sizes["width"])
    built = _trained(start, associations, training.MLP_PROTOCOL, report)
    return Built(built.memory, {"width": sizes["width"], **built.details})


def _trained(start: Any, associations: Any, protocol: Any, report: Any) -> Built:
    (run,) = training.train_memories([start], [associations], protocol, report)
    details = {
        "learning_rate": protocol.learning_rate,
        "best_accuracy": run.best_accuracy,
        "loss": run.loss,
        "steps": run.steps,
        "outcome": run.outcome.value,
    }
    return Built(run.memory, details)


METHODS: Mapping[str, Method] = {
    "hebbian": Method(_hebbian, "Theorem 1: the sum of outer products, d² numbers"),
    "low-rank": Method(_low_rank, "Theorem 1 at rank m, 2·m·d numbers", needs=("rank",)),
    "hermite": Method(
        _hermite,
        "Theorem 2: random features, read out along a Hermite polynomial",
        needs=("width",),
        takes=("degree",),
    ),
    "tangent": Method(
        _tangent,
        "Theorem 2: the tangent construction as an MLP of paired neurons",
        needs=("width",),
        takes=("degree",),
    ),
    "maximal": Method(_maximal, "the best linear memory, with a proof", steps=20_000),
    "fitted-features": Method(
        _fitted("fitted_features"), "random ReLU features, best readout", needs=("width",)
    ),
    "fitted-relu": Method(
        _fitted("fitted_relu"), "a ReLU MLP, all weights fitted", needs=("width",)
    ),
    "fitted-bilinear": Method(
        _fitted("fitted_bilinear"), "a bilinear MLP, all weights fitted", needs=("width",)
    ),
    "trained-linear": Method(_trained_linear, "a matrix trained as in Figure 1", steps=2**12),
    "trained-mlp": Method(
        _trained_mlp, "a ReLU MLP trained as in Figures 1 and 6", needs=("width",), steps=2**15
    ),
}
"""The methods, in the order of the paper and then beyond it."""
