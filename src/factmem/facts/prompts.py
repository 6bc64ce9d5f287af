"""Prompts: one subject, one relation, noise tokens, and EOS at the end."""

import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num, UInt32

from factmem._core.errors import FactmemError
from factmem.facts.table import MISSING, FactTable
from factmem.facts.vocabulary import PromptForm, Vocabulary

__all__ = [
    "ActiveSizes",
    "PromptBatch",
    "PromptContent",
    "PromptDistribution",
    "SplitPrompts",
    "TokenPrompts",
    "count_tokens",
    "fact_probabilities",
]

_MAX_STRATIFIED = 46_340
"""The square root of the largest signed 32-bit number."""


class SplitPrompts(NamedTuple):
    """Prompts as subject and relation, and counts of the tokens that all facts share.

    Its size does not depend on the numbers of subjects and relations.
    """

    own: Int[Array, "batch 2"]
    """The token ids of subject and relation."""
    shared: Num[Array, "batch noise_and_eos"]
    """How often each noise token and EOS, the last column, occurs."""


class TokenPrompts(NamedTuple):
    """Prompts as token ids, which the plain array does not tell from token counts."""

    tokens: Int[Array, "batch length"]


PromptContent = Num[Array, "batch tokens"] | SplitPrompts | TokenPrompts
"""Prompts as transformers take them; a plain array holds token counts."""


class PromptBatch(NamedTuple):
    """A batch of prompts with their facts and answers."""

    content: Any
    """Tokens [batch, T] in order, token counts [batch, prompt_tokens], or `SplitPrompts`."""
    fact_ids: Int[Array, " batch"]
    """Indices into the arrays of `FactTable.fact_ids`."""
    answers: Int[Array, " batch"]
    """Answer ids, starting at 0."""


class ActiveSizes(NamedTuple):
    """The sizes in use of a padded distribution: arrays, so that all sizes share one program."""

    facts: Int[Array, ""]
    """Only the first `facts` facts are sampled."""
    noise: Int[Array, ""]
    """Only the first `noise` noise tokens are sampled."""


class PromptDistribution(eqx.Module):
    """The distribution of prompts about a fact table (section 4 of the paper).

    A prompt z_1 … z_T is sampled as follows: (s, r) ~ p over the facts; s and r are at two distinct
    random positions among the first T − 1; the other positions have independent uniform noise
    tokens; z_T = EOS. The answer is a*(s, r).

    p is uniform, or p(s, r) ∝ (s + 1)^−α · (r + 1)^−β over the facts of the table.

    Token counts do not depend on positions, so `sample_counts` and `sample_split` do not draw any.
    With the same key they count the tokens that `sample_tokens` returns.

    Examples:
        >>> import jax.random as jr
        >>> prompts = PromptDistribution.from_table(FactTable.random(16, 4, 8), length=12)
        >>> prompts.sample_batch(5, form="counts", key=jr.key(0)).content.sum(axis=1).tolist()
        [12, 12, 12, 12, 12]

    Unlike the authors' code, this draws two noise tokens from one 32-bit word if that changes no
    probability by more than one part in 2^16, which is not detectable in a whole run.
    """

    fact_subjects: Int[Array, " facts"]
    fact_relations: Int[Array, " facts"]
    fact_answers: Int[Array, " facts"]
    thresholds: UInt32[Array, " thresholds"] | None
    vocabulary: Vocabulary = eqx.field(static=True)
    length: int = eqx.field(static=True)
    active: ActiveSizes | None = None
    """The sizes in use if the distribution is padded, else None; see `factmem.training.padding`."""

    @classmethod
    def from_table(
        cls,
        table: FactTable,
        *,
        noise: int | None = None,
        length: int = 32,
        subject_power: float = 0.0,
        relation_power: float = 0.0,
    ) -> "PromptDistribution":
        """Return the distribution of prompts about a table.

        Args:
            table: the facts.
            noise: the number of distinct noise tokens; S + R by default, as in the paper.
            length: T, the number of tokens in a prompt, including EOS.
            subject_power, relation_power: α and β; 0 means uniform.

        Raises:
            FactmemError: `noise` is below 1, `length` is below 3, or a power is not finite.
        """
        noise = table.subjects + table.relations if noise is None else operator.index(noise)
        length = operator.index(length)
        if noise < 1:
            raise FactmemError(f"noise must be at least 1, got {noise}")
        if length < 3:
            raise FactmemError(
                f"length must be at least 3 (subject, relation and EOS), got {length}"
            )
        vocabulary = Vocabulary(table.subjects, table.relations, noise, table.answers)
        subjects, relations, answers = (jnp.asarray(ids) for ids in table.fact_ids)
        thresholds = _thresholds(table, subject_power, relation_power)
        return cls(subjects, relations, answers, thresholds, vocabulary, length)

    @property
    def facts(self) -> int:
        """The number of facts."""
        return self.fact_subjects.shape[0]

    @property
    def table(self) -> FactTable:
        """The facts as a table with numbered names."""
        vocabulary = self.vocabulary
        grid = np.full((vocabulary.subjects, vocabulary.relations), MISSING, np.int32)
        grid[self.fact_subjects, self.fact_relations] = self.fact_answers
        return FactTable(grid, answer_names=tuple(f"answer {a}" for a in range(vocabulary.answers)))

    @eqx.filter_jit
    def sample_batch(
        self,
        batch_size: int,
        *,
        key: Key[Array, ""],
        form: PromptForm,
        stratified: bool = False,
    ) -> PromptBatch:
        """Sample a batch of prompts, independent unless their facts are stratified.

        Args:
            batch_size: the number of prompts.
            key: the random key.
            form: tokens in order, token counts, or "split" for `SplitPrompts`.
            stratified: whether facts are drawn by `draw_facts_stratified`.
        """
        fact_key, content_key = jr.split(key)
        draw = self.draw_facts_stratified if stratified else self.draw_facts
        return self.sample(draw(batch_size, key=fact_key), key=content_key, form=form)

    @eqx.filter_jit
    def sample(
        self,
        fact_ids: Int[Array, " batch"],
        *,
        key: Key[Array, ""],
        form: PromptForm,
    ) -> PromptBatch:
        """Sample one prompt for each of the given facts.

        Args:
            fact_ids: indices into the arrays of `FactTable.fact_ids`.
            key: the random key.
            form: tokens in order, token counts, or "split" for `SplitPrompts`.

        Raises:
            FactmemError: `form` is none of these.
        """
        if form == "tokens":
            content = self.sample_tokens(fact_ids, key=key)
        elif form == "counts":
            content = self.sample_counts(fact_ids, key=key)
        elif form == "split":
            content = self.sample_split(fact_ids, key=key)
        else:
            raise FactmemError(f"form must be 'tokens', 'counts' or 'split', got {form!r}")
        return PromptBatch(content, fact_ids, self.fact_answers[fact_ids])

    def fill_noise(self, fact_ids: Int[Array, " batch"], token: Int[Array, ""]) -> PromptBatch:
        """Return one prompt for each of the given facts with all T − 3 noise tokens equal.

        Args:
            fact_ids: indices into the arrays of `FactTable.fact_ids`.
            token: the noise token, as a token id of the vocabulary.
        """
        noise = jnp.full((fact_ids.shape[0], self.length - 3), token, jnp.int32)
        tokens = self._with_noise(noise, fact_ids)
        counts = count_tokens(tokens, self.vocabulary.prompt_tokens)
        return PromptBatch(counts, fact_ids, self.fact_answers[fact_ids])

    def known_tokens(self) -> Int[np.ndarray, "facts 3"]:
        """Return subject, relation and EOS of every fact: the tokens that are not noise."""
        vocabulary = self.vocabulary
        subjects = np.asarray(self.fact_subjects)
        relations = np.asarray(self.fact_relations) + vocabulary.first_relation
        return np.stack([subjects, relations, np.full_like(subjects, vocabulary.eos)], axis=1)

    def draw_facts(self, count: int, *, key: Key[Array, ""]) -> Int[Array, " {count}"]:
        """Draw independent facts from p, as indices into the arrays of `FactTable.fact_ids`."""
        if self.thresholds is None:
            return jr.randint(key, (count,), 0, self._active_facts, dtype=jnp.int32)
        words = jr.bits(key, (count,), jnp.uint32)
        return jnp.searchsorted(self.thresholds, words, side="right").astype(jnp.int32)

    def draw_facts_stratified(self, count: int, *, key: Key[Array, ""]) -> Int[Array, " {count}"]:
        """Draw one fact from each of `count` equal slices of the distribution p.

        Every fact has the expected number of draws count · p, as with independent draws, but the
        actual number is within 2 of it.

        Raises:
            FactmemError: more than 46,340 facts of a uniform distribution.
        """
        if self.thresholds is None:
            facts, index = self._active_facts, jnp.arange(count, dtype=jnp.int32)
            if count > _MAX_STRATIFIED:
                raise FactmemError(
                    f"the number of stratified facts must be at most {_MAX_STRATIFIED}, got {count}"
                )
            # ⌊(i·F + v) / B⌋ for v uniform below F, without products that overflow.
            remainder = index * (facts % count)
            offset = jr.randint(key, (count,), 0, facts, dtype=jnp.int32)
            return (
                index * (facts // count)
                + remainder // count
                + (remainder % count + offset) // count
            )
        index = np.arange(count, dtype=np.int64)
        edges = (np.append(index, count) << 32) // count
        low, width = edges[:-1].astype(np.uint32), np.diff(edges).clip(max=2**32 - 1)
        words = low + jr.bits(key, (count,), jnp.uint32) % width.astype(np.uint32)
        return jnp.searchsorted(self.thresholds, words, side="right").astype(jnp.int32)

    def sample_tokens(
        self, fact_ids: Int[Array, " batch"], *, key: Key[Array, ""]
    ) -> Int[Array, "batch length"]:
        """Sample the tokens of one prompt for each of the given facts."""
        batch = fact_ids.shape[0]
        noise_key, first_key, second_key = jr.split(key, 3)
        tokens = self._unordered_tokens(noise_key, fact_ids)
        i = jr.randint(first_key, (batch, 1), 0, self.length - 1, dtype=jnp.int32)
        j = jr.randint(second_key, (batch, 1), 0, self.length - 2, dtype=jnp.int32)
        j = j + (j >= i).astype(jnp.int32)
        # Move the subject and the relation, which come first, to the positions i and j.
        position = jnp.arange(self.length, dtype=jnp.int32)[None, :]
        source = 2 + position - (position > i).astype(jnp.int32) - (position > j).astype(jnp.int32)
        source = jnp.where(position == i, 0, jnp.where(position == j, 1, source))
        return jnp.take_along_axis(tokens, source, axis=1)

    def sample_counts(
        self, fact_ids: Int[Array, " batch"], *, key: Key[Array, ""]
    ) -> Int[Array, "batch prompt_tokens"]:
        """Sample the token counts of one prompt for each of the given facts."""
        noise_key, _, _ = jr.split(key, 3)
        tokens = self._unordered_tokens(noise_key, fact_ids)
        return count_tokens(tokens, self.vocabulary.prompt_tokens)

    def sample_split(self, fact_ids: Int[Array, " batch"], *, key: Key[Array, ""]) -> SplitPrompts:
        """Sample one prompt for each of the given facts, without counts of the whole vocabulary."""
        noise_key, _, _ = jr.split(key, 3)
        tokens = self._unordered_tokens(noise_key, fact_ids)
        vocabulary = self.vocabulary
        shared = count_tokens(tokens[:, 2:] - vocabulary.first_noise, vocabulary.noise + 1)
        return SplitPrompts(tokens[:, :2], shared)

    def _unordered_tokens(
        self, key: Key[Array, ""], fact_ids: Int[Array, " batch"]
    ) -> Int[Array, "batch length"]:
        """Sample the tokens of every prompt in the order subject, relation, noise, EOS."""
        vocabulary = self.vocabulary
        active = vocabulary.noise if self.active is None else self.active.noise
        noise = _uniform(key, fact_ids.shape[0], self.length - 3, active, vocabulary.noise)
        return self._with_noise(noise + vocabulary.first_noise, fact_ids)

    @property
    def _active_facts(self) -> int | Int[Array, ""]:
        """The number of facts without padding."""
        return self.facts if self.active is None else self.active.facts

    def _with_noise(
        self, noise: Int[Array, "batch noise"], fact_ids: Int[Array, " batch"]
    ) -> Int[Array, "batch length"]:
        """Return subject, relation, the given noise tokens and EOS."""
        batch, vocabulary = fact_ids.shape[0], self.vocabulary
        subjects = self.fact_subjects[fact_ids]
        relations = self.fact_relations[fact_ids] + vocabulary.first_relation
        eos = jnp.full((batch, 1), vocabulary.eos, jnp.int32)
        return jnp.concatenate([subjects[:, None], relations[:, None], noise, eos], axis=1)


def count_tokens(tokens: Int[Array, "batch length"], size: int) -> Int[Array, "batch {size}"]:
    """Count how often each of the tokens 0 … size − 1 appears in every row.

    Args:
        tokens: token ids below `size`.
        size: the number of tokens to count.

    Raises:
        FactmemError: batch × size does not fit a 32-bit index.
    """
    batch, _ = tokens.shape
    limit = np.iinfo(np.int32).max
    if batch * size > limit:
        raise FactmemError(f"prompts × tokens must be at most {limit}, got {batch} × {size}")
    flat = tokens.astype(jnp.int32) + size * jnp.arange(batch, dtype=jnp.int32)[:, None]
    # Compared with sums of one-hot vectors: as fast at 64 noise tokens, and faster with more.
    counts = jnp.zeros(batch * size, jnp.int32).at[flat.reshape(-1)].add(1)
    return counts.reshape(batch, size)


def _uniform(
    key: Key[Array, ""], rows: int, columns: int, size: int | Int[Array, ""], max_size: int
) -> Int[Array, "rows columns"]:
    """Draw independent uniform numbers from 0 … size − 1, where size is at most `max_size`.

    A 32-bit word modulo n changes probabilities by at most n parts in 2^32. Random words dominate
    the cost of sampling, so two numbers come from one word, as the digits of word mod size², as
    long as the change is below 2^−16.
    """
    if max_size**2 <= 2**16:
        base = jnp.asarray(size, jnp.uint32)
        word = jr.bits(key, (rows, (columns + 1) // 2), jnp.uint32) % (base * base)
        digits = jnp.concatenate([word // base, word % base], axis=1)
        return digits[:, :columns].astype(jnp.int32)
    return jr.randint(key, (rows, columns), 0, size, dtype=jnp.int32)


def fact_probabilities(
    table: FactTable, subject_power: float = 0.0, relation_power: float = 0.0
) -> Float[np.ndarray, " facts"]:
    """Return p(s, r) ∝ (s + 1)^−α · (r + 1)^−β of every fact, ordered as `FactTable.fact_ids`.

    Raises:
        FactmemError: a power is not finite.
    """
    powers = {"subject_power": subject_power, "relation_power": relation_power}
    for name, power in powers.items():
        if not np.isfinite(power):
            raise FactmemError(f"{name} must be finite, got {power}")
    s, r, _ = table.fact_ids
    log_weight = -subject_power * np.log1p(s) - relation_power * np.log1p(r)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _thresholds(
    table: FactTable, subject_power: float, relation_power: float
) -> UInt32[Array, " thresholds"] | None:
    """Return the cumulative distribution of p as 32-bit integers, or None if p is uniform.

    The error of a float32 cumulative sum over a million facts exceeds the probability of one fact.
    """
    if subject_power == 0 and relation_power == 0:
        return None
    cumulative = np.cumsum(fact_probabilities(table, subject_power, relation_power))
    # The last fact takes the remaining probability and needs no threshold.
    scaled = np.round(cumulative[:-1] / cumulative[-1] * 2.0**32)
    return jnp.asarray(np.minimum(scaled, 2.0**32 - 1).astype(np.uint32))
