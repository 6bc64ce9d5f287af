"""The command line: a thin shell over the package. Importing it loads no jax."""

import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["main", "run"]


def main(arguments: Sequence[str]) -> int:
    """Runs one command line and gives its exit code; `factmem.cli.app` says which there are."""
    try:
        from factmem.cli import app
    except KeyboardInterrupt:
        return 130
    return app.main(arguments)


def run() -> None:
    """The console script."""
    sys.stdout, sys.stderr = _usable(sys.stdout), _usable(sys.stderr)
    sys.exit(main(sys.argv[1:]))


def _usable(stream: TextIO | None) -> TextIO:
    """A stream that takes any text: none is closed, and what its encoding lacks is escaped."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
