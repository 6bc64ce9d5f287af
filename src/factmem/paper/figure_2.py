"""Figure 2: the task. A prompt hides a subject and a relation among noise; the answer is asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Experiment, Task
from factmem.facts.table import FactTable
from factmem.paper.figure import FigureScale, PaperFigure
from factmem.plotting.plot import Axis, DataTable, HeatMap, Plot

__all__ = ["figure_2", "measure_prompts"]

_FACTS = (
    ("France", "capital", "Paris"),
    ("France", "currency", "euro"),
    ("Japan", "capital", "Tokyo"),
    ("Japan", "currency", "yen"),
    ("Peru", "capital", "Lima"),
    ("Peru", "currency", "sol"),
)
_KINDS = ("subject", "relation", "noise", "EOS", "answer")
_PROMPTS, _LENGTH = 4, 9


def measure_prompts(
    *, records: Sequence[Sequence[str]], prompts: int, length: int, seed: int
) -> dict[str, Any]:
    """Samples prompts, and names their tokens.

    Args:
        records: subject, relation and answer of every fact.
        prompts: how many.
        length: T.
        seed: of the prompts.
    """
    import jax.random as jr
    import numpy as np

    from factmem.facts import PromptDistribution

    table = FactTable.from_records(records)
    asked = PromptDistribution.of(table, length=length)
    drawn = asked.sample(jr.key(seed), prompts, form="tokens", evenly=True)
    names = (
        *table.subject_names,
        *table.relation_names,
        *(f"noise {place}" for place in range(asked.vocabulary.noise)),
        "EOS",
    )
    words = asked.vocabulary
    starts = (words.first_relation, words.first_noise, words.eos)
    tokens = np.asarray(drawn.content)
    return {
        "tokens": [[names[token] for token in row] for row in tokens],
        "kinds": [
            [int(np.searchsorted(starts, token, "right")) for token in row] for row in tokens
        ],
        "answers": [table.answer_names[answer] for answer in np.asarray(drawn.answers)],
    }


MEASURE = Experiment("prompts", 1, measure_prompts)


def figure_2(
    scale: FigureScale = "quick", table: FactTable | None = None, seed: int = 0
) -> PaperFigure:
    """Prompts as they are sampled.

    Args:
        scale: both are the same.
        table: the facts, a few of three countries if left out. Names are shown as they are.
        seed: of the prompts.
    """
    records = [list(record) for record in (_FACTS if table is None else table.records())]
    config = {"records": records, "prompts": _PROMPTS, "length": _LENGTH, "seed": seed}
    return PaperFigure(
        "2",
        "Figure 2: the task",
        "A prompt is a row of tokens. Somewhere in it stand a subject and a relation, all else is "
        "noise, and the last token says that the answer is wanted. A model must find the two, "
        "wherever they are, and know the fact.",
        IndependentTasks((Task(MEASURE, config),)),
        _plot,
    )


def _plot(results: Sequence[Mapping[str, Any]]) -> Plot:
    (found,) = results
    texts = [[*row, answer] for row, answer in zip(found["tokens"], found["answers"], strict=True)]
    kinds = [[*row, _KINDS.index("answer")] for row in found["kinds"]]
    texts, kinds = texts[::-1], kinds[::-1]  # the first prompt on top
    columns, rows = len(texts[0]), len(texts)
    places = [(float(x), str(x + 1)) for x in range(columns - 1)]
    cells = HeatMap(
        Axis("place in the prompt", ticks=(*places, (columns - 1.0, "answer"))),
        Axis("", ticks=tuple((float(y), f"prompt {rows - y}") for y in range(rows))),
        tuple(x - 0.5 for x in range(columns + 1)),
        tuple(y - 0.5 for y in range(rows + 1)),
        tuple(tuple(float(kind) for kind in row) for row in kinds),
        "kind of token",
        texts=tuple(map(tuple, texts)),
        told=tuple(
            tuple(f"{_KINDS[kind]}: {text}" for kind, text in zip(*each, strict=True))
            for each in zip(kinds, texts, strict=True)
        ),
        kinds=_KINDS,
    )
    data = DataTable.of(
        ("prompt", "place", "kind", "token"),
        [
            [rows - y, x + 1, _KINDS[kinds[y][x]], texts[y][x]]
            for y in reversed(range(rows))
            for x in range(columns)
        ],
    )
    caption = (
        f"{rows} prompts of {columns - 1} tokens as they are sampled for training, and the answers "
        "that are asked for. Subject and relation stand at random places; noise tokens are drawn "
        "anew in every prompt, so that nothing but the fact can be learned. The paper's experiments "
        "have 32 tokens in a prompt."
    )
    return Plot("2", "Figure 2: the task", (cells,), caption, data, columns=1)
