"""The questions that the loss averages over: all there are, exactly, or a sample of prompts.

From a start that is equal on noise tokens gradient flow keeps them equal, for they have equal
parts in the distribution. Then every prompt about (s, r) has the same logits, wherever its noise
comes from, and the expectation over all prompts is a sum over the facts (`Population`): noise is
one class of |N| tokens, of which T − 3 stand in each prompt. A start with unequal noise tokens, or
stochastic descent, needs prompts (`PromptSample`).
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from factmem.facts import FactTable, PromptDistribution
from factmem.facts.prompts import question_chances

__all__ = ["ByKind", "Population", "PromptSample", "Questions", "Seen"]


class Seen(NamedTuple):
    """What the predictions for all questions come to at one moment; losses in nats."""

    loss: Float[Array, ""]
    """E[−log p̂(a*)]."""
    relation_loss: Float[Array, ""]
    """E[−log p̂(A_r)]: 0 if only answers of the right relation are predicted."""
    subject_loss: Float[Array, ""]
    """E[−log p̂(A_s)]: 0 if only answers that the subject has in some relation are predicted."""
    relation_gap: Float[Array, ""]
    """E[KL(p(·|r) ‖ p̂)]: 0 if relations are all that is known. Never below the relation's loss."""
    subject_gap: Float[Array, ""]
    """E[KL(p(·|s) ‖ p̂)]: 0 if subjects are all that is known. Never below the subject's loss."""
    distance: Float[Array, ""]
    """max over questions of Σ_a (p̂(a) − p(a|r))², of which Theorem 6 speaks."""
    loss_of_subjects: Float[Array, " subjects"]
    """The loss over the questions about each subject."""


class ByKind(NamedTuple):
    """Something that every token has, by the kind of the token; the last axis is over tokens."""

    subjects: np.ndarray
    relations: np.ndarray
    noise: np.ndarray
    """One for all noise tokens, where they are one class."""
    eos: np.ndarray


class Questions(eqx.Module):
    """Questions with their probabilities, and the best that can be said of them.

    Arrays are numpy's, so that the precision is that of whoever computes with them.
    """

    subjects: Int[Array | np.ndarray, " questions"]
    relations: Int[Array | np.ndarray, " questions"]
    answers: Int[Array | np.ndarray, " questions"]
    chances: Float[Array | np.ndarray, " questions"]
    """Sum to 1; 0 where the table has no fact."""
    given_relation: Float[Array | np.ndarray, "relations answers"]
    """p(a | r): what one who knows the relation alone can say at best."""
    given_subject: Float[Array | np.ndarray, "subjects answers"]
    """p(a | s): what one who knows the subject alone can say at best."""

    @property
    def sizes(self) -> tuple[int, int]:
        """S and R."""
        return self.given_subject.shape[0], self.given_relation.shape[0]

    def by_kind(self, of_tokens: np.ndarray) -> ByKind:
        """Splits the last axis, whether noise is one class there or stands token by token."""
        subjects, relations = self.sizes
        last = of_tokens.shape[-1] - 1
        return ByKind(*np.split(of_tokens, [subjects, subjects + relations, last], axis=-1))

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens, or classes of tokens, that weights belong to."""

    @abstractmethod
    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "questions answers"]:
        """Σ_z C(z) · products(z) for every question."""

    @abstractmethod
    def gathered(
        self, of_questions: Float[Array, "questions answers"]
    ) -> Float[Array, "tokens answers"]:
        """Σ over questions of C(z) · of_questions for each single token z."""

    def log_probabilities(
        self, products: Float[Array, "tokens answers"]
    ) -> Float[Array, "questions answers"]:
        """log p̂(a) for every question."""
        return jax.nn.log_softmax(self.logits(products), axis=1)

    def errors(self, products: Float[Array, "tokens answers"]) -> Float[Array, "tokens answers"]:
        """E[C(z) (1{a = a*} − p̂(a))] for every token z and answer a: minus ∂L/∂products(z, a)."""
        predicted = jnp.exp(self.log_probabilities(products))
        wanted = self.answers[:, None] == jnp.arange(predicted.shape[1])[None, :]
        return self.gathered(jnp.asarray(self.chances)[:, None] * (wanted - predicted))

    def see(self, log_probabilities: Float[Array, "questions answers"]) -> Seen:
        """What predictions come to."""
        chances = jnp.asarray(self.chances)
        by_relation = jnp.asarray(self.given_relation)[self.relations]
        by_subject = jnp.asarray(self.given_subject)[self.subjects]
        loss = -jnp.take_along_axis(log_probabilities, self.answers[:, None], axis=1)[:, 0]
        off = jnp.sum((jnp.exp(log_probabilities) - by_relation) ** 2, axis=1)

        def of_subjects(each: Array) -> Array:
            return jax.ops.segment_sum(each, self.subjects, self.sizes[0])

        return Seen(
            jnp.sum(chances * loss),
            jnp.sum(chances * _missed(log_probabilities, by_relation > 0)),
            jnp.sum(chances * _missed(log_probabilities, by_subject > 0)),
            jnp.sum(chances * _divergence(by_relation, log_probabilities)),
            jnp.sum(chances * _divergence(by_subject, log_probabilities)),
            jnp.max(jnp.where(chances > 0, off, 0.0)),
            of_subjects(chances * loss) / of_subjects(chances),
        )


class Population(Questions):
    """Every fact once, with its probability: exact expectations for weights equal on noise.

    Tokens are subjects, relations, one class of noise and EOS, in this order.
    """

    noise: int = eqx.field(static=True)
    length: int = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        table: FactTable,
        *,
        noise: int | None = None,
        length: int = 32,
        subject_power: float = 0.0,
    ) -> "Population":
        """All questions about a table, asked as in `PromptDistribution.of`."""
        asked = PromptDistribution.of(table, noise=noise, length=length)
        chances = np.zeros(table.answer_of.shape)
        chances[table.fact_ids[:2]] = question_chances(table, subject_power)
        subjects, relations = (
            places.ravel().astype(np.int32) for places in np.indices(chances.shape)
        )
        answers = np.maximum(table.answer_of, 0).ravel()
        chances = chances.ravel()
        return cls(
            subjects,
            relations,
            answers,
            chances,
            _given(relations, answers, chances, (table.relations, table.answers)),
            _given(subjects, answers, chances, (table.subjects, table.answers)),
            asked.vocabulary.noise,
            asked.length,
        )

    @property
    def tokens(self) -> int:
        """S + R + 2."""
        return sum(self.sizes) + 2

    # ---- what the table says -------------------------------------------------------------------

    @property
    def subject_chances(self) -> Float[np.ndarray, " subjects"]:
        """p(s)."""
        return np.bincount(self.subjects, self.chances, self.sizes[0])

    @property
    def relation_chances(self) -> Float[np.ndarray, " relations"]:
        """p(r)."""
        return np.bincount(self.relations, self.chances, self.sizes[1])

    @property
    def answer_marginal(self) -> Float[np.ndarray, " answers"]:
        """p(a): what one who knows nothing of the question can say at best."""
        return np.bincount(self.answers, self.chances, self.given_relation.shape[1])

    @property
    def relation_level(self) -> float:
        """H(a | r), the loss of p(a | r): log D for the paper's tables."""
        return self._loss(self.given_relation, self.relations)

    @property
    def subject_level(self) -> float:
        """H(a | s), the loss of p(a | s)."""
        return self._loss(self.given_subject, self.subjects)

    @property
    def marginal_level(self) -> float:
        """H(a), the loss of p(a)."""
        return self._loss(self.answer_marginal[None, :], np.zeros_like(self.subjects))

    def _loss(
        self,
        given: Float[Array | np.ndarray, "groups answers"],
        groups: Int[Array | np.ndarray, " questions"],
    ) -> float:
        """E[−log p(a* | group)]."""
        predicted = np.asarray(given)[groups, self.answers]
        asked = np.asarray(self.chances) > 0
        return float(-(np.asarray(self.chances)[asked] @ np.log(predicted[asked]))) + 0.0

    # ---- weights -------------------------------------------------------------------------------

    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "questions answers"]:
        """The sum of subject, relation, T − 3 times noise, and EOS."""
        subjects, relations = self.sizes
        everywhere = (self.length - 3) * products[-2] + products[-1]
        of_subjects = products[:subjects, None, :]
        of_relations = products[None, subjects:-2, :] + everywhere[None, None, :]
        return (of_subjects + of_relations).reshape(subjects * relations, -1)

    def gathered(
        self, of_questions: Float[Array, "questions answers"]
    ) -> Float[Array, "tokens answers"]:
        """Sums over relations, over subjects and over everything."""
        grid = of_questions.reshape(*self.sizes, -1)
        of_subjects = jnp.sum(grid, axis=1)
        everything = jnp.sum(of_subjects, axis=0, keepdims=True)
        of_noise = everything * ((self.length - 3) / self.noise)
        return jnp.concatenate([of_subjects, jnp.sum(grid, axis=0), of_noise, everything])


class PromptSample(Questions):
    """Prompts in which every token counts for itself: several for each fact, with its probability
    shared among them. Tokens are those of a prompt, in the order of `Vocabulary`."""

    counts: Int[Array | np.ndarray, "questions tokens"]

    @classmethod
    def draw(
        cls,
        key: Key[Array, ""],
        population: Population,
        asked: PromptDistribution,
        prompts: int,
    ) -> "PromptSample":
        """So many prompts for each fact, with fresh noise."""
        _, relations = population.sizes
        places = np.asarray(asked.fact_subjects) * relations + np.asarray(asked.fact_relations)
        places = np.repeat(places, prompts)
        facts = jnp.repeat(jnp.arange(asked.facts, dtype=jnp.int32), prompts)
        drawn = asked.ask(key, facts, form="counts")
        return cls(
            population.subjects[places],
            population.relations[places],
            population.answers[places],
            population.chances[places] / prompts,
            population.given_relation,
            population.given_subject,
            np.asarray(drawn.content),
        )

    @property
    def tokens(self) -> int:
        """S + R + |N| + 1."""
        return self.counts.shape[1]

    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "questions answers"]:
        """One product with the counts."""
        counts = self.counts.astype(products.dtype)
        return jnp.matmul(counts, products, precision=jax.lax.Precision.HIGHEST)

    def gathered(
        self, of_questions: Float[Array, "questions answers"]
    ) -> Float[Array, "tokens answers"]:
        """One product with the transposed counts."""
        counts = self.counts.astype(of_questions.dtype)
        return jnp.matmul(counts.T, of_questions, precision=jax.lax.Precision.HIGHEST)


def _given(
    groups: Int[np.ndarray, " questions"],
    answers: Int[np.ndarray, " questions"],
    chances: Float[np.ndarray, " questions"],
    shape: tuple[int, int],
) -> Float[np.ndarray, "groups answers"]:
    """p(a | group of the question)."""
    joint = np.zeros(shape)
    np.add.at(joint, (groups, answers), chances)
    return joint / joint.sum(axis=1, keepdims=True)


def _missed(
    log_probabilities: Float[Array, "questions answers"],
    allowed: Bool[Array, "questions answers"],
) -> Float[Array, " questions"]:
    """−log of the probability of the allowed answers."""
    total = jax.nn.logsumexp(log_probabilities, axis=1, where=allowed)
    return jnp.maximum(0.0, -total)  # rounding may take the sum above 1


def _divergence(
    wanted: Float[Array, "questions answers"], log_probabilities: Float[Array, "questions answers"]
) -> Float[Array, " questions"]:
    """KL(wanted ‖ predicted)."""
    entropy = jnp.sum(jax.scipy.special.xlogy(wanted, wanted), axis=1)
    return entropy - jnp.sum(jnp.where(wanted > 0, wanted * log_probabilities, 0.0), axis=1)
