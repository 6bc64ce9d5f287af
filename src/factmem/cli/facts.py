"""`factmem facts`: describes a table of facts."""

from itertools import islice
from typing import TYPE_CHECKING

from factmem._core.errors import printable
from factmem.cli.options import read_table
from factmem.cli.render import CommandResult, OutputOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.facts import FactTable

__all__ = ["facts"]

_EXAMPLES = 5


def facts(table: str, /, *, output: OutputOptions = OutputOptions()) -> CommandResult:
    """Describe a table of facts: its sizes, its information in bits, examples and warnings.

    Args:
        table: Path of a CSV file with the columns subject, relation and answer.
    """
    fact_table = read_table(table)
    data = {
        "table": table,
        "subjects": fact_table.subjects,
        "relations": fact_table.relations,
        "answers": fact_table.answers,
        "answers_per_relation": fact_table.answers_per_relation,
        "facts": fact_table.facts,
        "bits": fact_table.association_bits,
        "entropy_bits": fact_table.entropy_bits,
        "disjoint": fact_table.disjoint,
        "max_facts_per_answer": fact_table.answer_counts.max(),
        "examples": [list(record) for record in islice(fact_table.records(), _EXAMPLES)],
        "warnings": fact_table.warnings(),
    }
    return CommandResult(data, lambda: _render(table, fact_table), output)


def _render(name: str, table: "FactTable") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    sizes = Table(title=Text(printable(name)), show_header=False, title_justify="left")
    sizes.add_column(no_wrap=True)
    sizes.add_column(justify="right", no_wrap=True)
    for label, value in (
        ("facts", f"{table.facts:,}"),
        ("subjects", f"{table.subjects:,}"),
        ("relations", f"{table.relations:,}"),
        ("answers", f"{table.answers:,}"),
        ("max answers per relation", f"{table.answers_per_relation:,}"),
        ("max facts per answer", f"{table.answer_counts.max():,}"),
        ("information (bits)", f"{table.association_bits:,.1f}"),
        ("entropy given answer frequencies (bits)", f"{table.entropy_bits:,.1f}"),
        ("answers of different relations are disjoint", "yes" if table.disjoint else "no"),
    ):
        sizes.add_row(label, value)
    examples = Table("subject", "relation", "answer", title="first facts", title_justify="left")
    for record in islice(table.records(), _EXAMPLES):
        examples.add_row(*(Text(printable(part)) for part in record))
    warnings = [Text(f"Warning: {warning}") for warning in table.warnings()]
    return Group(sizes, examples, *warnings)
