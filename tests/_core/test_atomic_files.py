"""Atomic file writes."""

import errno
import os
import stat

import pytest

from factmem._core.atomic_files import write_atomic


def raise_disk_full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_is_reported_with_the_file_name(tmp_path, monkeypatch, function):
    path = tmp_path / "model.safetensors"
    monkeypatch.setattr(os, function, raise_disk_full)
    with pytest.raises(OSError, match=r"No space left on device.*model\.safetensors") as error:
        write_atomic(path, b"new")
    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_reported_with_its_name():
    with pytest.raises(OSError, match="'/dev/full'"):
        write_atomic("/dev/full", b"new")


def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_follows_links_and_keeps_permissions(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_special_files_are_not_replaced():
    write_atomic("/dev/null", b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["é" * 120, "🙂" * 60])
def test_long_file_names(tmp_path, name):
    write_atomic(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such directory.*nowhere"):
        write_atomic(tmp_path / "nowhere" / "f", b"new")


def test_new_files_have_default_permissions(tmp_path):
    write_atomic(tmp_path / "f", b"new")
    (tmp_path / "g").write_bytes(b"new")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "fg"}
    assert len(modes) == 1
