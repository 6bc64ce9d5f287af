"""Proofs about linear memories, in numpy float64 and independent of any solver.

That W stores everything is proved by its margins. That no W does is proved by weights λ_xy ≥ 0
with Σ λ_xy (u_f*(x) − u_y) e_xᵀ = 0 (Gordan): then Σ λ_xy γ_xy = 0 for every W, so not all margins
are positive. Numbers λ give only a small residual ε = ‖Σ λ_xy (u_f*(x) − u_y) e_xᵀ‖, Σ λ = 1. But
if the vectors of a set J have full rank, with σ the smallest singular value of the matrix A_J that
they form, then changing λ on J by at most ε/σ makes the sum exactly zero; and if ε < σ · min_J λ,
nothing becomes negative on the way. So an exact λ lies next to the computed one, and the
impossibility is proved. Rounding errors are bounded and counted on the unfavorable side.
"""

from collections.abc import Iterator
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky

from factmem.memories.associations import Associations

__all__ = ["Infeasibility", "infeasibility", "proved_margin"]

_UNIT = np.finfo(np.float64).eps
_BLOCK_ENTRIES = 2**20
_LARGEST_SYSTEM = 20_000
_SHARES_OF_MEAN = (1 / 8, 1 / 2, 1 / 32)


class Infeasibility(NamedTuple):
    """How near weights λ come to proving that no linear memory exists.

    The proof is complete when `residual < threshold`.
    """

    residual: float
    """ε, a bound on ‖Σ λ_xy (u_f*(x) − u_y) e_xᵀ‖ with Σ λ = 1, rounding included."""
    threshold: float
    """σ_min(A_J) · min_J λ, from below; zero where A_J has not full rank."""

    @property
    def proved(self) -> bool:
        """Whether no linear memory has only positive margins."""
        return self.residual < self.threshold


def proved_margin(matrix: np.ndarray, associations: Associations) -> float:
    """A lower bound on the smallest margin of F(e) = W e, rounding included.

    Positive: W recalls every association, as a statement about exact numbers.
    """
    matrix = matrix.astype(np.float64)
    keys, values, target = _float64(associations)
    dim = keys.shape[1]
    smallest = np.inf
    for rows in _blocks(associations):
        outputs = keys[rows] @ matrix.T
        scores = outputs @ values.T
        right = np.take_along_axis(scores, target[rows, None], axis=1)
        # |fl(uᵀWe) − uᵀWe| ≤ γ |u|ᵀ|W||e| with γ about 2d units; twice that for a difference.
        sizes = (np.abs(keys[rows]) @ np.abs(matrix).T) @ np.abs(values).T
        errors = (4 * dim + 8) * _UNIT * sizes.max(axis=1, keepdims=True)
        margins = right - scores - errors
        np.put_along_axis(margins, target[rows, None], np.inf, axis=1)
        smallest = float(np.minimum(smallest, margins.min()))  # which keeps NaN, as min() may not
    return smallest


def infeasibility(matrix: np.ndarray, associations: Associations) -> Infeasibility:
    """Reads λ_xy = max(0, 1 − γ_xy) off a matrix W and asks whether it proves impossibility.

    Any W may be given; at the minimum of the squared hinge the residual vanishes.
    """
    problem = _Problem(matrix, associations)
    total, count, residual = problem.residual()
    if total == 0:
        return Infeasibility(residual=inf, threshold=0.0)
    best = 0.0
    for share in _SHARES_OF_MEAN if problem.unknowns <= _LARGEST_SYSTEM else ():
        least = share * total / count
        best = max(best, float(problem.smallest_singular_value(least) * least / total))
        if residual < best:
            break
    return Infeasibility(residual, best)


class _Problem:
    """The vectors (u_f*(x) − u_y) ⊗ e_x with their weights, never all at once in memory."""

    def __init__(self, matrix: np.ndarray, associations: Associations) -> None:
        self.matrix = matrix.astype(np.float64)
        self.associations = associations
        self.keys, self.values, self.target = _float64(associations)
        self.coordinates = _coordinates(self.values)

    @property
    def unknowns(self) -> int:
        """The dimension in which the vectors lie: d², or less for fewer than d + 1 values."""
        return self.keys.shape[1] * self.coordinates.shape[1]

    def slacks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """max(0, 1 − γ_xy), zero at y = f*(x), for one block of keys after the other."""
        for rows in _blocks(self.associations):
            scores = (self.keys[rows] @ self.matrix.T) @ self.values.T
            own = self.target[rows, None]
            slack = np.maximum(0, 1 + scores - np.take_along_axis(scores, own, axis=1))
            np.put_along_axis(slack, own, 0, axis=1)
            yield rows, slack

    def residual(self) -> tuple[float, int, float]:
        """Σ λ, the number of positive λ, and ε of the weights divided by their sum."""
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
        rounding = 2 * terms * _UNIT * float(np.linalg.norm(sizes))
        return total, count, float(np.linalg.norm(sums) + rounding) / (total or 1.0)

    def smallest_singular_value(self, least: float) -> float:
        """A lower bound on σ_min(A_J), J the vectors whose slack is at least `least`."""
        try:
            gram, members, size = self._gram(least)
        except MemoryError:
            return 0.0
        if members < self.unknowns:
            return 0.0
        rounding = 4 * (self.unknowns + members) * _UNIT * size
        estimate = _smallest_eigenvalue(gram)
        for shift in (0.9 * estimate, 0.5 * estimate):
            # Cholesky's success is the proof; the estimate only says where to try.
            if shift > rounding and _is_positive(gram, shift):
                return sqrt(shift - rounding)
        return 0.0

    def _gram(self, least: float) -> tuple[np.ndarray, int, float]:
        """A_J A_Jᵀ = Σ_x (Σ_y δ_xy δ_xyᵀ) ⊗ e_x e_xᵀ with δ_xy = u_f*(x) − u_y; |J|; its size.

        The size is what the trace would be if nothing cancelled in δ_xy: rounding errors scale
        with it, however small the differences are.
        """
        wide, deep = self.coordinates.shape[1], self.keys.shape[1]
        squares = _outer(self.coordinates, self.coordinates)
        lengths = np.linalg.norm(self.coordinates, axis=1)
        gram, members, size = np.zeros((wide * wide, deep * deep)), 0, 0.0
        for rows, slack in self.slacks():
            chosen = (slack >= least).astype(np.float64)
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
        blocks = gram.reshape(wide, wide, deep, deep).transpose(0, 2, 1, 3)
        return blocks.reshape(wide * deep, wide * deep), members, size


def _coordinates(values: np.ndarray) -> np.ndarray:
    """Vectors whose differences span their whole space, with the same linear relations.

    Differences of more than d vectors span all d dimensions. Those of M ≤ d independent ones span
    M − 1, and in the basis u_y − u_0 they are the differences of 0 and the unit vectors.
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
    """By inverse iteration; zero for a matrix that is not positive definite."""
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
