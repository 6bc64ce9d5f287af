"""A store has every run that was written, and rejects files that are not intact stores."""

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError, StoreError
from factmem.experiments import Experiment, Record, Store, Task, default_store, execute
from factmem.experiments import store as store_module


def double(*, number, seed):
    return {"doubled": 2 * number}


def record(number=1, seed=0):
    task = Task(Experiment("double", 1, double), {"number": number, "seed": seed})
    return execute(task)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.sqlite"


def failed(run):
    return replace(run, metrics=None, error="it broke")


def test_a_stored_record_is_read_unchanged(path):
    written = record(number=0.1)
    with Store(path) as store:
        assert store.get(written.identity) is None
        assert store.put(written) == written
    with Store(path) as store:
        read = store.get(written.identity)
    assert read == written
    assert read.metrics == {"doubled": 0.2}
    assert (read.seed, read.threads, read.version) == (0, written.threads, 1)
    assert read.versions["jax"]
    assert read.from_store
    assert not written.from_store


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("store") / "runs.sqlite") as store:
        yield store


@given(metrics=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_stored_exactly(shared_store, metrics):
    shared_store.put(replace(record(), metrics=metrics), replace=True)
    assert shared_store.get(record().identity).metrics == metrics


def test_a_successful_run_stays_unless_replace_is_set(path):
    first, later = record(), replace(record(), metrics={"doubled": 3})
    with Store(path) as store:
        store.put(first)
        assert store.put(later) == first
        assert store.put(failed(later)) == first
        assert store.put(later, replace=True) == later
        assert store.get(first.identity) == later
        assert len(store.records()) == 1


def test_a_failed_run_is_replaced(path):
    with Store(path) as store:
        store.put(failed(record()))
        assert store.get(record().identity).error == "it broke"
        again = record()
        assert store.put(again) == again


def test_records_are_filtered(path):
    runs = [record(number, seed) for number in (1, 2.5) for seed in (0, 1)]
    with Store(path) as store:
        for run in runs:
            store.put(run)
        store.put(failed(record(9)))
        assert [match.identity for match in store.records()][:4] == [run.identity for run in runs]
        assert store.records(seed=1) == [runs[1], runs[3]]
        assert store.records(config={"number": 2.5}) == runs[2:]
        assert store.records(config={"number": 1.0, "seed": 1}) == [runs[1]]
        assert store.records(config={"none": None}) == []
        assert store.records(experiment="double", failed=False) == runs
        assert store.records(experiment="triple") == []
        assert [match.error for match in store.records(failed=True)] == ["it broke"]


def test_a_run_is_named_by_the_start_of_its_identity(path):
    with Store(path) as store:
        runs = [store.put(record(number)) for number in range(20)]
        assert store.named(runs[3].identity[:12]) == runs[3]
        assert store.named(runs[3].identity) == runs[3]
        with pytest.raises(FactmemError, match="several runs have IDs starting with"):
            store.named("")
        for odd in ("%", "_", runs[3].identity + "0", "x' OR 1=1 --", "\x1b", "\udcff"):
            with pytest.raises(FactmemError, match="no run has an ID starting with"):
                store.named(odd)
        # Twenty runs, sixteen digits: two start with the same digit.
        starts = [run.identity[0] for run in runs]
        with pytest.raises(FactmemError, match="several runs have IDs starting with"):
            store.named(max(starts, key=starts.count))


# ---- concurrent access --------------------------------------------------------------------------

WRITER = """
import sys
from tests.experiments.test_store import write
write(*sys.argv[1:])
"""


def write(path, first, count, threads=4):
    """Store runs number first, first + 1, … from several threads that share a store."""
    numbers = range(int(first), int(first) + int(count))
    with Store(path) as store, ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(lambda number: store.put(record(number)), numbers))


def writer(path, first, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first), str(count)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sixteen_threads_and_four_processes_lose_no_run(path):
    writers = [writer(path, 1000 * index, 50) for index in range(4)]
    barrier, errors = threading.Barrier(16), []

    def write_runs(index):
        try:
            barrier.wait()
            with Store(path) as store:  # each thread has its own connection
                for number in range(25):
                    store.put(record(10_000 + 100 * index + number))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write_runs, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in writers:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert not errors
    expected = {1000 * p + n for p in range(4) for n in range(50)}
    expected |= {10_000 + 100 * p + n for p in range(16) for n in range(25)}
    with Store(path) as store:
        runs = store.records()
    assert len(runs) == len(expected) == 600
    assert {run.config["number"] for run in runs} == expected
    assert all(run.metrics == {"doubled": 2 * run.config["number"]} for run in runs)


def test_sixteen_threads_create_one_store_at_once(path):
    barrier = threading.Barrier(16)

    def open_store(_):
        barrier.wait()
        with Store(path) as store:
            return store.records()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(open_store, range(16))) == [[]] * 16


def test_a_reader_sees_every_run_while_another_writes(path):
    with Store(path) as writing, Store(path, read_only=True) as reading:
        for number in range(5):
            writing.put(record(number))
            assert len(reading.records()) == number + 1


# ---- files that are rejected --------------------------------------------------------------------


def rejection(path, *, unchanged=True, **options) -> str:
    """Return the message with which a file is rejected, and check that the file is unchanged."""
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreError) as caught:
        Store(path, **options)
    if unchanged and before is not None:
        assert path.read_bytes() == before
    return str(caught.value)


def fill(path, count=3):
    with Store(path) as store:
        for number in range(count):
            store.put(record(number))


def test_the_journal_mode_depends_on_the_disk(path, monkeypatch):
    for local, mode in ((True, "wal"), (False, "delete")):
        monkeypatch.setattr(store_module, "is_local", lambda path, local=local: local)
        file = path.with_name(mode)
        fill(file)
        assert sqlite3.connect(file).execute("PRAGMA journal_mode").fetchone() == (mode,)
        with Store(file) as store:
            assert len(store.records()) == 3


def test_a_store_that_was_moved_to_a_network_disk_changes_its_journal_mode(path, monkeypatch):
    fill(path)
    monkeypatch.setattr(store_module, "is_local", lambda path: False)
    fill(path, 4)
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Store(path) as store:
        assert len(store.records()) == 4


def test_writes_are_synchronous(path):
    with Store(path) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_rejects_another_schema_version(path):
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    message = rejection(path)
    assert "has schema version 7, expected 1" in message
    assert "has schema version 7" in rejection(path, read_only=True)


def test_rejects_a_database_of_another_program(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    assert "is not a factmem store" in rejection(path)
    assert "is not a factmem store" in rejection(path, read_only=True)


def test_rejects_an_empty_database_of_another_program(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 12345")
    connection.execute("VACUUM")
    connection.close()
    assert "is not a factmem store" in rejection(path)


@pytest.mark.parametrize("content", [b"x" * 5000, b"subject,relation,answer\n", b"SQLite format 3"])
def test_rejects_a_file_that_is_not_a_database(path, content):
    path.write_bytes(content)
    assert "is not a factmem store or is damaged" in rejection(path)


def test_rejects_a_damaged_store(path):
    fill(path, 200)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 4096))
    assert "damaged" in rejection(path)
    path.write_bytes(content[: len(content) // 2])
    assert "damaged" in rejection(path)


def test_rejects_a_damaged_row(path):
    fill(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET metrics = '{'")
    connection.close()
    with Store(path) as store, pytest.raises(StoreError, match="is damaged in the store"):
        store.records()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    fill(path)
    with Store(path) as store:
        assert len(store.records()) == 3


@pytest.mark.parametrize("read_only", [False, True])
def test_rejects_a_missing_folder(path, read_only):
    missing = path.parent / "new" / "runs.sqlite"
    message = rejection(missing, read_only=read_only)
    expected = "does not exist" if read_only else f"there is no folder '{missing.parent}'"
    assert expected in message
    assert not missing.parent.exists()


def test_rejects_a_file_as_the_folder(path):
    path.write_text("a file")
    assert f"there is no folder '{path}'" in rejection(path / "runs.sqlite")


def test_a_relative_path_needs_no_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    fill("runs.sqlite")
    assert path.exists()


def test_creates_the_folder_of_the_default_store_unless_it_only_reads(path, monkeypatch):
    default = path.parent / "new" / "folder" / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(default))
    assert "does not exist" in rejection(default, read_only=True)
    assert not default.parent.exists()
    fill(default_store())
    assert default.exists()


def test_rejects_a_default_store_whose_folder_cannot_be_created(path, monkeypatch):
    path.write_text("a file")
    monkeypatch.setenv("FACTMEM_STORE", str(path / "folder" / "runs.sqlite"))
    assert "cannot create the folder" in rejection(default_store())


@pytest.mark.parametrize("read_only", [False, True])
def test_rejects_a_folder_as_the_file(path, read_only):
    path.mkdir()
    with pytest.raises(StoreError, match=r"^'runs\.sqlite' is a directory, expected a file$"):
        Store(path, read_only=read_only)


def test_a_read_only_store_rejects_writes(path):
    fill(path)
    with Store(path, read_only=True) as store:
        assert len(store.records()) == 3
        with pytest.raises(StoreError, match="cannot be written"):
            store.put(record(7))


def test_a_full_disk_loses_only_the_new_run(path):
    with Store(path) as store:
        store.put(record())
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        large = replace(record(2), metrics={"text": "x" * 100_000})
        with pytest.raises(StoreError, match="the disk is full; others are stored"):
            store.put(large)
        store._connection.execute("PRAGMA max_page_count = 100000")
        store.put(large)
    with Store(path) as store:
        assert len(store.records()) == 2


READER = """
import os, sys
from factmem.experiments import Store
from factmem._core.errors import StoreError
if os.geteuid() == 0:  # permissions do not stop root
    os.setegid(65534)
    os.seteuid(65534)
try:
    Store(sys.argv[1])
except StoreError as error:
    print(error)
print(len(Store(sys.argv[1], read_only=True).records()))
"""


def test_reads_from_a_read_only_disk():
    folder = Path(tempfile.mkdtemp())
    try:
        fill(folder / "runs.sqlite")
        (folder / "runs.sqlite").chmod(0o444)
        folder.chmod(0o555)
        reader = subprocess.run(
            [sys.executable, "-c", READER, str(folder / "runs.sqlite")],
            capture_output=True,
            text=True,
        )
        message, count = reader.stdout.splitlines()
        assert "cannot be written" in message
        assert count == "3"
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_rejects_unfinished_writes_on_a_read_only_disk():
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "runs.sqlite"
        fill(path)
        (folder / "runs.sqlite-wal").write_bytes(b"not yet in the store")
        path.chmod(0o444)
        folder.chmod(0o555)
        reader = subprocess.run(
            [sys.executable, "-c", READER, str(path)], capture_output=True, text=True
        )
        assert "StoreError" in reader.stderr
        assert "3" not in reader.stdout.split()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_rejects_a_file_that_stays_locked(path, monkeypatch):
    monkeypatch.setattr(store_module, "_BUSY_TIMEOUT", 0.05)
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "was locked by another process" in rejection(path)
    other.close()
    Store(path).close()


def test_the_default_store_is_set_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "mine"))
    assert default_store() == tmp_path / "mine"
    monkeypatch.delenv("FACTMEM_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_store().name == "runs.sqlite"
    assert "factmem" in str(default_store())


def test_the_configuration_of_a_record_is_json_data(path):
    with Store(path) as store:
        stored = store.put(record())
    assert isinstance(stored, Record)
    assert json.loads(json.dumps(stored.config)) == {"number": 1, "seed": 0}
