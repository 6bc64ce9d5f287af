"""What every fit, construction, training and search returns: a model and a status."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

__all__ = ["Result", "Status"]

ModelT = TypeVar("ModelT")


class Status(Enum):
    """How a computation ended. The name goes into JSON, the value is a sentence for people."""

    @property
    def label(self) -> str:
        """The member's name as it appears in JSON and in tables, such as `step_limit`."""
        return self.name.lower()

    @property
    def sentence(self) -> str:
        """What it means, as one sentence."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class Result(Generic[ModelT]):
    """A model, and how the computation that made it ended.

    Args:
        model: the memory or the transformer.
        status: how the computation ended.
    """

    model: ModelT
    status: Status

    @property
    def metrics(self) -> dict[str, Any]:
        """What the method reports about the model, as JSON data."""
        return {}
