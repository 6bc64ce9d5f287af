"""Saving and loading tensor files."""

import json
import struct

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from factmem._core.errors import TensorFileError
from factmem._core.tensor_files import load_tensors, save_tensors

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.int32)}


def test_round_trip(tmp_path):
    config = {"name": "é\n<b>", "sizes": [1, 2], "nothing": None}
    save_tensors(tmp_path / "f", "thing", config, TENSORS)
    loaded_config, loaded = load_tensors(tmp_path / "f", "thing")
    assert loaded_config == config
    assert loaded.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_rejected(tmp_path, bad):
    tensors = {"weights": np.array([1.0, bad], np.float32)}
    with pytest.raises(TensorFileError, match="'weights' was not saved"):
        save_tensors(tmp_path / "f", "thing", {}, tensors)
    assert list(tmp_path.iterdir()) == []
    save_file(tensors, tmp_path / "f", {"factmem": json.dumps({"kind": "thing", "config": {}})})
    with pytest.raises(TensorFileError, match="NaN or infinity"):
        load_tensors(tmp_path / "f", "thing")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "not written by factmem"),
        ({"format": "pt"}, "not written by factmem"),
        ({"factmem": "{"}, "damaged header"),
        ({"factmem": "[]"}, "damaged header"),
        ({"factmem": "[" * 100_000}, "damaged header"),
        (
            {"factmem": '{"kind": "other", "config": {}}'},
            "must contain 'thing', but it contains 'other'",
        ),
        ({"factmem": '{"kind": "thing", "config": 3}'}, "must contain 'thing'"),
    ],
)
def test_foreign_files_are_rejected(tmp_path, metadata, message):
    save_file(TENSORS, tmp_path / "f", metadata)
    with pytest.raises(TensorFileError, match=message):
        load_tensors(tmp_path / "f", "thing")


VALID = save(TENSORS, {"factmem": json.dumps({"kind": "thing", "config": {}})})


@given(
    st.one_of(
        st.binary(max_size=200),
        st.integers(0, len(VALID) - 1).map(lambda n: VALID[:n]),
        st.tuples(st.integers(0, len(VALID) - 1), st.integers(1, 255)).map(
            lambda c: VALID[: c[0]] + bytes([VALID[c[0]] ^ c[1]]) + VALID[c[0] + 1 :]
        ),
        st.integers(0, 2**64 - 1).map(lambda n: struct.pack("<Q", n) + VALID[8:]),
    )
)
def test_damaged_files_raise_a_tensor_file_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("files") / "f"
    path.write_bytes(content)
    try:
        config, tensors = load_tensors(path, "thing")
    except TensorFileError as error:
        assert str(error).isprintable()  # noqa: PT017
        return
    # A changed byte in the data or in a name of the header leaves a valid file.
    assert isinstance(config, dict)
    assert all(np.isfinite(array).all() for array in tensors.values())


def test_a_missing_file_raises_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "none", "thing")


def test_bfloat16_is_checked(tmp_path):
    array = np.asarray(jnp.array([1.0, jnp.nan], jnp.bfloat16))
    with pytest.raises(TensorFileError, match="NaN or infinity"):
        save_tensors(tmp_path / "f", "thing", {}, {"a": array})


def test_scalars_keep_their_shape(tmp_path):
    save_tensors(tmp_path / "f", "thing", {}, {"a": np.float32(2)})
    assert load_tensors(tmp_path / "f", "thing")[1]["a"].shape == ()
