"""Writing figures to files."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import FactmemError, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_format", "save_figure"]

_FORMATS = ("png", "pdf", "svg")


def check_format(path: str | os.PathLike[str]) -> str:
    """Return the image format that a file name asks for.

    Raises:
        FactmemError: if the name does not end in .png, .pdf or .svg.
    """
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in _FORMATS:
        name = printable(Path(path).name)
        raise FactmemError(f"the name of a figure must end in .png, .pdf or .svg, got '{name}'")
    return suffix


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure to a file atomically, in the format of its name.

    Raises:
        FactmemError: if the name does not end in .png, .pdf or .svg.
    """
    image = io.BytesIO()
    figure.savefig(image, format=check_format(path))
    write_atomic(path, image.getvalue())
