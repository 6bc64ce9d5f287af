"""Tell local disks from network disks: SQLite's WAL mode is unsafe on network disks."""

import os
from pathlib import Path

__all__ = ["is_local"]

_LOCAL = (
    *("apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs"),
    *("reiserfs", "tmpfs", "xfs", "zfs"),
)
"""Any other file system (nfs, cifs, lustre, fuse, 9p, …) is treated as a network disk."""
_MOUNTS = Path("/proc/self/mounts")


def is_local(path: str | os.PathLike[str], mounts: Path = _MOUNTS) -> bool:
    """Return whether a file is known to be on a local disk.

    Args:
        path: the file; it need not exist.
        mounts: the mount table. Without one (not Linux) no file is known to be local.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    target = Path(os.path.realpath(path))
    types = {}
    for line in lines:
        _, point, file_system, *_ = line.split(" ")
        types[Path(_unescape(point))] = file_system  # a later mount hides an earlier one
    # The deepest mount point above the file decides.
    for folder in (target, *target.parents):
        if folder in types:
            return types[folder] in _LOCAL
    return False


def _unescape(point: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        point = point.replace(f"\\{code}", character)
    return point
