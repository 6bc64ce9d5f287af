"""Files are whole, are what they say, and hold finite numbers, or are refused in one sentence."""

import json
import os
import stat
import struct

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import TensorFileError
from factmem._core.tensor_files import load_tensors, save_tensors

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.int32)}


def test_tensors_and_config_come_back(tmp_path):
    config = {"name": "é\n<b>", "sizes": [1, 2], "nothing": None}
    save_tensors(tmp_path / "f", "thing", config, TENSORS)
    found_config, found = load_tensors(tmp_path / "f", "thing")
    assert found_config == config
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_neither_saved_nor_loaded(tmp_path, bad):
    tensors = {"weights": np.array([1.0, bad], np.float32)}
    with pytest.raises(TensorFileError, match="'weights' not saved"):
        save_tensors(tmp_path / "f", "thing", {}, tensors)
    assert list(tmp_path.iterdir()) == []
    save_file(tensors, tmp_path / "f", {"factmem": json.dumps({"kind": "thing", "config": {}})})
    with pytest.raises(TensorFileError, match="NaN or infinite"):
        load_tensors(tmp_path / "f", "thing")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "not written by factmem"),
        ({"format": "pt"}, "not written by factmem"),
        ({"factmem": "{"}, "damaged header"),
        ({"factmem": "[]"}, "damaged header"),
        ({"factmem": "[" * 100_000}, "damaged header"),
        ({"factmem": '{"kind": "other", "config": {}}'}, "holds a other, not a thing"),
        ({"factmem": '{"kind": "thing", "config": 3}'}, "not a thing"),
    ],
)
def test_foreign_files_are_refused(tmp_path, metadata, message):
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
def test_damaged_files_never_crash(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("files") / "f"
    path.write_bytes(content)
    try:
        config, tensors = load_tensors(path, "thing")
    except TensorFileError as error:
        assert str(error).isprintable()  # noqa: PT017
        return
    # A byte of a tensor's data, or of a name in the header, changed: still a whole file.
    assert isinstance(config, dict)
    assert all(np.isfinite(array).all() for array in tensors.values())


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "none", "thing")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_rights_are_kept(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_what_is_no_file_is_written_to_not_replaced():
    write_atomic("/dev/null", b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["é" * 120, "🙂" * 60])
def test_long_names_are_no_obstacle(tmp_path, name):
    write_atomic(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


def test_bfloat16_is_checked_too(tmp_path):
    undefined = np.asarray(jnp.array([1.0, jnp.nan], jnp.bfloat16))
    with pytest.raises(TensorFileError, match="NaN or infinite"):
        save_tensors(tmp_path / "f", "thing", {}, {"a": undefined})


def test_a_single_number_keeps_its_shape(tmp_path):
    save_tensors(tmp_path / "f", "thing", {}, {"a": np.float32(2)})
    assert load_tensors(tmp_path / "f", "thing")[1]["a"].shape == ()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder.*nowhere"):
        write_atomic(tmp_path / "nowhere" / "f", b"new")


def test_a_written_file_is_as_readable_as_any_other(tmp_path):
    write_atomic(tmp_path / "f", b"new")
    (tmp_path / "g").write_bytes(b"new")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "fg"}
    assert len(modes) == 1
