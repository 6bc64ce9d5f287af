"""Adam, the optimizer of the paper."""

from typing import Any

from factmem.training.optimizers import register_optimizer
from factmem.training.protocol import PAPER

__all__ = ["adam"]


@register_optimizer("adam", summary="Adam, as in the paper", protocol=PAPER, order=1)
def adam(hyperparameters: Any) -> Any:
    """Build Adam for all weights."""
    import optax

    return optax.scale_by_adam(b1=hyperparameters.momentum, b2=hyperparameters.beta2)
