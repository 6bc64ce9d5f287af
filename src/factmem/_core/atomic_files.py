"""Atomic file writes."""

import errno
import os
import secrets
import shutil
from pathlib import Path

__all__ = ["write_atomic"]


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that a reader sees either the old content or the new, never a part of it.

    The bytes go to a temporary file in the same directory, are synced to disk, and the file is
    renamed. Symbolic links are followed and permissions are preserved. Special files (a pipe,
    /dev/null) are written to directly.

    Raises:
        OSError: the file cannot be written; `filename` is the path that was given, or the
            directory if that does not exist.
    """
    name, path = os.fspath(path), Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path, content)
    except OSError as error:
        # A full disk is reported without a file name, and callers do not know the temporary name.
        error.filename, error.filename2 = name, None
        raise


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".factmem-{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
