"""Checks of options, and what their messages say."""

import pytest

from factmem._core.errors import FactmemError
from factmem.cli import options
from factmem.cli.options import store_path


def test_messages_name_the_flag_the_value_and_the_limit():
    with pytest.raises(FactmemError, match=r"^--head-dim must be at least 1, got 0$"):
        options.check_positive(head_dim=0)
    with pytest.raises(FactmemError, match=r"^--width must be at least 0, got -1$"):
        options.check_width(-1)
    with pytest.raises(FactmemError, match=r"^--require must be an accuracy from 0 to 1, got nan$"):
        options.check_accuracy(float("nan"))
    options.check_positive(dim=1, heads=None)
    options.check_width(0)
    options.check_accuracy(None)


@pytest.mark.parametrize("check", [options.check_output_file, options.check_output_dir])
@pytest.mark.parametrize("path", ["", "nul\0inside", "missing/below/it"])
def test_output_paths_must_be_usable(monkeypatch, tmp_path, check, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FactmemError, match=r"^--out: "):
        check("--out", path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_not_an_output_file_and_a_file_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FactmemError, match="is not a file name"):
        options.check_output_file("--out", str(tmp_path))
    with pytest.raises(FactmemError, match="file' is not a directory"):
        options.check_output_dir("--out", str(tmp_path / "file"))
    options.check_output_file("--out", str(tmp_path / "file"))
    options.check_output_dir("--out", str(tmp_path / "new"))


def test_a_store_needs_an_existing_directory_like_other_files(tmp_path):
    with pytest.raises(FactmemError, match=r"^--store: directory '.*missing' does not exist$"):
        store_path(str(tmp_path / "missing" / "runs.sqlite"))
    assert store_path(str(tmp_path / "runs.sqlite")) == str(tmp_path / "runs.sqlite")


def test_the_directory_of_the_default_store_is_created(monkeypatch, tmp_path):
    from factmem.experiments import Store

    monkeypatch.delenv("FACTMEM_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store(store_path(None)) as store:
        assert store.path == tmp_path / "data" / "factmem" / "runs.sqlite"
    assert store.path.exists()
