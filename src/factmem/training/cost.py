"""The cost of a training step: the FLOPs of its matrix products."""

from collections.abc import Mapping
from typing import NamedTuple

from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.prompt_form_rule import choose_prompt_form
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
    shape: Shape, vocabulary: Vocabulary, batch_size: int, length: int = 32
) -> Mapping[str, MatrixProduct]:
    """Return the matrix products of one step of one run, forward and backward.

    The products for attention scores are left out unless they are computed for every position:
    they are the smallest, because a score depends on the token alone.

    Args:
        shape: the transformer's sizes.
        vocabulary: the numbers of tokens and answers.
        batch_size: the number of prompts in a step.
        length: T, the number of tokens in a prompt.
    """
    d, inner, answers = shape.dim, shape.heads * shape.head_dim, vocabulary.answers
    products = {
        **_attention_products(shape, vocabulary, batch_size, length),
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


def _attention_products(
    shape: Shape, vocabulary: Vocabulary, batch_size: int, length: int
) -> dict[str, MatrixProduct]:
    """Return the products of attention, in the form that training chooses."""
    d, heads, inner = shape.dim, shape.heads, shape.heads * shape.head_dim
    form = choose_prompt_form(vocabulary, length, d)
    if form == "tokens":
        # Products of every prompt and head, as one product of the same FLOPs.
        rows = batch_size * heads
        return {
            "scores": MatrixProduct(batch_size * length, d, heads, None),
            "scores, backward": MatrixProduct(d, batch_size * length, heads, "left"),
            "mixed embeddings": MatrixProduct(rows, length, d, None),
            "mixed embeddings, backward": MatrixProduct(rows, d, length, "right"),
            "values": MatrixProduct(batch_size, d, inner, "right"),
            "values, inputs": MatrixProduct(batch_size, inner, d, None),
            "values, backward": MatrixProduct(inner, batch_size, d, "left"),
        }
    counted = vocabulary.prompt_tokens if form == "counts" else vocabulary.noise + 1
    tokens = counted if form == "counts" else counted + 2 * batch_size
    return {
        "values": MatrixProduct(tokens, d, inner, "right"),
        "values, backward": MatrixProduct(inner, tokens, d, "left"),
        "counts · table": MatrixProduct(batch_size, counted, inner + heads, None),
        "counts · table, backward": MatrixProduct(counted, batch_size, inner + heads, "left"),
    }


def step_flops(shape: Shape, vocabulary: Vocabulary, batch_size: int, length: int = 32) -> int:
    """Return the FLOPs in the matrix products of one step of one run."""
    products = step_products(shape, vocabulary, batch_size, length)
    return sum(product.flops for product in products.values())
