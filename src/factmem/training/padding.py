"""One compiled program for tables, heads and neurons of many numbers.

What is compiled knows how many tokens, answers and facts there are. With room for more than there
are, one program trains all tables that fit: tokens that no prompt holds, answers that no output is
compared with, facts that nobody asks for. Heads and neurons whose weights are all zero write
nothing, have no gradient and so stay as they are. Everything else is the same, up to rounding.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from factmem._core.errors import FactmemError
from factmem.facts.prompts import Occupied, PromptDistribution
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.model import Embeddings, Shape, Transformer, Weights, array_shapes

__all__ = ["PaddedSizes"]


@dataclass(frozen=True)
class PaddedSizes:
    """How large a table may be, and how large a transformer.

    Args:
        vocabulary: the most subjects, relations, noise tokens and answers.
        facts: the most facts.
        heads: the most heads; None for as many as there are.
        width: the most neurons, likewise.
    """

    vocabulary: Vocabulary
    facts: int
    heads: int | None = None
    width: int | None = None

    def questions(self, asked: PromptDistribution) -> PromptDistribution:
        """The same questions among more tokens, which no prompt holds.

        Raises:
            FactmemError: there are more of something than there is room for, or some questions are
                likelier than others.
        """
        names, most = asked.vocabulary, self.vocabulary
        kinds = ("subjects", "relations", "noise", "answers")
        if asked.facts > self.facts or any(getattr(names, k) > getattr(most, k) for k in kinds):
            raise FactmemError(f"{asked.facts} facts among {names} do not fit into {self}")
        if asked.thresholds is not None:
            raise FactmemError("only questions that are all equally likely have room for more")
        return PromptDistribution(
            _longer(asked.fact_subjects, self.facts),
            _longer(asked.fact_relations, self.facts),
            _longer(asked.fact_answers, self.facts),
            None,
            most,
            asked.length,
            Occupied(jnp.asarray(asked.facts, jnp.int32), jnp.asarray(names.noise, jnp.int32)),
        )

    def model(self, model: Transformer) -> Transformer:
        """The same transformer with embeddings for more tokens and answers, and more heads and
        neurons, which do nothing.

        Tokens that no prompt holds look like EOS, which every prompt holds: so they never have the
        highest score of a head alone, by which scores are shifted.

        Raises:
            FactmemError: input and output share one table, of which no part can be left out; or
                there are more heads or neurons than there is room for.
        """
        if model.embeddings.answers is None:
            raise FactmemError("a transformer with one table for input and output has no room")
        names, most = model.vocabulary, self.vocabulary
        tokens = model.embeddings.tokens
        eos = jnp.broadcast_to(tokens[-1], (most.prompt_tokens, tokens.shape[1]))
        embeddings = Embeddings(
            eos.at[_places(names, most)].set(tokens),
            _longer(model.embeddings.answers, most.answers),
        )
        shape = self._shape(model.shape)
        return Transformer(
            _padded(model.weights, shape, model),
            embeddings,
            shape,
            most,
            model.convention,
            model.activation,
        )

    def _shape(self, shape: Shape) -> Shape:
        most = {"heads": self.heads, "width": self.width}
        wanted = {name: getattr(shape, name) if n is None else n for name, n in most.items()}
        if wanted["heads"] < shape.heads or wanted["width"] < shape.width:
            raise FactmemError(f"{shape} does not fit into {self}")
        return replace(shape, **wanted)

    def answers(self, asked: PromptDistribution) -> Bool[Array, " answers"]:
        """Which answers there are."""
        return jnp.arange(self.vocabulary.answers) < asked.vocabulary.answers


def _padded(weights: Weights, shape: Shape, model: Transformer) -> Weights:
    """The weights in the corner of larger arrays that are zero elsewhere."""
    sizes = array_shapes(shape, model.vocabulary, model.convention)["weights"]

    def of_array(name: str) -> Any:
        array, size = getattr(weights, name), sizes[name]
        if array is None or size is None:
            return None
        more = [(0, most - own) for own, most in zip(array.shape, size, strict=True)]
        return jnp.pad(array, more) if array.shape != size else array

    return Weights(**{name: of_array(name) for name in sizes})


def _places(names: Vocabulary, most: Vocabulary) -> np.ndarray:
    """Where each token of a prompt stands in the larger vocabulary."""
    return np.concatenate(
        [
            np.arange(names.subjects),
            most.first_relation + np.arange(names.relations),
            most.first_noise + np.arange(names.noise),
            [most.eos],
        ]
    )


def _longer(rows: Any, count: int) -> Any:
    """So many rows: the last again and again."""
    return rows[jnp.minimum(jnp.arange(count), rows.shape[0] - 1)]
