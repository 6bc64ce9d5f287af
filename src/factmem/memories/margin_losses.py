"""Losses of margins: the squared hinge, the smooth hinge and the robust hinge.

    squared hinge   Σ_x Σ_{y ≠ f*(x)} max(0, 1 − γ_xy)²,         γ_xy = (u_f*(x) − u_y)·F(e_x)
    smooth hinge    Σ_x s_x²,   s_x = softplus(1 + log Σ_{y ≠ f*(x)} exp(−γ_xy))
    robust hinge    Σ_x log(1 + c s_x²)/c

The squared hinge is zero if and only if every margin is at least 1. At a non-zero minimum of a
convex problem its slacks prove that no weights do better (`optimal_linear.py`). The smooth hinge
has one slack per key, from a smooth maximum over the competitors, so a key with many close
competitors counts once. Above the capacity, both spread their slack over all keys; the robust hinge
gives up the hardest keys instead.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from factmem.memories.decoding import per_key_losses

__all__ = ["robust_hinge", "smooth_hinge", "squared_hinge"]


def squared_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, ""]:
    """Compute Σ_x Σ_{y ≠ f*(x)} max(0, 1 − γ_xy)²."""
    return jnp.sum(per_key_losses(_squared_slacks, outputs, values, target))


def smooth_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, ""]:
    """Compute Σ_x s_x² with the smooth slacks s_x, which is convex in the outputs."""
    return jnp.sum(per_key_losses(_smooth_slack, outputs, values, target) ** 2)


def robust_hinge(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
    robustness: Float[Array, ""],
) -> Float[Array, ""]:
    """Compute Σ_x log(1 + c s_x²)/c.

    This is the smooth hinge for c → 0, and nearly proportional to the number of errors for large c.

    Args:
        outputs, values, target: F(e_x), u_y and f*(x).
        robustness: c > 0.
    """
    slacks = per_key_losses(_smooth_slack, outputs, values, target)
    return jnp.sum(jnp.log1p(robustness * slacks**2)) / robustness


def _squared_slacks(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    slacks = jnp.maximum(0.0, 1.0 + gaps)
    return jnp.sum(slacks**2), 2.0 * slacks


def _smooth_slack(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    if gaps.shape[0] == 1:  # no competitor, no slack
        return jnp.sum(jnp.zeros_like(gaps)), jnp.zeros_like(gaps)
    largest = jnp.max(gaps)
    weights = jnp.exp(gaps - largest)
    total = jnp.sum(weights)
    excess = 1.0 + largest + jnp.log(total)
    return jax.nn.softplus(excess), weights * (jax.nn.sigmoid(excess) / total)
