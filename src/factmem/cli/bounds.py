"""`factmem bounds`: how many bits any model needs, and the smallest loss with B bits."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from factmem._core.errors import FactmemError
from factmem.cli.options import check_positive, read_table
from factmem.cli.render import CommandResult, OutputOptions, render_table

if TYPE_CHECKING:
    from factmem.bounds import RandomTableConditions, TableBits

__all__ = ["bounds"]

_MAX_SIZE = 10**12
"""The largest size, and the largest vocabulary."""
_MAX_ZIPF = 1000


def bounds(
    *,
    subjects: int | None = None,
    relations: int | None = None,
    answers: int | None = None,
    vocabulary: int | None = None,
    table: str | None = None,
    facts: int | None = None,
    outputs: int | None = None,
    bits: float | None = None,
    zipf: float | None = None,
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Compute how many bits any model needs to store a table of facts or associations.

    For a random table, give --subjects, --relations and --answers; for your own table, --table;
    for associations, --facts and --outputs. With associations, --bits adds the smallest expected
    loss of any model with this many bits.

    Args:
        subjects: S, the number of subjects.
        relations: R, the number of relations.
        answers: D, the number of answers per relation.
        vocabulary: Number of words that can be answers (default: R·D, or the number of answers in
            the CSV file).
        table: Path of a CSV file with the columns subject, relation and answer.
        facts: N, the number of associations of a random map.
        outputs: M, the number of values that this map can take.
        bits: B, the number of bits of a model.
        zipf: Exponent of the distribution of associations: the k-th most likely one has
            probability proportional to k^-ZIPF (default: 0, uniform).
    """
    sizes = {"subjects": subjects, "relations": relations, "answers": answers}
    pairs = {"facts": facts, "outputs": outputs}
    _check(sizes, pairs, table, vocabulary, bits, zipf)
    if facts is not None and outputs is not None:
        return _association_bounds(facts, outputs, bits, zipf or 0.0, output)
    if table is not None:
        return _table_bounds(table, vocabulary, output)
    return _random_table_bounds(sizes, vocabulary, output)


def _check(
    sizes: dict[str, int | None],
    pairs: dict[str, int | None],
    table: str | None,
    vocabulary: int | None,
    bits: float | None,
    zipf: float | None,
) -> None:
    """Check all options before anything is loaded."""
    given = [any(value is not None for value in group.values()) for group in (sizes, pairs)]
    if sum([*given, table is not None]) != 1:
        raise FactmemError(
            "give either --subjects, --relations and --answers, or --table, or --facts and "
            "--outputs"
        )
    for group in (sizes, pairs):
        missing = [f"--{name}" for name, value in group.items() if value is None]
        if missing and len(missing) < len(group):
            verb = "is" if len(missing) == 1 else "are"
            raise FactmemError(f"{' and '.join(missing)} {verb} also required")
    check_positive(**sizes, **pairs, vocabulary=vocabulary)
    for name, size in {**sizes, **pairs, "vocabulary": vocabulary}.items():
        if size is not None and size > _MAX_SIZE:
            raise FactmemError(f"--{name} must be at most {_MAX_SIZE}, got {size}")
    if pairs["facts"] is None and (bits is not None or zipf is not None):
        raise FactmemError("--bits and --zipf require --facts and --outputs")
    if pairs["facts"] is not None and vocabulary is not None:
        raise FactmemError("--vocabulary cannot be combined with --facts; use --outputs")
    if bits is not None and not 0 <= bits < math.inf:
        raise FactmemError(f"--bits must be a finite number of at least 0, got {bits}")
    if zipf is not None and bits is None:
        raise FactmemError("--zipf requires --bits")
    if zipf is not None and not 0 <= zipf <= _MAX_ZIPF:
        raise FactmemError(f"--zipf must be from 0 to {_MAX_ZIPF}, got {zipf}")


def _random_table_bounds(
    sizes: dict[str, int | None], vocabulary: int | None, output: OutputOptions
) -> CommandResult:
    from factmem.bounds import RandomTableConditions, random_table_bits

    subjects, relations, answers = (size or 1 for size in sizes.values())
    words = relations * answers if vocabulary is None else vocabulary
    if max(words, subjects * relations) > _MAX_SIZE:
        raise FactmemError(
            f"a table must have at most {_MAX_SIZE} facts and as many words, got "
            f"{subjects * relations} facts and {words} words"
        )
    table_bits = random_table_bits(subjects, relations, answers, words)
    conditions = RandomTableConditions.from_sizes(subjects, relations, answers, words)
    data = {
        "subjects": subjects,
        "relations": relations,
        "answers_per_relation": answers,
        "facts": subjects * relations,
        "vocabulary": words,
        **_bits_data(table_bits),
        **asdict(conditions),
    }
    notes = ["This is the entropy of a random table.", _theorem_8_note(conditions, words)]
    return _result("a random table of facts", data, notes, output)


def _theorem_8_note(conditions: "RandomTableConditions", words: int) -> str:
    bound = "lower bound S R log2 D + (1 − c) R D log2(|V|/D)"
    needed = conditions.vocabulary_needed
    if words < needed:
        return (
            f"The {bound} of Theorem 8 is not applicable here: |V| = {words:,} is below {needed:,}."
        )
    return (
        f"Theorem 8 states the {bound}, which is {conditions.paper_bits:,.1f} bits for c = 0, if "
        f"S ≥ C · {conditions.subjects_scale:,.1f}, with constants c and C. Its condition "
        f"|V| ≥ {needed:,} is met."
    )


def _table_bounds(table: str, vocabulary: int | None, output: OutputOptions) -> CommandResult:
    from factmem.bounds import table_bits

    fact_table = read_table(table, "--table")
    data = {
        "table": table,
        "subjects": fact_table.subjects,
        "relations": fact_table.relations,
        "answers_per_relation": fact_table.answers_per_relation,
        "facts": fact_table.facts,
        "vocabulary": fact_table.answers if vocabulary is None else vocabulary,
        **_bits_data(table_bits(fact_table, vocabulary)),
    }
    notes = [
        "This is the number of bits that select the table among all tables for the same subjects "
        "and relations in which every relation has the same number of different answers"
        + (", none of them shared." if fact_table.disjoint else ".")
    ]
    return _result("this table of facts", data, notes, output)


def _association_bounds(
    facts: int, outputs: int, bits: float | None, zipf: float, output: OutputOptions
) -> CommandResult:
    from factmem.bounds import TableBits, Zipf, min_loss, paper_min_loss

    map_bits = TableBits(facts * math.log2(outputs), 0.0, 0.0)
    data: dict[str, Any] = {"facts": facts, "outputs": outputs, **_bits_data(map_bits)}
    notes = []
    if bits is not None:
        law = Zipf(facts, zipf)
        loss = min_loss(bits, outputs, law)
        data |= {
            "model_bits": bits,
            "zipf": zipf,
            "min_loss_bits": loss,
            "min_loss_nats": loss * math.log(2),
            "paper_min_loss_bits": paper_min_loss(bits, outputs, law),
        }
        if zipf > 1:
            notes = [f"For N much larger than B, the smallest loss scales as B^{1 - zipf:.3g}."]
    return _result("a random map", data, notes, output)


def _bits_data(table_bits: "TableBits") -> dict[str, Any]:
    from factmem.bounds import parameters_needed

    return {
        **asdict(table_bits),
        "bits": table_bits.bits,
        "parameters_at_bits_per_weight": {
            str(precision): count for precision, count in parameters_needed(table_bits.bits).items()
        },
    }


def _result(
    title: str, data: dict[str, Any], notes: list[str], output: OutputOptions
) -> CommandResult:
    parameters = data["parameters_at_bits_per_weight"]
    rows = {f"parameters_{precision}": count for precision, count in parameters.items()}
    labels = _LABELS | {
        f"parameters_{precision}": f"parameters with {precision}-bit weights"
        for precision in parameters
    }
    rows |= {name: f"{data[name]:,.1f}" for name in data if name.endswith("bits")}
    rows |= {name: f"{data[name]:.4g}" for name in data if name.startswith("min_loss")}
    if "vocabulary" not in data:  # a map has no relations, so these are 0
        rows |= dict.fromkeys(("answer_set_bits", "unused_answer_bits"))
    return CommandResult(
        data, lambda: render_table(f"bits of {title}", labels, data | rows, notes), output
    )


_LABELS = {
    "facts": "facts",
    "outputs": "outputs",
    "vocabulary": "vocabulary (words)",
    "association_bits": "bits for the answer of each fact",
    "answer_set_bits": "bits for the answers of each relation",
    "unused_answer_bits": "minus bits for unused answers",
    "bits": "bits needed for zero loss",
    "model_bits": "bits of the model",
    "min_loss_bits": "smallest expected loss (bits)",
    "min_loss_nats": "smallest expected loss (nats)",
}
