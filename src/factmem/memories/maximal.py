"""The best linear memory that the given embeddings allow, with a proof either way.

The squared hinge Σ max(0, 1 − γ_xy)² is convex in W. If its minimum is zero, that W recalls
everything. If not, its slacks at the minimum are the proof that no W does (`certificate.py`).
"""

from dataclasses import dataclass
from enum import Enum

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from factmem._core.lbfgs import Minimum, minimize
from factmem._core.progress import Report
from factmem.memories.associations import Associations
from factmem.memories.certificate import Infeasibility, infeasibility, proved_margin
from factmem.memories.linear import LinearMemory
from factmem.memories.margin_losses import squared_hinge

__all__ = ["Maximal", "Verdict", "maximal"]


class Verdict(Enum):
    """Whether some linear memory recalls all the associations."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Maximal:
    """The best linear memory, and what is proved about it.

    Args:
        memory: the minimum of the squared hinge, in float32.
        verdict: feasible or infeasible if proved, else undecided.
        proved_margin: a lower bound on the smallest margin of the minimum in float64; feasible
            means that it is positive.
        infeasibility: residual and threshold of the proof that no W works; None if feasible.
        minimum: how the minimization ended.
    """

    memory: LinearMemory
    verdict: Verdict
    proved_margin: float
    infeasibility: Infeasibility | None
    minimum: Minimum


def maximal(
    associations: Associations, iterations: int = 20_000, report: Report | None = None
) -> Maximal:
    """The W that stores these associations if any W does, or a proof that none does.

    Args:
        associations: what to store; f* need not be injective.
        iterations: at most so many steps; near the limit of what can be stored more are needed.
        report: called with the progress.

    Returns:
        The memory with a verdict. `UNDECIDED` is an answer: neither proof was completed.
    """
    pairs, scale = _of_size_one(associations)
    minimum = minimize(
        _loss,
        np.asarray(pairs.answers, float).T @ np.asarray(pairs.keys, float),  # the Hebbian memory
        (pairs.keys, pairs.values, pairs.target),
        iterations=iterations,
        report=report,
    )
    margin = proved_margin(minimum.point, pairs)
    proof = None if margin > 0 else infeasibility(minimum.point, pairs)
    if proof is None:
        verdict = Verdict.FEASIBLE
    else:
        verdict = Verdict.INFEASIBLE if proof.proved else Verdict.UNDECIDED
    memory = LinearMemory(jnp.asarray(minimum.point * scale, jnp.float32))
    return Maximal(memory, verdict, margin, proof, minimum)


def _of_size_one(associations: Associations) -> tuple[Associations, float]:
    """The same problem with vectors of length about 1, and what turns its W into one of the given.

    Only powers of two are divided by, so no digit changes.
    """
    sizes = [
        2.0
        ** np.round(np.log2(max(np.linalg.norm(np.asarray(vectors, float), axis=1).max(), 1e-300)))
        for vectors in (associations.keys, associations.values)
    ]
    keys, values = (
        jnp.asarray((np.asarray(vectors, float) / size).astype(vectors.dtype))
        for vectors, size in zip((associations.keys, associations.values), sizes, strict=True)
    )
    return Associations(keys, values, associations.target), float(1 / (sizes[0] * sizes[1]))


def _loss(matrix: Float[Array, "dim dim"], data: tuple[Array, Array, Array]) -> Float[Array, ""]:
    keys, values, target = data
    return squared_hinge(keys @ matrix.T, values, target)
