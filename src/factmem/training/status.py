"""How a training run ends."""

from factmem._core.result import Status

__all__ = ["TrainingStatus"]


class TrainingStatus(Status):
    """How a training run ended."""

    CRITERION_REACHED = "The accuracy reached the criterion."
    GROUP_SUCCEEDED = "Another run of the same group reached the criterion first."
    STOPPED_EARLY = "The run was stopped early because its accuracy was far below the criterion."
    STEP_LIMIT = "All steps were done without reaching the criterion."
    DIVERGED = "The loss or the weights are no longer finite."
