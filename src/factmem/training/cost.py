"""What a training step costs: its matrix products, counted."""

from collections.abc import Mapping
from typing import NamedTuple

from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.model import Shape

__all__ = ["Product", "step_flops", "step_products"]


class Product(NamedTuple):
    """A matrix product of rows × inner and inner × columns."""

    rows: int
    inner: int
    columns: int
    transposed: str | None
    """Which of its sides lies in memory the other way round: left, right or none."""

    @property
    def flops(self) -> int:
        """Additions and multiplications."""
        return 2 * self.rows * self.inner * self.columns


def step_products(shape: Shape, vocabulary: Vocabulary, batch: int) -> Mapping[str, Product]:
    """The products of one step of one run, forward and backward.

    Those of scores, which are a function of the token alone, are left out: they are the smallest.

    Args:
        shape: of the transformer.
        vocabulary: how many tokens and answers there are.
        batch: prompts in a step.
    """
    d, inner = shape.dim, shape.heads * shape.head_dim
    tokens, answers = vocabulary.prompt_tokens, vocabulary.answers
    found = {
        "values": Product(tokens, d, inner, "right"),
        "values, backward": Product(inner, tokens, d, "left"),
        "counts · table": Product(batch, tokens, inner + shape.heads, None),
        "counts · table, backward": Product(tokens, batch, inner + shape.heads, "left"),
        "logits": Product(batch, d, answers, "right"),
        "logits, backward": Product(batch, answers, d, None),
    }
    layers = (("output", inner, d), ("MLP in", d, shape.width), ("MLP out", shape.width, d))
    for name, rows, columns in layers:
        if rows and columns:
            found[name] = Product(batch, rows, columns, None)
            found[f"{name}, backward"] = Product(batch, columns, rows, "right")
            found[f"{name}, weights"] = Product(rows, batch, columns, "left")
    return found


def step_flops(shape: Shape, vocabulary: Vocabulary, batch: int) -> int:
    """Additions and multiplications in the matrix products of one step of one run."""
    return sum(product.flops for product in step_products(shape, vocabulary, batch).values())
