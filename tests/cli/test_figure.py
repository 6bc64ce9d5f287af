"""`factmem figure`: its files, its store, its time limit, its errors."""

import csv
from dataclasses import replace

import pytest
from tests.cli.commands import rejected, run_json, run_text
from tests.experiments.inline_workers import InlineWorkers
from tests.paper.stand_ins import simple_plot

import factmem.experiments
import factmem.paper
from factmem.experiments import Experiment, IndependentTasks, Store, Task, estimate
from factmem.experiments.estimate import Speed
from factmem.paper import PaperFigure, figure_2
from factmem.plotting.plot import Line, Slope

SLOW = Speed(step_seconds=1000.0, flops_per_second=1e3, compile_seconds=0.0)
QUICK = Speed(step_seconds=0.0, flops_per_second=1e15, compile_seconds=0.0)


def count_calls(*, number):
    count_calls.calls += 1
    return {"number": number}


count_calls.calls = 0


def cheap_figure(runs=3):
    """Return a figure whose runs only count how often they are executed."""
    tasks = [Task(Experiment("count", 1, count_calls), {"number": k}) for k in range(runs)]

    def plot(results):
        y = tuple(float(result["number"]) for result in results)
        slope = Slope("cheap", "law", 1.0, 0.9, 1.1, (0.85, 1.15))
        return simple_plot(Line("a", y, y), name="cheap", slopes=(slope,))

    return PaperFigure("cheap", "Title", "text", IndependentTasks(tuple(tasks)), plot)


@pytest.fixture(autouse=True)
def directory(monkeypatch, tmp_path):
    """Run everything in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: InlineWorkers(1))
    count_calls.calls = 0
    return tmp_path


@pytest.fixture
def cheap(monkeypatch):
    monkeypatch.setattr(factmem.paper, "get_figure", lambda name, scale: cheap_figure())


def set_speed(monkeypatch, speed):
    monkeypatch.setattr(estimate, "measure_speed", lambda store, workers: speed)


def test_writes_files_with_data_and_caption(directory):
    data = run_json("figure", "2", "--out", "made")
    assert data["name"] == "2"
    assert data["files"] == [f"made/figure-2.{kind}" for kind in ("pdf", "png", "csv", "txt")]
    assert data["caption"].startswith("4 prompts of 9 tokens")
    assert (data["slopes"], data["scale"]) == ([], "quick")
    assert data["seconds"] > 0
    pdf, png, table, caption = (directory / name for name in data["files"])
    assert pdf.read_bytes().startswith(b"%PDF")
    assert png.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.reader(table.read_text().splitlines()))
    assert rows[0] == ["prompt", "position", "kind", "token"]
    assert len(rows) == 1 + 4 * 10
    assert data["caption"] in caption.read_text()


def test_drawing_again_executes_nothing(directory, monkeypatch):
    first = run_json("figure", "2")
    with Store(directory / "runs.sqlite") as store:
        (record,) = store.records()
    assert record.experiment == "prompts"

    def fail(**_):
        raise ZeroDivisionError

    monkeypatch.setattr(figure_2, "EXPERIMENT", Experiment("prompts", 1, fail))
    again = run_json("figure", "2")
    assert again["caption"] == first["caption"]
    with Store(directory / "runs.sqlite") as store:
        assert store.records() == [record]


def test_fresh_and_another_store_repeat_runs(cheap, directory):
    run_json("figure", "cheap")
    run_json("figure", "cheap")
    assert count_calls.calls == 3
    run_json("figure", "cheap", "--fresh")
    assert count_calls.calls == 6
    run_json("figure", "cheap", "--store", directory / "other.sqlite")
    assert count_calls.calls == 9


def test_json_has_slopes_and_whether_they_hold(cheap):
    (slope,) = run_json("figure", "cheap")["slopes"]
    assert slope["holds"] is True
    assert (slope["slope"], slope["low"], slope["high"]) == (1.0, 0.9, 1.1)


def test_text_shows_caption_and_files(cheap):
    text = run_text("figure", "cheap")
    assert "A caption." in text
    assert "figures/figure-cheap.pdf" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("10",), "1-left, 1-right, 2, 3"),
        (("x\n",), "'x\\n'"),
        ((), "NAME is required"),
        (("2", "--workers", "0"), "--workers must be at least 1"),
        (("2", "--cluster", "here"), "tcp://host:8786"),
        (("2", "--cluster", "tcp://h:1", "--workers", "2"), "--workers cannot be combined"),
        (("2", "--store", ""), "--store: '' is not a file name"),
        (("2", "--store", "no/such/runs.sqlite"), "no/such' does not exist"),
        (("2", "--out", ""), "--out: '' is not a directory name"),
        (("2", "--out", "file"), "--out: 'file' is not a directory"),
        (("2", "--out", "file/below"), "/file' does not exist"),
        (("2", "--out", "no/such"), "/no' does not exist"),
        (("2", "--partial", "--fresh"), "--partial cannot be combined with --fresh"),
        (("2", "--scale", "huge"), "huge"),
    ],
)
def test_rejects_bad_input_before_any_work(directory, arguments, message):
    (directory / "file").write_text("mine")
    assert message in rejected("figure", *arguments)
    assert (directory / "file").read_text() == "mine"
    assert [path.name for path in directory.iterdir()] == ["file"]


def test_rejects_a_read_only_directory_before_any_work(cheap, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    message = rejected("figure", "cheap", "--out", "new")
    assert "--out: directory '" in message
    assert "is not writable" in message
    assert count_calls.calls == 0


# ---- Time limit ----------------------------------------------------------------------------------


def test_hours_at_paper_scale_need_yes(cheap, monkeypatch, directory):
    monkeypatch.setattr(estimate, "_DEFAULT_SECONDS", 3 * 3600.0)
    set_speed(monkeypatch, SLOW)
    message = rejected("figure", "cheap", "--scale", "paper")
    assert "figure cheap at paper scale takes about 9.0 hours with 1 worker;" in message
    assert "--yes" in message
    assert count_calls.calls == 0
    assert not (directory / "figures").exists()
    assert run_json("figure", "cheap", "--scale", "paper", "--yes")["scale"] == "paper"
    assert count_calls.calls == 3


def test_long_times_are_given_in_days(cheap, monkeypatch):
    monkeypatch.setattr(estimate, "_DEFAULT_SECONDS", 24 * 3600.0)
    set_speed(monkeypatch, SLOW)
    assert "takes about 3.0 days" in rejected("figure", "cheap", "--scale", "paper")


def test_less_than_an_hour_needs_no_yes(cheap, monkeypatch):
    set_speed(monkeypatch, QUICK)
    assert run_json("figure", "cheap", "--scale", "paper")["scale"] == "paper"
    assert count_calls.calls == 3


def unexpected_measurement(store, workers):
    raise AssertionError("the speed was measured")


def test_the_speed_is_measured_only_if_needed(cheap, monkeypatch):
    monkeypatch.setattr(estimate, "measure_speed", unexpected_measurement)
    run_json("figure", "cheap")
    run_json("figure", "cheap", "--scale", "paper")  # all of it is in the store
    assert count_calls.calls == 3
    run_json("figure", "cheap", "--scale", "paper", "--fresh", "--yes")
    assert count_calls.calls == 6


def test_stored_runs_do_not_count_for_the_time_limit(cheap, monkeypatch, directory):
    monkeypatch.setattr(estimate, "_DEFAULT_SECONDS", 0.9 * 3600)
    set_speed(monkeypatch, SLOW)
    assert "takes about 2.7 hours" in rejected("figure", "cheap", "--scale", "paper")
    with Store(directory / "runs.sqlite") as store:
        for task in cheap_figure().measurement.tasks[:2]:
            store.put(factmem.experiments.execute(task))
    run_json("figure", "cheap", "--scale", "paper")
    assert count_calls.calls == 3
    message = rejected("figure", "cheap", "--scale", "paper", "--fresh")
    assert "takes about 2.7 hours" in message, "--fresh repeats all runs"


# ---- Unfinished figures --------------------------------------------------------------------------


def test_so_far_draws_stored_runs_and_executes_none(monkeypatch, directory):
    def plot(results):
        y = tuple(float(result["number"]) for result in results if result)
        return simple_plot(Line("a", y, y), name="cheap", caption=f"{len(y)} points.")

    partial = replace(cheap_figure(runs=4), allows_partial=True, plot=plot)
    monkeypatch.setattr(factmem.paper, "get_figure", lambda name, scale: partial)
    monkeypatch.setattr(estimate, "measure_speed", unexpected_measurement)
    with Store(directory / "runs.sqlite") as store:
        for task in cheap_figure().measurement.tasks:
            store.put(factmem.experiments.execute(task))
    data = run_json("figure", "cheap", "--partial", "--scale", "paper")
    assert count_calls.calls == 3
    assert (data["caption"], data["missing_runs"]) == ("3 points.", 1)
    data = run_json("figure", "cheap")
    assert (data["caption"], data["missing_runs"]) == ("4 points.", 0)
    assert count_calls.calls == 4


def test_so_far_rejects_figures_that_cannot_be_drawn_in_part(cheap, directory):
    assert "3 runs are missing" in rejected("figure", "cheap", "--partial")
    assert not (directory / "figures").exists()
    assert count_calls.calls == 0
