"""A store keeps every run, whoever writes, and refuses what is not a whole store."""

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


def failed(which):
    return replace(which, metrics=None, error="it broke")


def test_what_is_kept_comes_back_as_it_was(path):
    kept = record(number=0.1)
    with Store(path) as store:
        assert store.get(kept.identity) is None
        assert store.put(kept) == kept
    with Store(path) as store:
        found = store.get(kept.identity)
    assert found == kept
    assert found.metrics == {"doubled": 0.2}
    assert (found.seed, found.threads, found.version) == (0, kept.threads, 1)
    assert found.versions["jax"]
    assert found.kept
    assert not kept.kept


@given(metrics=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_come_back_bit_for_bit(metrics):
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s") as store:
        store.put(replace(record(), metrics=metrics))
        assert store.get(record().identity).metrics == metrics


def test_a_run_that_succeeded_stays_unless_it_is_to_be_replaced(path):
    first, later = record(), replace(record(), metrics={"doubled": 3})
    with Store(path) as store:
        store.put(first)
        assert store.put(later) == first
        assert store.put(failed(later)) == first
        assert store.put(later, replace=True) == later
        assert store.get(first.identity) == later
        assert len(store.records()) == 1


def test_a_run_that_failed_gives_way(path):
    with Store(path) as store:
        store.put(failed(record()))
        assert store.get(record().identity).error == "it broke"
        again = record()
        assert store.put(again) == again


def test_runs_are_found_by_what_they_have(path):
    runs = [record(number, seed) for number in (1, 2.5) for seed in (0, 1)]
    with Store(path) as store:
        for run in runs:
            store.put(run)
        store.put(failed(record(9)))
        assert [found.identity for found in store.records()][:4] == [run.identity for run in runs]
        assert store.records(seed=1) == [runs[1], runs[3]]
        assert store.records(config={"number": 2.5}) == runs[2:]
        assert store.records(config={"number": 1.0, "seed": 1}) == [runs[1]]
        assert store.records(config={"none": None}) == []
        assert store.records(measure="double", failed=False) == runs
        assert store.records(measure="triple") == []
        assert [found.error for found in store.records(failed=True)] == ["it broke"]


def test_a_run_is_named_by_the_start_of_its_identity(path):
    with Store(path) as store:
        runs = [store.put(record(number)) for number in range(20)]
        assert store.named(runs[3].identity[:12]) == runs[3]
        assert store.named(runs[3].identity) == runs[3]
        with pytest.raises(FactmemError, match="several runs start"):
            store.named("")
        for odd in ("%", "_", runs[3].identity + "0", "x' OR 1=1 --", "\x1b", "\udcff"):
            with pytest.raises(FactmemError, match="no run starts with"):
                store.named(odd)
        # Twenty runs, sixteen digits: two start alike.
        starts = [run.identity[0] for run in runs]
        with pytest.raises(FactmemError, match="several runs start"):
            store.named(max(starts, key=starts.count))


# ---- many at once --------------------------------------------------------------------------------

WRITER = """
import sys
from tests.experiments.test_store import write
write(*sys.argv[1:])
"""


def write(path, first, count, threads=4):
    """Keeps runs number first, first + 1, … from several threads that share a store."""
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


def test_sixteen_threads_and_four_processes_lose_nothing(path):
    writers = [writer(path, 1000 * place, 50) for place in range(4)]
    barrier, problems = threading.Barrier(16), []

    def thread(place):
        try:
            barrier.wait()
            with Store(path) as store:  # each its own: they meet in the file
                for number in range(25):
                    store.put(record(10_000 + 100 * place + number))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=thread, args=(place,)) for place in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for process in writers:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert not problems
    expected = {1000 * p + n for p in range(4) for n in range(50)}
    expected |= {10_000 + 100 * p + n for p in range(16) for n in range(25)}
    with Store(path) as store:
        found = store.records()
    assert len(found) == len(expected) == 600
    assert {run.config["number"] for run in found} == expected
    assert all(run.metrics == {"doubled": 2 * run.config["number"]} for run in found)


def test_many_that_open_a_new_store_at_once(path):
    barrier = threading.Barrier(16)

    def opened(_):
        barrier.wait()
        with Store(path) as store:
            return store.records()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(opened, range(16))) == [[]] * 16


def test_one_writes_while_another_reads(path):
    with Store(path) as writing, Store(path, read_only=True) as reading:
        for number in range(5):
            writing.put(record(number))
            assert len(reading.records()) == number + 1


# ---- what is refused -----------------------------------------------------------------------------


def refused(path, *, unchanged=True, **options) -> str:
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreError) as caught:
        Store(path, **options)
    if unchanged and before is not None:
        assert path.read_bytes() == before
    return str(caught.value)


def filled(path, count=3):
    with Store(path) as store:
        for number in range(count):
            store.put(record(number))


def test_the_journal_suits_the_disk(path, monkeypatch):
    for local, mode in ((True, "wal"), (False, "delete")):
        monkeypatch.setattr(store_module, "is_local", lambda path, local=local: local)
        place = path.with_name(mode)
        filled(place)
        assert sqlite3.connect(place).execute("PRAGMA journal_mode").fetchone() == (mode,)
        with Store(place) as store:
            assert len(store.records()) == 3


def test_a_store_that_was_moved_to_a_network_disk(path, monkeypatch):
    filled(path)
    monkeypatch.setattr(store_module, "is_local", lambda path: False)
    filled(path, 4)
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Store(path) as store:
        assert len(store.records()) == 4


def test_a_row_is_on_the_disk_before_it_counts(path):
    with Store(path) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_store_of_another_version(path):
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    message = refused(path)
    assert "another version" in message
    assert "schema 7, here 1" in message
    assert "another version" in refused(path, read_only=True)


def test_a_database_of_another_program(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    assert "no store of runs" in refused(path)
    assert "no store of runs" in refused(path, read_only=True)


def test_an_empty_database_of_another_program(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 12345")
    connection.execute("VACUUM")
    connection.close()
    assert "no store of runs" in refused(path)


@pytest.mark.parametrize("content", [b"x" * 5000, b"subject,relation,answer\n", b"SQLite format 3"])
def test_a_file_that_is_no_database(path, content):
    path.write_bytes(content)
    assert "no store of runs, or it is damaged" in refused(path)


def test_a_damaged_store(path):
    filled(path, 200)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    assert "damaged" in refused(path)
    path.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refused(path)


def test_a_damaged_row(path):
    filled(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET metrics = '{'")
    connection.close()
    with Store(path) as store, pytest.raises(StoreError, match="is damaged in the store"):
        store.records()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    filled(path)
    with Store(path) as store:
        assert len(store.records()) == 3


def test_folders_are_made_but_not_for_reading(path):
    deep = path.parent / "new" / "folder" / "runs.sqlite"
    assert "does not exist" in refused(deep, read_only=True)
    assert not deep.parent.exists()
    filled(deep)
    assert deep.exists()


def test_a_folder_is_no_store(path):
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(path)


def test_reading_writes_nothing(path):
    filled(path)
    with Store(path, read_only=True) as store:
        assert len(store.records()) == 3
        with pytest.raises(StoreError, match="cannot be written"):
            store.put(record(7))


def test_a_full_disk_keeps_what_was_there(path):
    with Store(path) as store:
        store.put(record())
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        large = replace(record(2), metrics={"text": "x" * 100_000})
        with pytest.raises(StoreError, match="the disk is full; all others are kept"):
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


def test_a_read_only_disk():
    folder = Path(tempfile.mkdtemp())
    try:
        filled(folder / "runs.sqlite")
        (folder / "runs.sqlite").chmod(0o444)
        folder.chmod(0o555)
        ran = subprocess.run(
            [sys.executable, "-c", READER, str(folder / "runs.sqlite")],
            capture_output=True,
            text=True,
        )
        message, count = ran.stdout.splitlines()
        assert "cannot be written" in message
        assert count == "3"
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_what_a_killed_writer_left_is_not_passed_over_on_a_read_only_disk():
    folder = Path(tempfile.mkdtemp())
    try:
        place = folder / "runs.sqlite"
        filled(place)
        (folder / "runs.sqlite-wal").write_bytes(b"not yet in the store")
        place.chmod(0o444)
        folder.chmod(0o555)
        ran = subprocess.run(
            [sys.executable, "-c", READER, str(place)], capture_output=True, text=True
        )
        assert "StoreError" in ran.stderr
        assert "3" not in ran.stdout.split()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_writer_that_never_ends(path, monkeypatch):
    monkeypatch.setattr(store_module, "_SECONDS_TO_WAIT", 0.05)
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "in use by another process" in refused(path)
    other.close()
    Store(path).close()


def test_where_runs_are_kept_unless_a_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "mine"))
    assert default_store() == tmp_path / "mine"
    monkeypatch.delenv("FACTMEM_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_store().name == "runs.sqlite"
    assert "factmem" in str(default_store())


def test_a_record_is_json_data(path):
    with Store(path) as store:
        kept = store.put(record())
    assert isinstance(kept, Record)
    assert json.loads(json.dumps(kept.config)) == {"number": 1, "seed": 0}
