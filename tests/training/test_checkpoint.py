"""Checkpoint files."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.checkpoint import Checkpoint, digest, is_checkpoint
from factmem._core.errors import FactmemError, TensorFileError
from factmem._core.tensor_files import save_tensors

ARRAYS = {"weights": jnp.arange(6.0).reshape(2, 3), "count": jnp.asarray([3], jnp.int32)}
RECORDS = [{"status": None, "evaluations": [[0, 0.1, 0.5], [10, None, 0.0]]}]


def test_loads_what_was_saved(tmp_path):
    file = Checkpoint(tmp_path / "c", "mine")
    assert not file.exists()
    file.save(ARRAYS, RECORDS)
    assert file.exists()
    arrays, records = file.load(ARRAYS)
    assert records == RECORDS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_rejects_another_identity(tmp_path):
    Checkpoint(tmp_path / "c", "mine").save(ARRAYS, RECORDS)
    with pytest.raises(FactmemError, match="c belongs to another training"):
        Checkpoint(tmp_path / "c", "yours").load(ARRAYS)


@pytest.mark.parametrize(
    "arrays",
    [
        {"weights": ARRAYS["weights"]},
        ARRAYS | {"count": jnp.asarray([3, 4], jnp.int32)},
        ARRAYS | {"count": jnp.asarray([3.0])},
    ],
    ids=["missing", "shape", "type"],
)
def test_rejects_other_arrays(tmp_path, arrays):
    Checkpoint(tmp_path / "c", "mine").save(arrays, RECORDS)
    with pytest.raises(TensorFileError, match="damaged"):
        Checkpoint(tmp_path / "c", "mine").load(ARRAYS)


def test_rejects_another_kind_of_file(tmp_path):
    save_tensors(tmp_path / "c", "transformer", {}, {})
    with pytest.raises(TensorFileError, match="must contain 'training'"):
        Checkpoint(tmp_path / "c", "mine").load(ARRAYS)


def test_rejects_saving_nan_and_keeps_the_file(tmp_path):
    file = Checkpoint(tmp_path / "c", "mine")
    file.save(ARRAYS, RECORDS)
    with pytest.raises(TensorFileError, match="NaN"):
        file.save(ARRAYS | {"weights": jnp.full((2, 3), jnp.nan)}, RECORDS)
    assert file.load(ARRAYS)[1] == RECORDS


numbers = st.lists(st.integers(-3, 3), min_size=1, max_size=4)


@given(numbers, numbers)
def test_digests_are_equal_only_for_equal_arrays(one, other):
    left, right = (np.array(x, np.int32) for x in (one, other))
    assert (digest(left) == digest(right)) == (one == other)


def test_digests_depend_on_types_shapes_and_structure():
    array = np.zeros((2, 3), np.float32)
    others = [
        array.view(np.int32),
        array.T,
        array.reshape(6),
        [array],
        (array, array),
        {"a": array},
    ]
    assert len({digest(array), *(digest(other) for other in others)}) == 7
    assert digest(array, "a") != digest(array, "b")


def test_discards_checkpoints_only(tmp_path):
    Checkpoint.discard(tmp_path / "none")
    Checkpoint(tmp_path / "c", "mine").save(ARRAYS, RECORDS)
    Checkpoint.discard(tmp_path / "c")
    assert not list(tmp_path.iterdir())
    (tmp_path / "table.csv").write_text("subject,relation,answer\n")
    with pytest.raises(TensorFileError):
        Checkpoint.discard(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").exists()


def test_recognizes_checkpoints(tmp_path):
    Checkpoint(tmp_path / "c", "mine").save(ARRAYS, RECORDS)
    save_tensors(tmp_path / "model", "transformer", {}, {})
    (tmp_path / "table.csv").write_text("subject,relation,answer\n")
    assert is_checkpoint(tmp_path / "c")
    assert not is_checkpoint(tmp_path / "model")
    assert not is_checkpoint(tmp_path / "table.csv")
