"""The prompts that a loss averages over: all of them, exactly, or a sample.

If all noise tokens start with equal weights, gradient flow keeps them equal, because they are
equally likely. Then the logits depend on subject and relation only, and the expectation over all
prompts is a sum over the facts (`PromptPopulation`): noise is one class of |N| tokens, with T − 3
tokens in each prompt. A start with unequal noise tokens, or SGD, needs prompts (`PromptSample`).
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from factmem.facts import FactTable, PromptDistribution
from factmem.facts.prompts import fact_probabilities

__all__ = ["LossStatistics", "PromptEnsemble", "PromptPopulation", "PromptSample", "TokenKinds"]


class LossStatistics(NamedTuple):
    """Averages over all prompts at one time; losses in nats."""

    loss: Float[Array, ""]
    """E[−log p̂(a*)]."""
    relation_loss: Float[Array, ""]
    """E[−log p̂(A_r)]: 0 if the model predicts only answers of the right relation."""
    subject_loss: Float[Array, ""]
    """E[−log p̂(A_s)]: 0 if the model predicts only answers that the subject has somewhere."""
    relation_kl: Float[Array, ""]
    """E[KL(p(·|r) ‖ p̂)]: 0 if the model knows the relation only. At least `relation_loss`."""
    subject_kl: Float[Array, ""]
    """E[KL(p(·|s) ‖ p̂)]: 0 if the model knows the subject only. At least `subject_loss`."""
    relation_distance: Float[Array, ""]
    """The maximum over prompts of Σ_a (p̂(a) − p(a|r))².

    Reference: Theorem 6."""
    loss_by_subject: Float[Array, " subjects"]
    """The mean loss over the prompts about each subject."""


class TokenKinds(NamedTuple):
    """Values of the tokens, split by the kind of token; the last axis is over tokens."""

    subjects: np.ndarray
    relations: np.ndarray
    noise: np.ndarray
    """One entry if noise is one class of tokens."""
    eos: np.ndarray


class PromptEnsemble(eqx.Module):
    """Prompts with their probabilities, and the best predictions from partial knowledge.

    The arrays are numpy arrays, so computations use the caller's precision.
    """

    subject_ids: Int[Array | np.ndarray, " prompts"]
    relation_ids: Int[Array | np.ndarray, " prompts"]
    answer_ids: Int[Array | np.ndarray, " prompts"]
    probabilities: Float[Array | np.ndarray, " prompts"]
    """They sum to 1; 0 where the table has no fact."""
    given_relation: Float[Array | np.ndarray, "relations answers"]
    """p(a | r), the best prediction from the relation only."""
    given_subject: Float[Array | np.ndarray, "subjects answers"]
    """p(a | s), the best prediction from the subject only."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of subjects and relations, S and R."""
        return self.given_subject.shape[0], self.given_relation.shape[0]

    def split_by_kind(self, token_values: np.ndarray) -> TokenKinds:
        """Split the last axis by the kind of token, with noise as one class or as single tokens."""
        subjects, relations = self.sizes
        eos = token_values.shape[-1] - 1
        return TokenKinds(*np.split(token_values, [subjects, subjects + relations, eos], axis=-1))

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The number of tokens, or classes of tokens, that have weights."""

    @abstractmethod
    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "prompts answers"]:
        """Compute Σ_z C(z) · products(z) for every prompt."""

    @abstractmethod
    def sum_by_token(
        self, prompt_values: Float[Array, "prompts answers"]
    ) -> Float[Array, "tokens answers"]:
        """Compute the sum over prompts of C(z) · prompt_values for each single token z."""

    def log_probabilities(
        self, products: Float[Array, "tokens answers"]
    ) -> Float[Array, "prompts answers"]:
        """Compute log p̂(a) for every prompt."""
        return jax.nn.log_softmax(self.logits(products), axis=1)

    def errors(self, products: Float[Array, "tokens answers"]) -> Float[Array, "tokens answers"]:
        """Compute E[C(z) (1{a = a*} − p̂(a))] for token z and answer a: −∂L/∂products(z, a)."""
        predicted = jnp.exp(self.log_probabilities(products))
        correct = self.answer_ids[:, None] == jnp.arange(predicted.shape[1])[None, :]
        return self.sum_by_token(jnp.asarray(self.probabilities)[:, None] * (correct - predicted))

    def statistics(self, log_probabilities: Float[Array, "prompts answers"]) -> LossStatistics:
        """Average the losses of predictions over all prompts."""
        probabilities = jnp.asarray(self.probabilities)
        given_relation = jnp.asarray(self.given_relation)[self.relation_ids]
        given_subject = jnp.asarray(self.given_subject)[self.subject_ids]
        loss = -jnp.take_along_axis(log_probabilities, self.answer_ids[:, None], axis=1)[:, 0]
        distance = jnp.sum((jnp.exp(log_probabilities) - given_relation) ** 2, axis=1)

        def sum_by_subject(values: Array) -> Array:
            return jax.ops.segment_sum(values, self.subject_ids, self.sizes[0])

        return LossStatistics(
            jnp.sum(probabilities * loss),
            jnp.sum(probabilities * _set_loss(log_probabilities, given_relation > 0)),
            jnp.sum(probabilities * _set_loss(log_probabilities, given_subject > 0)),
            jnp.sum(probabilities * _kl_divergence(given_relation, log_probabilities)),
            jnp.sum(probabilities * _kl_divergence(given_subject, log_probabilities)),
            jnp.max(jnp.where(probabilities > 0, distance, 0.0)),
            sum_by_subject(probabilities * loss) / sum_by_subject(probabilities),
        )


class PromptPopulation(PromptEnsemble):
    """All prompts about a table: exact expectations if noise tokens have equal weights.

    There is one entry for each subject and relation. The tokens are subjects, relations, one class
    of noise tokens, and EOS, in this order.
    """

    noise: int = eqx.field(static=True)
    length: int = eqx.field(static=True)

    @classmethod
    def from_table(
        cls,
        table: FactTable,
        *,
        noise: int | None = None,
        length: int = 32,
        subject_power: float = 0.0,
    ) -> "PromptPopulation":
        """Return the population of `PromptDistribution.from_table` with the same arguments."""
        prompts = PromptDistribution.from_table(table, noise=noise, length=length)
        probabilities = np.zeros(table.answer_of.shape)
        probabilities[table.fact_ids[:2]] = fact_probabilities(table, subject_power)
        subject_ids, relation_ids = (
            ids.ravel().astype(np.int32) for ids in np.indices(probabilities.shape)
        )
        answer_ids = np.maximum(table.answer_of, 0).ravel()
        probabilities = probabilities.ravel()
        return cls(
            subject_ids,
            relation_ids,
            answer_ids,
            probabilities,
            _conditional(relation_ids, answer_ids, probabilities, (table.relations, table.answers)),
            _conditional(subject_ids, answer_ids, probabilities, (table.subjects, table.answers)),
            prompts.vocabulary.noise,
            prompts.length,
        )

    @property
    def tokens(self) -> int:
        """S + R + 2."""
        return sum(self.sizes) + 2

    # ---- probabilities and entropies of the table ----------------------------------------------

    @property
    def subject_probabilities(self) -> Float[np.ndarray, " subjects"]:
        """p(s)."""
        return np.bincount(self.subject_ids, self.probabilities, self.sizes[0])

    @property
    def relation_probabilities(self) -> Float[np.ndarray, " relations"]:
        """p(r)."""
        return np.bincount(self.relation_ids, self.probabilities, self.sizes[1])

    @property
    def answer_probabilities(self) -> Float[np.ndarray, " answers"]:
        """p(a), the best prediction without knowing subject or relation."""
        return np.bincount(self.answer_ids, self.probabilities, self.given_relation.shape[1])

    @property
    def relation_entropy(self) -> float:
        """H(a | r), the loss of p(a | r): log D for the paper's tables."""
        return self._prediction_loss(self.given_relation, self.relation_ids)

    @property
    def subject_entropy(self) -> float:
        """H(a | s), the loss of p(a | s)."""
        return self._prediction_loss(self.given_subject, self.subject_ids)

    @property
    def answer_entropy(self) -> float:
        """H(a), the loss of p(a)."""
        one_group = np.zeros_like(self.subject_ids)
        return self._prediction_loss(self.answer_probabilities[None, :], one_group)

    def _prediction_loss(
        self,
        predictions: Float[Array | np.ndarray, "groups answers"],
        group_ids: Int[Array | np.ndarray, " prompts"],
    ) -> float:
        """Compute E[−log p(a* | group)]."""
        predicted = np.asarray(predictions)[group_ids, self.answer_ids]
        possible = np.asarray(self.probabilities) > 0
        expected = np.asarray(self.probabilities)[possible] @ np.log(predicted[possible])
        return float(-expected) + 0.0

    # ---- sums over tokens and prompts ----------------------------------------------------------

    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "prompts answers"]:
        """Add up subject, relation, T − 3 times noise, and EOS."""
        subjects, relations = self.sizes
        shared = (self.length - 3) * products[-2] + products[-1]
        from_subjects = products[:subjects, None, :]
        from_relations = products[None, subjects:-2, :] + shared[None, None, :]
        return (from_subjects + from_relations).reshape(subjects * relations, -1)

    def sum_by_token(
        self, prompt_values: Float[Array, "prompts answers"]
    ) -> Float[Array, "tokens answers"]:
        """Sum over relations, over subjects, and over both."""
        grid = prompt_values.reshape(*self.sizes, -1)
        by_subject = jnp.sum(grid, axis=1)
        total = jnp.sum(by_subject, axis=0, keepdims=True)
        noise = total * ((self.length - 3) / self.noise)
        return jnp.concatenate([by_subject, jnp.sum(grid, axis=0), noise, total])


class PromptSample(PromptEnsemble):
    """A sample of prompts: several for each fact, which share the fact's probability.

    The tokens are those of a prompt, in the order of `Vocabulary`.
    """

    counts: Int[Array | np.ndarray, "prompts tokens"]

    @classmethod
    def draw(
        cls,
        population: PromptPopulation,
        prompts: PromptDistribution,
        *,
        prompts_per_fact: int,
        key: Key[Array, ""],
    ) -> "PromptSample":
        """Draw prompts for each fact, with fresh noise."""
        _, relations = population.sizes
        indices = np.asarray(prompts.fact_subjects) * relations + np.asarray(prompts.fact_relations)
        indices = np.repeat(indices, prompts_per_fact)
        fact_ids = jnp.repeat(jnp.arange(prompts.facts, dtype=jnp.int32), prompts_per_fact)
        batch = prompts.sample(fact_ids, form="counts", key=key)
        return cls(
            population.subject_ids[indices],
            population.relation_ids[indices],
            population.answer_ids[indices],
            population.probabilities[indices] / prompts_per_fact,
            population.given_relation,
            population.given_subject,
            np.asarray(batch.content),
        )

    @property
    def tokens(self) -> int:
        """S + R + |N| + 1."""
        return self.counts.shape[1]

    def logits(self, products: Float[Array, "tokens answers"]) -> Float[Array, "prompts answers"]:
        """Multiply by the counts."""
        counts = self.counts.astype(products.dtype)
        return jnp.matmul(counts, products, precision=jax.lax.Precision.HIGHEST)

    def sum_by_token(
        self, prompt_values: Float[Array, "prompts answers"]
    ) -> Float[Array, "tokens answers"]:
        """Multiply by the transposed counts."""
        counts = self.counts.astype(prompt_values.dtype)
        return jnp.matmul(counts.T, prompt_values, precision=jax.lax.Precision.HIGHEST)


def _conditional(
    group_ids: Int[np.ndarray, " prompts"],
    answer_ids: Int[np.ndarray, " prompts"],
    probabilities: Float[np.ndarray, " prompts"],
    shape: tuple[int, int],
) -> Float[np.ndarray, "groups answers"]:
    """Compute p(a | group)."""
    joint = np.zeros(shape)
    np.add.at(joint, (group_ids, answer_ids), probabilities)
    return joint / joint.sum(axis=1, keepdims=True)


def _set_loss(
    log_probabilities: Float[Array, "prompts answers"],
    allowed: Bool[Array, "prompts answers"],
) -> Float[Array, " prompts"]:
    """Compute −log of the probability of the allowed answers."""
    total = jax.nn.logsumexp(log_probabilities, axis=1, where=allowed)
    return jnp.maximum(0.0, -total)  # the sum may exceed 1 by rounding


def _kl_divergence(
    expected: Float[Array, "prompts answers"], log_probabilities: Float[Array, "prompts answers"]
) -> Float[Array, " prompts"]:
    """Compute KL(expected ‖ predicted)."""
    entropy = jnp.sum(jax.scipy.special.xlogy(expected, expected), axis=1)
    return entropy - jnp.sum(jnp.where(expected > 0, expected * log_probabilities, 0.0), axis=1)
