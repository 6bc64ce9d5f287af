"""How a training run ends."""

from enum import Enum

__all__ = ["TrainingOutcome"]


class TrainingOutcome(Enum):
    """How a training run ended, as a sentence."""

    REACHED = "The criterion was reached."
    OVERTAKEN = "Another run of the same contest reached the criterion first."
    HOPELESS = "It was so far from the criterion that it was ended early."
    STEPS = "All steps were done without reaching the criterion."
    DIVERGED = "The loss or the weights are no longer finite."
