"""Files that a reader finds whole or not at all."""

import errno
import os
import secrets
import shutil
from pathlib import Path

__all__ = ["write_atomic"]


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file so that a reader finds the old content or the new one, never a part.

    The bytes go to a temporary name in the same folder, reach the disk, and are renamed. A link is
    followed, a file keeps its rights, and what is no file (a pipe, /dev/null) is written to.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
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
