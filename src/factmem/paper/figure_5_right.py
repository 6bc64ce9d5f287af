"""Figure 5, right: a softmax head on random embeddings learns in the same stages."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.loss_curves import SIZES, loss_figure

__all__ = ["figure_5_right"]

_SEEDS = {"quick": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}
_STEPS = {"quick": 2048, "paper": 4096}
_RATE, _DIM = 16.0, 292


def figure_5_right(scale: FigureScale = "quick") -> PaperFigure:
    """Losses of a softmax head against steps."""
    return loss_figure(
        "5-right",
        "Figure 5, right: a softmax head learns in the same stages",
        "The theorem is about linear attention over one-hot tokens. A softmax head over random "
        "embeddings, which nobody can solve on paper, goes the same way: relations first, "
        "subjects later, and between them answers that fit the relation alone.",
        "A softmax head on random embeddings of d = {3}, S = {0}, R = {1}, D = {2}, |N| = 20, "
        "T = 32, all weights 1e-5; plain gradient descent at rate {4:g}, {5:,} steps of 1,024 "
        "prompts. The authors' dimension, rate and steps are not known; these are ours.".format(
            *SIZES, _DIM, _RATE, _STEPS[scale]
        ),
        _SEEDS[scale],
        {
            "attention": "softmax",
            "dim": _DIM,
            "rate": _RATE,
            "steps": _STEPS[scale],
            "batch": 1024,
        },
    )
