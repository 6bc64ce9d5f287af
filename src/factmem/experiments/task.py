"""One measurement, and what makes two measurements the same."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from factmem._core.canonical_json import canonical_json, to_json_data

__all__ = ["Experiment", "Task"]

_SHAPE_ENTRIES = ("method", "dim", "heads", "head_dim", "width")


@dataclass(frozen=True)
class Experiment:
    """A named, versioned measurement function.

    Args:
        name: the name under which results are stored.
        version: raised by hand whenever the same configuration means something new, so that an
            old result is never taken for a new one.
        function: takes the entries of a configuration as keyword arguments and returns JSON data.
            It must be defined at module level, so that worker processes can import it.
        stored: whether results are written to the store and read from it. A measurement that
            checks the installed code and takes seconds is run again instead.
    """

    name: str
    version: int
    function: Callable[..., Mapping[str, Any]]
    stored: bool = True


@dataclass(frozen=True)
class Task:
    """An experiment with its complete configuration: nothing is left to defaults.

    Args:
        experiment: what is measured.
        config: JSON data by name; contains `seed` if there is randomness.

    Examples:
        >>> square = Experiment("square", 1, lambda side: {"area": side**2})
        >>> Task(square, {"side": 2}).identity == Task(square, {"side": 2}).identity
        True
        >>> Task(square, {"side": 2}).identity == Task(square, {"side": 3}).identity
        False
    """

    experiment: Experiment
    config: Mapping[str, Any]

    @cached_property
    def identity(self) -> str:
        """A hash of the configuration and of the experiment's name and version.

        Versions of libraries and of factmem are not part of it; they are stored with the result.
        """
        content = {
            "experiment": self.experiment.name,
            "version": self.experiment.version,
            "config": self.config,
        }
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    @cached_property
    def compiled_shape(self) -> str:
        """The experiment and the sizes that its compiled programs depend on.

        A worker that has executed a task of the same compiled shape has most programs compiled.
        """
        config = {**self.config, **(self.config.get("padding") or {})}
        sizes = {name: config.get(name) for name in _SHAPE_ENTRIES}
        return canonical_json({"experiment": self.experiment.name, **sizes})

    @property
    def seed(self) -> int | None:
        """The seed, if there is randomness."""
        return to_json_data(self.config.get("seed"))
