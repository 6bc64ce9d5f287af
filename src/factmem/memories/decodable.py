"""Decide for every answer whether some vector decodes to it.

u_y is decoded from w if ⟨u_y − u_z, w⟩ > 0 for all z ≠ y. Three steps look for such a w, each only
for the answers that are left over:

1. w = u_y, and then the same for the centered and whitened values: enough for nearly all answers if
   d is large.
2. Frank-Wolfe steps (Gilbert's algorithm) towards the shortest vector w in the convex hull of all
   u_y − u_z, for many y at once. Each step moves towards the strongest rival z.
3. A linear program per answer, with the rivals of step 2 and then those that its solution violates.
   Only this step decides that an answer is not decodable.

All but the linear programs are matrix products of blocks of answers with all values: 28,000
Gaussian values in d = 128 need no linear program.

Reference: E. G. Gilbert, "An iterative procedure for computing the minimum of a quadratic form on a
convex set", SIAM J. Control 4 (1966).
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from factmem._core.errors import ArgumentError

__all__ = ["decodable"]

_BLOCK_ENTRIES = 2**22
"""Largest array of scores in memory, in float64."""
_STEPS = 64
_MIN_GAP = 1e-7
"""Smallest gap per length of w, for values of at most 1, that replaces a linear program: a program
with a smaller one has solutions of length 10⁷, which solvers may not find."""
_MIN_SPREAD = 1e-4
"""Directions with less than this part of the largest standard deviation are not whitened."""


def decodable(
    values: Float[np.ndarray, "outputs dim"], ids: Int[np.ndarray, " ids"] | None = None
) -> Bool[np.ndarray, " _"]:
    """Return for every y whether some vector decodes to y.

    This holds if and only if u_y is a vertex of the convex hull of all values. A value inside the
    hull of the others is never the argmax, whatever the model. In few dimensions this is common:
    it affects about one in 25 of 64 Gaussian vectors in d = 8. Of equal values none is decodable.

    Besides a few copies of the values, it needs memory for 2²² scores and for 64 ids per answer.

    Args:
        values: u_y.
        ids: the answers y to decide, all by default; they compete with all values.

    Raises:
        FactmemError: an id is not that of a value.

    Examples:
        >>> decodable(np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.1, 0.1]]))
        array([ True,  True,  True, False])
    """
    values = np.asarray(values, np.float64)
    values = values / (np.abs(values).max() or 1.0)  # the solver drops tiny numbers
    count, dim = values.shape
    ids = np.arange(count) if ids is None else ids
    wrong = ids[(ids < 0) | (ids >= count)]
    if len(wrong):
        raise ArgumentError("ids", f"must be from 0 to {count - 1}, got {wrong[0]}")
    if count == 1:
        return np.ones(len(ids), bool)
    result = np.empty(len(ids), bool)
    whitened, to_white = _whiten(values)
    longest = np.linalg.norm(values, axis=1).max()
    block_size = max(1, _BLOCK_ENTRIES // count)
    for start in range(0, len(ids), block_size):
        block = ids[start : start + block_size]
        gaps, _ = _rivals(values, block, values[block])
        # More than what rounding can change; no linear program is needed.
        rounding = 4 * dim * np.finfo(np.float64).eps * longest
        result[start : start + block_size] = gaps > rounding * np.linalg.norm(values[block], axis=1)
    for start in range(0, len(left := np.flatnonzero(~result)), block_size):
        block = left[start : start + block_size]
        result[block], rivals = _frank_wolfe(whitened, to_white, ids[block])
        for index, others in zip(block, rivals, strict=True):
            result[index] = result[index] or _linear_program(values, int(ids[index]), others)
    return result


def _rivals(
    values: Float[np.ndarray, "outputs dim"],
    ids: Int[np.ndarray, " block"],
    directions: Float[np.ndarray, "block dim"],
) -> tuple[Float[np.ndarray, " block"], Int[np.ndarray, " block"]]:
    """Return min ⟨u_y − u_z, w⟩ over z ≠ y, and the z where it is attained."""
    scores = directions @ values.T
    rows = np.arange(len(ids))
    own = scores[rows, ids]
    scores[rows, ids] = -np.inf
    rivals = scores.argmax(axis=1)
    return own - scores[rows, rivals], rivals


def _whiten(
    values: Float[np.ndarray, "outputs dim"],
) -> tuple[Float[np.ndarray, "outputs dim"], Float[np.ndarray, "dim dim"]]:
    """Return centered values with equal variance in all directions, and the matrix for it.

    Which answers are decodable does not change, but fewer steps find a direction.
    """
    centered = values - values.mean(axis=0)
    variances, axes = np.linalg.eigh(centered.T @ centered / len(values))
    deviations = np.sqrt(np.maximum(variances, 0))
    largest = deviations.max() or 1.0
    to_white = axes / np.maximum(deviations, _MIN_SPREAD * largest)
    return centered @ to_white, to_white


def _frank_wolfe(
    whitened: Float[np.ndarray, "outputs dim"],
    to_white: Float[np.ndarray, "dim dim"],
    ids: Int[np.ndarray, " block"],
) -> tuple[Bool[np.ndarray, " block"], Int[np.ndarray, "block steps"]]:
    """Return which answers are proved to be decodable, and the rivals that each has met."""
    proved = np.zeros(len(ids), bool)
    met = np.repeat(ids[:, None], _STEPS, axis=1)  # an answer itself stands for no rival
    points = whitened[ids]
    directions = points.copy()
    left = np.arange(len(ids))
    for step in range(_STEPS):
        gaps, met[left, step] = _rivals(whitened, ids[left], directions[left])
        # The same direction for the values themselves, where gaps are the same.
        lengths = np.linalg.norm(directions[left] @ to_white.T, axis=1)
        proved[left] = gaps > _MIN_GAP * lengths
        left = left[~proved[left]]
        if not len(left):
            break
        differences = points[left] - whitened[met[left, step]]
        if step == 0:
            directions[left] = differences
            continue
        # The point of the segment from w to u_y − u_z that is closest to zero.
        way = differences - directions[left]
        squares = np.sum(way**2, axis=1)
        along = -np.sum(directions[left] * way, axis=1)
        part = np.divide(along, squares, out=np.zeros_like(along), where=squares > 0)
        directions[left] += np.clip(part, 0, 1)[:, None] * way
    return proved, met


def _linear_program(
    values: Float[np.ndarray, "outputs dim"], y: int, rivals: Int[np.ndarray, " _"]
) -> bool:
    """Return whether ⟨u_y − u_z, w⟩ ≥ 1 for all z ≠ y has a solution.

    Constraints are added when a solution violates them: an infeasible part proves that there is
    none, and a solution of a part with positive gaps for all z is one, up to its length.
    """
    from scipy.optimize import linprog

    count, dim = values.shape
    used = np.zeros(count, bool)
    used[rivals] = True
    used[y] = False
    while True:
        differences = values[y] - values[used]
        solution: Any = linprog(
            np.zeros(dim), A_ub=-differences, b_ub=-np.ones(len(differences)), bounds=(None, None)
        )
        if solution.status == 2 or (solution.status != 0 and used.sum() == count - 1):
            return False
        gaps = np.zeros(count)
        if solution.status == 0:
            gaps = values[y] @ solution.x - values @ solution.x
        used[y] = True
        violated = np.flatnonzero(~used & (gaps < 0.5))
        used[y] = False
        if not len(violated):
            return True
        added = min(len(violated), 4 * dim)
        used[violated[np.argpartition(gaps[violated], added - 1)[:added]]] = True
