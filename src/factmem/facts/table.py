"""Fact tables: functions from subjects × relations to answers."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from factmem._core.errors import FactTableError, printable

__all__ = ["MISSING", "FactTable", "check_name"]

MISSING: Final = -1
"""The entry of `FactTable.answer_of` for pairs without a fact."""

_MAX_NAME_LENGTH: Final = 100_000
_MAX_PAIRS: Final = 10**8  # 400 MB of answer ids


@dataclass(frozen=True, eq=False)
class FactTable:
    """A partial function a*: subjects × relations → answers.

    Tables built from names number them in sorted order, so ids do not depend on the order of the
    rows.

    Args:
        answer_of: answer ids a*(s, r), [subjects, relations]; `MISSING` where there is no fact.
        subject_names, relation_names, answer_names: distinct names; "subject 0" and so on by
            default. There may be answers that no fact uses.

    Examples:
        >>> table = FactTable.from_records(
        ...     [("France", "capital", "Paris"), ("Japan", "capital", "Tokyo")])
        >>> table.facts, table.answers, table.association_bits
        (2, 2, 2.0)

    See section 4 of the paper. Unlike there, facts may be missing and relations may share answers;
    `disjoint` says whether Assumption 1 of the paper holds.
    """

    answer_of: np.ndarray
    subject_names: tuple[str, ...] = ()
    relation_names: tuple[str, ...] = ()
    answer_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        grid = np.array(self.answer_of)
        if grid.ndim != 2 or not np.issubdtype(grid.dtype, np.integer):
            raise FactTableError("answer_of must be a [subjects, relations] array of integers")
        if not (grid != MISSING).any():
            raise FactTableError("a fact table needs at least one fact")
        if grid.min() < MISSING or grid.max() > np.iinfo(np.int32).max:
            raise FactTableError(
                f"answer ids must be at least 0, or {MISSING} where there is no fact"
            )
        grid = grid.astype(np.int32, copy=False)  # the array is a copy already
        grid.setflags(write=False)
        object.__setattr__(self, "answer_of", grid)
        for kind, size in (("subject", grid.shape[0]), ("relation", grid.shape[1])):
            self._set_names(kind, size)
        self._set_names("answer", max(int(grid.max()) + 1, len(self.answer_names)))

    def _set_names(self, kind: str, size: int) -> None:
        names = tuple(getattr(self, f"{kind}_names")) or _numbered_names(kind, size)
        if len(names) != size:
            raise FactTableError(f"{kind}_names must have {size} entries, got {len(names)}")
        for name in names:
            check_name(name, kind)
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise FactTableError(f"{count} {kind}s have the same name '{printable(name)}'")
        object.__setattr__(self, f"{kind}_names", names)

    # ---- constructors --------------------------------------------------------------------------

    @classmethod
    def random(
        cls, subjects: int, relations: int, answers_per_relation: int, *, seed: int = 0
    ) -> "FactTable":
        """Draw a*(s, r) uniformly from D answers of relation r, as in the paper's experiments.

        Args:
            subjects, relations, answers_per_relation: S, R and D. The table has R·D answers,
                including those that no fact uses.
            seed: the seed of numpy's random generator.
        """
        subjects, relations, answers_per_relation = _sizes(
            subjects, relations, answers_per_relation
        )
        if seed < 0:
            raise FactTableError(f"seed must be at least 0, got {seed}")
        answers = np.random.default_rng(seed).integers(
            answers_per_relation, size=(subjects, relations)
        )
        grid = answers + answers_per_relation * np.arange(relations)
        return cls(grid, answer_names=_numbered_names("answer", relations * answers_per_relation))

    @classmethod
    def structured(cls, subjects: int, relations: int, answers_per_relation: int) -> "FactTable":
        """Return the table a*(s, r) = r·D + ⌊s·D/S⌋.

        All answers are equally frequent if D divides S.

        Reference: Figure 5.
        """
        subjects, relations, answers_per_relation = _sizes(
            subjects, relations, answers_per_relation
        )
        answers = np.arange(subjects) * answers_per_relation // subjects
        grid = answers[:, None] + answers_per_relation * np.arange(relations)[None, :]
        return cls(grid, answer_names=_numbered_names("answer", relations * answers_per_relation))

    @classmethod
    def from_records(cls, records: Iterable[Sequence[str]]) -> "FactTable":
        """Build a table from (subject, relation, answer) triples; repeated triples are one fact.

        Raises:
            FactTableError: two answers for one pair, no records, or an invalid name.
        """
        answers: dict[tuple[str, str], str] = {}
        for record in records:
            if isinstance(record, str) or len(record) != 3:
                raise FactTableError("a record must be a triple (subject, relation, answer)")
            subject, relation, answer = record
            for kind, name in zip(("subject", "relation", "answer"), record, strict=True):
                check_name(name, kind)
            first_answer = answers.setdefault((subject, relation), answer)
            if first_answer != answer:
                raise FactTableError(
                    f"'{printable(subject)}', '{printable(relation)}' has two answers: "
                    f"'{printable(first_answer)}' and '{printable(answer)}'"
                )
        return cls.from_answers(answers)

    @classmethod
    def from_answers(cls, answers: Mapping[tuple[str, str], str]) -> "FactTable":
        """Build a table from a mapping (subject, relation) → answer.

        Raises:
            FactTableError: no facts, an invalid name, or too many subjects × relations.
        """
        subject_names = sorted({subject for subject, _ in answers})
        relation_names = sorted({relation for _, relation in answers})
        answer_names = sorted(set(answers.values()))
        _check_pairs(len(subject_names), len(relation_names))
        rows, columns, ids = (
            _ids(names) for names in (subject_names, relation_names, answer_names)
        )
        grid = np.full((len(rows), len(columns)), MISSING, dtype=np.int32)
        for (subject, relation), answer in answers.items():
            grid[rows[subject], columns[relation]] = ids[answer]
        return cls(grid, tuple(subject_names), tuple(relation_names), tuple(answer_names))

    def records(self) -> Iterator[tuple[str, str, str]]:
        """Yield every fact as a (subject, relation, answer) triple of names, ordered by id."""
        for s, r, a in zip(*self.fact_ids, strict=True):
            yield self.subject_names[s], self.relation_names[r], self.answer_names[a]

    # ---- properties ----------------------------------------------------------------------------

    @property
    def subjects(self) -> int:
        """S, the number of subjects."""
        return self.answer_of.shape[0]

    @property
    def relations(self) -> int:
        """R, the number of relations."""
        return self.answer_of.shape[1]

    @property
    def answers(self) -> int:
        """|A|, the number of answers, including those that no fact uses."""
        return len(self.answer_names)

    @cached_property
    def fact_ids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The subject, relation and answer ids of all facts, three arrays of length `facts`."""
        s, r = np.nonzero(self.answer_of != MISSING)
        ids = s.astype(np.int32), r.astype(np.int32), self.answer_of[s, r]
        for array in ids:
            array.setflags(write=False)
        return ids

    @property
    def facts(self) -> int:
        """The number of facts: S·R if none is missing."""
        return len(self.fact_ids[0])

    @cached_property
    def _relation_answers(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct (relation, answer) pairs, [pairs, 2], and the number of facts of each."""
        _, r, a = self.fact_ids
        # Sorting numbers is many times faster than sorting pairs.
        pairs, counts = np.unique(r * np.int64(self.answers) + a, return_counts=True)
        return np.stack(np.divmod(pairs, self.answers), axis=1), counts

    @property
    def answers_by_relation(self) -> np.ndarray:
        """|A_r|, the number of distinct answers of every relation."""
        return np.bincount(self._relation_answers[0][:, 0], minlength=self.relations)

    @property
    def answers_per_relation(self) -> int:
        """D = max |A_r|, the largest number of distinct answers of a relation."""
        return int(self.answers_by_relation.max())

    @property
    def facts_by_relation(self) -> np.ndarray:
        """The number of facts of every relation."""
        return np.bincount(self.fact_ids[1], minlength=self.relations)

    @property
    def answer_counts(self) -> np.ndarray:
        """C(a), the number of facts of every answer."""
        return np.bincount(self.fact_ids[2], minlength=self.answers)

    @property
    def disjoint(self) -> bool:
        """Whether no two relations share an answer (Assumption 1 of the paper)."""
        return bool(np.bincount(self._relation_answers[0][:, 1]).max() <= 1)

    @property
    def association_bits(self) -> float:
        """Σ_r facts_r · log2 |A_r|: bits to encode every answer among those of its relation."""
        sizes = np.maximum(self.answers_by_relation, 1)
        return float(self.facts_by_relation @ np.log2(sizes))

    @property
    def entropy_bits(self) -> float:
        """Σ_r facts_r · H(answers of r): bits if the answer frequencies of a relation are known.

        H is the entropy of the empirical distribution of answers. This is at most
        `association_bits`, with equality if the answers of every relation are equally frequent.
        """
        pairs, counts = self._relation_answers
        frequencies = counts / self.facts_by_relation[pairs[:, 0]]
        return float(-(counts @ np.log2(frequencies))) + 0.0

    def warnings(self) -> list[str]:
        """Return warnings about properties that matter for storing the table, one sentence each."""
        messages = []
        missing = self.subjects * self.relations - self.facts
        if missing:
            messages.append(
                f"{missing} of {self.answer_of.size} subject-relation pairs have no answer."
            )
        if not self.disjoint:
            messages.append("Some relations share answers: Assumption 1 of the paper fails.")
        if unused := int((self.answer_counts == 0).sum()):
            messages.append(f"{unused} of {self.answers} answers belong to no fact.")
        single = self.answers_by_relation == 1
        if single.any():
            name = printable(self.relation_names[int(np.argmax(single))])
            messages.append(f"Relation '{name}' has only one answer: there is nothing to store.")
        return messages

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactTable):
            return NotImplemented
        return np.array_equal(self.answer_of, other.answer_of) and self._names == other._names

    def __hash__(self) -> int:
        return hash((self.answer_of.tobytes(), self._names))

    @property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        return self.subject_names, self.relation_names, self.answer_names

    def __repr__(self) -> str:
        return (
            f"FactTable({self.facts} facts: {self.subjects} subjects × {self.relations} relations "
            f"→ {self.answers} answers)"
        )


def _numbered_names(kind: str, size: int) -> tuple[str, ...]:
    """Return zero-padded names, so that sorting keeps the numerical order."""
    digits = len(str(size - 1))
    return tuple(f"{kind} {i:0{digits}d}" for i in range(size))


def _ids(names: list[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


def check_name(name: object, kind: str) -> None:
    """Check that this can be the name of a subject, a relation or an answer.

    Raises:
        FactTableError: it is not text, blank, too long, or contains a lone surrogate.
    """
    if not isinstance(name, str):
        raise FactTableError(f"{kind} names must be text, got {type(name).__name__}")
    if not name.strip():
        raise FactTableError(f"{kind} names must not be blank")
    if len(name) > _MAX_NAME_LENGTH:
        raise FactTableError(
            f"{kind} names must have at most {_MAX_NAME_LENGTH} characters, got {len(name)}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FactTableError(
            f"{kind} name '{printable(name)}' is not valid text: it contains a lone surrogate"
        ) from None


def _sizes(subjects: int, relations: int, answers_per_relation: int) -> list[int]:
    """Return the sizes as Python integers after checking them."""
    names = ("subjects", "relations", "answers_per_relation")
    sizes = [operator.index(size) for size in (subjects, relations, answers_per_relation)]
    for name, size in zip(names, sizes, strict=True):
        if size < 1:
            raise FactTableError(f"{name} must be at least 1, got {size}")
    _check_pairs(sizes[0], sizes[1])
    return sizes


def _check_pairs(subjects: int, relations: int) -> None:
    if subjects * relations > _MAX_PAIRS:
        raise FactTableError(
            f"subjects × relations must be at most {_MAX_PAIRS}, got {subjects} × {relations}"
        )
