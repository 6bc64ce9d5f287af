"""Ways to store a table of facts in a transformer, by name. Importing this does not load jax.

Each module registers one method: a frozen dataclass of its options.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from factmem._core.progress import Report
from factmem._core.registry import Registry
from factmem._core.result import Result

if TYPE_CHECKING:
    from factmem.experiments.transformer_spec import TransformerInstance
    from factmem.facts import Vocabulary
    from factmem.transformer import Embeddings, Shape

__all__ = ["TRANSFORMER_METHODS", "TransformerMethod", "register_transformer_method"]


class TransformerMethod(ABC):
    """A way to store a table of facts; subclasses are frozen dataclasses of options."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def draw_embeddings(self, dim: int, vocabulary: "Vocabulary", key: Any) -> "Embeddings":
        """Draw the embeddings that the method works with."""

    @abstractmethod
    def build(
        self,
        instance: "TransformerInstance",
        shape: "Shape | None",
        *,
        report: Report | None = None,
        checkpoint: str | None = None,
    ) -> Result:
        """Store the facts of an instance in a transformer.

        Args:
            instance: the table, the prompts and the random keys.
            shape: the sizes; constructions ignore `heads`, and None means that the method chooses.
            report: called with the progress.
            checkpoint: a file from which an interrupted training resumes.
        """

    def flops_per_step(self, shape: "Shape", vocabulary: "Vocabulary", facts: int) -> float:
        """Estimate the floating-point operations of a step."""
        return 6.0 * facts * shape.parameters

    @property
    def expected_steps(self) -> float:
        """The expected number of steps, for estimates."""
        return 1.0

    def config(self) -> dict[str, Any]:
        """Return the method and its options as JSON data."""
        return {"method": self.name, **asdict(self)}  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TransformerMethod":
        """Return the method with the options in `config`."""
        names = cls.__dataclass_fields__  # pyright: ignore[reportAttributeAccessIssue]
        return cls(**{name: config[name] for name in names})


TRANSFORMER_METHODS: Registry[type[TransformerMethod]] = Registry("transformer method", __name__)
"""All methods, in the order of the paper and then beyond it."""

MethodT = TypeVar("MethodT", bound=type[TransformerMethod])


def register_transformer_method(
    name: str, *, summary: str, order: int | float = 1000
) -> Callable[[MethodT], MethodT]:
    """Register a class as a transformer method.

    Args:
        name: its name on the command line.
        summary: a few words.
        order: where it is listed.
    """

    def register(method: MethodT) -> MethodT:
        method.name, method.summary = name, summary
        TRANSFORMER_METHODS.add(name, method, order=order)
        return method

    return register
