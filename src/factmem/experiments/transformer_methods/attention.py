"""The construction of Theorem 3: attention alone."""

from dataclasses import dataclass
from typing import Any

from factmem.experiments.transformer_methods import TransformerMethod, register_transformer_method

__all__ = ["Attention"]


@register_transformer_method("attention", summary="Theorem 3, attention only", order=1)
@dataclass(frozen=True, kw_only=True)
class Attention(TransformerMethod):
    """Store all facts in attention heads.

    Args:
        block_size: number of tokens that one head reads; chosen by the construction by default.
    """

    block_size: int | None = None

    def draw_embeddings(self, dim: int, vocabulary: Any, key: Any) -> Any:
        """Draw embeddings by the convention of the theorems."""
        from factmem.transformer import THEORY_CONVENTION, Embeddings

        return Embeddings.draw(dim, vocabulary, THEORY_CONVENTION, key=key)

    def build(
        self, instance: Any, shape: Any, *, report: Any = None, checkpoint: str | None = None
    ) -> Any:
        """Construct the transformer."""
        from factmem.transformer import attention_construction

        embeddings = self.draw_embeddings(shape.dim, instance.vocabulary, instance.start_key)
        return attention_construction(
            instance.prompts,
            embeddings,
            shape.head_dim,
            key=instance.method_key,
            block_size=self.block_size,
        )
