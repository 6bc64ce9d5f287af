"""`factmem facts TABLE`: looks at a table of facts."""

from itertools import islice
from typing import TYPE_CHECKING

from factmem._core.errors import FactTableError, visible
from factmem.cli.answer import Answer, Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.facts import FactTable

__all__ = ["facts", "read_table"]

_EXAMPLES = 5


def facts(table: str, /, *, output: Output = Output()) -> Answer:
    """Look at a table of facts: sizes, information in bits, examples and warnings.

    Parameters
    ----------
    table
        Path of a CSV file with the columns subject, relation and answer.
    """
    found = read_table(table)
    data = {
        "table": table,
        "subjects": found.subjects,
        "relations": found.relations,
        "answers": found.answers,
        "answers_per_relation": found.answers_per_relation,
        "facts": found.facts,
        "bits": found.association_bits,
        "entropy_bits": found.entropy_bits,
        "disjoint": found.disjoint,
        "most_facts_of_an_answer": found.answer_counts.max(),
        "examples": [list(record) for record in islice(found.records(), _EXAMPLES)],
        "warnings": found.warnings(),
    }
    return Answer(data, lambda: _shown(table, found), output)


def read_table(table: str) -> "FactTable":
    """The table that a user names.

    Raises:
        FactTableError: there is none, or it is no table.
    """
    from factmem.facts import read_csv

    if table and "\0" not in table:  # no path has these
        try:
            return read_csv(table)
        except FileNotFoundError:
            pass
    raise FactTableError(
        f"there is no file '{table}'; TABLE is the path of a CSV with the columns "
        f"subject, relation, answer"
    )


def _shown(name: str, table: "FactTable") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    sizes = Table(title=Text(visible(name)), show_header=False, title_justify="left")
    sizes.add_column(no_wrap=True)
    sizes.add_column(justify="right", no_wrap=True)
    for label, value in (
        ("facts", f"{table.facts:,}"),
        ("subjects", f"{table.subjects:,}"),
        ("relations", f"{table.relations:,}"),
        ("answers", f"{table.answers:,}"),
        ("answers of one relation, at most", f"{table.answers_per_relation:,}"),
        ("facts of one answer, at most", f"{table.answer_counts.max():,}"),
        ("information", f"{table.association_bits:,.1f} bits"),
        ("information, answer frequencies known", f"{table.entropy_bits:,.1f} bits"),
        ("answers of different relations are disjoint", "yes" if table.disjoint else "no"),
    ):
        sizes.add_row(label, value)
    examples = Table("subject", "relation", "answer", title="first facts", title_justify="left")
    for record in islice(table.records(), _EXAMPLES):
        examples.add_row(*(Text(visible(part)) for part in record))
    notes = [Text(f"Note: {warning}") for warning in table.warnings()]
    return Group(sizes, examples, *notes)
