"""Ways to build an associative memory, by name. Importing this package does not load jax.

Each module registers one method or a few that belong together.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from factmem._core.errors import ArgumentError
from factmem._core.progress import Report
from factmem._core.registry import Registry
from factmem._core.result import Result, Status

if TYPE_CHECKING:
    from jaxtyping import Array, Key

    from factmem.memories import Associations

__all__ = [
    "MEMORY_METHODS",
    "BuiltMemory",
    "ConstructionStatus",
    "MemoryMethod",
    "build_memory",
    "register_memory_method",
]


class ConstructionStatus(Status):
    """The status of a memory that is constructed and not fitted."""

    CONSTRUCTED = "The weights were constructed in closed form."


@dataclass(frozen=True, kw_only=True)
class BuiltMemory(Result[Any]):
    """A memory built by a registered method.

    Args:
        model: the memory.
        status: how the method ended.
        details: what the method reports, as JSON data.
    """

    status: Status = ConstructionStatus.CONSTRUCTED
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, Any]:
        """The details and the status."""
        return {**self.details, "status": self.status.label}


@dataclass(frozen=True)
class MemoryMethod:
    """A registered way to build a memory.

    Args:
        name: its name.
        build: called as `build(associations, key=key, report=report, **options)`.
        summary: a few words.
        max_steps: the largest number of steps, if known.
    """

    name: str
    build: Callable[..., BuiltMemory]
    summary: str
    max_steps: int | None = None

    @property
    def options(self) -> dict[str, bool]:
        """The options of the method, such as `width`, and whether each is required."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {
            parameter.name: parameter.default is parameter.empty
            for parameter in parameters
            if parameter.name not in ("key", "report")
        }


MEMORY_METHODS: Registry[MemoryMethod] = Registry("method", __name__)
"""All methods, in the order of the paper and then beyond it."""


def register_memory_method(
    name: str, *, summary: str, max_steps: int | None = None, order: int | float = 1000
) -> Callable[[Callable[..., BuiltMemory]], Callable[..., BuiltMemory]]:
    """Register a function as a memory method.

    The function takes the associations and the keyword arguments `key` and `report`. Its other
    keyword arguments are the options of the method; those without a default are required.

    Args:
        name: its name on the command line.
        summary: a few words.
        max_steps: the largest number of steps, if known; the progress bar shows the time left.
        order: where it is listed.
    """

    def register(build: Callable[..., BuiltMemory]) -> Callable[..., BuiltMemory]:
        MEMORY_METHODS.add(name, MemoryMethod(name, build, summary, max_steps), order=order)
        return build

    return register


def build_memory(
    method: str,
    associations: "Associations",
    *,
    key: "Key[Array, '']",
    report: Report | None = None,
    **options: Any,
) -> BuiltMemory:
    """Build a memory that stores associations.

    Args:
        method: a name in `MEMORY_METHODS`.
        associations: what to store.
        key: randomness of the method.
        report: called with the number of steps and the loss (fits) or the accuracy (training).
        options: options of the method, such as `width=1024`.

    Raises:
        FactmemError: the method is unknown, a required option is missing, or the method does not
            have an option.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.memories import Associations
        >>> pairs = Associations.draw(facts=64, dim=64, key=jr.key(0))
        >>> build_memory("hebbian", pairs, key=jr.key(1)).model.score(pairs).accuracy
        1.0
    """
    chosen = MEMORY_METHODS[method]
    for name, required in chosen.options.items():
        if required and name not in options:
            raise ArgumentError(name, f"is required for {method}")
    for name in options:
        if name not in chosen.options:
            raise ArgumentError(name, f"cannot be used with {method}")
    return chosen.build(associations, key=key, report=report, **options)
