"""How a fact is asked: prompts with one subject, one relation and noise, and EOS at the end."""

import operator
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from factmem._core.errors import FactmemError
from factmem.facts.table import MISSING, FactTable
from factmem.facts.vocabulary import Vocabulary

__all__ = ["Occupied", "PromptDistribution", "Prompts", "count_tokens", "question_chances"]

_MOST_SQUARED = 46_340
"""The square root of the largest 32-bit number."""


class Prompts(NamedTuple):
    """A batch of questions: what stands in them, which facts they ask for, and the answers."""

    content: Int[Array, "batch _"]
    """Tokens [batch, T] in their order, or counts [batch, prompt_tokens] of every token."""
    facts: Int[Array, " batch"]
    """Places in `FactTable.fact_ids`."""
    answers: Int[Array, " batch"]
    """Answer ids, counted from 0."""


class Occupied(NamedTuple):
    """How much of a distribution with room for more is in use: data, so that it compiles once."""

    facts: Int[Array, ""]
    """The first of its facts, of which one is asked for."""
    noise: Int[Array, ""]
    """The first of its noise tokens, which are drawn."""


class PromptDistribution(eqx.Module):
    """The distribution of questions about a table (section 4 of the paper).

    A prompt z_1 … z_T is drawn so: (s, r) ~ p over the facts; two distinct places among the first
    T − 1 hold s and r; all other places hold noise tokens, independent and uniform; z_T = EOS. The
    answer is a*(s, r).

    p is uniform, or p(s, r) ∝ (s + 1)^−α · (r + 1)^−β over the facts that there are.

    Every draw is a pure function of a key. A prompt's counts do not depend on where its tokens
    stand, so `counts` never draws places; with the same key it counts the tokens that `tokens`
    gives.

    Examples:
        >>> import jax.random as jr
        >>> asked = PromptDistribution.of(FactTable.random(16, 4, 8), length=12)
        >>> asked.sample(jr.key(0), 5, form="counts").content.sum(axis=1).tolist()
        [12, 12, 12, 12, 12]

    Departs from the authors' code in drawing two noise tokens from one 32-bit word where that
    moves no probability by more than one part in 2^16, which no test on a whole run would see.
    """

    fact_subjects: Int[Array, " facts"]
    fact_relations: Int[Array, " facts"]
    fact_answers: Int[Array, " facts"]
    thresholds: UInt32[Array, " thresholds"] | None
    vocabulary: Vocabulary = eqx.field(static=True)
    length: int = eqx.field(static=True)
    occupied: Occupied | None = None
    """None where all of it is; see `factmem.training.padding`."""

    @classmethod
    def of(
        cls,
        table: FactTable,
        *,
        noise: int | None = None,
        length: int = 32,
        subject_power: float = 0.0,
        relation_power: float = 0.0,
    ) -> "PromptDistribution":
        """The questions about a table.

        Args:
            table: the facts.
            noise: how many different noise tokens there are; S + R if left out, as in the paper.
            length: T, the tokens in a prompt, EOS included.
            subject_power, relation_power: α and β; 0 is uniform.

        Raises:
            FactmemError: no noise token, a prompt too short for subject, relation and EOS, or a
                power that is not a finite number.
        """
        noise = table.subjects + table.relations if noise is None else operator.index(noise)
        length = operator.index(length)
        if noise < 1:
            raise FactmemError(f"prompts need at least one noise token to draw from, not {noise}")
        if length < 3:
            raise FactmemError(
                f"a prompt holds subject, relation and EOS: its length is at least 3, not {length}"
            )
        vocabulary = Vocabulary(table.subjects, table.relations, noise, table.answers)
        subjects, relations, answers = (jnp.asarray(ids) for ids in table.fact_ids)
        thresholds = _thresholds(table, subject_power, relation_power)
        return cls(subjects, relations, answers, thresholds, vocabulary, length)

    @property
    def facts(self) -> int:
        """How many facts can be asked for."""
        return self.fact_subjects.shape[0]

    @property
    def table(self) -> FactTable:
        """The facts as a table, with numbers for names."""
        names = self.vocabulary
        grid = np.full((names.subjects, names.relations), MISSING, np.int32)
        grid[self.fact_subjects, self.fact_relations] = self.fact_answers
        return FactTable(grid, answer_names=tuple(f"answer {a}" for a in range(names.answers)))

    def sample(
        self,
        key: Key[Array, ""],
        batch: int,
        *,
        form: Literal["tokens", "counts"],
        evenly: bool = False,
    ) -> Prompts:
        """A batch of questions, independent unless their facts are drawn `evenly`."""
        fact_key, content_key = jr.split(key)
        draw = self.draw_facts_evenly if evenly else self.draw_facts
        return self.ask(content_key, draw(fact_key, batch), form=form)

    def ask(
        self,
        key: Key[Array, ""],
        facts: Int[Array, " batch"],
        *,
        form: Literal["tokens", "counts"],
    ) -> Prompts:
        """One question for each of the given facts, with fresh noise (and fresh places)."""
        if form == "tokens":
            content = self.tokens(key, facts)
        elif form == "counts":
            content = self.counts(key, facts)
        else:
            raise FactmemError(f"prompts come as 'tokens' or as 'counts', not as {form!r}")
        return Prompts(content, facts, self.fact_answers[facts])

    def fill(self, facts: Int[Array, " batch"], noise: Int[Array, ""]) -> Prompts:
        """One question for each of the given facts, all T − 3 other places holding one token.

        Args:
            facts: places in `FactTable.fact_ids`.
            noise: the token, as an id of the vocabulary.
        """
        filling = jnp.full((facts.shape[0], self.length - 3), noise, jnp.int32)
        contents = self._around(filling, facts)
        return Prompts(
            count_tokens(contents, self.vocabulary.prompt_tokens), facts, self.fact_answers[facts]
        )

    def known_tokens(self) -> Int[np.ndarray, "facts 3"]:
        """Subject, relation and EOS of every fact's prompts: what they hold besides noise."""
        names = self.vocabulary
        subjects = np.asarray(self.fact_subjects)
        relations = np.asarray(self.fact_relations) + names.first_relation
        return np.stack([subjects, relations, np.full_like(subjects, names.eos)], axis=1)

    def draw_facts(self, key: Key[Array, ""], batch: int) -> Int[Array, " batch"]:
        """Facts drawn from p, as places in `FactTable.fact_ids`."""
        if self.thresholds is None:
            return jr.randint(key, (batch,), 0, self._facts_in_use, dtype=jnp.int32)
        drawn = jr.bits(key, (batch,), jnp.uint32)
        place = jnp.searchsorted(self.thresholds, drawn, side="right")
        return place.astype(jnp.int32)

    def draw_facts_evenly(self, key: Key[Array, ""], batch: int) -> Int[Array, " batch"]:
        """Facts drawn from p, each from its own slice of 1/batch of all probability.

        Over the batch every fact is as likely as p says, but how often it comes varies less than
        in independent draws: within 2 of batch · p.
        """
        if self.thresholds is None:
            facts, place = self._facts_in_use, jnp.arange(batch, dtype=jnp.int32)
            if batch > _MOST_SQUARED:
                raise FactmemError(f"up to {_MOST_SQUARED} facts are drawn evenly, not {batch}")
            # ⌊(i·F + v) / B⌋ for v uniform below F, without its large products.
            rest = place * (facts % batch)
            within = jr.randint(key, (batch,), 0, facts, dtype=jnp.int32)
            return place * (facts // batch) + rest // batch + (rest % batch + within) // batch
        place = np.arange(batch, dtype=np.int64)
        edges = (np.append(place, batch) << 32) // batch
        low, width = edges[:-1].astype(np.uint32), np.diff(edges).clip(max=2**32 - 1)
        drawn = low + jr.bits(key, (batch,), jnp.uint32) % width.astype(np.uint32)
        return jnp.searchsorted(self.thresholds, drawn, side="right").astype(jnp.int32)

    def tokens(
        self, key: Key[Array, ""], facts: Int[Array, " batch"]
    ) -> Int[Array, "batch length"]:
        """The prompts of the given facts, token by token."""
        batch = facts.shape[0]
        noise_key, first_key, second_key = jr.split(key, 3)
        contents = self._contents(noise_key, facts)
        i = jr.randint(first_key, (batch, 1), 0, self.length - 1, dtype=jnp.int32)
        j = jr.randint(second_key, (batch, 1), 0, self.length - 2, dtype=jnp.int32)
        j = j + (j >= i).astype(jnp.int32)
        # `contents` has the subject and the relation in front: find what belongs in every place.
        place = jnp.arange(self.length, dtype=jnp.int32)[None, :]
        source = 2 + place - (place > i).astype(jnp.int32) - (place > j).astype(jnp.int32)
        source = jnp.where(place == i, 0, jnp.where(place == j, 1, source))
        return jnp.take_along_axis(contents, source, axis=1)

    def counts(
        self, key: Key[Array, ""], facts: Int[Array, " batch"]
    ) -> Int[Array, "batch prompt_tokens"]:
        """How often each token stands in the prompts of the given facts."""
        noise_key, _, _ = jr.split(key, 3)
        return count_tokens(self._contents(noise_key, facts), self.vocabulary.prompt_tokens)

    def _contents(
        self, key: Key[Array, ""], facts: Int[Array, " batch"]
    ) -> Int[Array, "batch length"]:
        """The tokens of every prompt in the order subject, relation, noise, EOS."""
        names = self.vocabulary
        drawn = names.noise if self.occupied is None else self.occupied.noise
        noise = _uniform(key, facts.shape[0], self.length - 3, drawn, names.noise)
        return self._around(noise + names.first_noise, facts)

    @property
    def _facts_in_use(self) -> int | Int[Array, ""]:
        """How many facts are drawn from; beyond them there is only room."""
        return self.facts if self.occupied is None else self.occupied.facts

    def _around(
        self, noise: Int[Array, "batch places"], facts: Int[Array, " batch"]
    ) -> Int[Array, "batch length"]:
        """Subject, relation, the given noise tokens, EOS."""
        batch, names = facts.shape[0], self.vocabulary
        subjects = self.fact_subjects[facts]
        relations = self.fact_relations[facts] + names.first_relation
        eos = jnp.full((batch, 1), names.eos, jnp.int32)
        return jnp.concatenate([subjects[:, None], relations[:, None], noise, eos], axis=1)


def count_tokens(tokens: Int[Array, "batch length"], size: int) -> Int[Array, "batch {size}"]:
    """How often each of the tokens 0 … size − 1 stands in every row; no other token may."""
    batch, _ = tokens.shape
    if batch * size > np.iinfo(np.int32).max:
        raise FactmemError(f"{batch} prompts over {size} tokens are too many to count at once")
    flat = tokens.astype(jnp.int32) + size * jnp.arange(batch, dtype=jnp.int32)[:, None]
    # Measured against one-hot sums: as fast at 64 noise tokens, faster beyond, and not ∝ size.
    counts = jnp.zeros(batch * size, jnp.int32).at[flat.reshape(-1)].add(1)
    return counts.reshape(batch, size)


def _uniform(
    key: Key[Array, ""], rows: int, columns: int, size: int | Int[Array, ""], most: int
) -> Int[Array, "rows columns"]:
    """Independent numbers, uniform on 0 … size − 1, where size is at most `most`.

    A 32-bit word modulo n favors some results by at most n parts in 2^32. Two numbers come from
    one word, as the digits of word mod size², while n = size² leaves that below 2^−16: random
    words are most of what sampling costs.
    """
    if most**2 <= 2**16:
        digit = jnp.asarray(size, jnp.uint32)
        word = jr.bits(key, (rows, (columns + 1) // 2), jnp.uint32) % (digit * digit)
        both = jnp.concatenate([word // digit, word % digit], axis=1)
        return both[:, :columns].astype(jnp.int32)
    return jr.randint(key, (rows, columns), 0, size, dtype=jnp.int32)


def question_chances(
    table: FactTable, subject_power: float = 0.0, relation_power: float = 0.0
) -> Float[np.ndarray, " facts"]:
    """p(s, r) ∝ (s + 1)^−α · (r + 1)^−β of every fact, in the order of `FactTable.fact_ids`.

    Raises:
        FactmemError: a power that is not a finite number.
    """
    powers = {"subject_power": subject_power, "relation_power": relation_power}
    for name, power in powers.items():
        if not np.isfinite(power):
            raise FactmemError(f"{name} must be a finite number, not {power}")
    s, r, _ = table.fact_ids
    log_weight = -subject_power * np.log1p(s) - relation_power * np.log1p(r)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _thresholds(
    table: FactTable, subject_power: float, relation_power: float
) -> UInt32[Array, " thresholds"] | None:
    """The cumulative distribution of p as 32-bit whole numbers, or None where p is uniform.

    Whole numbers, because a float32 cumulative sum over a million facts is wrong by more than
    the probability of one.
    """
    if subject_power == 0 and relation_power == 0:
        return None
    total = np.cumsum(question_chances(table, subject_power, relation_power))
    # The last fact takes what the others leave, so it needs no threshold.
    scaled = np.round(total[:-1] / total[-1] * 2.0**32)
    return jnp.asarray(np.minimum(scaled, 2.0**32 - 1).astype(np.uint32))
