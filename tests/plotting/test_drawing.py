"""Figures on disk, and the curve of a training."""

import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure

from factmem._core.errors import FactmemError
from factmem.facts.vocabulary import Vocabulary
from factmem.plotting import check_format, save_figure, training_curve
from factmem.training import Check, TrainedTransformer, TrainingOutcome
from factmem.transformer import Shape, Transformer

MODEL = Transformer.draw(jr.key(0), Shape(2, 1, 1), Vocabulary(1, 1, 1, 1))


def run(rate, *checks):
    return TrainedTransformer(MODEL, rate, TrainingOutcome.STEPS, tuple(Check(*c) for c in checks))


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("b.PDF", b"%PDF")])
def test_a_figure_is_written_in_the_format_of_its_name(tmp_path, name, begins):
    save_figure(Figure(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "png", "a", "a.png.exe"])
def test_other_formats_are_refused(tmp_path, name):
    with pytest.raises(FactmemError, match=r"\.png, \.pdf or \.svg"):
        check_format(tmp_path / name)


def test_the_curve_shows_what_was_checked():
    runs = [run(0.01, (0, 3.0, 0.1), (10, 0.5, 0.9)), run(0.1, (0, 3.0, 0.1), (10, np.nan, 0.0))]
    figure = training_curve(runs, 0.99, "5 facts for $5 & <b>")
    above, below = figure.axes
    for axes, field in ((above, "loss"), (below, "accuracy")):
        for line, drawn in zip(axes.lines, runs, strict=False):
            np.testing.assert_array_equal(line.get_xdata(), [0, 10])
            expected = [getattr(check, field) for check in drawn.checks]
            np.testing.assert_array_equal(line.get_ydata(), expected)
    assert above.get_yscale() == "log"
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["0.01", "0.1"]
    assert below.lines[-1].get_ydata()[0] == 0.99


def test_a_title_is_text_and_no_mathematics(tmp_path):
    figure = training_curve([run(0.01, (0, 3.0, 0.1))], title="$5 and $\\frac")
    save_figure(figure, tmp_path / "f.png")
    assert figure.get_suptitle() == "$5 and $\\frac"
