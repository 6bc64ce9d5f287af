"""What a report says, apart from how it looks."""

import re
from dataclasses import dataclass

from factmem._core.errors import FactmemError, visible
from factmem.paper.checking import Checked
from factmem.plotting.plot import Plot

__all__ = ["KeyNumber", "Report", "Section"]


@dataclass(frozen=True)
class KeyNumber:
    """An answer in one number.

    Args:
        question: such as `How many?`.
        value: the number with its unit.
        told: what it means, in a sentence.
    """

    question: str
    value: str
    told: str


@dataclass(frozen=True)
class Section:
    """A figure, and what it shows.

    Args:
        plot: the figure.
        told: its result in plain words; a blank line parts paragraphs.
    """

    plot: Plot
    told: str

    @property
    def heading(self) -> str:
        """The figure's title, after its number in the paper where it has one."""
        name, title = self.plot.name, self.plot.title
        if not name[:1].isdigit() or title.startswith("Figure"):
            return title
        return f"Figure {name.replace('-', ', ')}: {title}"

    @property
    def anchor(self) -> str:
        """The figure's name, fit for addresses and for names of files."""
        return "figure-" + (re.sub(r"[^a-z0-9]+", "-", self.plot.name.lower()).strip("-") or "x")

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """Of what is told."""
        return tuple(part.strip() for part in re.split(r"\n\s*\n", self.told) if part.strip())


@dataclass(frozen=True)
class Report:
    """All that a report says.

    Args:
        title: of the page.
        numbers: the answers that matter most.
        run: what was run and on what, as labels and values.
        sections: the figures.
        claims: every claim of the paper that was checked.
    """

    title: str
    numbers: tuple[KeyNumber, ...]
    run: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    claims: tuple[Checked, ...]

    def __post_init__(self) -> None:
        anchors = [section.anchor for section in self.sections]
        twice = next((a for a in anchors if anchors.count(a) > 1), None)
        if twice is not None:
            raise FactmemError(f"two figures of a report would both be '{visible(twice)}'")
