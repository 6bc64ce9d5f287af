"""Optimizers by name. Importing this package does not load jax.

Each module registers one optimizer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factmem._core.registry import Registry
from factmem.training.protocol import PAPER, Protocol

if TYPE_CHECKING:
    import optax

    from factmem.training.hyperparameters import Hyperparameters

__all__ = ["OPTIMIZERS", "Optimizer", "gradient_transformation", "register_optimizer"]

Builder = Callable[["Hyperparameters"], "optax.GradientTransformation"]


@dataclass(frozen=True)
class Optimizer:
    """A registered optimizer.

    Args:
        name: its name.
        build: maps hyperparameters to an optax transformation of gradients of `Weights` to
            directions, which are multiplied by −rate.
        summary: a few words.
        protocol: the settings that `factmem train --optimizer NAME` starts from; its last learning
            rate is the default one.
    """

    name: str
    build: Builder
    summary: str
    protocol: Protocol


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer", __name__)
"""All optimizers; the paper's first."""


def register_optimizer(
    name: str, *, summary: str, protocol: Protocol = PAPER, order: int | float = 1000
) -> Callable[[Builder], Builder]:
    """Register a function that builds an optimizer from its hyperparameters.

    The hyperparameters are traced arrays. An optimizer must not turn them into Python numbers.

    Args:
        name: its name in protocols and on the command line.
        summary: a few words.
        protocol: the settings that `factmem train --optimizer NAME` starts from.
        order: where it is listed.
    """

    def register(build: Builder) -> Builder:
        OPTIMIZERS.add(name, Optimizer(name, build, summary, protocol), order=order)
        return build

    return register


def gradient_transformation(
    optimizer: str, hyperparameters: "Hyperparameters"
) -> "optax.GradientTransformation":
    """Return what maps gradients of `Weights` to directions, to be multiplied by −rate.

    Raises:
        FactmemError: there is no such optimizer; the message lists the names.
    """
    return OPTIMIZERS[optimizer].build(hyperparameters)
