"""`factmem runs`: lists, filters, shows one run."""

import pytest
from tests.cli.commands import rejected, run_json, run_text

from factmem.cli import main
from factmem.experiments import Experiment, Store, Task, execute
from factmem.experiments.execute import failure_record

ODD = {"name": "<b>\x1b[31m", "none": None}


def measure(*, dim, name, none, seed):
    return {"stored": dim < 8, "accuracy": 0.5}


EXPERIMENT = Experiment("trial", 1, measure)


@pytest.fixture
def store(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(path))
    with Store(path) as store:
        for dim in (4, 16):
            for seed in (0, 1):
                store.put(execute(Task(EXPERIMENT, {**ODD, "dim": dim, "seed": seed})))
        config = {"dim": 1, "name": "x", "none": None, "seed": 0}
        failing = Task(Experiment("other", 1, measure), config)
        store.put(failure_record(failing, ZeroDivisionError("deep\ninside"), 1.0))
    return path


def list_runs(*arguments):
    return run_json("runs", *arguments)["runs"]


def test_lists_all_runs_with_all_their_entries(store):
    runs = list_runs()
    assert len(runs) == 5
    first = runs[0]
    assert first["config"] == {**ODD, "dim": 4, "seed": 0}
    assert first["metrics"] == {"stored": True, "accuracy": 0.5}
    for key in ("id", "experiment", "version", "seed", "seconds", "versions", "threads", "host"):
        assert first[key] is not None
    assert runs[-1]["error"] == "ZeroDivisionError: deep\\ninside"


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--experiment", "trial"), 4),
        (("--experiment", "none"), 0),
        (("--seed", "0"), 3),
        (("--where", "dim=4"), 2),
        (("--where", "dim=4", "--where", "seed=1"), 1),
        (("--where", "name=x"), 1),
        (("--where", "nothing=x"), 0),
        (("--where", "none=null"), 5),
        (("--where", "none=NaN"), 0),
        (("--where", "none=1e999"), 0),
        (("--failed",), 1),
        (("--last", "2"), 2),
        (("--last", "200"), 5),
        (("--experiment", "trial", "--seed", "1", "--where", "dim=16", "--last", "1"), 1),
    ],
)
def test_filters_runs(store, flags, count):
    assert len(list_runs(*flags)) == count


def test_shows_one_run_by_the_start_of_its_id(store):
    first = list_runs()[0]
    assert list_runs(first["id"][:10]) == [first]
    text = run_text("runs", first["id"])
    assert first["id"] in text
    assert "dim: 4" in text
    assert "\x1b[31m" not in text


def test_text_lists_runs(store):
    text = run_text("runs")
    assert "5 runs in " in text
    assert "not stored" in text
    assert "failed: ZeroDivisionError: deep\\ninside" in text
    assert "\x1b[31m" not in text
    assert "No matching runs in " in run_text("runs", "--seed", "9")


def test_rows_stay_readable_at_80_columns_after_a_long_error(capsys, monkeypatch, tmp_path):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(path))
    monkeypatch.setenv("COLUMNS", "80")
    config = {"dim": 32, "heads": 4, "head_dim": 8, "seed": 3}
    with Store(path) as store:
        for name in ("transformer", "flow of linear attention"):
            task = Task(Experiment(name, 1, measure), config)
            store.put(failure_record(task, RuntimeError("out of memory " * 30), 12.5))
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    ids = [run["id"][:12] for run in list_runs()]
    rows = [line for line in lines if line.strip().startswith(tuple(ids)) and "Error" not in line]
    assert len(rows) == 2
    for row in rows:
        assert "dim 32, head_dim 8, heads 4" in row
        assert "failed" in row
        assert "12.5" in row
    errors = [line for line in lines if "RuntimeError" in line]
    assert len(errors) == 2
    assert all(line.endswith("…") for line in errors)


def test_a_missing_default_store_is_an_empty_list_and_is_not_created(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "none.sqlite"))
    assert list_runs() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("xyz",), "xyz"),
        (("\udcff",), "\\udcff"),
        (("--where", "dim"), "--where must be like dim=32, got 'dim'"),
        (("--where", "=3"), "--where must be like dim=32"),
        (("--where", "a=1", "--where", "a=2"), "--where can be given only once"),
        (("--last", "0"), "--last must be at least 1, got 0"),
        (("abc", "--failed"), "an ID cannot be combined with filters"),
        (("--store", ""), "--store: '' is not a file name"),
        (("--store", "no/such/runs.sqlite"), "no/such' does not exist"),
    ],
)
def test_rejects_bad_input(store, arguments, message):
    assert message in rejected("runs", *arguments)


def test_rejects_files_that_are_not_stores(store, tmp_path):
    assert "'none'" in rejected("runs", "--store", tmp_path / "none")
    (tmp_path / "text").write_text("x" * 2000)
    assert "'text'" in rejected("runs", "--store", tmp_path / "text")
