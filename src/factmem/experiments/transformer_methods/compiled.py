"""The compiler: weights fitted to the facts, with a certificate."""

from dataclasses import dataclass
from typing import Any

from factmem.experiments.transformer_methods import TransformerMethod, register_transformer_method

__all__ = ["Compile"]

_TYPICAL_ITERATIONS = 3000
"""Of L-BFGS."""


@register_transformer_method(
    "compiled", summary="weights fitted to a shape, with a certificate", order=3
)
@dataclass(frozen=True, kw_only=True)
class Compile(TransformerMethod):
    """Compile the facts into a shape, or into the smallest shape if none is given.

    Args:
        dim: d of the smallest shape; searched for by default. Only used without a shape.
    """

    dim: int | None = None

    def draw_embeddings(self, dim: int, vocabulary: Any, key: Any) -> Any:
        """Draw embeddings by the convention of the experiments."""
        from factmem.transformer import EXPERIMENT_CONVENTION, Embeddings

        return Embeddings.draw(dim, vocabulary, EXPERIMENT_CONVENTION, key=key)

    def build(
        self, instance: Any, shape: Any, *, report: Any = None, checkpoint: str | None = None
    ) -> Any:
        """Compile the facts."""
        from factmem.transformer import compile_facts, compile_smallest

        def embeddings(dim: int) -> Any:
            return self.draw_embeddings(dim, instance.vocabulary, instance.start_key)

        key, prompts = instance.method_key, instance.prompts
        if shape is None:
            return compile_smallest(prompts, embeddings, self.dim, key=key, report=report)
        return compile_facts(prompts, embeddings(shape.dim), shape, key=key, report=report)

    @property
    def expected_steps(self) -> float:
        """The typical number of iterations."""
        return float(_TYPICAL_ITERATIONS)

    def config(self) -> dict[str, Any]:
        """Return the method as JSON data; the entry `dim` belongs to the shape."""
        return {"method": self.name, "smallest_dim": self.dim}

    @classmethod
    def from_config(cls, config: Any) -> "Compile":
        """Return the method with the options in `config`."""
        return cls(dim=config["smallest_dim"])
