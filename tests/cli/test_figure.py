"""`factmem figure`: its files, its store, its patience and its refusals."""

import csv
import json
from dataclasses import replace

import pytest
from tests.cli.test_app import refused
from tests.paper.here import Here
from tests.paper.made import simple_plot

import factmem.experiments
import factmem.paper
from factmem.cli import main
from factmem.experiments import Experiment, IndependentTasks, Store, Task
from factmem.paper import PaperFigure, estimate, figure_2
from factmem.paper.estimate import Speed
from factmem.plotting.plot import Line, Slope

SLOW = Speed(step=1000.0, flops=1e3, compiling=0.0)
QUICK = Speed(step=0.0, flops=1e15, compiling=0.0)


def count(*, number):
    count.calls += 1
    return {"number": number}


count.calls = 0


def counted(scale="quick", many=3):
    tasks = [Task(Experiment("count", 1, count), {"number": k}) for k in range(many)]

    def plot(results):
        y = tuple(float(found["number"]) for found in results)
        slope = Slope("it", "law", 1.0, 0.9, 1.1, (0.85, 1.15))
        return simple_plot(Line("a", y, y), name="it", slopes=(slope,))

    return PaperFigure("it", "It", "told", IndependentTasks(tuple(tasks)), plot)


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """In this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: Here())
    count.calls = 0
    return tmp_path


@pytest.fixture
def cheap(monkeypatch):
    monkeypatch.setattr(factmem.paper, "figure_named", lambda name, scale: counted(scale))


def told(capsys, *arguments):
    assert main(["figure", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_a_figure_has_its_files_and_its_caption(capsys, here):
    data = told(capsys, "2", "--out", "made/here")
    assert data["name"] == "2"
    assert data["files"] == [f"made/here/figure-2.{kind}" for kind in ("pdf", "png", "csv", "txt")]
    assert data["caption"].startswith("4 prompts of 9 tokens")
    assert (data["slopes"], data["scale"]) == ([], "quick")
    assert data["seconds"] > 0
    pdf, png, table, caption = (here / name for name in data["files"])
    assert pdf.read_bytes().startswith(b"%PDF")
    assert png.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.reader(table.read_text().splitlines()))
    assert rows[0] == ["prompt", "place", "kind", "token"]
    assert len(rows) == 1 + 4 * 10
    assert data["caption"] in caption.read_text()


def test_drawing_it_again_measures_nothing(capsys, here, monkeypatch):
    first = told(capsys, "2")
    with Store(here / "runs.sqlite") as store:
        (record,) = store.records()
    assert record.experiment == "prompts"

    def fails(**_):
        raise ZeroDivisionError

    monkeypatch.setattr(figure_2, "MEASURE", Experiment("prompts", 1, fails))
    again = told(capsys, "2")
    assert again["caption"] == first["caption"]
    with Store(here / "runs.sqlite") as store:
        assert store.records() == [record]


def test_fresh_ignores_the_store_and_another_store_is_another(capsys, cheap, here):
    told(capsys, "it")
    told(capsys, "it")
    assert count.calls == 3
    told(capsys, "it", "--fresh")
    assert count.calls == 6
    told(capsys, "it", "--store", str(here / "other.sqlite"))
    assert count.calls == 9


def test_slopes_are_told_with_whether_they_hold(capsys, cheap):
    (slope,) = told(capsys, "it")["slopes"]
    assert slope["holds"] is True
    assert (slope["slope"], slope["low"], slope["high"]) == (1.0, 0.9, 1.1)


def test_what_a_person_sees(capsys, cheap):
    assert main(["figure", "it"]) == 0
    out = capsys.readouterr().out
    assert "A caption." in out
    assert "figures/figure-it.pdf" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("10",), "no figure '10'; there are 1-left, 1-right, 2, 3"),
        (("x\n",), "no figure 'x\\n'; there are"),
        ((), "--name requires an argument"),
        (("2", "--workers", "0"), "--workers is at least 1"),
        (("2", "--cluster", "here"), "is like tcp://host:8786, not 'here'"),
        (("2", "--cluster", "tcp://h:1", "--workers", "2"), "give one of them"),
        (("2", "--store", ""), "--store is the name of a file"),
        (("2", "--out", ""), "--out is the name of a folder"),
        (("2", "--out", "file"), "--out is a folder, and 'file' is none"),
        (("2", "--out", "file/below/it"), "--out is a folder, and 'file' is none"),
        (("2", "--so-far", "--fresh"), "give one of them"),
        (("2", "--scale", "huge"), "huge"),
    ],
)
def test_what_is_refused(capsys, here, arguments, message):
    (here / "file").write_text("mine")
    assert message in refused(capsys, ["figure", *arguments])
    assert (here / "file").read_text() == "mine"
    assert [path.name for path in here.iterdir()] == ["file"], "nothing is begun"


# ---- patience ------------------------------------------------------------------------------------


def speed(monkeypatch, found):
    monkeypatch.setattr(estimate, "measured_speed", lambda store, workers: found)


def test_paper_scale_that_takes_hours_wants_a_yes(capsys, cheap, monkeypatch, here):
    monkeypatch.setattr(estimate, "_OTHER", 3 * 3600.0)
    speed(monkeypatch, SLOW)
    message = refused(capsys, ["figure", "it", "--scale", "paper"])
    assert "figure it at paper scale takes about 9.0 hours on 1 workers" in message
    assert "--yes" in message
    assert count.calls == 0
    assert not (here / "figures").exists()
    data = told(capsys, "it", "--scale", "paper", "--yes")
    assert data["scale"] == "paper"
    assert count.calls == 3


def test_days_are_told_as_days(capsys, cheap, monkeypatch):
    monkeypatch.setattr(estimate, "_OTHER", 24 * 3600.0)
    speed(monkeypatch, SLOW)
    assert "takes about 3.0 days" in refused(capsys, ["figure", "it", "--scale", "paper"])


def test_what_takes_less_than_an_hour_goes_ahead(capsys, cheap, monkeypatch):
    speed(monkeypatch, QUICK)
    assert told(capsys, "it", "--scale", "paper")["scale"] == "paper"
    assert count.calls == 3


def unasked(store, workers):
    raise AssertionError("nobody asked how fast this machine is")


def test_speed_is_measured_only_where_it_may_take_long(capsys, cheap, monkeypatch):
    monkeypatch.setattr(estimate, "measured_speed", unasked)
    told(capsys, "it")
    told(capsys, "it", "--scale", "paper")  # all of it is in the store
    assert count.calls == 3
    told(capsys, "it", "--scale", "paper", "--fresh", "--yes")
    assert count.calls == 6


def test_what_the_store_has_needs_no_patience(capsys, cheap, monkeypatch, here):
    monkeypatch.setattr(estimate, "_OTHER", 0.9 * 3600)
    speed(monkeypatch, SLOW)
    assert "takes about 2.7 hours" in refused(capsys, ["figure", "it", "--scale", "paper"])
    with Store(here / "runs.sqlite") as store:
        for task in counted().measured.tasks[:2]:
            store.put(factmem.experiments.execute(task))
    told(capsys, "it", "--scale", "paper")
    assert count.calls == 3
    message = refused(capsys, ["figure", "it", "--scale", "paper", "--fresh"])
    assert "takes about 2.7 hours" in message, "fresh is all of it again"


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    capsys, cheap, monkeypatch, here
):
    monkeypatch.setattr("os.access", lambda place, mode: False)
    message = refused(capsys, ["figure", "it", "--out", "new/folder"])
    assert "--out: nothing can be written into '.'" in message
    assert count.calls == 0


# ---- so far --------------------------------------------------------------------------------------


def test_so_far_draws_what_is_there_and_measures_nothing(capsys, monkeypatch, here):
    def named(name, scale):
        return replace(counted(scale, many=4), by_parts=True, plot=some)

    def some(results):
        y = tuple(float(found["number"]) for found in results if found)
        return simple_plot(Line("a", y, y), name="it", caption=f"{len(y)} points.")

    monkeypatch.setattr(factmem.paper, "figure_named", named)
    monkeypatch.setattr(estimate, "measured_speed", unasked)
    with Store(here / "runs.sqlite") as store:
        for task in counted().measured.tasks:
            store.put(factmem.experiments.execute(task))
    data = told(capsys, "it", "--so-far", "--scale", "paper")
    assert count.calls == 3
    assert (data["caption"], data["missing_runs"]) == ("3 points.", 1)
    data = told(capsys, "it")
    assert (data["caption"], data["missing_runs"]) == ("4 points.", 0)
    assert count.calls == 4


def test_so_far_refuses_what_can_only_be_drawn_whole(capsys, cheap, here):
    message = refused(capsys, ["figure", "it", "--so-far"])
    assert "figure it is drawn whole, and 3 runs are missing" in message
    assert not (here / "figures").exists()
    assert count.calls == 0
