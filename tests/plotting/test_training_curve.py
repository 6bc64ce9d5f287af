"""Curves of training runs."""

import jax.random as jr
import numpy as np

from factmem.facts.vocabulary import Vocabulary
from factmem.plotting import draw_matplotlib, save_figure, training_curve
from factmem.training import Evaluation, TrainingResult, TrainingStatus
from factmem.transformer import Shape, Transformer

MODEL = Transformer.draw(Shape(2, 1, 1), Vocabulary(1, 1, 1, 1), key=jr.key(0))


def run(learning_rate, *checks):
    return TrainingResult(
        model=MODEL,
        status=TrainingStatus.STEP_LIMIT,
        learning_rate=learning_rate,
        evaluations=tuple(Evaluation(*check) for check in checks),
    )


def test_shows_loss_and_accuracy_of_all_checks():
    runs = [run(0.01, (0, 3.0, 0.1), (10, 0.5, 0.9)), run(0.1, (0, 3.0, 0.1), (10, np.nan, 0.0))]
    above, below = training_curve(runs, 0.99, "5 facts for $5 & <b>").panels
    for panel, field in ((above, "loss"), (below, "accuracy")):
        assert [line.name for line in panel.lines] == ["learning rate 0.01", "learning rate 0.1"]
        for line, result in zip(panel.lines, runs, strict=True):
            assert line.x == (0, 10)
            expected = [getattr(check, field) for check in result.evaluations]
            np.testing.assert_array_equal(line.y, expected)
    assert above.y.scale == "log"
    assert [(level.name, level.y) for level in below.levels] == [("99%", 0.99)]


def test_a_loss_of_zero_makes_the_axis_linear():
    above, _ = training_curve([run(0.01, (0, 0.0, 1.0))]).panels
    assert above.y.scale == "linear"


def test_the_title_is_plain_text(tmp_path):
    figure = draw_matplotlib(training_curve([run(0.01, (0, 3.0, 0.1))], title="$5 and $\\frac"))
    save_figure(figure, tmp_path / "f.png")
    assert figure.get_suptitle() == "$5 and $\\frac"
