"""The compiler: weights fitted to the facts, with a certificate."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from factmem.experiments.transformer_methods import TransformerMethod, register_transformer_method

__all__ = ["Compile"]

_TYPICAL_ITERATIONS = 3000
"""Steps of the fit of a small table."""
_VERSION = 2
"""Of the results: runs of other versions are not reused. Version 1 fitted with L-BFGS."""


@register_transformer_method(
    "compiled", summary="weights fitted to a shape, with a certificate", order=3
)
@dataclass(frozen=True, kw_only=True)
class Compile(TransformerMethod):
    """Compile the facts into a shape, or into the smallest shape if none is given.

    Args:
        dim: d of the smallest shape; searched for by default. Only used without a shape.
        embedding: the distribution of the embeddings. On the sphere every answer can be decoded;
            of many Gaussian vectors in few dimensions some cannot.
        time_limit: seconds after which the search for the smallest shape begins no further
            compilation. Only used without a shape.
    """

    dim: int | None = None
    embedding: Literal["gaussian", "sphere"] = "gaussian"
    time_limit: float | None = None

    def draw_embeddings(self, dim: int, vocabulary: Any, key: Any) -> Any:
        """Draw embeddings by the convention of the experiments, or on the sphere."""
        from factmem.transformer import Embeddings

        return Embeddings.draw(dim, vocabulary, self._convention, key=key)

    @property
    def _convention(self) -> Any:
        from factmem.transformer import EXPERIMENT_CONVENTION

        return replace(EXPERIMENT_CONVENTION, embedding=self.embedding)

    def build(
        self, instance: Any, shape: Any, *, report: Any = None, checkpoint: str | None = None
    ) -> Any:
        """Compile the facts."""
        from factmem.transformer import compile_facts, compile_smallest

        def embeddings(dim: int) -> Any:
            return self.draw_embeddings(dim, instance.vocabulary, instance.start_key)

        prompts = instance.prompts
        options: Any = {"key": instance.method_key, "convention": self._convention}
        if shape is None:
            return compile_smallest(
                prompts,
                embeddings,
                self.dim,
                report=report,
                time_limit=self.time_limit,
                **options,
            )
        return compile_facts(
            prompts, embeddings(shape.dim), shape, report=report, checkpoint=checkpoint, **options
        )

    @property
    def expected_steps(self) -> float:
        """The typical number of iterations."""
        return float(_TYPICAL_ITERATIONS)

    def config(self) -> dict[str, Any]:
        """Return the method as JSON data; the entry `dim` belongs to the shape."""
        return {
            "method": self.name,
            "smallest_dim": self.dim,
            "embedding": self.embedding,
            "time_limit": self.time_limit,
            "compiler_version": _VERSION,
        }

    @classmethod
    def from_config(cls, config: Any) -> "Compile":
        """Return the method with the options in `config`."""
        return cls(
            dim=config["smallest_dim"],
            embedding=config["embedding"],
            time_limit=config["time_limit"],
        )
