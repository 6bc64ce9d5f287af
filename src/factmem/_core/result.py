"""The base classes of results and statuses."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

__all__ = ["Result", "Status"]

ModelT = TypeVar("ModelT")


class Status(Enum):
    """How a computation ended: the member name goes into JSON, the value is a sentence."""

    @property
    def label(self) -> str:
        """The member name as it appears in JSON and in tables, such as `step_limit`."""
        return self.name.lower()

    @property
    def sentence(self) -> str:
        """The meaning of the status as one sentence."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class Result(Generic[ModelT]):
    """A model and the status of the computation that made it.

    Args:
        model: a memory or a transformer.
        status: how the computation ended.
    """

    model: ModelT
    status: Status

    @property
    def metrics(self) -> dict[str, Any]:
        """Further results as JSON data."""
        return {}
