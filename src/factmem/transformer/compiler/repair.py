"""The repair: the smallest change of the last matrix that gives every fact the margin it needs.

When few facts are left, further steps on batches break about as many as they mend. But the outputs
are linear in the last matrix V: F = x + h V, with the hidden units h of the MLP. (Without an MLP, h
are the attended values and V the output matrices.) So margins are linear in a change Δ of V, and

    minimize Σ_f ‖h_f Δ‖²  subject to  (u_a − u_y)·(h_f Δ) ≥ what the pair (f, y) is short of

is a convex problem. Its solution is Δ = C⁻¹ Σ λ h_f (u_a − u_y)ᵀ with C = Σ_f h_f h_fᵀ and λ ≥ 0:
the least-squares edits of MEMIT (Meng et al., 2023), with inequalities. Only the pairs of facts and
answers whose margin is too small take part. Each exact pass over all answers adds new ones, until
there are none.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

from factmem.transformer.compiler.hardest_answers import hardest_answers
from factmem.transformer.compiler.known_inputs import (
    FitData,
    FittedWeights,
    attended_values,
    attention_outputs,
    hidden_units,
    model_outputs,
)

__all__ = ["Moments", "Repair", "repair", "repair_bytes"]

_MAX_UNITS = 12_000
"""Second moments of more hidden units would need more than 1.7 GB; then nothing is repaired."""
_MAX_PAIRS, _PAIRS_PER_PARAMETER = 2000, 0.5
"""Pairs of facts and answers, in all and for each entry of the last matrix. The time of a solution
grows with their cube, 10 s for 2,000; with more pairs than entries there is hardly a solution."""
_ANSWERS_PER_FACT = 8
"""The hardest answers of a fact that one pass adds."""
_MAX_PASSES = 10
_RIDGE = 1e-4
"""Added to C, relative to its mean diagonal: keeps entries of Δ small, for they are rounded."""
_AIM = 1.03
"""The margin that a pair gets, relative to the required one: float32 changes it by up to 3%."""
_NEGLIGIBLE = 1e-9
"""Leverage h C⁻¹ h of a fact that no change of V can mend."""
_BLOCK_ENTRIES = 2**23
_ROWS = 256
"""Facts of a block for which all logits are computed."""


class Repair(NamedTuple):
    """The weights after a repair, and the number of facts whose margin is still too small."""

    weights: FittedWeights
    short: int


def repair(
    weights: FittedWeights,
    data: FitData,
    moments: "Moments",
    margins: Float[np.ndarray, " facts"],
    required: Float[np.ndarray, " facts"],
    *,
    rng: np.random.Generator,
    report: Callable[[int], None] | None = None,
) -> Repair:
    """Change the last matrix as little as possible, such that all facts have the required margin.

    Args:
        weights: the weights to start from.
        data: inputs and targets.
        moments: those of the same weights; they do not depend on the last matrix.
        margins: the margins of these weights, as `hardest_answers` returns them.
        required: the margin that each fact needs.
        rng: for the groups of answers in exact passes.
        report: called before every exact pass with the number of facts that are short.

    Returns:
        The weights with the fewest facts that are short; those to start from if nothing helps.
    """
    weights = jax.tree.map(jnp.asarray, weights)
    short = _short_facts(margins, required)
    best, changed = Repair(weights, len(short)), weights
    if len(short) == 0 or moments.factor is None:
        return best
    constraints = _Constraints(weights, data, moments.factor)
    for _ in range(_MAX_PASSES):
        if not constraints.add(changed, short, required):
            break
        try:
            changed = constraints.solve()
        except (np.linalg.LinAlgError, RuntimeError):  # contradictions, or no convergence
            break
        if report is not None:
            report(len(short))
        _, margins = hardest_answers(changed, data, rng=rng)
        short = _short_facts(margins, required)
        if len(short) < best.short:
            best = Repair(changed, len(short))
        if len(short) == 0:
            break
    return best


def repair_bytes(units: int) -> float:
    """Return the memory of a repair: second moments, and the hidden units of 2,000 facts."""
    return 12.0 * units**2 + 16.0 * _MAX_PAIRS * units if units <= _MAX_UNITS else 0.0


def _short_facts(
    margins: Float[np.ndarray, " facts"], required: Float[np.ndarray, " facts"]
) -> Int[np.ndarray, " short"]:
    return np.flatnonzero(~(margins >= required))


class Moments:
    """The second moments C of what the last matrix is multiplied with, as a Cholesky factor.

    There is none for more than 12,000 units, and if C is zero or not finite.
    """

    def __init__(self, weights: FittedWeights, data: FitData) -> None:
        self.factor: Float[np.ndarray, "units units"] | None = None
        units = weights.mlp_out.shape[0] or math.prod(weights.output.shape[:2])
        if units > _MAX_UNITS:
            return
        moments = _second_moments(weights, data)
        mean = float(np.trace(moments)) / units
        if math.isfinite(mean) and mean > 0:
            moments[np.diag_indices_from(moments)] += _RIDGE * mean
            # Transposed, it is in LAPACK's order and needs no copy.
            with suppress(np.linalg.LinAlgError):
                self.factor = cholesky(moments.T, lower=True, overwrite_a=True, check_finite=False)


class _Constraints:
    """Pairs of facts and wrong answers, and the smallest change that gives them their margins."""

    def __init__(
        self, weights: FittedWeights, data: FitData, factor: Float[np.ndarray, "units units"]
    ) -> None:
        self.weights, self.data, self.factor = weights, data, factor
        self.outputs = np.asarray(data.outputs, np.float64)
        self.target = np.asarray(data.target)
        self.rows: dict[int, int] = {}
        """The row of each fact in the arrays below."""
        units, dim = len(factor), self.outputs.shape[1]
        self.hidden, self.whitened = np.empty((0, units)), np.empty((0, units))
        self.first_outputs = np.empty((0, dim))
        self.pairs: dict[tuple[int, int], float] = {}
        """The margin that each pair gets."""
        self.most_pairs = min(_MAX_PAIRS, math.ceil(_PAIRS_PER_PARAMETER * units * dim))

    def add(
        self,
        changed: FittedWeights,
        facts: Int[np.ndarray, " some"],
        required: Float[np.ndarray, " facts"],
    ) -> bool:
        """Add the hardest answers of facts that are short; False if there are none, or too many."""
        new = np.array([fact for fact in facts.tolist() if fact not in self.rows], np.int64)
        if len(self.rows) + len(new) > self.most_pairs:
            return False
        self.rows.update({fact: len(self.rows) + row for row, fact in enumerate(new.tolist())})
        hidden, first_outputs = self._evaluate(self.weights, new)
        whitened = solve_triangular(self.factor, hidden.T, lower=True).T
        self.hidden = np.concatenate([self.hidden, hidden])
        self.whitened = np.concatenate([self.whitened, whitened])
        self.first_outputs = np.concatenate([self.first_outputs, first_outputs])
        leverage = np.sum(self.whitened**2, axis=1)
        before = len(self.pairs)
        for start in range(0, len(facts), _ROWS):
            some = facts[start : start + _ROWS]
            aims = _AIM * required[some]
            _, outputs = self._evaluate(changed, some)
            logits = outputs @ self.outputs.T
            right = np.take_along_axis(logits, self.target[some][:, None], axis=1)
            surplus = right - logits - aims[:, None]
            np.put_along_axis(surplus, self.target[some][:, None], np.inf, axis=1)
            count = min(_ANSWERS_PER_FACT, surplus.shape[1])
            hardest = np.argpartition(surplus, count - 1, axis=1)[:, :count]
            for row, fact in enumerate(some.tolist()):
                if leverage[self.rows[fact]] > _NEGLIGIBLE:
                    for answer in hardest[row].tolist():
                        if surplus[row, answer] < 0:
                            self.pairs[fact, answer] = float(aims[row])
        return before < len(self.pairs) <= self.most_pairs

    def solve(self) -> FittedWeights:
        """Return the weights with the smallest change that satisfies all pairs."""
        facts, answers = np.array(list(self.pairs)).T
        rows = np.array([self.rows[fact] for fact in facts.tolist()])
        directions = self.outputs[self.target[facts]] - self.outputs[answers]
        gram = (self.whitened @ self.whitened.T)[np.ix_(rows, rows)] * (directions @ directions.T)
        gram[np.diag_indices_from(gram)] += 1e-9 * np.trace(gram) / len(gram)
        have = np.einsum("pd,pd->p", self.first_outputs[rows], directions)
        missing = np.array(list(self.pairs.values())) - have
        # λ ≥ 0 minimizes λᵀGλ/2 − λᵀ(missing): non-negative least squares with a factor of G.
        lower = np.linalg.cholesky(gram)
        right_side = solve_triangular(lower, missing, lower=True)
        multipliers, _ = nnls(lower.T, right_side, maxiter=100 * len(missing))
        weighted = np.zeros((len(self.hidden), directions.shape[1]))
        np.add.at(weighted, rows, multipliers[:, None] * directions)
        change = cho_solve((self.factor, True), self.hidden.T @ weighted)
        return _with_change(self.weights, change)

    def _evaluate(
        self, weights: FittedWeights, facts: Int[np.ndarray, " some"]
    ) -> tuple[Float[np.ndarray, "some units"], Float[np.ndarray, "some dim"]]:
        """Compute hidden units and outputs of some facts, in blocks of one shape."""
        parts = []
        for start in range(0, len(facts), _ROWS):
            block = np.resize(facts[start : start + _ROWS], _ROWS)
            known, target = self.data.known[block], self.data.target[block]
            inputs = self.data._replace(known=known, target=target)
            parts.append([np.asarray(a) for a in _hidden_and_outputs(weights, inputs)])
        if not parts:
            return self.hidden[:0], self.first_outputs[:0]
        hidden, outputs = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return hidden[: len(facts)].astype(np.float64), outputs[: len(facts)].astype(np.float64)


def _second_moments(weights: FittedWeights, data: FitData) -> Float[np.ndarray, "units units"]:
    """Compute Σ_f h_f h_fᵀ."""
    facts, tokens = len(data.known), 3 * weights.key.shape[0] * (1 + weights.value.shape[1])
    known, target = jnp.asarray(data.known), jnp.asarray(data.target)
    widest = max(tokens, weights.mlp_in.shape[0])
    rows = min(facts, max(1, _BLOCK_ENTRIES // widest))
    total = None
    for start in range(0, facts, rows):
        first = min(start, facts - rows)  # the last block overlaps the one before
        inputs = data._replace(known=known[first : first + rows], target=target[:rows])
        moments = _moments(weights, inputs, jnp.int32(start - first))
        total = moments if total is None else total + moments
    return np.asarray(total, np.float64)


@jax.jit
def _moments(weights: FittedWeights, data: FitData, skipped: Int[Array, ""]) -> Array:
    hidden = _features(weights, data)
    hidden = jnp.where(jnp.arange(len(hidden))[:, None] < skipped, 0.0, hidden)
    return hidden.T @ hidden


@jax.jit
def _hidden_and_outputs(weights: FittedWeights, data: FitData) -> tuple[Array, Array]:
    return _features(weights, data), model_outputs(weights, data)


def _features(weights: FittedWeights, data: FitData) -> Float[Array, "facts units"]:
    """Compute what the last matrix is multiplied with."""
    if weights.mlp_out.shape[0] == 0:
        return attended_values(weights, data)
    return hidden_units(weights, attention_outputs(weights, data))


def _with_change(weights: FittedWeights, change: Float[np.ndarray, "units dim"]) -> FittedWeights:
    name = "mlp_out" if weights.mlp_out.shape[0] else "output"
    matrix = np.asarray(getattr(weights, name), np.float64)
    changed = matrix + change.reshape(matrix.shape)
    return weights._replace(**{name: jnp.asarray(changed, jnp.float32)})
