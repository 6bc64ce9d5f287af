"""Exact softmax attention over token counts: one matrix product for a batch of prompts.

The query is always EOS and there are no positions. So the score s_h(z) of a token and its value
V_h φ(z) do not depend on the prompt, and attention depends only on the token counts C(z):

    a_h = Σ_z C(z) w_h(z) v_h(z) / Σ_z C(z) w_h(z),        w_h(z) = exp(s_h(z) − shift_h)

`attend` has two implementations and chooses one for the whole batch:

* The *shared-shift* form uses one shift per head, so numerator and denominator are the product of
  the counts [batch, tokens] with a table [tokens, heads · (head_dim + 1)]. It is fast, but it
  fails in two cases, and detects both: if all tokens of a prompt score far below the head's
  maximum, the denominator underflows; and if attention is concentrated on one token in nearly
  every prompt, the score gradient is a small difference of large sums and is lost to rounding.
* The *per-prompt* form shifts each prompt by its own maximum score and takes values relative to
  the value of its strongest token, head by head. It is several times slower and has neither
  problem.

Both are exact; nothing is clamped. Large vocabularies have faster forms: `prompt_forms.py`.
"""

from functools import partial
from math import log
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

__all__ = ["TRAINING_TOLERANCE", "attend"]

TRAINING_TOLERANCE = 1e-3
"""A relative rounding error in score gradients that does not affect training: sampling a batch of
1024 prompts changes them by several percent. With it the per-prompt form is hardly ever used."""

# The rounding error of a score gradient in units of the last place. Over about 1800 adversarial
# tables and batches of 64 to 1024 prompts, the measured error was always below this estimate.
_TERMS_FACTOR, _PARTS_FACTOR = 4.0, 0.5

Counts = Num[Array, "batch tokens"]
Scores = Float[Array, "tokens heads"]
Values = Float[Array, "tokens heads head_dim"]
Attended = Float[Array, "batch heads head_dim"]

# Accelerators may otherwise round the inputs of a matrix product to fewer bits.
product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def attend(
    counts: Counts, scores: Scores, values: Values, *, tolerance: float | None = None
) -> Attended:
    """Compute the attention output of every head for every prompt.

    Args:
        counts: how often each token occurs in each prompt, as integers or floats. Every prompt
            has at least one token.
        scores: s_h(z), in nats.
        values: V_h φ(z).
        tolerance: largest rounding error of the score gradient, relative to its largest entry,
            before the per-prompt form recomputes it. The default is 1e-5 in float32 and 1e-10 in
            float64. Training uses `TRAINING_TOLERANCE`.

    Returns:
        a_h for every prompt. Reverse-mode derivatives are exact for scores and values; counts are
        not differentiated.

    Under `vmap` both forms run and one is selected, which is correct but slow. Instead, stack runs
    as additional heads, or set the tolerance to infinity and check the score range yourself.
    """
    if tolerance is None:
        tolerance = 1e-5 if scores.dtype == jnp.float32 else 1e-10
    return _attend(tolerance, counts, scores, values)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tolerance: float, counts: Counts, scores: Scores, values: Values) -> Attended:
    return _forward(tolerance, counts, scores, values)[0]


class _Residuals(NamedTuple):
    counts: Counts
    scores: Scores
    values: Values
    attended: Attended
    totals: Float[Array, "batch heads"]
    in_range: Bool[Array, ""]


def _forward(
    tolerance: float, counts: Counts, scores: Scores, values: Values
) -> tuple[Attended, _Residuals]:
    """Compute attention and the residuals for its derivative."""
    del tolerance
    shared, totals = _shared_shift_form(counts, scores, values)
    in_range = jnp.min(totals) > min_total(scores.dtype)
    in_range &= jnp.isfinite(jnp.max(jnp.abs(shared)))
    attended = jax.lax.cond(
        in_range, lambda: shared, lambda: _per_prompt_form(counts, scores, values)
    )
    return attended, _Residuals(counts, scores, values, attended, totals, in_range)


def _backward(
    tolerance: float, residuals: _Residuals, gradient: Attended
) -> tuple[None, Scores, Values]:
    # Scaled to a maximum of 1: small gradients divided by large denominators would underflow.
    scale = jnp.maximum(jnp.max(jnp.abs(gradient)), jnp.finfo(gradient.dtype).tiny)
    gradient = gradient / scale
    *shared, error = _shared_shift_gradient(residuals, gradient)
    trusted = residuals.in_range & (error <= tolerance)
    score_gradient, value_gradient = jax.lax.cond(
        trusted,
        lambda: tuple(shared),
        lambda: _per_prompt_gradient(
            residuals.counts, residuals.scores, residuals.values, gradient
        ),
    )
    return None, scale * score_gradient, scale * value_gradient


_attend.defvjp(_forward, _backward)


# ---- the shared-shift form -----------------------------------------------------------------------


def _shared_shift_form(
    counts: Counts, scores: Scores, values: Values
) -> tuple[Attended, Float[Array, "batch heads"]]:
    """Compute attention and its denominators Σ_z C(z) w(z)."""
    weights = _shared_shift_weights(scores)
    table = jnp.concatenate([weights[:, :, None], weights[:, :, None] * values], axis=2)
    sums = product(counts.astype(scores.dtype), table.reshape(table.shape[0], -1))
    sums = sums.reshape(counts.shape[0], *table.shape[1:])
    totals = sums[:, :, 0]
    return sums[:, :, 1:] / totals[:, :, None], totals


def _shared_shift_gradient(
    residuals: _Residuals, gradient: Attended
) -> tuple[Scores, Values, Float[Array, ""]]:
    """Compute the gradients of scores and values, and the former's relative rounding error.

    Uses d(n/t) = (dn − a·dt)/t; the plain quotient rule would overflow in between.
    """
    weights = _shared_shift_weights(residuals.scores)
    numerator_gradient = gradient / residuals.totals[:, :, None]
    total_gradient = -jnp.sum(numerator_gradient * residuals.attended, axis=2, keepdims=True)
    table = jnp.concatenate([total_gradient, numerator_gradient], axis=2)
    batch = table.shape[0]
    sums = product(residuals.counts.astype(weights.dtype).T, table.reshape(batch, -1))
    sums = sums.reshape(-1, *table.shape[1:])
    terms = jnp.concatenate([sums[:, :, :1], sums[:, :, 1:] * residuals.values], axis=2)
    terms = weights[:, :, None] * terms
    score_gradient = jnp.sum(terms, axis=2)
    value_gradient = weights[:, :, None] * sums[:, :, 1:]
    error = rounding_error(jnp.max(jnp.sum(jnp.abs(terms), axis=2)), residuals.values, gradient)
    tiny = jnp.finfo(score_gradient.dtype).tiny
    relative_error = error / jnp.maximum(jnp.max(jnp.abs(score_gradient)), tiny)
    return score_gradient, value_gradient, relative_error


def _shared_shift_weights(scores: Scores) -> Scores:
    """Compute exp(s − shift) with the shift a fixed distance below the head's maximum score.

    The distance balances the exponent range: gradients divided by large weights must not
    underflow, and neither must small weights.
    """
    return exp_difference(scores, jnp.max(scores, axis=0, keepdims=True) - headroom(scores.dtype))


def exp_difference(
    scores: Float[Array, "*tokens heads"], shift: Float[Array, "*ones heads"]
) -> Float[Array, "*tokens heads"]:
    """Compute exp(s − shift) with the difference as an exact sum of two floats (Knuth's TwoSum).

    Rounding the difference at 100 nats would cost a weight two digits.
    """
    difference = scores - shift
    restored = difference + shift
    lost = (scores - restored) - (shift - (restored - difference))
    return jnp.exp(difference) * (1 + lost)


def headroom(dtype: jnp.dtype) -> float:
    """Return the part of the exponent range, in nats, for weights above 1: 40 in float32."""
    return 0.45 * log(float(jnp.finfo(dtype).max))


def min_total(dtype: jnp.dtype) -> float:
    """Return the smallest denominator whose significant terms do not underflow."""
    info = jnp.finfo(dtype)
    return float(info.tiny) / float(info.eps) ** 1.25


def rounding_error(terms: Float[Array, ""], values: Values, gradient: Attended) -> Float[Array, ""]:
    """Estimate the rounding error of the score gradient from above.

    The gradient is a difference of sums over the batch. Their rounding error is proportional to
    the largest sum of absolute terms (`terms`), and to ‖gradient‖·|v|, the size of the partial
    sums when signs differ.
    """
    eps = jnp.finfo(gradient.dtype).eps
    norms = jnp.sqrt(jnp.sum(gradient**2, axis=(0, 2)))
    parts = jnp.max(norms * jnp.sqrt(jnp.max(jnp.sum(values**2, axis=2), axis=0)))
    return _TERMS_FACTOR * eps * terms + _PARTS_FACTOR * eps * parts


# ---- the per-prompt form -------------------------------------------------------------------------


def _per_prompt_form(counts: Counts, scores: Scores, values: Values) -> Attended:
    def attend_one_head(head: tuple[Array, Array]) -> Array:
        head_scores, head_values = head
        return product(_softmax(counts, head_scores), head_values)

    attended = jax.lax.map(attend_one_head, (scores.T, jnp.swapaxes(values, 0, 1)))
    return jnp.swapaxes(attended, 0, 1)


def _per_prompt_gradient(
    counts: Counts, scores: Scores, values: Values, gradient: Attended
) -> tuple[Scores, Values]:
    def head_gradients(head: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        head_scores, head_values, head_gradient = head
        attention = _softmax(counts, head_scores)
        attention_gradient = product(head_gradient, head_values.T)
        strongest = jnp.argmax(attention, axis=1)[:, None]
        # Exactly 0 for the strongest token, so that no large terms cancel.
        attention_gradient = attention_gradient - jnp.take_along_axis(
            attention_gradient, strongest, axis=1
        )
        mean = jnp.sum(attention * attention_gradient, axis=1, keepdims=True)
        score_gradient = jnp.sum(attention * (attention_gradient - mean), axis=0)
        return score_gradient, product(attention.T, head_gradient)

    heads = (scores.T, jnp.swapaxes(values, 0, 1), jnp.swapaxes(gradient, 0, 1))
    score_gradient, value_gradient = jax.lax.map(head_gradients, heads)
    return score_gradient.T, jnp.swapaxes(value_gradient, 0, 1)


def _softmax(counts: Counts, scores: Float[Array, " tokens"]) -> Float[Array, "batch tokens"]:
    """Compute one head's attention over the tokens of each prompt: C(z) exp(s(z)) / Σ C exp(s)."""
    present = jnp.where(counts > 0, scores[None, :], -jnp.inf)
    weights = jnp.exp(present - jnp.max(present, axis=1, keepdims=True))
    weights = weights * counts.astype(scores.dtype)
    return weights / jnp.sum(weights, axis=1, keepdims=True)
