"""The files of a figure: PDF and PNG, the numbers as CSV, the caption as text."""

import os
from pathlib import Path

from factmem._core.atomic_files import write_atomic
from factmem.plotting.drawing import save_figure
from factmem.plotting.matplotlib_backend import printed
from factmem.plotting.plot import Plot

__all__ = ["write_figure"]


def write_figure(plot: Plot, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes a figure's files, each whole or not at all, and gives their paths."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = {kind: place / f"figure-{plot.name}.{kind}" for kind in ("pdf", "png", "csv", "txt")}
    drawn = printed(plot)
    for kind in ("pdf", "png"):
        save_figure(drawn, paths[kind])
    write_atomic(paths["csv"], plot.data.csv.encode())
    write_atomic(paths["txt"], f"{plot.title}. {plot.caption}\n".encode())
    return list(paths.values())
