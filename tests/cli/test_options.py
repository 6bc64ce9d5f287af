"""Checks of options, and what their messages say."""

import pytest
from tests.cli.commands import rejected

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
    with pytest.raises(FactmemError, match=r"' is a directory$"):
        options.check_output_file("--out", str(tmp_path))
    with pytest.raises(FactmemError, match="file' is not a directory"):
        options.check_output_dir("--out", str(tmp_path / "file"))
    options.check_output_file("--out", str(tmp_path / "file"))
    options.check_output_dir("--out", str(tmp_path / "new"))


def test_a_store_needs_an_existing_directory_like_other_files(tmp_path):
    with pytest.raises(FactmemError, match=r"^--store: directory '.*missing' does not exist$"):
        store_path(str(tmp_path / "missing" / "runs.sqlite"))
    assert store_path(str(tmp_path / "runs.sqlite")) == str(tmp_path / "runs.sqlite")


def test_a_store_that_is_a_directory_is_named_with_its_source(monkeypatch, tmp_path):
    with pytest.raises(FactmemError, match=r"^--store: '.*' is a directory$"):
        store_path(str(tmp_path))
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path))
    with pytest.raises(FactmemError, match=r"^FACTMEM_STORE: '.*' is a directory$"):
        store_path(None)
    monkeypatch.delenv("FACTMEM_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "factmem" / "runs.sqlite").mkdir(parents=True)
    with pytest.raises(FactmemError, match=r"^store: '.*runs.sqlite' is a directory$"):
        store_path(None)


@pytest.mark.parametrize("command", [("runs",), ("capacity", "linear", "--dim", 4), ("claims",)])
def test_commands_name_the_variable_of_a_store_that_is_a_directory(monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTMEM_STORE", ".")
    assert rejected(*command) == "factmem: error: FACTMEM_STORE: '.' is a directory\n"


def test_a_table_must_be_a_file(tmp_path):
    message = f"'{tmp_path}' is a directory, expected a CSV file\n"
    assert rejected("facts", tmp_path) == f"factmem: error: {message}"
    for command in (("flow",), ("bounds",), ("construct", "compiled")):
        assert rejected(*command, "--table", tmp_path) == f"factmem: error: --table: {message}"


def test_the_directory_of_the_default_store_is_created(monkeypatch, tmp_path):
    from factmem.experiments import Store

    monkeypatch.delenv("FACTMEM_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store(store_path(None)) as store:
        assert store.path == tmp_path / "data" / "factmem" / "runs.sqlite"
    assert store.path.exists()
