"""`factmem bounds`: the bits that any model needs, and the loss that no model of B bits beats."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from factmem._core.errors import FactmemError
from factmem.cli.answer import Answer, Output
from factmem.cli.checks import check_positive
from factmem.cli.facts import read_table
from factmem.cli.shown import shown

if TYPE_CHECKING:
    from factmem.bounds import TableBits

__all__ = ["bounds"]

_LARGEST = 10**12
"""Of any size, and of the vocabulary."""


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
    output: Output = Output(),
) -> Answer:
    """Tell how many bits any model needs: for a table of facts, or for associations.

    For a random table give --subjects, --relations and --answers; for one of your own --table; for
    associations --facts and --outputs, and then --bits for the least loss of any model of so many.

    Args:
        subjects: S.
        relations: R.
        answers: D, the answers of each relation.
        vocabulary: the words that might be answers (default: the answers alone).
        table: path of a CSV file with the columns subject, relation and answer.
        facts: N, associations of a random map.
        outputs: M, the values of that map.
        bits: B, the bits of a model that is to hold them; adds its least expected loss.
        zipf: how unequal questions are: the x-th likeliest comes in proportion to x^-ZIPF (default:
            0, all alike).
    """
    sizes = {"subjects": subjects, "relations": relations, "answers": answers}
    pairs = {"facts": facts, "outputs": outputs}
    _check(sizes, pairs, table, vocabulary, bits, zipf)
    if facts is not None and outputs is not None:
        return _of_associations(facts, outputs, bits, zipf or 0.0, output)
    if table is not None:
        return _of_table(table, vocabulary, output)
    return _of_random_table(sizes, vocabulary, output)


def _check(
    sizes: dict[str, int | None],
    pairs: dict[str, int | None],
    table: str | None,
    vocabulary: int | None,
    bits: float | None,
    zipf: float | None,
) -> None:
    """What can be said before anything is loaded."""
    given = [any(value is not None for value in group.values()) for group in (sizes, pairs)]
    if sum([*given, table is not None]) != 1:
        raise FactmemError(
            "give --subjects, --relations and --answers, or --table, or --facts and --outputs"
        )
    for group in (sizes, pairs):
        missing = [f"--{name}" for name, value in group.items() if value is None]
        if any(value is not None for value in group.values()) and missing:
            raise FactmemError(f"{' and '.join(missing)} must be given too")
    check_positive(**sizes, **pairs, vocabulary=vocabulary)
    for name, size in {**sizes, **pairs, "vocabulary": vocabulary}.items():
        if size is not None and size > _LARGEST:
            raise FactmemError(f"--{name} is at most {_LARGEST}, not {size}")
    if pairs["facts"] is None and (bits is not None or zipf is not None):
        raise FactmemError("--bits and --zipf go with --facts and --outputs")
    if pairs["facts"] is not None and vocabulary is not None:
        raise FactmemError("--vocabulary goes with a table; with --facts it is --outputs")
    if bits is not None and not 0 <= bits < math.inf:
        raise FactmemError(f"--bits is a number from 0, not {bits}")
    if zipf is not None and bits is None:
        raise FactmemError("--zipf says how likely questions are, which matters to --bits alone")
    if zipf is not None and not 0 <= zipf <= 1000:
        raise FactmemError(f"--zipf is from 0 to 1000, not {zipf}")


def _of_random_table(
    sizes: dict[str, int | None], vocabulary: int | None, output: Output
) -> Answer:
    from factmem.bounds import random_table_bits
    from factmem.bounds.tables import Conditions

    subjects, relations, answers = (size or 1 for size in sizes.values())
    words = relations * answers if vocabulary is None else vocabulary
    if max(words, subjects * relations) > _LARGEST:
        raise FactmemError(f"tables have at most {_LARGEST} facts, and as many words")
    found = random_table_bits(subjects, relations, answers, words)
    conditions = Conditions.of(subjects, relations, answers, words)
    data = {
        "subjects": subjects,
        "relations": relations,
        "answers_per_relation": answers,
        "facts": subjects * relations,
        "vocabulary": words,
        **_bits(found),
        **asdict(conditions),
    }
    notes = [
        f"The entropy of a table that is drawn at random. Theorem 8 prints S R log2 D + "
        f"(1 − c) R D log2(|V|/D), which is {conditions.printed_bits:,.1f} bits for c = 0, for "
        f"|V| ≥ {conditions.vocabulary_needed:,} and S ≥ C · {conditions.subjects_scale:,.1f}, "
        "with constants c and C."
    ]
    return _answer("a random table of facts", data, notes, output)


def _of_table(table: str, vocabulary: int | None, output: Output) -> Answer:
    from factmem.bounds import table_bits

    read = read_table(table)
    found = table_bits(read, vocabulary)
    data = {
        "table": table,
        "subjects": read.subjects,
        "relations": read.relations,
        "answers_per_relation": read.answers_per_relation,
        "facts": read.facts,
        "vocabulary": read.answers if vocabulary is None else vocabulary,
        **_bits(found),
    }
    notes = [
        "Bits that tell it from all tables with answers to the same questions, in which every "
        "relation has as many different answers"
        + (", none of them shared." if read.disjoint else ".")
    ]
    return _answer("this table of facts", data, notes, output)


def _of_associations(
    facts: int, outputs: int, bits: float | None, zipf: float, output: Output
) -> Answer:
    from factmem.bounds import TableBits, Zipf, least_loss, printed_least_loss

    found = TableBits(facts * math.log2(outputs), 0.0, 0.0)
    data: dict[str, Any] = {"facts": facts, "outputs": outputs, **_bits(found)}
    notes = []
    if bits is not None:
        law = Zipf(facts, zipf)
        loss = least_loss(bits, outputs, law)
        data |= {
            "model_bits": bits,
            "zipf": zipf,
            "least_loss_bits": loss,
            "least_loss_nats": loss * math.log(2),
            "printed_least_loss_bits": printed_least_loss(bits, outputs, law),
        }
        if zipf > 1:
            notes = [f"While N is far larger, the least loss falls like B^{1 - zipf:.3g}."]
    return _answer("a random map", data, notes, output)


def _bits(found: "TableBits") -> dict[str, Any]:
    from factmem.bounds import parameters_needed

    return {
        **asdict(found),
        "bits": found.bits,
        "parameters_at_bits_per_weight": {
            str(each): count for each, count in parameters_needed(found.bits).items()
        },
    }


def _answer(title: str, data: dict[str, Any], notes: list[str], output: Output) -> Answer:
    needed = {f"at {each}": count for each, count in data["parameters_at_bits_per_weight"].items()}
    labels = _LABELS | {name: f"weights of {name[3:]} bits that hold them" for name in needed}
    exact = {name: f"{data[name]:,.1f}" for name in data if name.endswith("bits")}
    exact |= {name: f"{data[name]:.4g}" for name in data if name.startswith("least")}
    return Answer(
        data, lambda: shown(f"bits of {title}", labels, data | exact | needed, notes), output
    )


_LABELS = {
    "facts": "facts",
    "outputs": "outputs",
    "vocabulary": "vocabulary",
    "association_bits": "bits that tell each fact's answer",
    "answer_set_bits": "bits that tell each relation's answers",
    "unseen_bits": "less those on answers of no fact",
    "bits": "bits of any model without loss",
    "model_bits": "a model of so many bits",
    "least_loss_bits": "has a loss of at least, in bits",
    "least_loss_nats": "the same in nats",
}
