"""The flags that say which facts a transformer should know, and how it is asked for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.checks import check_length, check_positive, check_seed
from factmem.cli.facts import read_table

if TYPE_CHECKING:
    from factmem.facts import FactTable
    from factmem.transformer import Transformer

__all__ = ["Facts", "check_facts", "check_sizes", "sizes_of", "table_of"]


@Parameter(name="*")
@dataclass(frozen=True)
class Facts:
    """What is to be remembered, and how it is asked."""

    subjects: int | None = None
    """S, subjects of a random table."""
    relations: int | None = None
    """R, its relations."""
    answers: int | None = None
    """D, the answers of each relation."""
    table: str | None = None
    """Path of a CSV file (columns subject, relation, answer), instead of a random table."""
    noise: int | None = None
    """How many different noise tokens there are (default: S + R)."""
    length: int = 32
    """T, the tokens in a prompt."""
    seed: int = 0
    """Randomness of table, embeddings and weights."""

    @property
    def tokens(self) -> int:
        """At least so many tokens will be embedded, as far as the flags say."""
        answers = (self.relations or 1) * (self.answers or 1)
        return (self.subjects or 1) + (self.noise or 1) + answers


def check_facts(facts: Facts) -> None:
    """What can be said before anything is loaded."""
    check_sizes(facts.subjects, facts.relations, facts.answers, facts.table)
    check_positive(noise=facts.noise)
    check_length(facts.length)
    check_seed(facts.seed)


def check_sizes(
    subjects: int | None, relations: int | None, answers: int | None, table: str | None
) -> None:
    """Raises FactmemError unless there are sizes, or a table that has its own."""
    sizes = (subjects, relations, answers)
    if table is None and None in sizes:
        raise FactmemError("give --subjects, --relations and --answers, or a --table")
    if table is not None and sizes != (None, None, None):
        raise FactmemError("a --table has its own subjects, relations and answers: give no sizes")
    check_positive(subjects=subjects, relations=relations, answers=answers)


def table_of(facts: Facts) -> "FactTable":
    """The table that is named, or a random one."""
    if facts.table is not None:
        return read_table(facts.table)
    from factmem.facts import FactTable

    sizes = (facts.subjects, facts.relations, facts.answers)
    return FactTable.random(*sizes, seed=facts.seed)  # pyright: ignore[reportArgumentType]


def sizes_of(table: "FactTable", facts: Facts, model: "Transformer") -> dict[str, Any]:
    """What an answer says of every transformer and of what it should know."""
    shape = model.shape
    return {
        "subjects": table.subjects,
        "relations": table.relations,
        "answers_per_relation": table.answers_per_relation,
        "facts": table.facts,
        "seed": facts.seed,
        "dim": shape.dim,
        "heads": shape.heads,
        "head_dim": shape.head_dim,
        "width": shape.width,
        "parameters": shape.parameters,
        "stored_numbers": model.stored_numbers,
        "facts_per_parameter": table.facts / shape.parameters,
    }
