"""`factmem runs`: lists, filters, shows one."""

import json

import pytest

from factmem.cli import main
from factmem.experiments import Experiment, Store, Task, execute
from factmem.experiments.execute import failure

ODD = {"name": "<b>\x1b[31m", "none": None}


def measure(*, dim, name, none, seed):
    return {"stored": dim < 8, "accuracy": 0.5}


MEASURE = Experiment("trial", 1, measure)


@pytest.fixture
def store(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(path))
    with Store(path) as store:
        for dim in (4, 16):
            for seed in (0, 1):
                store.put(execute(Task(MEASURE, {**ODD, "dim": dim, "seed": seed})))
        bad = Task(
            Experiment("other", 1, measure), {"dim": 1, "name": "x", "none": None, "seed": 0}
        )
        store.put(failure(bad, ZeroDivisionError("deep\ninside"), 1.0))
    return path


def listed(capsys, *arguments):
    assert main(["runs", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)["runs"]


def refused(capsys, *arguments) -> str:
    assert main(["runs", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_all_runs_with_all_that_is_known_of_them(capsys, store):
    runs = listed(capsys)
    assert len(runs) == 5
    first = runs[0]
    assert first["config"] == {**ODD, "dim": 4, "seed": 0}
    assert first["metrics"] == {"stored": True, "accuracy": 0.5}
    for key in ("id", "measure", "version", "seed", "seconds", "versions", "threads", "host"):
        assert first[key] is not None
    assert runs[-1]["error"] == "ZeroDivisionError: deep\\ninside"


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--measure", "trial"), 4),
        (("--measure", "none"), 0),
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
        (("--measure", "trial", "--seed", "1", "--where", "dim=16", "--last", "1"), 1),
    ],
)
def test_filters(capsys, store, flags, count):
    assert len(listed(capsys, *flags)) == count


def test_one_run_by_the_start_of_its_id(capsys, store):
    first = listed(capsys)[0]
    assert listed(capsys, first["id"][:10]) == [first]
    assert main(["runs", first["id"]]) == 0
    out = capsys.readouterr().out
    assert f"id: {first['id']}" in out.replace("\n", "", 1) or first["id"] in out
    assert "dim: 4" in out
    assert "\x1b[31m" not in out


def test_what_a_person_sees(capsys, store):
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "5 runs" in out
    assert "not stored" in out
    assert "failed" in out
    assert "\x1b[31m" not in out
    assert main(["runs", "--seed", "9"]) == 0
    assert "No such runs" in capsys.readouterr().out


def test_no_store_yet_is_an_empty_list_and_makes_none(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "none.sqlite"))
    assert listed(capsys) == []
    assert list(tmp_path.iterdir()) == []


def test_bad_input(capsys, store, tmp_path):
    assert "no run starts with 'xyz'" in refused(capsys, "xyz")
    assert "--where is like dim=32, not 'dim'" in refused(capsys, "--where", "dim")
    assert "--where is like dim=32" in refused(capsys, "--where", "=3")
    assert "--where is given once" in refused(capsys, "--where", "a=1", "--where", "a=2")
    assert "no run starts with" in refused(capsys, "\udcff")
    assert "--last is at least 1" in refused(capsys, "--last", "0")
    assert "give one of them" in refused(capsys, "abc", "--failed")
    assert "does not exist" in refused(capsys, "--store", str(tmp_path / "none"))
    (tmp_path / "text").write_text("x" * 2000)
    assert "no store of runs" in refused(capsys, "--store", str(tmp_path / "text"))
    assert "--store is the name" in refused(capsys, "--store", "")
