"""Checks of option values. They run before anything heavy is imported."""

import os
from pathlib import Path

from factmem._core.errors import FactmemError, printable

__all__ = [
    "check_accuracy",
    "check_array_size",
    "check_file_name",
    "check_length",
    "check_output_dir",
    "check_output_file",
    "check_positive",
    "check_seed",
    "check_table_sizes",
    "check_width",
    "flag",
]

_MAX_SEED = 2**32 - 1
_MAX_ARRAY_SIZE = 2**31
_MAX_LENGTH = 2**20


def flag(name: str) -> str:
    """Return the flag of an option, such as `--head-dim` for `head_dim`."""
    return f"--{name.replace('_', '-')}"


def check_seed(seed: int) -> None:
    """Raise FactmemError if this is not a valid seed."""
    if not 0 <= seed <= _MAX_SEED:
        raise FactmemError(f"--seed must be from 0 to {_MAX_SEED}, got {seed}")


def check_accuracy(required: float | None) -> None:
    """Raise FactmemError if the value of `--require` is not an accuracy."""
    if required is not None and not 0 <= required <= 1:
        raise FactmemError(f"--require must be an accuracy from 0 to 1, got {required}")


def check_positive(**sizes: int | None) -> None:
    """Raise FactmemError if a given size is below 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise FactmemError(f"{flag(name)} must be at least 1, got {size}")


def check_width(width: int) -> None:
    """Raise FactmemError if an MLP width is negative; 0 means no MLP."""
    if width < 0:
        raise FactmemError(f"--width must be at least 0, got {width}")


def check_length(length: int) -> None:
    """Raise FactmemError if this is not a valid prompt length."""
    if not 3 <= length <= _MAX_LENGTH:
        raise FactmemError(f"--length must be from 3 to {_MAX_LENGTH}, got {length}")


def check_array_size(rows: int, columns: int) -> None:
    """Raise FactmemError if an array of this size could not be indexed with int32."""
    if rows * columns > _MAX_ARRAY_SIZE:
        raise FactmemError(
            f"an array of {rows} × {columns} is too large: at most {_MAX_ARRAY_SIZE} entries"
        )


def check_table_sizes(
    subjects: int | None, relations: int | None, answers: int | None, table: str | None
) -> None:
    """Raise FactmemError unless either all three sizes or a table is given."""
    sizes = (subjects, relations, answers)
    if table is None and None in sizes:
        raise FactmemError("--subjects, --relations and --answers are required, or --table")
    if table is not None and sizes != (None, None, None):
        raise FactmemError("--table cannot be combined with --subjects, --relations or --answers")
    check_positive(subjects=subjects, relations=relations, answers=answers)


def check_file_name(option: str, file: str) -> None:
    """Raise FactmemError if this cannot be a file, or its directory does not exist.

    Args:
        option: the flag that names the file, such as `--out`.
        file: the path.
    """
    if not file or "\0" in file or Path(file).is_dir():
        raise FactmemError(f"{option}: '{printable(file, 200)}' is not a file name")
    _check_parent(option, Path(file).absolute())


def check_output_file(option: str, file: str) -> None:
    """Raise FactmemError if a file cannot be written.

    This runs before the computation, so that hours of work do not end with an error.

    Args:
        option: the flag that names the file, such as `--out`.
        file: the path.
    """
    check_file_name(option, file)
    path = Path(file).absolute()
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FactmemError(f"{option}: '{printable(file, 200)}' is not writable")


def check_output_dir(option: str, directory: str) -> None:
    """Raise FactmemError if files cannot be written to a directory.

    The directory itself is created later if it does not exist; its parent must exist.
    """
    if not directory or "\0" in directory:
        raise FactmemError(f"{option}: '{printable(directory, 200)}' is not a directory name")
    path = Path(directory)
    if path.exists() and not path.is_dir():
        raise FactmemError(f"{option}: '{printable(directory, 200)}' is not a directory")
    _check_parent(option, path.absolute())
    existing = path if path.exists() else path.absolute().parent
    if not os.access(existing, os.W_OK | os.X_OK):
        raise FactmemError(f"{option}: directory '{printable(str(existing), 200)}' is not writable")


def _check_parent(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise FactmemError(
            f"{option}: directory '{printable(str(path.parent), 200)}' does not exist"
        )
