"""Shapes that suit a table: a rule for d, H, d_h and m from the numbers of facts, tokens and bits.

Many heads with d_h = 1 store the most facts per parameter: queries and keys need only one
dimension, and each head mixes subject and relation in its own way. The MLP gets the other
parameters.
"""

import math

from factmem.facts.prompts import PromptDistribution
from factmem.transformer.shape import Shape

__all__ = ["MAX_FULL_BATCH_FACTS", "default_dim", "default_heads", "shape_with", "suggest_shape"]

MAX_FULL_BATCH_FACTS = 2000
"""Larger tables are fitted by minibatches. With 900 facts at 0.6 bits a parameter one batch takes
17 s and minibatches 13 s, with 3,600 facts 69 s and 15 s."""
_DEFAULT_LOAD, _SMALL_LOAD = 0.6, 0.45
"""Bits per parameter of a suggested shape."""


def suggest_shape(prompts: PromptDistribution, load: float | None = None) -> Shape:
    """Return a shape that should hold a table.

    Args:
        prompts: the facts, the noise tokens and the prompt length.
        load: bits of the table per parameter; 0.6 by default, 0.45 for small tables. A compilation
            at 1.0 takes about three times as long, if it succeeds.

    Examples:
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> suggest_shape(PromptDistribution.from_table(FactTable.random(30, 30, 8)))
        Shape(dim=17, heads=20, head_dim=1, width=135)
    """
    small = prompts.facts <= MAX_FULL_BATCH_FACTS
    if load is None:
        load = _SMALL_LOAD if small else _DEFAULT_LOAD
    dim = default_dim(prompts)
    attention = 4 * default_heads(prompts, dim) * dim
    parameters = max(prompts.table.association_bits / load, 1.2 * attention)
    return shape_with(parameters, dim, prompts)


def default_dim(prompts: PromptDistribution) -> int:
    """Return a d that suits the table.

    Small tables: 1.6 √(S + R) + 4.5, so 14 for 32 tokens and 17 for 60. Large tables: 1.6 times the
    number of facts to the power 0.4, as a multiple of 8, so 64 for 9,646 facts and 128 for 54,031.
    """
    if prompts.facts <= MAX_FULL_BATCH_FACTS:
        return round(1.6 * math.sqrt(prompts.vocabulary.first_noise) + 4.5)
    return 8 * math.ceil(1.6 * prompts.facts**0.4 / 8)


def default_heads(prompts: PromptDistribution, dim: int) -> int:
    """Return how many heads suit the table: d of them if it is large.

    In small tables as many as distinguish the facts; with a larger d fewer are enough.
    """
    if prompts.facts > MAX_FULL_BATCH_FACTS:
        return dim
    factor = min(1.0, math.sqrt(default_dim(prompts) / dim))
    return max(4, round(2.6 * factor * math.sqrt(prompts.vocabulary.first_noise)))


def shape_with(parameters: float, dim: int, prompts: PromptDistribution) -> Shape:
    """Return the shape with this d, d_h = 1 and about this number of parameters."""
    heads = default_heads(prompts, dim)
    return Shape(dim, heads, 1, max(0, round(parameters / (2 * dim) - 2 * heads)))
