"""What is remembered: a table of facts, subjects × relations → answers."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from factmem._core.errors import FactTableError, visible

__all__ = ["MISSING", "FactTable", "check_name"]

MISSING: Final = -1
"""Stands in `FactTable.answer_of` where the table has no fact."""

_LONGEST_NAME: Final = 100_000
_MOST_QUESTIONS: Final = 10**8  # 400 MB of answers


@dataclass(frozen=True, eq=False)
class FactTable:
    """A function a*: subjects × relations → answers, which may leave questions open.

    Ids are places in the sorted order of the names (for tables that are read) or in the order of
    the construction (for those that are drawn): a table does not depend on the order of its rows.

    Args:
        answer_of: a*(s, r) as an id, [subjects, relations]; `MISSING` where there is no fact.
        subject_names, relation_names, answer_names: distinct names; numbered ones if left out.
            There may be more answers than the facts use.

    Examples:
        >>> table = FactTable.from_records(
        ...     [("France", "capital", "Paris"), ("Japan", "capital", "Tokyo")])
        >>> table.facts, table.answers, table.association_bits
        (2, 2, 2.0)

    Source: section 4 of the paper. Departs from it in allowing open questions and answers that
    several relations share; `disjoint` says whether the paper's Assumption 1 holds.
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
            raise FactTableError(f"answer ids are whole numbers from 0, or {MISSING} for no fact")
        grid = grid.astype(np.int32)
        grid.setflags(write=False)
        object.__setattr__(self, "answer_of", grid)
        for kind, size in (("subject", grid.shape[0]), ("relation", grid.shape[1])):
            self._settle_names(kind, size)
        self._settle_names("answer", max(int(grid.max()) + 1, len(self.answer_names)))

    def _settle_names(self, kind: str, size: int) -> None:
        given = tuple(getattr(self, f"{kind}_names")) or _numbered(kind, size)
        if len(given) != size:
            raise FactTableError(f"{size} {kind}s need {size} names, not {len(given)}")
        for name in given:
            check_name(name, kind)
        name, times = Counter(given).most_common(1)[0]
        if times > 1:
            raise FactTableError(f"{times} {kind}s are named '{visible(name)}'")
        object.__setattr__(self, f"{kind}_names", given)

    # ---- making tables -------------------------------------------------------------------------

    @classmethod
    def random(
        cls, subjects: int, relations: int, answers_per_relation: int, *, seed: int = 0
    ) -> "FactTable":
        """The paper's experiments: relation r draws a*(s, r) uniformly from D answers of its own.

        Args:
            subjects, relations, answers_per_relation: S, R and D; there are R·D answers in all,
                used or not.
            seed: of the draw.
        """
        subjects, relations, answers_per_relation = _sizes(
            subjects, relations, answers_per_relation
        )
        if seed < 0:
            raise FactTableError(f"a seed is a whole number from 0, not {seed}")
        drawn = np.random.default_rng(seed).integers(
            answers_per_relation, size=(subjects, relations)
        )
        grid = drawn + answers_per_relation * np.arange(relations)
        return cls(grid, answer_names=_numbered("answer", relations * answers_per_relation))

    @classmethod
    def structured(cls, subjects: int, relations: int, answers_per_relation: int) -> "FactTable":
        """The table of Figure 5: a*(s, r) = r·D + ⌊s·D/S⌋, whose answers are all equally frequent
        when D divides S."""
        subjects, relations, answers_per_relation = _sizes(
            subjects, relations, answers_per_relation
        )
        place = np.arange(subjects) * answers_per_relation // subjects
        grid = place[:, None] + answers_per_relation * np.arange(relations)[None, :]
        return cls(grid, answer_names=_numbered("answer", relations * answers_per_relation))

    @classmethod
    def from_records(cls, records: Iterable[Sequence[str]]) -> "FactTable":
        """The table of (subject, relation, answer) triples; a triple that comes twice is one fact.

        Raises:
            FactTableError: two answers to one question, no record at all, or an empty name.
        """
        answers: dict[tuple[str, str], str] = {}
        for record in records:
            if isinstance(record, str) or len(record) != 3:
                raise FactTableError("a record is a triple of subject, relation and answer")
            subject, relation, answer = record
            for kind, name in zip(("subject", "relation", "answer"), record, strict=True):
                check_name(name, kind)
            known = answers.setdefault((subject, relation), answer)
            if known != answer:
                raise FactTableError(
                    f"'{visible(subject)}', '{visible(relation)}' has two answers: "
                    f"'{visible(known)}' and '{visible(answer)}'"
                )
        return cls.from_answers(answers)

    @classmethod
    def from_answers(cls, answers: Mapping[tuple[str, str], str]) -> "FactTable":
        """The table of a mapping (subject, relation) → answer.

        Raises:
            FactTableError: no fact at all, a name that is none, or more questions than fit.
        """
        subject_names = sorted({subject for subject, _ in answers})
        relation_names = sorted({relation for _, relation in answers})
        answer_names = sorted(set(answers.values()))
        _check_questions(len(subject_names), len(relation_names))
        rows, columns, ids = _places(subject_names), _places(relation_names), _places(answer_names)
        grid = np.full((len(rows), len(columns)), MISSING, dtype=np.int32)
        for (subject, relation), answer in answers.items():
            grid[rows[subject], columns[relation]] = ids[answer]
        return cls(grid, tuple(subject_names), tuple(relation_names), tuple(answer_names))

    def records(self) -> Iterator[tuple[str, str, str]]:
        """Every fact as a (subject, relation, answer) triple of names, ordered by id."""
        for s, r, a in zip(*self.fact_ids, strict=True):
            yield self.subject_names[s], self.relation_names[r], self.answer_names[a]

    # ---- looking at a table --------------------------------------------------------------------

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
        """|A|, the number of answers, those that no fact uses included."""
        return len(self.answer_names)

    @cached_property
    def fact_ids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Subject, relation and answer ids of every fact, three arrays of length `facts`."""
        s, r = np.nonzero(self.answer_of != MISSING)
        ids = s.astype(np.int32), r.astype(np.int32), self.answer_of[s, r]
        for array in ids:
            array.setflags(write=False)
        return ids

    @property
    def facts(self) -> int:
        """The number of facts: S·R if no question is open."""
        return len(self.fact_ids[0])

    @cached_property
    def _uses(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct (relation, answer) pairs, [pairs, 2], and how many facts each has."""
        _, r, a = self.fact_ids
        return np.unique(np.stack([r, a], axis=1), axis=0, return_counts=True)

    @property
    def answers_of_relations(self) -> np.ndarray:
        """|A_r| for every relation: how many different answers its facts have."""
        return np.bincount(self._uses[0][:, 0], minlength=self.relations)

    @property
    def answers_per_relation(self) -> int:
        """D = max |A_r|."""
        return int(self.answers_of_relations.max())

    @property
    def facts_of_relations(self) -> np.ndarray:
        """How many facts every relation has."""
        return np.bincount(self.fact_ids[1], minlength=self.relations)

    @property
    def answer_counts(self) -> np.ndarray:
        """C(a) for every answer: how many facts it answers."""
        return np.bincount(self.fact_ids[2], minlength=self.answers)

    @property
    def disjoint(self) -> bool:
        """Whether no two relations share an answer (the paper's Assumption 1)."""
        return bool(np.bincount(self._uses[0][:, 1]).max() <= 1)

    @property
    def association_bits(self) -> float:
        """Σ_r facts_r · log2 |A_r|: bits that name every answer among those of its relation."""
        sizes = np.maximum(self.answers_of_relations, 1)
        return float(self.facts_of_relations @ np.log2(sizes))

    @property
    def entropy_bits(self) -> float:
        """Σ_r facts_r · H(answers of r): the same when the frequencies of the answers are known.

        H is the entropy of the actual answers of a relation, so this is never above
        `association_bits`, and equal to it when each relation's answers are equally frequent.
        """
        pairs, counts = self._uses
        share = counts / self.facts_of_relations[pairs[:, 0]]
        return float(-(counts @ np.log2(share))) + 0.0

    def warnings(self) -> list[str]:
        """What a user of this table should know before storing it, one sentence each."""
        found = []
        open_questions = self.subjects * self.relations - self.facts
        if open_questions:
            found.append(f"{open_questions} of {self.answer_of.size} questions have no answer.")
        if not self.disjoint:
            found.append("Some relations share answers, so the paper's Assumption 1 fails.")
        if unused := int((self.answer_counts == 0).sum()):
            found.append(f"{unused} of {self.answers} answers belong to no fact.")
        single = self.answers_of_relations == 1
        if single.any():
            name = visible(self.relation_names[int(np.argmax(single))])
            found.append(f"Relation '{name}' always has the same answer: nothing to remember.")
        return found

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


def _numbered(kind: str, size: int) -> tuple[str, ...]:
    """Names whose sorted order is the order of their numbers."""
    digits = len(str(size - 1))
    return tuple(f"{kind} {i:0{digits}d}" for i in range(size))


def _places(names: list[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def check_name(name: object, kind: str) -> None:
    """Raises FactTableError unless this can name a subject, a relation or an answer."""
    if not isinstance(name, str):
        raise FactTableError(f"the name of a {kind} is text, not {type(name).__name__}")
    if not name.strip():
        raise FactTableError(f"the name of a {kind} is empty or blank")
    if len(name) > _LONGEST_NAME:
        raise FactTableError(f"the name of a {kind} is longer than {_LONGEST_NAME} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FactTableError(f"'{visible(name)}' has half a surrogate pair: not text") from None


def _sizes(subjects: int, relations: int, answers_per_relation: int) -> list[int]:
    """The same sizes as Python's whole numbers, if a table can have them."""
    given = {"subject": subjects, "relation": relations, "answer": answers_per_relation}
    sizes = [operator.index(size) for size in given.values()]
    for kind, size in zip(given, sizes, strict=True):
        if size < 1:
            raise FactTableError(f"a fact table needs at least one {kind}, not {size}")
    _check_questions(sizes[0], sizes[1])
    return sizes


def _check_questions(subjects: int, relations: int) -> None:
    if subjects * relations > _MOST_QUESTIONS:
        raise FactTableError(
            f"{subjects} subjects × {relations} relations are more than {_MOST_QUESTIONS} questions"
        )
