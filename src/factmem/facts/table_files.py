"""Fact tables as safetensors files, with unused answers and the order of ids."""

import os
from pathlib import Path

from factmem._core.errors import FactmemError, TensorFileError, printable
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts.table import FactTable

__all__ = ["load_table", "save_table"]

_KIND = "fact table"
_NAMES = ("subject_names", "relation_names", "answer_names")


def save_table(table: FactTable, path: str | os.PathLike[str]) -> None:
    """Save a table exactly, with ids, names and answers that no fact uses."""
    config = {name: list(getattr(table, name)) for name in _NAMES}
    save_tensors(path, _KIND, config, {"answer_of": table.answer_of})


def load_table(path: str | os.PathLike[str]) -> FactTable:
    """Load a table that `save_table` wrote.

    Raises:
        TensorFileError: the file is damaged or contains something else.
        OSError: the file cannot be opened.
    """
    config, tensors = load_tensors(path, _KIND)
    try:
        names = {name: tuple(config[name]) for name in _NAMES}
        return FactTable(tensors["answer_of"], **names)
    except (KeyError, TypeError, FactmemError) as error:
        reason = printable(str(error), 200)
        raise TensorFileError(
            f"{printable(Path(path).name)} contains no valid fact table: {reason}"
        ) from None
