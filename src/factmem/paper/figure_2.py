"""Figure 2: the task. A prompt contains a subject and a relation among noise tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Experiment, Task
from factmem.facts.table import FactTable
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_figure
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
    """Sample prompts, and name their tokens.

    Args:
        records: subject, relation and answer of every fact.
        prompts: number of prompts.
        length: T.
        seed: seed of the prompts.
    """
    import jax.random as jr
    import numpy as np

    from factmem.facts import PromptDistribution

    table = FactTable.from_records(records)
    distribution = PromptDistribution.from_table(table, length=length)
    sample = distribution.sample_batch(prompts, form="tokens", stratified=True, key=jr.key(seed))
    vocabulary = distribution.vocabulary
    names = (
        *table.subject_names,
        *table.relation_names,
        *(f"noise {index}" for index in range(vocabulary.noise)),
        "EOS",
    )
    starts = (vocabulary.first_relation, vocabulary.first_noise, vocabulary.eos)
    tokens = np.asarray(sample.content)
    return {
        "tokens": [[names[token] for token in row] for row in tokens],
        "kinds": [
            [int(np.searchsorted(starts, token, "right")) for token in row] for row in tokens
        ],
        "answers": [table.answer_names[answer] for answer in np.asarray(sample.answers)],
    }


EXPERIMENT = Experiment("prompts", 1, measure_prompts)


@register_figure("2", order=(2,))
def figure_2(scale: Scale = "quick", table: FactTable | None = None, seed: int = 0) -> PaperFigure:
    """Build the figure of sampled prompts.

    Args:
        scale: both scales are the same.
        table: the facts; by default six facts about three countries.
        seed: seed of the prompts.
    """
    records = [list(record) for record in (_FACTS if table is None else table.records())]
    config = {"records": records, "prompts": _PROMPTS, "length": _LENGTH, "seed": seed}
    return PaperFigure(
        "2",
        "Figure 2: the task",
        "A prompt is a sequence of tokens: a subject and a relation among noise. The last token "
        "asks for the answer. A model must find the two, wherever they are, and know the fact.",
        IndependentTasks((Task(EXPERIMENT, config),)),
        _plot,
    )


def _plot(results: Sequence[Mapping[str, Any]]) -> Plot:
    (result,) = results
    texts = [
        [*row, answer] for row, answer in zip(result["tokens"], result["answers"], strict=True)
    ]
    kinds = [[*row, _KINDS.index("answer")] for row in result["kinds"]]
    texts, kinds = texts[::-1], kinds[::-1]  # the first prompt on top
    columns, rows = len(texts[0]), len(texts)
    positions = [(float(x), str(x + 1)) for x in range(columns - 1)]
    cells = HeatMap(
        Axis("position in the prompt", ticks=(*positions, (columns - 1.0, "answer"))),
        Axis("", ticks=tuple((float(y), f"prompt {rows - y}") for y in range(rows))),
        tuple(x - 0.5 for x in range(columns + 1)),
        tuple(y - 0.5 for y in range(rows + 1)),
        tuple(tuple(float(kind) for kind in row) for row in kinds),
        "kind of token",
        texts=tuple(map(tuple, texts)),
        hover_texts=tuple(
            tuple(f"{_KINDS[kind]}: {text}" for kind, text in zip(*row, strict=True))
            for row in zip(kinds, texts, strict=True)
        ),
        categories=_KINDS,
    )
    data = DataTable.of(
        ("prompt", "position", "kind", "token"),
        [
            [rows - y, x + 1, _KINDS[kinds[y][x]], texts[y][x]]
            for y in reversed(range(rows))
            for x in range(columns)
        ],
    )
    caption = (
        f"{rows} prompts of {columns - 1} tokens as sampled for training, and their answers. "
        "Subject and relation have random positions; noise tokens are drawn anew for every prompt, "
        "so that only the fact can be learned. The paper's prompts have 32 tokens."
    )
    return Plot("2", "Figure 2: the task", (cells,), caption, data, columns=1)
