"""Hyperparameters of training steps, and learning rate schedules.

Only the kinds of optimizer and schedule are compiled in, and whether there is hard noise. Learning
rates, momenta, decay steps and fractions are data, so runs that differ in them share one compiled
program.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem.training.protocol import Schedule

__all__ = ["Hyperparameters", "scheduled_learning_rate"]


class Hyperparameters(eqx.Module):
    """The hyperparameters of steps, for one run or, with a leading axis, for a stack of runs."""

    learning_rate: Float[Array, "*runs"]
    momentum: Float[Array, "*runs"]
    """β1 of Adam, β of Muon."""
    beta2: Float[Array, "*runs"]
    """β2 of Adam."""
    decay_steps: Float[Array, "*runs"]
    """The number of steps after which the schedule has decayed to 0."""
    hard_noise: Float[Array, "*runs"] | None = None
    """The fraction of prompts with hard noise; None compiles steps without any."""


def scheduled_learning_rate(
    hyperparameters: Hyperparameters, schedule: Schedule, step: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the learning rate at a step, counted from 0.

    The `cosine` schedule decays from the full rate at step 0 to 0 at `decay_steps`, and stays 0.
    """
    if schedule == "constant":
        return hyperparameters.learning_rate
    progress = jnp.clip(step / hyperparameters.decay_steps, 0, 1)
    return hyperparameters.learning_rate * (1 + jnp.cos(jnp.pi * progress)) / 2
