"""What kind of disk a file is on: SQLite's fast way to write is unsafe on network disks."""

import os
from pathlib import Path

__all__ = ["is_local"]

_LOCAL = (
    *("apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs"),
    *("reiserfs", "tmpfs", "xfs", "zfs"),
)
"""What is not listed here (nfs, cifs, lustre, fuse, 9p, …) is taken for a network disk."""
_MOUNTS = Path("/proc/self/mounts")


def is_local(path: str | os.PathLike[str], mounts: Path = _MOUNTS) -> bool:
    """Whether a file is known to be on a disk of this machine.

    Args:
        path: of the file; it need not exist.
        mounts: the table of mounted disks. Without one (not Linux) nothing is known to be local.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    place = Path(os.path.realpath(path))
    kinds = {}
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        kinds[Path(_unescaped(point))] = kind  # what is mounted last covers what was there
    # The deepest one that holds the file.
    for folder in (place, *place.parents):
        if folder in kinds:
            return kinds[folder] in _LOCAL
    return False


def _unescaped(point: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        point = point.replace(f"\\{code}", character)
    return point
