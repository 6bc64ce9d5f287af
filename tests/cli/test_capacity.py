"""`factmem capacity`: its JSON, its store, its workers, its errors."""

import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
from tests.cli.commands import PROGRAM, rejected, run_json, run_text
from tests.experiments.inline_workers import InlineWorkers

import factmem.experiments
from factmem.cli.capacity import _notes
from factmem.experiments import Bracket, Experiment, SearchStatus, Store, memory_capacity

LINEAR = ("capacity", "linear", "--dim", "2")
MLP = ("capacity", "mlp", "--dim", "4", "--width", "4")
SHAPE = ("--dim", "8", "--heads", "2", "--head-dim", "4", "--width", "4")
TRANSFORMER = ("capacity", "transformer", *SHAPE)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("FACTMEM_STORE", str(path))
    return path


def store_by_seed(*, facts, seed, **_):
    """Stand in for a memory: seeds 5, 6, 7, 8 store 7, 6, 9, 5 associations."""
    stored = facts <= {5: 7, 6: 6, 7: 9, 8: 5}[seed]
    return {"stored": stored, "accuracy": 1.0 if stored else 0.9, "min_relative_margin": 1 / facts}


@pytest.fixture
def inline(monkeypatch):
    """Execute runs in this process; other tests start worker processes."""
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: InlineWorkers(1))


@pytest.fixture
def stand_in(monkeypatch, inline):
    """Replace the memories by `store_by_seed`."""
    monkeypatch.setattr(memory_capacity, "EXPERIMENT", Experiment("stand-in", 1, store_by_seed))


def test_finds_the_median_over_seeds_and_repeats_no_run(stand_in, store):
    data = run_json(*LINEAR, "--seeds", "3", "--seed", "5")
    assert [seed["seed"] for seed in data["seeds"]] == [5, 6, 7]
    for seed in data["seeds"]:
        assert seed["upper"] == seed["lower"] + 1
        assert seed["facts"] == seed["lower"]
        assert seed["status"] == "bracketed"
        assert seed["probes"][-1]["from_store"] is False
        assert seed["min_relative_margin"] > 0
    assert [seed["lower"] for seed in data["seeds"]] == [7, 6, 9]
    assert data["lower"] == data["facts"] == 7
    assert data["upper"] == 8
    assert (data["parameters"], data["criterion"], data["embeddings"]) == (4, 1, "given")
    assert data["probes"] == data["probes_run"] == sum(len(s["probes"]) for s in data["seeds"])
    assert data["seconds"] > 0
    assert store.exists()
    again = run_json(*LINEAR, "--seeds", "3", "--seed", "5")
    assert again["probes_read"] == again["probes"] == data["probes"]
    assert {p["from_store"] for s in again["seeds"] for p in s["probes"]} == {True}
    assert [s["lower"] for s in again["seeds"]] == [s["lower"] for s in data["seeds"]]
    more = run_json(*LINEAR, "--seeds", "2", "--seed", "7")
    assert {p["from_store"] for p in more["seeds"][0]["probes"]} == {True}
    assert {p["from_store"] for p in more["seeds"][1]["probes"]} == {False}
    text = run_text(*LINEAR, "--seeds", "2", "--seed", "5")  # 7 and 6, from the store
    assert "│ facts stored (lower median) │ 6 │" in text
    text = run_text(*LINEAR, "--seed", "5")  # all of it from the store
    assert f"│ largest stored N │ {data['seeds'][0]['lower']} │" in text
    assert "Seed 5: the largest stored N is 7; N = 8 is not stored. The runs" in text
    assert "factmem runs lists them" in text


@pytest.mark.parametrize(
    ("bracket", "status", "note"),
    [
        (Bracket(9, None), SearchStatus.ALL_STORED, "the largest stored S is 9. Even the"),
        (Bracket(None, 2), SearchStatus.NONE_STORED, "S = 2 is not stored. Not even the"),
        (Bracket(3, 4, undecided=True), SearchStatus.BRACKETED, "is 3; S = 4 is undecided."),
    ],
)
def test_notes_name_only_known_ends_of_a_bracket(bracket, status, note):
    seed = SimpleNamespace(seed=0, bracket=bracket, status=status)
    first, _ = _notes(SimpleNamespace(seeds=[seed]), "S", {"seeds": [], "store": "runs.sqlite"})
    assert note in first


def test_fresh_and_another_store_repeat_runs(inline, tmp_path, store):
    first = run_json(*LINEAR)
    assert first["upper"] == first["lower"] + 1
    assert first["min_relative_margin"] > 0
    assert run_json(*LINEAR, "--fresh")["probes_read"] == 0
    elsewhere = str(tmp_path / "other.sqlite")
    assert run_json(*LINEAR, "--store", elsewhere)["probes_read"] == 0
    with Store(elsewhere) as other, Store(store) as default:
        runs = [
            {record.identity: record.metrics for record in opened.records()}
            for opened in (other, default)
        ]
    assert runs[0].keys() & runs[1].keys()
    assert all(runs[0][name] == runs[1][name] for name in runs[0].keys() & runs[1].keys())
    assert first["facts"] == run_json(*LINEAR, "--store", elsewhere)["facts"]


def test_mlp_with_the_search_of_the_paper_in_a_worker_process():
    data = run_json(*MLP, "--outputs", "4", "--search", "paper", "--workers", "1")
    assert data["seeds"][0]["probes"][0]["size"] == (4 + 16) // 2
    assert (data["method"], data["outputs"], data["search"]) == ("fitted", 4, "paper")


def test_compiled_transformer():
    shape = ("--dim", "4", "--heads", "2", "--head-dim", "1", "--width", "0")
    data = run_json(
        *("capacity", "transformer", *shape, "--answers", "2", "--protocol", "compiled"),
        *("--length", "8", "--scaling", "s=r2"),
    )
    assert (data["protocol"], data["criterion"], data["scaling"]) == ("compiled", 1, "s=r2")
    assert [data[name] for name in ("dim", "heads", "head_dim", "width")] == [4, 2, 1, 0]
    assert data["parameters"] == 4 * 2 * 4 * 1
    lower = data["lower"]
    assert data["facts"] == lower * int(lower**0.5)
    assert data["accuracy"] == 1
    assert data["min_margin"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*LINEAR[:2], "--dim", "0"), "--dim must be at least 1, got 0"),
        ((*LINEAR[:2], "--dim", "100000"), "--dim must be at most 16384, got 100000"),
        ((*LINEAR, "--seeds", "0"), "--seeds must be at least 1"),
        ((*LINEAR, "--seeds", "1001"), "--seeds must be at most 1000"),
        ((*LINEAR, "--seed", "-1"), "--seed must be from 0"),
        ((*LINEAR, "--seed", "4294967295", "--seeds", "2"), "--seed must be from 0"),
        (
            (*LINEAR, "--criterion", "0"),
            "error: --criterion must be above 0 and at most 1, got 0.0",
        ),
        (
            (*LINEAR, "--criterion", "nan"),
            "error: --criterion must be above 0 and at most 1, got nan",
        ),
        ((*LINEAR, "--search", "slow"), "slow"),
        ((*LINEAR, "--method", "fitted"), "fitted"),
        ((*LINEAR, "--workers", "0"), "--workers must be at least 1"),
        ((*LINEAR, "--store", ""), "--store: '' is not a file name"),
        ((*LINEAR, "--store", "no/such/runs.sqlite"), "no/such' does not exist"),
        ((*LINEAR, "--cluster", "here"), "tcp://host:8786"),
        ((*LINEAR, "--cluster", "tcp://h:1", "--workers", "2"), "cannot be combined"),
        ((*MLP[:-1], "0"), "--width must be at least 1"),
        ((*MLP, "--outputs", "1"), "outputs must be at least 2, got 1"),
        ((*TRANSFORMER[:-1], "-1"), "--width must be at least 0"),
        ((*TRANSFORMER, "--length", "2"), "--length must be from 3"),
        ((*TRANSFORMER, "--protocol", "worst"), "worst"),
        (
            (*TRANSFORMER, "--scaling", "d=s=r", "--answers", "4"),
            "--scaling d=s=r cannot be combined with --answers",
        ),
    ],
)
def test_rejects_bad_input(store, arguments, message):
    assert message in rejected(*arguments)
    assert not store.exists()


def test_rejects_a_foreign_store_before_any_work(store):
    store.write_text("subject,relation,answer\n")
    assert "runs.sqlite" in rejected(*LINEAR)
    assert store.read_text() == "subject,relation,answer\n"


def test_a_full_disk_names_the_store(stand_in, monkeypatch):
    connect = Store._connect

    def connect_to_a_full_disk(self, how):
        connection = connect(self, how)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(pages, 1)}")
        return connection

    run_json(*LINEAR, "--seed", "5")
    monkeypatch.setattr(Store, "_connect", connect_to_a_full_disk)
    message = rejected(*LINEAR, "--seed", "6", "--seeds", "3")
    assert "runs.sqlite" in message
    assert "full" in message


def test_interruption_keeps_finished_runs(store):
    process = subprocess.Popen(
        [*PROGRAM, "capacity", "linear", "--dim", "12", "--seeds", "50"],
        env=os.environ | {"FACTMEM_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    count = 0
    while count < 3:
        assert process.poll() is None
        time.sleep(0.1)
        if store.exists():
            with Store(store) as opened:
                count = len(opened.records())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "finished runs and checkpoints are kept" in err
    with Store(store) as opened:
        assert len(opened.records()) >= count
