"""The optimal linear memory for given embeddings, with a proof that it exists or does not.

The squared hinge Σ max(0, 1 − γ_xy)² is convex in W. If its minimum is zero, that W recalls all
associations. If not, the slacks at the minimum prove that no W does (`certificate.py`).
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from factmem._core.lbfgs import FitStatus, Minimum, minimize
from factmem._core.progress import Report
from factmem._core.result import Result, Status
from factmem.memories.associations import Associations
from factmem.memories.certificate import Infeasibility, infeasibility, proved_margin
from factmem.memories.linear import LinearMemory
from factmem.memories.margin_losses import squared_hinge

__all__ = ["Feasibility", "OptimalLinearMemory", "optimal_linear_memory"]


class Feasibility(Status):
    """Whether some linear memory recalls all associations."""

    FEASIBLE = "A linear memory that recalls all associations was found."
    INFEASIBLE = (
        "It is proved that no linear memory recalls all associations; the accuracy is that of the "
        "squared-hinge minimizer."
    )
    UNDECIDED = "Neither a linear memory nor a proof that none exists was found."


@dataclass(frozen=True, kw_only=True)
class OptimalLinearMemory(Result[LinearMemory]):
    """The optimal linear memory and what is proved about it.

    Args:
        model: the minimizer of the squared hinge, in float32.
        status: the feasibility if it is decided, else how the minimization ended.
        feasibility: feasible or infeasible if proved, else undecided.
        proved_margin: a lower bound on the smallest margin of the minimizer in float64; positive
            if feasible.
        infeasibility: residual and threshold of the proof that no W works; None if feasible.
        minimum: the result of the minimization.
    """

    status: Feasibility | FitStatus
    feasibility: Feasibility
    proved_margin: float
    infeasibility: Infeasibility | None
    minimum: Minimum

    @property
    def metrics(self) -> dict[str, Any]:
        """Verdict, certificate, iterations and status as JSON data."""
        proof = self.infeasibility
        feasible = {Feasibility.FEASIBLE: True, Feasibility.INFEASIBLE: False}
        return {
            "verdict": self.feasibility.label,
            "feasible": feasible.get(self.feasibility),
            "proved_margin": self.proved_margin,
            "certificate_residual": None if proof is None else proof.residual,
            "certificate_threshold": None if proof is None else proof.threshold,
            "iterations": self.minimum.iterations,
            "status": self.status.label,
        }


def optimal_linear_memory(
    associations: Associations, iterations: int = 20_000, report: Report | None = None
) -> OptimalLinearMemory:
    """Find a W that stores these associations, or prove that no W does.

    Args:
        associations: what to store; f* need not be injective.
        iterations: the maximum number of L-BFGS steps; more are needed near the capacity.
        report: called with the progress.

    Returns:
        The memory and its feasibility, which is `UNDECIDED` if neither proof was completed.
    """
    pairs, scale = _normalize_scale(associations)
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
        feasibility = Feasibility.FEASIBLE
    else:
        feasibility = Feasibility.INFEASIBLE if proof.proved else Feasibility.UNDECIDED
    return OptimalLinearMemory(
        model=LinearMemory(jnp.asarray(minimum.point * scale, jnp.float32)),
        status=minimum.status if feasibility is Feasibility.UNDECIDED else feasibility,
        feasibility=feasibility,
        proved_margin=margin,
        infeasibility=proof,
        minimum=minimum,
    )


def _normalize_scale(associations: Associations) -> tuple[Associations, float]:
    """Return the problem with vectors of length about 1, and the factor that scales its W back.

    Vectors are divided by powers of two, which is exact.
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
