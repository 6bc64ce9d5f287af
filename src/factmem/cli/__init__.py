"""The command line: a thin shell over the package. Importing it loads no jax."""

import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["main", "run"]


def main(arguments: Sequence[str]) -> int:
    """IndependentTasks one command line and gives its exit code; `factmem.cli.app` says which there are."""
    try:
        from factmem.cli import app
    except KeyboardInterrupt:
        return 130
    return app.main(arguments)


def run() -> None:
    """The console script."""
    sys.stdout, sys.stderr = _usable(sys.stdout), _usable(sys.stderr)
    _keep_compiled_programs()
    sys.exit(main(sys.argv[1:]))


def _usable(stream: TextIO | None) -> TextIO:
    """A stream that takes any text: none is closed, and what its encoding lacks is escaped."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _keep_compiled_programs() -> None:
    """Asks jax, through its environment, to keep what it compiles for the next command.

    Only here: a library does not decide this for the process that it is used in.
    """
    from platformdirs import user_cache_dir

    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", user_cache_dir("factmem") + "/compiled")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
