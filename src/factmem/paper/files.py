"""The files of a figure: PDF, PNG, the data as CSV and the caption as text."""

import os
from pathlib import Path

from factmem._core.atomic_files import write_atomic
from factmem.plotting.matplotlib_backend import draw_matplotlib
from factmem.plotting.plot import Plot
from factmem.plotting.save import save_figure

__all__ = ["write_figure"]


def write_figure(plot: Plot, directory: str | os.PathLike[str]) -> list[Path]:
    """Write the files of a figure, each atomically, and return their paths."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = {
        kind: directory / f"figure-{plot.name}.{kind}" for kind in ("pdf", "png", "csv", "txt")
    }
    figure = draw_matplotlib(plot)
    for kind in ("pdf", "png"):
        save_figure(figure, paths[kind])
    write_atomic(paths["csv"], plot.data.csv.encode())
    write_atomic(paths["txt"], f"{plot.title}. {plot.caption}\n".encode())
    return list(paths.values())
