"""Losses of margins: the squared hinge, the smooth hinge and the gentle hinge.

    squared hinge   Σ_x Σ_{y ≠ f*(x)} max(0, 1 − γ_xy)²,         γ_xy = (u_f*(x) − u_y)·F(e_x)
    smooth hinge    Σ_x s_x²,   s_x = softplus(1 + log Σ_{y ≠ f*(x)} exp(−γ_xy))
    gentle hinge    Σ_x log(1 + c s_x²)/c

The squared hinge is zero exactly where every margin is at least 1, and its slacks at a non-zero
minimum of a convex problem are a proof that no better weights exist (`memories/maximal.py`). The
smooth hinge has one slack a key, from a smooth maximum over its competitors, so that a key with
many close competitors counts once. Past what weights can hold both spread their slack over all
keys; the gentle hinge lets the hardest go.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from factmem.memories.decoding import loss_of_each

__all__ = ["gentle_hinge", "smooth_hinge", "squared_hinge"]


def squared_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, ""]:
    """Σ_x Σ_{y ≠ f*(x)} max(0, 1 − γ_xy)²: zero exactly where every margin is at least 1."""
    return jnp.sum(loss_of_each(_squared_slacks_of_one, outputs, values, target))


def smooth_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, ""]:
    """Σ_x s_x² with the smooth slacks s_x: one term a key, convex in the outputs."""
    return jnp.sum(loss_of_each(_smooth_slack_of_one, outputs, values, target) ** 2)


def gentle_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
    gentleness: Float[Array, ""],
) -> Float[Array, ""]:
    """Σ_x log(1 + c s_x²)/c: the smooth hinge for c → 0, and for large c nearly a count of errors.

    Args:
        outputs, values, target: F(e_x), u_y and f*(x).
        gentleness: c > 0.
    """
    slacks = loss_of_each(_smooth_slack_of_one, outputs, values, target)
    return jnp.sum(jnp.log1p(gentleness * slacks**2)) / gentleness


def _squared_slacks_of_one(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    slacks = jnp.maximum(0.0, 1.0 + gaps)
    return jnp.sum(slacks**2), 2.0 * slacks


def _smooth_slack_of_one(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    if gaps.shape[0] == 1:  # no competitor, no slack
        return jnp.sum(jnp.zeros_like(gaps)), jnp.zeros_like(gaps)
    largest = jnp.max(gaps)
    weights = jnp.exp(gaps - largest)
    total = jnp.sum(weights)
    excess = 1.0 + largest + jnp.log(total)
    return jax.nn.softplus(excess), weights * (jax.nn.sigmoid(excess) / total)
