"""The content of a report, independent of its layout."""

import re
from dataclasses import dataclass

from factmem._core.errors import FactmemError, printable
from factmem.paper.checking import CheckedClaim
from factmem.plotting.plot import Plot

__all__ = ["KeyNumber", "Report", "Section"]


@dataclass(frozen=True)
class KeyNumber:
    """A main result in one number.

    Args:
        question: the question that it answers, such as `How many?`.
        value: the number with its unit.
        description: its meaning in one sentence.
    """

    question: str
    value: str
    description: str


@dataclass(frozen=True)
class Section:
    """A figure and its explanation.

    Args:
        plot: the figure.
        text: the explanation; blank lines separate paragraphs.
    """

    plot: Plot
    text: str

    @property
    def heading(self) -> str:
        """The title of the figure, with its number in the paper if it has one."""
        name, title = self.plot.name, self.plot.title
        if not name[:1].isdigit() or title.startswith("Figure"):
            return title
        return f"Figure {name.replace('-', ', ')}: {title}"

    @property
    def anchor(self) -> str:
        """The name of the figure in a form that is safe in addresses and file names."""
        return "figure-" + (re.sub(r"[^a-z0-9]+", "-", self.plot.name.lower()).strip("-") or "x")

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the text."""
        return tuple(part.strip() for part in re.split(r"\n\s*\n", self.text) if part.strip())


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Args:
        title: title of the page.
        numbers: the main results.
        run: labels and values that describe the run, such as the machine and the duration.
        sections: the figures.
        claims: the checked claims of the paper.

    Raises:
        FactmemError: if two figures have the same anchor.
    """

    title: str
    numbers: tuple[KeyNumber, ...]
    run: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    claims: tuple[CheckedClaim, ...]

    def __post_init__(self) -> None:
        anchors = [section.anchor for section in self.sections]
        for anchor in anchors:
            if anchors.count(anchor) > 1:
                raise FactmemError(
                    f"figures of a report need different names, got '{printable(anchor)}' twice"
                )
