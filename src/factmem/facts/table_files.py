"""Fact tables as safetensors, with unused answers and the order of ids kept."""

import os
from pathlib import Path

from factmem._core.errors import FactmemError, TensorFileError, visible
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts.table import FactTable

__all__ = ["load_table", "save_table"]

_KIND = "fact table"
_NAMES = ("subject_names", "relation_names", "answer_names")


def save_table(table: FactTable, path: str | os.PathLike[str]) -> None:
    """Saves a table exactly: ids, names and answers that no fact uses."""
    config = {name: list(getattr(table, name)) for name in _NAMES}
    save_tensors(path, _KIND, config, {"answer_of": table.answer_of})


def load_table(path: str | os.PathLike[str]) -> FactTable:
    """The table that `save_table` wrote.

    Raises:
        TensorFileError: the file is damaged or is something else.
        OSError: the file cannot be opened.
    """
    config, tensors = load_tensors(path, _KIND)
    try:
        names = {name: tuple(config[name]) for name in _NAMES}
        return FactTable(tensors["answer_of"], **names)
    except (KeyError, TypeError, FactmemError) as error:
        fault = visible(str(error), 200)
        raise TensorFileError(f"{visible(Path(path).name)} holds no fact table: {fault}") from None
