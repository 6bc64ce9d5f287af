"""Checks that several commands make before anything is loaded."""

import os
from pathlib import Path

from factmem._core.errors import FactmemError

__all__ = [
    "check_accuracy",
    "check_length",
    "check_numbers",
    "check_positive",
    "check_seed",
    "check_width",
    "check_writable",
]

_LARGEST_SEED = 2**32 - 1
_MOST_NUMBERS = 2**31
_LONGEST = 2**20


def check_seed(seed: int) -> None:
    """Raises FactmemError unless this can be a seed."""
    if not 0 <= seed <= _LARGEST_SEED:
        raise FactmemError(f"--seed is from 0 to {_LARGEST_SEED}, not {seed}")


def check_accuracy(required: float | None) -> None:
    """Raises FactmemError unless this can be an accuracy, if one is required at all."""
    if required is not None and not 0 <= required <= 1:
        raise FactmemError(f"--require is an accuracy from 0 to 1, not {required}")


def check_positive(**sizes: int | None) -> None:
    """Raises FactmemError if a size that was given is below 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise FactmemError(f"--{name.replace('_', '-')} is at least 1, not {size}")


def check_width(width: int) -> None:
    """Raises FactmemError unless an MLP can have so many neurons; 0 is none at all."""
    if width < 0:
        raise FactmemError(f"--width is at least 0, not {width}")


def check_length(length: int) -> None:
    """Raises FactmemError unless a prompt can have so many tokens."""
    if not 3 <= length <= _LONGEST:
        raise FactmemError(f"--length is from 3 to {_LONGEST}, not {length}")


def check_numbers(rows: int, columns: int) -> None:
    """Raises FactmemError if an array would be too large for its places to be counted."""
    if rows * columns > _MOST_NUMBERS:
        raise FactmemError(
            f"{rows} × {columns} numbers are more than an array here may have, {_MOST_NUMBERS}"
        )


def check_writable(file: str) -> None:
    """Raises FactmemError unless a file of this name can be written; before the work, not after."""
    path = Path(file).absolute()
    if not path.parent.is_dir():
        raise FactmemError(f"there is no folder for '{file}'")
    if not file or path.is_dir():
        raise FactmemError(f"'{file}' is not the name of a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FactmemError(f"'{file}' cannot be written")
