"""The registry of figures and claims.

Every module of this package whose name starts with `figure_`, `theorem_` or `section_` is imported
when the registry is first read, and registers its figures and claims by decorators. So adding one
means adding one file. Other packages may use the decorators too, in a module that they import.
"""

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Generic, TypeVar

from factmem._core.errors import FactmemError, printable
from factmem.paper.claim import Claim
from factmem.paper.figure import PaperFigure, Scale

__all__ = [
    "all_claims",
    "all_figures",
    "claim_ids",
    "figure_names",
    "get_claim",
    "get_figure",
    "register_claim",
    "register_figure",
]

_PREFIXES = ("figure_", "theorem_", "section_")
_SEEDS = 3
_LAST = (float("inf"),)

FigureBuilder = Callable[[Scale], PaperFigure]
ClaimBuilder = Callable[[Sequence[int]], Claim]
BuilderT = TypeVar("BuilderT", bound=Callable)


@dataclass(frozen=True)
class _Entry(Generic[BuilderT]):
    build: BuilderT
    order: tuple[int | float, ...]


_figures: dict[str, _Entry[FigureBuilder]] = {}
_claims: dict[str, _Entry[ClaimBuilder]] = {}


def register_figure(
    name: str, *, order: tuple[int | float, ...] = _LAST
) -> Callable[[BuilderT], BuilderT]:
    """Register a function that builds a figure.

    Args:
        name: the figure's name on the command line.
        order: sort key in lists of figures, such as (4, 1) for the left part of Figure 4. Figures
            without one come last, in the order of their registration.

    Returns:
        A decorator for a function of the scale.

    Raises:
        FactmemError: another function has registered this name.
    """
    return _register(_figures, "figure", name, order)


def register_claim(id: str, *, order: tuple[int | float, ...] = _LAST) -> Callable[[BuilderT], BuilderT]:
    """Register a function that builds a claim.

    Args:
        id: the claim's id.
        order: sort key in lists of claims: the section of the paper, then a position. Claims
            without one come last, in the order of their registration.

    Returns:
        A decorator for a function of a sequence of seeds.

    Raises:
        FactmemError: another function has registered this id.
    """
    return _register(_claims, "claim", id, order)


def figure_names() -> tuple[str, ...]:
    """Return the names of all figures, in the order of the paper."""
    return tuple(_sorted(_figures))


def all_figures(scale: Scale = "quick") -> tuple[PaperFigure, ...]:
    """Return all figures at a scale, in the order of the paper."""
    return tuple(get_figure(name, scale) for name in figure_names())


def get_figure(name: str, scale: Scale = "quick") -> PaperFigure:
    """Return a figure by its name.

    Raises:
        FactmemError: there is no such figure; the message lists all names.
    """
    figure = _get(_figures, "figure", name)(scale)
    assert figure.name == name, f"figure '{figure.name}' is registered as '{name}'"
    return figure


def claim_ids() -> tuple[str, ...]:
    """Return the ids of all claims, in the order of the paper."""
    return tuple(_sorted(_claims))


def all_claims(seed: int = 0) -> tuple[Claim, ...]:
    """Return all claims in the order of the paper, each with three seeds, `seed` the first."""
    return tuple(get_claim(id, seed) for id in claim_ids())


def get_claim(id: str, seed: int = 0) -> Claim:
    """Return a claim by its id, with three seeds, `seed` the first.

    Raises:
        FactmemError: there is no such claim; the message lists all ids.
    """
    claim = _get(_claims, "claim", id)(range(seed, seed + _SEEDS))
    assert claim.id == id, f"claim '{claim.id}' is registered as '{id}'"
    return claim


def _register(
    entries: dict[str, _Entry], kind: str, name: str, order: tuple[int | float, ...]
) -> Callable[[BuilderT], BuilderT]:
    def decorate(build: BuilderT) -> BuilderT:
        # A module that is reloaded registers its functions again.
        if name in entries and _origin(entries[name].build) != _origin(build):
            raise FactmemError(f"{kind} '{printable(name)}' is already registered")
        entries[name] = _Entry(build, order)
        return build

    return decorate


def _origin(build: Callable) -> tuple[str, str]:
    return build.__module__, build.__qualname__


@cache
def _import_modules() -> None:
    import factmem.paper

    for module in pkgutil.iter_modules(factmem.paper.__path__):
        if module.name.startswith(_PREFIXES):
            import_module(f"factmem.paper.{module.name}")


def _sorted(entries: dict[str, _Entry]) -> list[str]:
    _import_modules()
    return sorted(entries, key=lambda name: entries[name].order)


def _get(entries: dict[str, _Entry[BuilderT]], kind: str, name: str) -> BuilderT:
    names = _sorted(entries)
    if name not in entries:
        raise FactmemError(f"no {kind} '{printable(name)}'; available: {', '.join(names)}")
    return entries[name].build
