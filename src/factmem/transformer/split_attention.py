"""Exact softmax attention for large vocabularies: shared tokens by counts, own tokens one by one.

A prompt has a subject and a relation of its own, out of thousands. Its other tokens, noise and EOS,
come from a few that all prompts share. Numerator and denominator of a head are then

    Σ_z C(z) w(z) [v(z), 1]  +  Σ_k w(k) [v(k), 1],        w(z) = exp(s(z) − shift)

where z runs over the shared tokens and k over subject and relation: a matrix product with the
counts of the shared tokens only, plus two terms. The cost does not depend on the numbers of
subjects and relations.

As in `attention.py`, the shared-shift form detects where it would lose precision, and the
per-prompt form replaces it then.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from factmem.transformer.attention import (
    exp_difference,
    headroom,
    min_total,
    product,
    rounding_error,
)

__all__ = ["attend_split"]

Counts = Num[Array, "batch shared"]
OwnScores = Float[Array, "batch own heads"]
OwnValues = Float[Array, "batch own heads head_dim"]
Attended = Float[Array, "batch heads head_dim"]


class _Tables(NamedTuple):
    """What attention is differentiated by: scores in nats, and values."""

    scores: Float[Array, "shared heads"]
    values: Float[Array, "shared heads head_dim"]
    own_scores: OwnScores
    own_values: OwnValues


def attend_split(
    counts: Counts,
    scores: Float[Array, "shared heads"],
    values: Float[Array, "shared heads head_dim"],
    own_scores: OwnScores,
    own_values: OwnValues,
    *,
    tolerance: float | None = None,
) -> Attended:
    """Compute the attention output of every head for every prompt.

    Args:
        counts: how often each shared token occurs in each prompt.
        scores, values: s_h(z) and V_h φ(z) of the shared tokens.
        own_scores, own_values: the same of each prompt's own tokens, which occur once.
        tolerance: see `attend`.

    Returns:
        a_h for every prompt, as `attend` over counts of all tokens. Reverse-mode derivatives are
        exact for scores and values; counts are not differentiated.
    """
    if tolerance is None:
        tolerance = 1e-5 if scores.dtype == jnp.float32 else 1e-10
    return _attend(tolerance, counts, _Tables(scores, values, own_scores, own_values))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(tolerance: float, counts: Counts, tables: _Tables) -> Attended:
    return _forward(tolerance, counts, tables)[0]


class _Residuals(NamedTuple):
    counts: Counts
    tables: _Tables
    attended: Attended
    totals: Float[Array, "batch heads"]
    in_range: Bool[Array, ""]


def _forward(tolerance: float, counts: Counts, tables: _Tables) -> tuple[Attended, _Residuals]:
    """Compute attention and the residuals for its derivative."""
    del tolerance
    attended, totals = _shared_shift_form(counts, tables)
    in_range = jnp.min(totals) > min_total(totals.dtype)
    in_range &= jnp.isfinite(jnp.max(jnp.abs(attended)))
    attended = jax.lax.cond(in_range, lambda: attended, lambda: _per_prompt_form(counts, tables))
    return attended, _Residuals(counts, tables, attended, totals, in_range)


def _backward(tolerance: float, residuals: _Residuals, gradient: Attended) -> tuple[None, _Tables]:
    # Scaled to a maximum of 1: small gradients divided by large denominators would underflow.
    scale = jnp.maximum(jnp.max(jnp.abs(gradient)), jnp.finfo(gradient.dtype).tiny)
    gradient = gradient / scale
    gradients, error = _shared_shift_gradient(residuals, gradient)
    gradients = jax.lax.cond(
        residuals.in_range & (error <= tolerance),
        lambda: gradients,
        lambda: _per_prompt_gradient(residuals.counts, residuals.tables, gradient),
    )
    return None, jax.tree.map(lambda leaf: scale * leaf, gradients)


_attend.defvjp(_forward, _backward)


# ---- the shared-shift form -----------------------------------------------------------------------


def _weights(tables: _Tables) -> tuple[Float[Array, "shared heads"], OwnScores]:
    """Compute exp(s − shift), with one shift per head, near the maximum of all scores."""
    maximum = jnp.maximum(jnp.max(tables.scores, axis=0), jnp.max(tables.own_scores, axis=(0, 1)))
    shift = maximum - headroom(maximum.dtype)
    return (
        exp_difference(tables.scores, shift[None, :]),
        exp_difference(tables.own_scores, shift[None, None, :]),
    )


def _shared_shift_form(
    counts: Counts, tables: _Tables
) -> tuple[Attended, Float[Array, "batch heads"]]:
    """Compute attention and its denominators."""
    weights, own_weights = _weights(tables)
    table = _weigh(weights, tables.values)
    sums = product(counts.astype(weights.dtype), table.reshape(table.shape[0], -1))
    sums = sums.reshape(counts.shape[0], *table.shape[1:])
    sums = sums + jnp.sum(_weigh(own_weights, tables.own_values), axis=1)
    totals = sums[:, :, 0]
    return sums[:, :, 1:] / totals[:, :, None], totals


def _weigh(
    weights: Float[Array, "*tokens heads"], values: Float[Array, "*tokens heads head_dim"]
) -> Float[Array, "*tokens heads 1+head_dim"]:
    """Return w · [1, v] of every token."""
    weights = weights[..., None]
    return jnp.concatenate([weights, weights * values], axis=-1)


def _shared_shift_gradient(
    residuals: _Residuals, gradient: Attended
) -> tuple[_Tables, Float[Array, ""]]:
    """Compute the gradients, and the relative rounding error of those of scores."""
    tables = residuals.tables
    weights, own_weights = _weights(tables)
    numerator_gradient = gradient / residuals.totals[:, :, None]
    total_gradient = -jnp.sum(numerator_gradient * residuals.attended, axis=2, keepdims=True)
    table = jnp.concatenate([total_gradient, numerator_gradient], axis=2)
    batch = table.shape[0]
    sums = product(residuals.counts.astype(weights.dtype).T, table.reshape(batch, -1))
    sums = sums.reshape(-1, *table.shape[1:])
    own_sums = table[:, None]
    terms = _score_terms(weights, sums, tables.values)
    own_terms = _score_terms(own_weights, own_sums, tables.own_values)
    gradients = _Tables(
        scores=jnp.sum(terms, axis=-1),
        values=weights[..., None] * sums[..., 1:],
        own_scores=jnp.sum(own_terms, axis=-1),
        own_values=own_weights[..., None] * own_sums[..., 1:],
    )
    largest = jnp.maximum(*(jnp.max(jnp.sum(jnp.abs(t), axis=-1)) for t in (terms, own_terms)))
    own_values = tables.own_values.reshape(-1, *tables.own_values.shape[2:])
    error = jnp.maximum(
        *(rounding_error(largest, values, gradient) for values in (tables.values, own_values))
    )
    largest_gradient = jnp.maximum(
        *(jnp.max(jnp.abs(g)) for g in (gradients.scores, gradients.own_scores))
    )
    return gradients, error / jnp.maximum(largest_gradient, jnp.finfo(error.dtype).tiny)


def _score_terms(
    weights: Float[Array, "*tokens heads"],
    sums: Float[Array, "*batch heads entries"],
    values: Float[Array, "*tokens heads head_dim"],
) -> Float[Array, "*tokens heads entries"]:
    """Return the terms of the gradients of scores: w · (dt + v · dn)."""
    products = sums[..., 1:] * values
    totals = jnp.broadcast_to(sums[..., :1], (*products.shape[:-1], 1))
    return weights[..., None] * jnp.concatenate([totals, products], axis=-1)


# ---- the per-prompt form -------------------------------------------------------------------------


def _by_head(tables: _Tables) -> tuple[Array, ...]:
    """Move the heads to the front of every table."""
    axes = (1, 1, 2, 2)
    return tuple(jnp.moveaxis(table, axis, 0) for table, axis in zip(tables, axes, strict=True))


def _per_prompt_form(counts: Counts, tables: _Tables) -> Attended:
    def attend_one_head(head: tuple[Array, ...]) -> Array:
        scores, values, own_scores, own_values = head
        attention = _softmax(counts, scores, own_scores)
        own = own_scores.shape[1]
        attended = jnp.einsum("bk,bkd->bd", attention[:, :own], own_values, precision="highest")
        return attended + product(attention[:, own:], values)

    return jnp.moveaxis(jax.lax.map(attend_one_head, _by_head(tables)), 0, 1)


def _per_prompt_gradient(counts: Counts, tables: _Tables, gradient: Attended) -> _Tables:
    def head_gradients(head: tuple[tuple[Array, ...], Array]) -> tuple[Array, ...]:
        (scores, values, own_scores, own_values), head_gradient = head
        own = own_scores.shape[1]
        attention = _softmax(counts, scores, own_scores)
        own_part = jnp.einsum("bd,bkd->bk", head_gradient, own_values, precision="highest")
        parts = jnp.concatenate([own_part, product(head_gradient, values.T)], axis=1)
        strongest = jnp.argmax(attention, axis=1)[:, None]
        # Exactly 0 for the strongest token, so that no large terms cancel.
        parts = parts - jnp.take_along_axis(parts, strongest, axis=1)
        mean = jnp.sum(attention * parts, axis=1, keepdims=True)
        score_gradient = attention * (parts - mean)
        return (
            jnp.sum(score_gradient[:, own:], axis=0),
            product(attention[:, own:].T, head_gradient),
            score_gradient[:, :own],
            attention[:, :own, None] * head_gradient[:, None, :],
        )

    heads = (_by_head(tables), jnp.moveaxis(gradient, 1, 0))
    gradients = jax.lax.map(head_gradients, heads)
    axes = (1, 1, 2, 2)
    return _Tables(
        *(jnp.moveaxis(table, 0, axis) for table, axis in zip(gradients, axes, strict=True))
    )


def _softmax(
    counts: Counts, scores: Float[Array, " shared"], own_scores: Float[Array, "batch own"]
) -> Float[Array, "batch own+shared"]:
    """Compute one head's attention: over each prompt's own tokens, then over the shared ones."""
    present = jnp.where(counts > 0, scores[None, :], -jnp.inf)
    present = jnp.concatenate([own_scores, present], axis=1)
    weights = jnp.exp(present - jnp.max(present, axis=1, keepdims=True))
    own = own_scores.shape[1]
    weights = jnp.concatenate(
        [weights[:, :own], weights[:, own:] * counts.astype(scores.dtype)], axis=1
    )
    return weights / jnp.sum(weights, axis=1, keepdims=True)
