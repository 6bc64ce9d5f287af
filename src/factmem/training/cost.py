"""The cost of a training step: the FLOPs of its matrix products."""

from collections.abc import Mapping
from typing import NamedTuple

from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.shape import Shape

__all__ = ["MatrixProduct", "step_flops", "step_products"]


class MatrixProduct(NamedTuple):
    """A matrix product of rows × inner and inner × columns."""

    rows: int
    inner: int
    columns: int
    transposed: str | None
    """Which factor is stored transposed: "left", "right" or None."""

    @property
    def flops(self) -> int:
        """The number of additions and multiplications."""
        return 2 * self.rows * self.inner * self.columns


def step_products(
    shape: Shape, vocabulary: Vocabulary, batch_size: int
) -> Mapping[str, MatrixProduct]:
    """Return the matrix products of one step of one run, forward and backward.

    The products for attention scores are left out: they are the smallest, because a score depends
    on the token alone.

    Args:
        shape: the transformer's sizes.
        vocabulary: the numbers of tokens and answers.
        batch: the number of prompts in a step.
    """
    d, inner = shape.dim, shape.heads * shape.head_dim
    tokens, answers = vocabulary.prompt_tokens, vocabulary.answers
    products = {
        "values": MatrixProduct(tokens, d, inner, "right"),
        "values, backward": MatrixProduct(inner, tokens, d, "left"),
        "counts · table": MatrixProduct(batch_size, tokens, inner + shape.heads, None),
        "counts · table, backward": MatrixProduct(tokens, batch_size, inner + shape.heads, "left"),
        "logits": MatrixProduct(batch_size, d, answers, "right"),
        "logits, backward": MatrixProduct(batch_size, answers, d, None),
    }
    layers = (("output", inner, d), ("MLP in", d, shape.width), ("MLP out", shape.width, d))
    for name, rows, columns in layers:
        if rows and columns:
            products[name] = MatrixProduct(batch_size, rows, columns, None)
            products[f"{name}, backward"] = MatrixProduct(batch_size, columns, rows, "right")
            products[f"{name}, weights"] = MatrixProduct(rows, batch_size, columns, "left")
    return products


def step_flops(shape: Shape, vocabulary: Vocabulary, batch_size: int) -> int:
    """Return the FLOPs in the matrix products of one step of one run."""
    return sum(product.flops for product in step_products(shape, vocabulary, batch_size).values())
