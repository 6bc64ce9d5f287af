"""`factmem capacity`: its keys, its store, its workers, its refusals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from factmem.cli import main
from factmem.experiments import Store

LINEAR = ("capacity", "linear", "--dim", "4")
SHAPE = ("--dim", "8", "--heads", "2", "--head-dim", "4", "--width", "4")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(path))
    return path


def answer(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refused(capsys, *arguments) -> str:
    assert main([*arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_keys_of_the_contract_and_that_nothing_is_done_twice(capsys, store):
    found = answer(capsys, *LINEAR, "--seeds", "3", "--seed", "5")
    assert [seed["seed"] for seed in found["seeds"]] == [5, 6, 7]
    for seed in found["seeds"]:
        assert seed["upper"] == seed["lower"] + 1
        assert seed["facts"] == seed["lower"]
        assert seed["probes"][-1]["source"] == "run"
        assert seed["relative_margin"] > 0
    middle = sorted(seed["lower"] for seed in found["seeds"])[1]
    assert found["lower"] == found["facts"] == middle
    assert found["upper"] == middle + 1
    assert (found["parameters"], found["criterion"], found["embeddings"]) == (16, 1, "given")
    assert found["probes"] == found["probes_run"] == sum(len(s["probes"]) for s in found["seeds"])
    assert found["seconds"] > 0
    assert store.exists()
    again = answer(capsys, *LINEAR, "--seeds", "3", "--seed", "5")
    assert again["probes_read"] == again["probes"] == found["probes"]
    assert {p["source"] for s in again["seeds"] for p in s["probes"]} == {"read"}
    assert [s["lower"] for s in again["seeds"]] == [s["lower"] for s in found["seeds"]]
    more = answer(capsys, *LINEAR, "--seeds", "2", "--seed", "7")
    assert {p["source"] for p in more["seeds"][0]["probes"]} == {"read"}
    assert {p["source"] for p in more["seeds"][1]["probes"]} == {"run"}


def test_fresh_and_another_store(capsys, tmp_path, store):
    first = answer(capsys, *LINEAR)
    assert answer(capsys, *LINEAR, "--fresh")["probes_read"] == 0
    elsewhere = str(tmp_path / "deep" / "other.sqlite")
    assert answer(capsys, *LINEAR, "--store", elsewhere)["probes_read"] == 0
    with Store(elsewhere) as other, Store(store) as kept:
        runs = [
            {record.identity: record.metrics for record in each.records()} for each in (other, kept)
        ]
    assert runs[0].keys() & runs[1].keys()
    assert all(runs[0][name] == runs[1][name] for name in runs[0].keys() & runs[1].keys())
    assert first["facts"] == answer(capsys, *LINEAR, "--store", elsewhere)["facts"]


def test_an_mlp_by_the_search_of_the_authors(capsys):
    found = answer(
        capsys, "capacity", "mlp", "--dim", "4", "--width", "4", "--outputs", "4",
        "--search", "paper", "--workers", "1",
    )  # fmt: skip
    assert found["seeds"][0]["probes"][0]["size"] == (4 + 16) // 2
    assert (found["method"], found["outputs"], found["search"]) == ("fitted", 4, "paper")


def test_a_compiled_transformer(capsys):
    found = answer(
        capsys, "capacity", "transformer", *SHAPE, "--answers", "2", "--protocol", "compiled",
        "--length", "8", "--scaling", "s=r2",
    )  # fmt: skip
    assert (found["protocol"], found["criterion"], found["scaling"]) == ("compiled", 1, "s=r2")
    assert found["parameters"] == 4 * 2 * 8 * 4 + 2 * 4 * 8
    lower = found["lower"]
    assert found["facts"] == lower * int(lower**0.5)
    assert found["accuracy"] == 1
    assert found["min_margin"] > 0


def test_what_a_person_sees(capsys):
    assert main([*LINEAR]) == 0
    out = capsys.readouterr().out
    assert "largest N that is stored" in out
    assert "Seed 0: stored" in out
    assert "factmem runs lists them" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*LINEAR[:2], "--dim", "0"), "--dim is at least 1"),
        ((*LINEAR[:2], "--dim", "100000"), "--dim is at most 16384"),
        ((*LINEAR, "--seeds", "0"), "--seeds is at least 1"),
        ((*LINEAR, "--seeds", "1001"), "--seeds is at most 1000"),
        ((*LINEAR, "--seed", "-1"), "--seed is from 0"),
        ((*LINEAR, "--seed", "4294967295", "--seeds", "2"), "--seed is from 0"),
        ((*LINEAR, "--criterion", "0"), "a criterion is an accuracy above 0"),
        ((*LINEAR, "--criterion", "nan"), "a criterion is an accuracy above 0"),
        ((*LINEAR, "--search", "slow"), "slow"),
        ((*LINEAR, "--method", "fitted"), "fitted"),
        ((*LINEAR, "--workers", "0"), "--workers is at least 1"),
        ((*LINEAR, "--store", ""), "--store is the name of a file"),
        ((*LINEAR, "--cluster", "here"), "is like tcp://host:8786, not 'here'"),
        ((*LINEAR, "--cluster", "tcp://h:1", "--workers", "2"), "give one of them"),
        (("capacity", "mlp", "--dim", "4", "--width", "0"), "--width is at least 1"),
        (("capacity", "mlp", "--dim", "4", "--width", "4", "--outputs", "1"), "2 outputs, not 1"),
        (("capacity", "transformer", *SHAPE[:-1], "-1"), "--width is at least 0"),
        (("capacity", "transformer", *SHAPE, "--length", "2"), "--length is from 3"),
        (("capacity", "transformer", *SHAPE, "--protocol", "worst"), "worst"),
        (
            ("capacity", "transformer", *SHAPE, "--scaling", "d=s=r", "--answers", "4"),
            "has its own --answers",
        ),
    ],
)
def test_bad_input(capsys, store, arguments, message):
    assert message in refused(capsys, *arguments)
    assert not store.exists()


def test_a_store_that_cannot_be_used_is_refused_before_any_work(capsys, store):
    store.write_text("subject,relation,answer\n")
    assert "no store of runs, or it is damaged" in refused(capsys, *LINEAR)
    assert store.read_text() == "subject,relation,answer\n"


def test_an_interruption_keeps_what_was_finished(store):
    running = subprocess.Popen(
        [sys.executable, "-c", "from factmem.cli import run; run()", "capacity", "linear",
         "--dim", "12", "--seeds", "50"],
        env=os.environ | {"FACTMEM_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    count = 0
    while count < 3:
        assert running.poll() is None
        time.sleep(0.1)
        if store.exists():
            with Store(store) as kept:
                count = len(kept.records())
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "what was finished is kept" in err
    with Store(store) as kept:
        assert len(kept.records()) >= count
