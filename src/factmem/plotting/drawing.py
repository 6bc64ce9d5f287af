"""What all figures share: one style, no global state, files written whole."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import FactmemError, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["STYLE", "check_format", "label_beside", "save_figure"]

STYLE = Path(__file__).with_name("factmem.mplstyle")
_FORMATS = ("png", "pdf", "svg")


def check_format(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for.

    Raises:
        FactmemError: no format of ours.
    """
    found = Path(path).suffix.removeprefix(".").lower()
    if found not in _FORMATS:
        raise FactmemError(
            f"a figure's file ends in .png, .pdf or .svg, not as '{visible(Path(path).name)}' does"
        )
    return found


def label_beside(axes: "Axes", height: float, text: str) -> None:
    """Writes to the right of the axes, at a height of their data: beside curves, not over them."""
    frame = ("axes fraction", "data")
    axes.annotate(text, (1.01, height), xycoords=frame, va="center", color="0.4")


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a figure; a reader finds the old file or the new one, never a part."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=check_format(path))
    write_atomic(path, drawn.getvalue())
