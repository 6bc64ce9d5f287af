"""Registries: methods, optimizers, figures and claims by name, found in a package's modules."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from factmem._core.errors import FactmemError, printable

__all__ = ["Order", "Registry"]

EntryT = TypeVar("EntryT")

Order = int | float | tuple[int | float, ...]
"""A sort key: a number, or several that are compared in turn."""


class Registry(Generic[EntryT], Mapping[str, EntryT]):
    """Entries by name, in a fixed order.

    The modules of the package register their entries when they are imported. They are imported on
    first use, so adding an entry means adding one module. An entry that has a module of its own
    name is looked up without importing the others. Other code may register entries too.

    Args:
        kind: what an entry is, for messages, such as `memory method`.
        package: the package whose modules register entries.
        prefixes: import only modules whose names start with one of these.
    """

    def __init__(self, kind: str, package: str, prefixes: tuple[str, ...] = ("",)) -> None:
        self.kind, self.package, self.prefixes = kind, package, prefixes
        self._entries: dict[str, tuple[tuple[int | float, ...], EntryT]] = {}
        self._loaded = False

    def add(self, name: str, entry: EntryT, *, order: Order = 1000) -> None:
        """Add an entry. A function or class may be added again, as when its module is reloaded.

        Args:
            name: the name of the entry.
            entry: the entry.
            order: where it is listed: smaller first; equal ones in the order of registration.

        Raises:
            FactmemError: the name is already taken.
        """
        if name in self._entries and _origin(self._entries[name][1]) != _origin(entry):
            raise FactmemError(f"{self.kind} '{printable(name)}' is already registered")
        self._entries[name] = (order if isinstance(order, tuple) else (order,), entry)

    def remove(self, name: str) -> None:
        """Remove an entry, for example at the end of a test.

        Raises:
            FactmemError: no entry has this name.
        """
        self[name]
        del self._entries[name]

    def __getitem__(self, name: str) -> EntryT:
        """Return an entry.

        Raises:
            FactmemError: no entry has this name; the message lists all names.
        """
        if name not in self:
            raise FactmemError(
                f"unknown {self.kind} '{printable(str(name))}'; choose from {', '.join(self)}"
            )
        return self._entries[name][1]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or the default if there is none."""
        return self._entries[name][1] if name in self else default

    def __contains__(self, name: object) -> bool:
        if name not in self._entries and not self._loaded:
            self._load_own_module(name)
        if name not in self._entries:
            self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._entries, key=lambda name: self._entries[name][0]))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _modules(self) -> list[str]:
        package = importlib.import_module(self.package)
        names = (module.name for module in pkgutil.iter_modules(package.__path__))
        return [name for name in names if name.startswith(self.prefixes)]

    def _load_own_module(self, name: object) -> None:
        """Import the module that is named after an entry, such as `low_rank` for `low-rank`."""
        for prefix in self.prefixes:
            module = prefix + str(name).replace("-", "_")
            if module.isidentifier() and find_spec(f"{self.package}.{module}") is not None:
                importlib.import_module(f"{self.package}.{module}")

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # modules may use the registry while they are imported
        try:
            for module in self._modules():
                importlib.import_module(f"{self.package}.{module}")
        except BaseException:
            self._loaded = False
            raise


def _origin(entry: Any) -> Any:
    """Return where a function or class is defined; other entries are only equal to themselves."""
    if hasattr(entry, "__qualname__"):
        return entry.__module__, entry.__qualname__
    return id(entry)
