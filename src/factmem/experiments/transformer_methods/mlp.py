"""The construction of Theorem 4: attention and an MLP."""

from dataclasses import dataclass
from typing import Any

from factmem.experiments.transformer_methods import register_transformer_method
from factmem.experiments.transformer_methods.attention import Attention

__all__ = ["AttentionMLP"]


@register_transformer_method("mlp", summary="Theorem 4, attention and an MLP", order=2)
@dataclass(frozen=True, kw_only=True)
class AttentionMLP(Attention):
    """Store all facts in an MLP that reads what attention selects."""

    def build(
        self, instance: Any, shape: Any, *, report: Any = None, checkpoint: str | None = None
    ) -> Any:
        """Construct the transformer."""
        from factmem.transformer import mlp_construction

        embeddings = self.draw_embeddings(shape.dim, instance.vocabulary, instance.start_key)
        return mlp_construction(
            instance.prompts,
            embeddings,
            shape.head_dim,
            shape.width,
            key=instance.method_key,
            block_size=self.block_size,
        )
