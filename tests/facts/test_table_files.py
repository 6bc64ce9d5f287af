"""Saving and loading tables, including unused answers."""

import numpy as np
import pytest
from hypothesis import given
from tests.facts.test_table import fact_lists

from factmem._core.errors import TensorFileError
from factmem._core.tensor_files import save_tensors
from factmem.facts import FactTable, load_table, save_table


@given(fact_lists)
def test_safetensors_round_trip(tmp_path_factory, records):
    table = FactTable.from_records(records)
    path = tmp_path_factory.mktemp("tables") / "table.safetensors"
    save_table(table, path)
    assert load_table(path) == table


def test_unused_answers_are_saved(tmp_path):
    table = FactTable.random(2, 3, 50)
    save_table(table, tmp_path / "t")
    assert load_table(tmp_path / "t") == table
    assert load_table(tmp_path / "t").answers == 150


NAMES = {"subject_names": ["s"], "relation_names": ["r"], "answer_names": ["a"]}


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        ({}, {"answer_of": np.zeros((1, 1), np.int32)}),
        (NAMES, {}),
        (NAMES, {"answer_of": np.zeros((2, 1), np.int32)}),
        (NAMES, {"answer_of": np.zeros((1, 1), np.float32)}),
        (NAMES, {"answer_of": np.full((1, 1), 5, np.int32)}),
        (NAMES | {"subject_names": 3}, {"answer_of": np.zeros((1, 1), np.int32)}),
        (NAMES | {"subject_names": [3]}, {"answer_of": np.zeros((1, 1), np.int32)}),
    ],
)
def test_files_without_a_valid_table_are_rejected(tmp_path, config, tensors):
    save_tensors(tmp_path / "t", "fact table", config, tensors)
    with pytest.raises(TensorFileError, match="no valid fact table"):
        load_table(tmp_path / "t")
