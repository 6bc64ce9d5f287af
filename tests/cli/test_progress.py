"""Progress on stderr."""

import sys

import pytest

from factmem.cli import progress as module
from factmem.cli.progress import progress
from factmem.cli.render import OutputOptions


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set: `clock.now = 3.0`."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def replay(clock, report, *reports):
    """Call `report` at given times: (time, steps, values)."""
    for time, steps, values in reports:
        clock.now = time
        report(steps, **values)


def test_prints_nothing_with_json(capsys):
    with progress(OutputOptions(json=True), "fit") as report:
        report(1, loss=0.5)
    assert capsys.readouterr() == ("", "")


def test_prints_plain_lines_without_a_terminal_every_five_seconds(capsys, clock):
    with progress(OutputOptions(), "fit") as report:
        replay(
            clock, report,
            (1.0, 50, {"loss": 0.5}), (6.0, 1200, {"loss": 0.25}), (7.0, 1300, {"loss": 0.2}),
        )  # fmt: skip
    assert capsys.readouterr() == ("", "fit: 1,200 steps, loss 0.25\n")


def test_nothing_is_counted_before_there_are_steps(capsys, clock):
    with progress(OutputOptions(), "flow", 100, "point") as report:
        replay(
            clock, report,
            (6.0, None, {"time": 22.63}), (12.0, None, {"time": 30.0}), (18.0, 10, {"time": 5.0}),
            (24.0, 20, {"time": 6.0}), (30.0, 30, {"time": 7.0}),
        )  # fmt: skip
    assert capsys.readouterr().err.splitlines() == [
        "flow: time 22.63",
        "flow: time 30",
        "flow: 10 points, time 5",
        "flow: 20 points, time 6",
        "flow: 30 points, time 7, at most 42 s left",
    ]


def test_the_estimate_leaves_out_compilation(capsys, clock):
    """The step function compiles between the first report and the second, for 20 s here."""
    with progress(OutputOptions(), "train", 1000) as report:
        replay(clock, report, (2.0, 0, {}), (22.0, 1, {}), (22.1, 9, {}), (27.0, 501, {}))
    assert capsys.readouterr().err.splitlines() == [
        "train: 1 step",
        "train: 501 steps, at most 5 s left",
    ]


def test_the_estimate_leaves_out_steps_of_a_checkpoint(capsys, clock):
    with progress(OutputOptions(), "train", 1000) as report:
        replay(clock, report, (1.0, 800, {}), (2.0, 801, {}), (12.0, 901, {}))
    assert capsys.readouterr().err == "train: 901 steps, at most 10 s left\n"


def test_there_is_no_estimate_from_less_than_a_second(capsys, clock):
    with progress(OutputOptions(), "train", 10**6) as report:
        replay(clock, report, (1.0, 0, {}), (9.5, 1, {}), (9.6, 2, {}), (14.6, 3, {}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "train: 1 step"
    assert lines[1].endswith("left")


def test_the_number_of_remaining_steps_may_change(capsys, clock):
    with progress(OutputOptions(), "capacity", 1, "probe") as report:
        replay(
            clock, report,
            (6.0, 1, {"running": 2, "left": 3, "bracket": "26 ≤ S"}),
            (12.0, 2, {"running": 1, "left": 2, "bracket": "26 ≤ S"}),
            (18.0, 3, {"running": 1, "left": 1, "bracket": "26 ≤ S < 27"}),
        )  # fmt: skip
    assert capsys.readouterr().err == (
        "capacity: 1 probe, running 2, left 3, bracket 26 ≤ S\n"
        "capacity: 2 probes, running 1, left 2, bracket 26 ≤ S\n"
        "capacity: 3 probes, running 1, left 1, bracket 26 ≤ S < 27, about 6 s left\n"
    )


@pytest.mark.parametrize("total", [None, 10])
def test_a_bar_counts_nothing_before_there_are_steps(capsys, monkeypatch, total):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(OutputOptions(), "flow", total, "point") as report:
        report(None, loss=0.5)
    _, err = capsys.readouterr()
    assert "flow: loss 0.5" in err
    assert "point" not in err


@pytest.mark.parametrize("total", [None, 10])
def test_shows_a_bar_on_a_terminal(capsys, monkeypatch, total):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(OutputOptions(), "fit", total) as report:
        report(5, loss=0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fit: 5 steps, loss 0.5" in err
