"""The command line. Importing it loads no jax."""

import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["main", "run"]


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; `factmem.cli.app.main` lists the codes."""
    try:
        from factmem.cli import app
    except KeyboardInterrupt:
        return 130
    return app.main(arguments)


def run() -> None:
    """Run the console script `factmem`."""
    sys.stdout, sys.stderr = _safe_stream(sys.stdout), _safe_stream(sys.stderr)
    _enable_compilation_cache()
    sys.exit(main(sys.argv[1:]))


def _safe_stream(stream: TextIO | None) -> TextIO:
    """Return a stream that is open and escapes characters that its encoding lacks."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _enable_compilation_cache() -> None:
    """Tell jax, through environment variables, to cache compiled programs on disk.

    This is done only in the console script: a library must not change the settings of the process
    that imports it.
    """
    from platformdirs import user_cache_dir

    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", user_cache_dir("factmem") + "/compiled")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
