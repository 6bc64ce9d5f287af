"""Figure 5, left: linear attention learns relations first, then subjects."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.loss_curves import SIZES, loss_figure

__all__ = ["figure_5_left"]

_SEEDS = {"quick": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}


def figure_5_left(scale: FigureScale = "quick") -> PaperFigure:
    """Losses of linear attention against steps. Both scales are the authors' full experiment."""
    return loss_figure(
        "5-left",
        "Figure 5, left: linear attention learns in stages",
        "When are facts learned? First nothing happens; then, at once, the model knows which "
        "answers fit a relation and gives one of them whoever the subject is: it hallucinates. "
        "Much later it learns subjects, and with them the facts.",
        "Linear attention over one-hot tokens, S = {}, R = {}, D = {}, |N| = 20, T = 32, all "
        "weights 1e-5; plain gradient descent at rate 0.1, 8,192 steps of 1,024 prompts. The "
        "dashed curve is the exact gradient flow over all prompts.".format(*SIZES),
        _SEEDS[scale],
        {"attention": "linear", "dim": None, "rate": 0.1, "steps": 8192, "batch": 1024},
    )
