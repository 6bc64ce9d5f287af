"""Loss and accuracy of training runs against their steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from factmem.plotting.drawing import STYLE, label_beside

if TYPE_CHECKING:
    from factmem.training import TrainedTransformer

__all__ = ["training_curve"]


def training_curve(
    runs: "Sequence[TrainedTransformer]", criterion: float | None = None, title: str = ""
) -> Figure:
    """Draws the checks of every run: the loss above, on a logarithmic scale, accuracy below.

    Args:
        runs: told apart by their learning rates.
        criterion: an accuracy to mark.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(5.2, 4.4))
        above, below = figure.subplots(2, 1, sharex=True)
        for run in runs:
            steps = [check.steps for check in run.checks]
            above.plot(steps, [check.loss for check in run.checks], label=f"{run.learning_rate:g}")
            below.plot(steps, [check.accuracy for check in run.checks])
        if all(np.nanmax([check.loss for check in run.checks]) > 0 for run in runs):
            above.set_yscale("log")
        above.set_ylabel("loss (nats)")
        above.legend(title="learning rate")
        if criterion is not None:
            below.axhline(criterion, color="0.5", linestyle=":", linewidth=1)
            label_beside(below, criterion, f"{100 * criterion:g} %")
        below.set_ylim(0, 1.04)
        below.set_ylabel("accuracy, fixed prompts")
        below.set_xlabel("steps")
        figure.suptitle(title, parse_math=False)
        return figure
