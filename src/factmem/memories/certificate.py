"""Proofs about linear memories, in numpy float64 and independent of any solver.

The margins of W prove that it stores all associations. Weights λ_xy ≥ 0, not all zero, with
Σ λ_xy (u_f*(x) − u_y) e_xᵀ = 0 prove that no W does (Gordan's theorem): Σ λ_xy γ_xy = 0 for every
W, so not all margins are positive. Computed λ with Σ λ = 1 only have a small residual
ε = ‖Σ λ_xy (u_f*(x) − u_y) e_xᵀ‖. But if the vectors of a set J have full rank, and σ is the
smallest singular value of the matrix A_J that they form, then changing λ on J by at most ε/σ makes
the sum exactly zero; and if ε < σ · min_J λ, no weight becomes negative. So an exact λ exists close
to the computed one, and infeasibility is proved. Rounding errors are bounded in the conservative
direction.
"""

from collections.abc import Iterator
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky

from factmem.memories.associations import Associations

__all__ = ["Infeasibility", "infeasibility", "proved_margin"]

_EPS = np.finfo(np.float64).eps
_BLOCK_ENTRIES = 2**20
_MAX_UNKNOWNS = 20_000
_RELATIVE_CUTOFFS = (1 / 8, 1 / 2, 1 / 32)
"""J contains the slacks of at least these fractions of the mean slack, tried in this order."""


class Infeasibility(NamedTuple):
    """Residual and threshold of a proof that no linear memory exists.

    The proof is complete if `residual < threshold`.
    """

    residual: float
    """An upper bound on ε = ‖Σ λ_xy (u_f*(x) − u_y) e_xᵀ‖ with Σ λ = 1, including rounding."""
    threshold: float
    """A lower bound on σ_min(A_J) · min_J λ; zero if A_J does not have full rank."""

    @property
    def proved(self) -> bool:
        """Whether it is proved that no linear memory recalls all associations."""
        return self.residual < self.threshold


def proved_margin(matrix: np.ndarray, associations: Associations) -> float:
    """Return a lower bound on the smallest margin of F(e) = W e, including rounding errors.

    If it is positive, W recalls every association in exact arithmetic.
    """
    matrix = matrix.astype(np.float64)
    keys, values, target = _float64(associations)
    dim = keys.shape[1]
    smallest = np.inf
    for rows in _blocks(associations):
        outputs = keys[rows] @ matrix.T
        scores = outputs @ values.T
        right = np.take_along_axis(scores, target[rows, None], axis=1)
        # |fl(uᵀWe) − uᵀWe| ≤ γ |u|ᵀ|W||e| with γ ≈ 2d·eps; twice that for a difference.
        sizes = (np.abs(keys[rows]) @ np.abs(matrix).T) @ np.abs(values).T
        errors = (4 * dim + 8) * _EPS * sizes.max(axis=1, keepdims=True)
        margins = right - scores - errors
        np.put_along_axis(margins, target[rows, None], np.inf, axis=1)
        smallest = float(np.minimum(smallest, margins.min()))  # propagates NaN, unlike min()
    return smallest


def infeasibility(matrix: np.ndarray, associations: Associations) -> Infeasibility:
    """Compute the proof of infeasibility with the weights λ_xy = max(0, 1 − γ_xy) of a matrix W.

    W may be any matrix; the residual vanishes at the minimum of the squared hinge.
    """
    problem = _Problem(matrix, associations)
    total, count, residual = problem.residual()
    if total == 0:
        return Infeasibility(residual=inf, threshold=0.0)
    threshold = 0.0
    for fraction in _RELATIVE_CUTOFFS if problem.unknowns <= _MAX_UNKNOWNS else ():
        cutoff = fraction * total / count
        sigma = problem.smallest_singular_value(cutoff)
        threshold = max(threshold, float(sigma * cutoff / total))
        if residual < threshold:
            break
    return Infeasibility(residual, threshold)


class _Problem:
    """The vectors (u_f*(x) − u_y) ⊗ e_x and their weights, computed in blocks."""

    def __init__(self, matrix: np.ndarray, associations: Associations) -> None:
        self.matrix = matrix.astype(np.float64)
        self.associations = associations
        self.keys, self.values, self.target = _float64(associations)
        self.coordinates = _coordinates(self.values)

    @property
    def unknowns(self) -> int:
        """The dimension of the span of the vectors: d², or less with at most d values."""
        return self.keys.shape[1] * self.coordinates.shape[1]

    def slacks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield max(0, 1 − γ_xy), zero at y = f*(x), for blocks of keys."""
        for rows in _blocks(self.associations):
            scores = (self.keys[rows] @ self.matrix.T) @ self.values.T
            own = self.target[rows, None]
            slack = np.maximum(0, 1 + scores - np.take_along_axis(scores, own, axis=1))
            np.put_along_axis(slack, own, 0, axis=1)
            yield rows, slack

    def residual(self) -> tuple[float, int, float]:
        """Return Σ λ, the number of positive λ, and ε for λ divided by its sum."""
        total, count = 0.0, 0
        sums = np.zeros((self.coordinates.shape[1], self.keys.shape[1]))
        sizes = np.zeros_like(sums)
        for rows, slack in self.slacks():
            total, count = total + float(slack.sum()), count + int(np.count_nonzero(slack))
            own = self.coordinates[self.target[rows]]
            mass = slack.sum(axis=1, keepdims=True)
            sums += (mass * own - slack @ self.coordinates).T @ self.keys[rows]
            sizes += (mass * np.abs(own) + slack @ np.abs(self.coordinates)).T @ np.abs(
                self.keys[rows]
            )
        terms = self.associations.facts + self.associations.outputs + 8
        rounding = 2 * terms * _EPS * float(np.linalg.norm(sizes))
        return total, count, float(np.linalg.norm(sums) + rounding) / (total or 1.0)

    def smallest_singular_value(self, cutoff: float) -> float:
        """Return a lower bound on σ_min(A_J), where J has the slacks of at least `cutoff`."""
        try:
            gram, members, size = self._gram(cutoff)
        except MemoryError:
            return 0.0
        if members < self.unknowns:
            return 0.0
        rounding = 4 * (self.unknowns + members) * _EPS * size
        estimate = _smallest_eigenvalue(gram)
        for shift in (0.9 * estimate, 0.5 * estimate):
            # A successful Cholesky factorization is the proof; the estimate is only a guess.
            if shift > rounding and _is_positive(gram, shift):
                return sqrt(shift - rounding)
        return 0.0

    def _gram(self, cutoff: float) -> tuple[np.ndarray, int, float]:
        """Compute A_J A_Jᵀ = Σ_x (Σ_y δ_xy δ_xyᵀ) ⊗ e_x e_xᵀ with δ_xy = u_f*(x) − u_y.

        Returns:
            The matrix, |J|, and the trace that it would have without cancellation in δ_xy;
            rounding errors scale with that trace.
        """
        rank, dim = self.coordinates.shape[1], self.keys.shape[1]
        squares = _outer(self.coordinates, self.coordinates)
        lengths = np.linalg.norm(self.coordinates, axis=1)
        gram, members, size = np.zeros((rank * rank, dim * dim)), 0, 0.0
        for rows, slack in self.slacks():
            chosen = (slack >= cutoff).astype(np.float64)
            members += int(chosen.sum())
            own = self.coordinates[self.target[rows]]
            sums = (lengths[self.target[rows], None] + lengths[None, :]) ** 2
            size += float((chosen * sums).sum(axis=1) @ (self.keys[rows] ** 2).sum(axis=1))
            others = chosen @ self.coordinates
            differences = (
                chosen.sum(axis=1, keepdims=True) * _outer(own, own)
                + chosen @ squares
                - _outer(own, others)
                - _outer(others, own)
            )
            gram += differences.T @ _outer(self.keys[rows], self.keys[rows])
        blocks = gram.reshape(rank, rank, dim, dim).transpose(0, 2, 1, 3)
        return blocks.reshape(rank * dim, rank * dim), members, size


def _coordinates(values: np.ndarray) -> np.ndarray:
    """Return coordinates of the values in which their differences span the whole space.

    Differences of more than d vectors span d dimensions. Those of M ≤ d independent vectors span
    M − 1 dimensions; in the basis u_y − u_0 the values are 0 and the unit vectors.
    """
    outputs, dim = values.shape
    if outputs > dim:
        return values
    spread = np.linalg.svd(values[1:] - values[0], compute_uv=False)
    independent = outputs > 1 and spread[-1] > 1e-9 * np.abs(values).max()
    return np.eye(outputs)[:, 1:] if independent else values


def _is_positive(gram: np.ndarray, shift: float) -> bool:
    shifted = gram.copy()
    shifted[np.diag_indices_from(shifted)] -= shift
    try:
        cholesky(shifted, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return False
    return True


def _smallest_eigenvalue(gram: np.ndarray) -> float:
    """Estimate the smallest eigenvalue by inverse iteration; zero if not positive definite."""
    try:
        factor = cho_factor(gram, check_finite=False)
    except LinAlgError:
        return 0.0
    vector = np.random.default_rng(0).normal(size=gram.shape[0])
    growth = 1.0
    for _ in range(30):
        vector = cho_solve(factor, vector / np.linalg.norm(vector), check_finite=False)
        growth = float(np.linalg.norm(vector))
    return 1 / growth


def _outer(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left[:, :, None] * right[:, None, :]).reshape(left.shape[0], -1)


def _float64(associations: Associations) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.asarray(associations.keys, np.float64),
        np.asarray(associations.values, np.float64),
        np.asarray(associations.target),
    )


def _blocks(associations: Associations) -> Iterator[slice]:
    size = max(associations.outputs, associations.dim**2)
    rows = max(1, _BLOCK_ENTRIES // size)
    for first in range(0, associations.facts, rows):
        yield slice(first, first + rows)
