"""What is measured, and what makes two measurements the same."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from factmem._core.canonical_json import canonical, plain

__all__ = ["Experiment", "Task"]


_SHAPE = ("method", "dim", "heads", "head_dim", "width")


@dataclass(frozen=True)
class Experiment:
    """A way to measure something, under a name that lasts.

    Args:
        name: what stored results are filed under.
        version: raised by hand whenever the same configuration means something new, so that an
            old result is never taken for a new one.
        function: takes a configuration's entries by name and gives JSON data. It stands in a
            module, so that other processes can find it.
        kept: whether results are kept and read again. What checks the code that is here, and
            takes seconds, is measured anew instead.
    """

    name: str
    version: int
    function: Callable[..., Mapping[str, Any]]
    kept: bool = True


@dataclass(frozen=True)
class Task:
    """One measurement: a measure and its whole configuration, nothing left to defaults.

    Args:
        measure: what is measured.
        config: JSON data by name; `seed` is among them where there is randomness.

    Examples:
        >>> square = Experiment("square", 1, lambda side: {"area": side**2})
        >>> Task(square, {"side": 2}).identity == Task(square, {"side": 2}).identity
        True
        >>> Task(square, {"side": 2}).identity == Task(square, {"side": 3}).identity
        False
    """

    measure: Experiment
    config: Mapping[str, Any]

    @cached_property
    def identity(self) -> str:
        """A fingerprint of the configuration, the measure's name and its version.

        Versions of libraries and of factmem are not part of it: they are recorded beside a result.
        """
        whole = {
            "measure": self.experiment.name,
            "version": self.experiment.version,
            "config": self.config,
        }
        return hashlib.sha256(canonical(whole).encode()).hexdigest()

    @cached_property
    def shape(self) -> str:
        """What is compiled for it, as far as its configuration says: the measure and the sizes of
        what is trained. A worker that has done one such task has most of the next one compiled."""
        config = {**self.config, **(self.config.get("room") or {})}
        sizes = {name: config.get(name) for name in _SHAPE}
        return canonical({"measure": self.experiment.name, **sizes})

    @property
    def seed(self) -> int | None:
        """Of its randomness, if it has any."""
        return plain(self.config.get("seed"))
