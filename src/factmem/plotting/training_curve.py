"""Loss and accuracy of training runs against their steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from factmem.plotting.plot import Axis, Chart, Level, Line, Plot

if TYPE_CHECKING:
    from factmem.training import TrainingResult

__all__ = ["training_curve"]


def training_curve(
    runs: "Sequence[TrainingResult]", criterion: float | None = None, title: str = ""
) -> Plot:
    """Plot the checks of training runs: the loss above, the accuracy below.

    Args:
        runs: the runs, named after their learning rates.
        criterion: an accuracy to mark.
        title: title of the plot.
    """
    losses, accuracies = [], []
    for run in runs:
        name = f"learning rate {run.learning_rate:g}"
        steps = tuple(float(evaluation.steps) for evaluation in run.evaluations)
        loss = tuple(evaluation.loss for evaluation in run.evaluations)
        accuracy = tuple(evaluation.accuracy for evaluation in run.evaluations)
        losses.append(Line(name, steps, loss, kind="curve"))
        accuracies.append(Line(name, steps, accuracy, kind="curve"))
    positive = all(np.nanmax(line.y) > 0 for line in losses)
    levels = () if criterion is None else (Level(f"{100 * criterion:g}%", criterion),)
    x = Axis("steps")
    return Plot(
        "training",
        title,
        (
            Chart(x, Axis("loss (nats)", "log" if positive else "linear"), tuple(losses)),
            Chart(
                x,
                Axis("accuracy, fixed prompts", limits=(0.0, 1.04)),
                tuple(accuracies),
                levels=levels,
            ),
        ),
        columns=1,
        shared_legend=True,
    )
