"""Exact softmax attention over token counts: one matrix product for a whole batch of prompts.

The query is always EOS and there are no positions, so the score s_h(z) of a token and its value
V_h φ(z) do not depend on the prompt, and attention depends only on how often each token occurs:

    a_h = Σ_z C(z) w_h(z) v_h(z) / Σ_z C(z) w_h(z),        w_h(z) = exp(s_h(z) − shift_h)

Two forms compute this, and `attend` chooses between them for a whole batch at a time:

* The *shared* form has one shift a head, so numerator and denominator are the product of the
  counts [batch, tokens] with a [tokens, heads · (head_dim + 1)] table. It is fast, and it fails in
  two ways that it can see: a prompt whose tokens all score far below the head's best has a
  denominator that underflows; and where attention has settled on one token in nearly every prompt,
  the gradient of the scores is a small difference of large sums, and rounding drowns it.
* The *own* form shifts every prompt by its own best score and measures values from those of its
  strongest token, head by head. It is several times slower and free of both faults.

Both are exact; nothing is clamped.
"""

from functools import partial
from math import log
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

__all__ = ["TRAINING_TOLERANCE", "attend"]

TRAINING_TOLERANCE = 1e-3
"""The rounding error in score gradients that training does not feel: a batch of 1024 prompts makes
them uncertain by several per cent. With it the slower form is hardly ever needed."""

# What the rounding error of a score gradient comes to, in units of the last place: measured on
# about 1800 tables made to hurt, with batches of 64 to 1024, where it stayed below this sum in all.
_OF_TERMS, _OF_PARTS = 4.0, 0.5

Counts = Num[Array, "batch tokens"]
Scores = Float[Array, "tokens heads"]
Values = Float[Array, "tokens heads head_dim"]
Attended = Float[Array, "batch heads head_dim"]

# Never let an accelerator round the inputs of a product to fewer bits.
_product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def attend(
    counts: Counts, scores: Scores, values: Values, *, tolerance: float | None = None
) -> Attended:
    """What every head reads from every prompt.

    Args:
        counts: how often each token stands in each prompt, as whole or floating-point numbers;
            every prompt holds at least one token.
        scores: s_h(z), in nats.
        values: V_h φ(z).
        tolerance: the rounding error that the gradient of the scores may have, relative to its
            largest entry, before the own form computes it again: 1e-5 in float32 and 1e-10 in
            float64 if left out. Training takes `TRAINING_TOLERANCE`.

    Returns:
        a_h for every prompt. Reverse-mode derivatives are exact for scores and values; counts are
        data.

    Under `vmap` both forms run and one is selected, which is right but slow: stack runs as further
    heads, or choose a tolerance of infinity and watch the range from outside.
    """
    if tolerance is None:
        tolerance = 1e-5 if scores.dtype == jnp.float32 else 1e-10
    return _attend(tolerance, counts, scores, values)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tolerance: float, counts: Counts, scores: Scores, values: Values) -> Attended:
    return _forward(tolerance, counts, scores, values)[0]


class _Saved(NamedTuple):
    counts: Counts
    scores: Scores
    values: Values
    attended: Attended
    totals: Float[Array, "batch heads"]
    in_range: Bool[Array, ""]


def _forward(
    tolerance: float, counts: Counts, scores: Scores, values: Values
) -> tuple[Attended, _Saved]:
    """Attention, and what its derivative needs."""
    del tolerance
    shared, totals = _shared_form(counts, scores, values)
    in_range = jnp.min(totals) > _least_total(scores.dtype)
    in_range &= jnp.isfinite(jnp.max(jnp.abs(shared)))
    attended = jax.lax.cond(in_range, lambda: shared, lambda: _own_form(counts, scores, values))
    return attended, _Saved(counts, scores, values, attended, totals, in_range)


def _backward(tolerance: float, saved: _Saved, gradient: Attended) -> tuple[None, Scores, Values]:
    # Scaled to 1 at the largest: divided by large denominators, small gradients would underflow.
    scale = jnp.maximum(jnp.max(jnp.abs(gradient)), jnp.finfo(gradient.dtype).tiny)
    gradient = gradient / scale
    *shared, error = _shared_gradient(saved, gradient)
    trusted = saved.in_range & (error <= tolerance)
    of_scores, of_values = jax.lax.cond(
        trusted,
        lambda: tuple(shared),
        lambda: _own_gradient(saved.counts, saved.scores, saved.values, gradient),
    )
    return None, scale * of_scores, scale * of_values


_attend.defvjp(_forward, _backward)


# ---- the shared form -----------------------------------------------------------------------------


def _shared_form(
    counts: Counts, scores: Scores, values: Values
) -> tuple[Attended, Float[Array, "batch heads"]]:
    """Attention and its denominators Σ_z C(z) w(z)."""
    weights = _shared_weights(scores)
    table = jnp.concatenate([weights[:, :, None], weights[:, :, None] * values], axis=2)
    sums = _product(counts.astype(scores.dtype), table.reshape(table.shape[0], -1))
    sums = sums.reshape(counts.shape[0], *table.shape[1:])
    totals = sums[:, :, 0]
    return sums[:, :, 1:] / totals[:, :, None], totals


def _shared_gradient(saved: _Saved, gradient: Attended) -> tuple[Scores, Values, Float[Array, ""]]:
    """Derivatives for scores and values, and the relative rounding error of the former.

    By d(n/t) = (dn − a·dt)/t; a plain division would overflow on the way to it.
    """
    weights = _shared_weights(saved.scores)
    scaled = gradient / saved.totals[:, :, None]
    drawn = -jnp.sum(scaled * saved.attended, axis=2, keepdims=True)
    table = jnp.concatenate([drawn, scaled], axis=2)
    batch = table.shape[0]
    sums = _product(saved.counts.astype(weights.dtype).T, table.reshape(batch, -1))
    sums = sums.reshape(-1, *table.shape[1:])
    terms = jnp.concatenate([sums[:, :, :1], sums[:, :, 1:] * saved.values], axis=2)
    terms = weights[:, :, None] * terms
    of_scores = jnp.sum(terms, axis=2)
    of_values = weights[:, :, None] * sums[:, :, 1:]
    error = _rounding_error(jnp.max(jnp.sum(jnp.abs(terms), axis=2)), saved.values, gradient)
    smallest = jnp.finfo(of_scores.dtype).tiny
    return of_scores, of_values, error / jnp.maximum(jnp.max(jnp.abs(of_scores)), smallest)


def _shared_weights(scores: Scores) -> Scores:
    """exp(s − shift) with the shift a fixed way below the head's best score.

    That spends the exponents evenly: weights may not become so large that gradients divided by
    them vanish, nor so small that they vanish themselves. The difference is taken exactly, as a
    sum of two floats (Knuth's TwoSum): rounded at 100 nats, it would cost two digits of a weight.
    """
    shift = jnp.max(scores, axis=0, keepdims=True) - _headroom(scores.dtype)
    difference = scores - shift
    kept = difference + shift
    lost = (scores - kept) - (shift - (kept - difference))
    return jnp.exp(difference) * (1 + lost)


def _headroom(dtype: jnp.dtype) -> float:
    """Nats of the floating-point range that weights above 1 may use: 40 in float32."""
    return 0.45 * log(float(jnp.finfo(dtype).max))


def _least_total(dtype: jnp.dtype) -> float:
    """The smallest denominator in which terms that matter to the last digit do not underflow."""
    info = jnp.finfo(dtype)
    return float(info.tiny) / float(info.eps) ** 1.25


def _rounding_error(
    terms: Float[Array, ""], values: Values, gradient: Attended
) -> Float[Array, ""]:
    """An estimate, on the safe side, of the rounding error in the gradient of the scores.

    The gradient is a difference of sums over the batch. They are rounded in proportion to what
    they come to (`terms`, at the largest), and to ‖gradient‖·|v|, which their parts come to when
    signs differ.
    """
    eps = jnp.finfo(gradient.dtype).eps
    norms = jnp.sqrt(jnp.sum(gradient**2, axis=(0, 2)))
    parts = jnp.max(norms * jnp.sqrt(jnp.max(jnp.sum(values**2, axis=2), axis=0)))
    return _OF_TERMS * eps * terms + _OF_PARTS * eps * parts


# ---- the own form --------------------------------------------------------------------------------


def _own_form(counts: Counts, scores: Scores, values: Values) -> Attended:
    def of_head(head: tuple[Array, Array]) -> Array:
        head_scores, head_values = head
        return _product(_shares(counts, head_scores), head_values)

    attended = jax.lax.map(of_head, (scores.T, jnp.swapaxes(values, 0, 1)))
    return jnp.swapaxes(attended, 0, 1)


def _own_gradient(
    counts: Counts, scores: Scores, values: Values, gradient: Attended
) -> tuple[Scores, Values]:
    def of_head(head: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        head_scores, head_values, head_gradient = head
        share = _shares(counts, head_scores)
        of_share = _product(head_gradient, head_values.T)
        strongest = jnp.argmax(share, axis=1)[:, None]
        # Exactly 0 for the strongest token, so that nothing large is left to cancel.
        of_share = of_share - jnp.take_along_axis(of_share, strongest, axis=1)
        mean = jnp.sum(share * of_share, axis=1, keepdims=True)
        return jnp.sum(share * (of_share - mean), axis=0), _product(share.T, head_gradient)

    heads = (scores.T, jnp.swapaxes(values, 0, 1), jnp.swapaxes(gradient, 0, 1))
    of_scores, of_values = jax.lax.map(of_head, heads)
    return of_scores.T, jnp.swapaxes(of_values, 0, 1)


def _shares(counts: Counts, scores: Float[Array, " tokens"]) -> Float[Array, "batch tokens"]:
    """The softmax of one head over every prompt's tokens: C(z) exp(s(z)) / Σ C exp(s)."""
    present = jnp.where(counts > 0, scores[None, :], -jnp.inf)
    weights = jnp.exp(present - jnp.max(present, axis=1, keepdims=True))
    weights = weights * counts.astype(scores.dtype)
    return weights / jnp.sum(weights, axis=1, keepdims=True)
