"""Padding to common sizes, so that tables and shapes of many sizes share one compiled program.

A compiled program depends on the numbers of tokens, answers and facts, of heads and of neurons.
Padding adds tokens that no prompt contains, answers that are masked out, and facts that are never
drawn. Heads and neurons of padding have zero weights: they write nothing, their gradients are zero,
and so they stay zero. Results are the same up to rounding.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from factmem._core.errors import FactmemError
from factmem.facts.prompts import ActiveSizes, PromptDistribution
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.model import Embeddings, Transformer, Weights, array_shapes
from factmem.transformer.shape import Shape

__all__ = ["PaddedSizes"]


@dataclass(frozen=True)
class PaddedSizes:
    """The sizes to which tables and transformers are padded.

    Args:
        vocabulary: the numbers of subjects, relations, noise tokens and answers.
        facts: the number of facts.
        heads: the number of heads; None adds none.
        width: the number of neurons of the MLP; None adds none.
    """

    vocabulary: Vocabulary
    facts: int
    heads: int | None = None
    width: int | None = None

    def pad_prompts(self, prompts: PromptDistribution) -> PromptDistribution:
        """Return the same distribution over a larger vocabulary.

        Raises:
            FactmemError: a size is larger than the padded one, or facts are not equally likely.
        """
        own, padded = prompts.vocabulary, self.vocabulary
        kinds = ("subjects", "relations", "noise", "answers")
        too_large = any(getattr(own, kind) > getattr(padded, kind) for kind in kinds)
        if prompts.facts > self.facts or too_large:
            raise FactmemError(f"{prompts.facts} facts with {own} do not fit into {self}")
        if prompts.thresholds is not None:
            raise FactmemError("padding needs prompts in which all facts are equally likely")
        return PromptDistribution(
            _repeat_last(prompts.fact_subjects, self.facts),
            _repeat_last(prompts.fact_relations, self.facts),
            _repeat_last(prompts.fact_answers, self.facts),
            None,
            padded,
            prompts.length,
            ActiveSizes(jnp.asarray(prompts.facts, jnp.int32), jnp.asarray(own.noise, jnp.int32)),
        )

    def pad_model(self, model: Transformer) -> Transformer:
        """Return the same transformer with embeddings, heads and neurons added.

        Padding tokens get the embedding of EOS. Every prompt contains EOS, so the largest score of
        a head, by which scores are shifted, is still that of a real token.

        Raises:
            FactmemError: input and output share one embedding table, or a size is larger than the
                padded one.
        """
        if model.embeddings.answers is None:
            raise FactmemError("a transformer with a shared embedding table cannot be padded")
        own, padded = model.vocabulary, self.vocabulary
        tokens = model.embeddings.tokens
        eos = jnp.broadcast_to(tokens[-1], (padded.prompt_tokens, tokens.shape[1]))
        embeddings = Embeddings(
            eos.at[_padded_token_ids(own, padded)].set(tokens),
            _repeat_last(model.embeddings.answers, padded.answers),
        )
        shape = self._pad_shape(model.shape)
        return Transformer(
            _pad_weights(model.weights, shape, model),
            embeddings,
            shape,
            padded,
            model.convention,
            model.activation,
        )

    def answer_mask(self, prompts: PromptDistribution) -> Bool[Array, " answers"]:
        """Return which answers are not padding."""
        return jnp.arange(self.vocabulary.answers) < prompts.vocabulary.answers

    def _pad_shape(self, shape: Shape) -> Shape:
        heads = shape.heads if self.heads is None else self.heads
        width = shape.width if self.width is None else self.width
        if heads < shape.heads or width < shape.width:
            raise FactmemError(f"{shape} does not fit into {self}")
        return replace(shape, heads=heads, width=width)


def _pad_weights(weights: Weights, shape: Shape, model: Transformer) -> Weights:
    """Pad every weight array with zeros at the end of its axes."""
    padded_shapes = array_shapes(shape, model.vocabulary, model.convention)["weights"]

    def pad(name: str) -> Any:
        array, padded_shape = getattr(weights, name), padded_shapes[name]
        if array is None or padded_shape is None:
            return None
        widths = [(0, new - old) for old, new in zip(array.shape, padded_shape, strict=True)]
        return jnp.pad(array, widths) if array.shape != padded_shape else array

    return Weights(**{name: pad(name) for name in padded_shapes})


def _padded_token_ids(own: Vocabulary, padded: Vocabulary) -> np.ndarray:
    """Return the id of each prompt token in the padded vocabulary."""
    return np.concatenate(
        [
            np.arange(own.subjects),
            padded.first_relation + np.arange(own.relations),
            padded.first_noise + np.arange(own.noise),
            [padded.eos],
        ]
    )


def _repeat_last(rows: Any, count: int) -> Any:
    """Extend an array to `count` rows by repeating its last row."""
    return rows[jnp.minimum(jnp.arange(count), rows.shape[0] - 1)]
