"""Hyperparameters of optimizers, and learning rate schedules.

Only the kinds of optimizer and schedule are compiled in. Learning rates, momenta and decay steps
are data, so runs that differ in them share one compiled program.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem.training.protocol import Schedule

__all__ = ["Hyperparameters", "scheduled_learning_rate"]


class Hyperparameters(eqx.Module):
    """An optimizer's hyperparameters, for one run or, with a leading axis, for a stack of runs."""

    learning_rate: Float[Array, "*runs"]
    momentum: Float[Array, "*runs"]
    """β1 of Adam, β of Muon."""
    beta2: Float[Array, "*runs"]
    """β2 of Adam."""
    decay_steps: Float[Array, "*runs"]
    """The number of steps after which the schedule has decayed to 0."""


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
