"""The registry of figures and claims.

Every module of this package whose name starts with `figure_`, `theorem_` or `section_` is imported
when the registry is first read, and registers its figures and claims by decorators. So adding one
means adding one file. Other packages may use the decorators too, in a module that they import.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from factmem._core.registry import Order, Registry
from factmem.paper.claim import Claim
from factmem.paper.figure import PaperFigure, Scale

__all__ = [
    "CLAIMS",
    "FIGURES",
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
_LAST = 1000
"""Later than any figure number and section of the paper."""

BuilderT = TypeVar("BuilderT", bound=Callable)

FIGURES: Registry[Callable[[Scale], PaperFigure]] = Registry("figure", "factmem.paper", _PREFIXES)
"""The functions that build figures, in the order of the paper."""
CLAIMS: Registry[Callable[[Sequence[int]], Claim]] = Registry("claim", "factmem.paper", _PREFIXES)
"""The functions that build claims, in the order of the paper."""


def register_figure(name: str, *, order: Order = _LAST) -> Callable[[BuilderT], BuilderT]:
    """Register a function that builds a figure.

    Args:
        name: the figure's name on the command line.
        order: sort key in lists of figures, such as (4, 1) for the left part of Figure 4. Figures
            without one come last, in the order of their registration.

    Returns:
        A decorator for a function of the scale.

    Raises:
        FactmemError: the name is already taken.
    """

    def register(build: BuilderT) -> BuilderT:
        FIGURES.add(name, build, order=order)
        return build

    return register


def register_claim(id: str, *, order: Order = _LAST) -> Callable[[BuilderT], BuilderT]:
    """Register a function that builds a claim.

    Args:
        id: the claim's id.
        order: sort key in lists of claims: the section of the paper, then a position. Claims
            without one come last, in the order of their registration.

    Returns:
        A decorator for a function of a sequence of seeds.

    Raises:
        FactmemError: the id is already taken.
    """

    def register(build: BuilderT) -> BuilderT:
        CLAIMS.add(id, build, order=order)
        return build

    return register


def figure_names() -> tuple[str, ...]:
    """Return the names of all figures, in the order of the paper."""
    return tuple(FIGURES)


def all_figures(scale: Scale = "quick") -> tuple[PaperFigure, ...]:
    """Return all figures at a scale, in the order of the paper."""
    return tuple(get_figure(name, scale) for name in figure_names())


def get_figure(name: str, scale: Scale = "quick") -> PaperFigure:
    """Return a figure by its name.

    Raises:
        FactmemError: there is no such figure; the message lists all names.
    """
    figure = FIGURES[name](scale)
    assert figure.name == name, f"figure '{figure.name}' is registered as '{name}'"
    return figure


def claim_ids() -> tuple[str, ...]:
    """Return the ids of all claims, in the order of the paper."""
    return tuple(CLAIMS)


def all_claims(seed: int = 0) -> tuple[Claim, ...]:
    """Return all claims in the order of the paper, each with three seeds, `seed` the first."""
    return tuple(get_claim(id, seed) for id in claim_ids())


def get_claim(id: str, seed: int = 0) -> Claim:
    """Return a claim by its id, with three seeds, `seed` the first.

    Raises:
        FactmemError: there is no such claim; the message lists all ids.
    """
    claim = CLAIMS[id](range(seed, seed + _SEEDS))
    assert claim.id == id, f"claim '{claim.id}' is registered as '{id}'"
    return claim
