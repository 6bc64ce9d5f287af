"""Figure 3: the two constructions. Where heads attend, and the scores of the answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Experiment, Task
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_figure
from factmem.plotting.plot import Axis, DataTable, HeatMap, Plot

__all__ = ["figure_3", "measure_constructions"]

_CONFIG = {
    "subjects": 8,
    "relations": 4,
    "answers": 4,
    "length": 10,
    "dim": 256,
    "head_dim": 128,
    "width": 2048,
    "block": 2,
    "seed": 0,
}
_NAMES = {"attention": "Theorem 3", "mlp": "Theorem 4"}


def measure_constructions(
    *,
    subjects: int,
    relations: int,
    answers: int,
    length: int,
    dim: int,
    head_dim: int,
    width: int,
    block: int,
    seed: int,
) -> dict[str, Any]:
    """Build both theorems' models for one table and give both the same prompt.

    Returns:
        For each model: the attention of every head to every token of the prompt, what every head
        writes in the direction of every answer, the scores of all answers with and without the
        MLP, and the accuracy over all facts.
    """
    import jax.random as jr

    from factmem.facts import FactTable, PromptDistribution
    from factmem.transformer import (
        THEORY_CONVENTION,
        Embeddings,
        attention_construction,
        mlp_construction,
    )

    table = FactTable.random(subjects, relations, answers, seed=seed)
    prompts = PromptDistribution.from_table(table, length=length)
    keys = jr.split(jr.key(seed), 4)
    phi = Embeddings.draw(dim, prompts.vocabulary, THEORY_CONVENTION, key=keys[0])
    built = {
        "attention": attention_construction(prompts, phi, head_dim, key=keys[1], block_size=block),
        "mlp": mlp_construction(prompts, phi, head_dim, width, key=keys[1], block_size=block),
    }
    prompt = prompts.sample_batch(1, form="tokens", key=keys[2])
    return {
        **{name: _inspect(each.model, prompts, prompt, keys[3]) for name, each in built.items()},
        "prompt": [_token_name(int(token), prompts.vocabulary) for token in prompt.content[0]],
        "answer": int(prompt.answers[0]),
    }


def _inspect(model: Any, prompts: Any, prompt: Any, key: Any) -> dict[str, Any]:
    import jax
    import numpy as np

    from factmem.facts.prompts import count_tokens
    from factmem.transformer import recall

    tokens = prompt.content[0]
    attention = jax.nn.softmax(model.scores()[tokens], axis=0)
    read = np.einsum("th,thk->hk", np.asarray(attention), np.asarray(model.values()[tokens]))
    written = np.einsum("hk,hkd->hd", read, np.asarray(model.weights.output))
    outputs = np.asarray(model.embeddings.outputs[prompts.vocabulary.first_answer :])
    counts = count_tokens(prompt.content, prompts.vocabulary.prompt_tokens)
    return {
        "attention": np.asarray(attention).T.tolist(),
        "written": (written @ outputs.T).tolist(),
        "before": (np.asarray(model.attention(counts))[0] @ outputs.T).tolist(),
        "scores": (np.asarray(model(counts))[0] @ outputs.T).tolist(),
        "accuracy": recall(model, prompts, key=key).accuracy,
        "heads": model.shape.heads,
        "parameters": model.shape.parameters,
    }


def _token_name(token: int, vocabulary: Any) -> str:
    starts = ((vocabulary.first_noise, "n"), (vocabulary.first_relation, "r"), (0, "s"))
    if token >= vocabulary.eos:
        return "EOS"
    first, letter = next(start for start in starts if token >= start[0])
    return f"{letter}{token - first + 1}"


EXPERIMENT = Experiment("constructions shown", 1, measure_constructions)


@register_figure("3", order=(3,))
def figure_3(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of attention and scores of both constructions. Both scales are the same."""
    return PaperFigure(
        "3",
        "Figure 3: the two constructions",
        "Where does a transformer store facts? The paper gives two ways. With attention alone, one "
        "head finds the subject and votes for all of its answers, another finds the relation and "
        "votes for all answers that it allows; the one answer with two votes wins. With an MLP, "
        "heads only pass on subject and relation, and the MLP holds the facts.",
        IndependentTasks((Task(EXPERIMENT, _CONFIG),)),
        _plot,
    )


def _plot(results: Sequence[Mapping[str, Any]]) -> Plot:
    (result,) = results
    panels = [
        panel
        for name in _NAMES
        for panel in (_attention_map(name, result), _score_map(name, result))
    ]
    rows = [
        [_NAMES[name], f"head {head + 1}", token, share]
        for name in _NAMES
        for head, attention in enumerate(result[name]["attention"])
        for token, share in zip(result["prompt"], attention, strict=True)
    ]
    rows += [
        [_NAMES[name], row, f"answer {index + 1}", value]
        for name in _NAMES
        for row, values in _score_rows(name, result)
        for index, value in enumerate(values)
    ]
    data = DataTable.of(("construction", "row", "column", "value"), rows)
    return Plot(
        "3", "Figure 3: the two constructions", tuple(panels), _caption(result), data, columns=2
    )


def _attention_map(name: str, result: Mapping[str, Any]) -> HeatMap:
    attention, prompt = result[name]["attention"], result["prompt"]
    heads = range(len(attention))[::-1]  # rows from the bottom up: head 1 is at the top
    return HeatMap(
        Axis("token of the prompt", ticks=tuple((float(x), t) for x, t in enumerate(prompt))),
        Axis("head", ticks=tuple((float(y), str(head + 1)) for y, head in enumerate(heads))),
        tuple(x - 0.5 for x in range(len(prompt) + 1)),
        tuple(y - 0.5 for y in range(len(attention) + 1)),
        tuple(tuple(attention[head]) for head in heads),
        "attention",
        title=f"{_NAMES[name]}: attention of the heads",
        hover_texts=tuple(
            tuple(
                f"head {head + 1} attends to {token}: {100 * share:.0f}%"
                for token, share in zip(prompt, attention[head], strict=True)
            )
            for head in heads
        ),
    )


def _score_rows(name: str, result: Mapping[str, Any]) -> list[tuple[str, Sequence[float]]]:
    """Return the rows of the score map, from the bottom up."""
    model = result[name]
    if name == "attention":
        heads = [(f"head {y + 1}", row) for y, row in enumerate(model["written"])]
        return [("all heads", model["scores"]), *heads[::-1]]
    return [("with MLP", model["scores"]), ("all heads", model["before"])]


def _score_map(name: str, result: Mapping[str, Any]) -> HeatMap:
    rows = _score_rows(name, result)
    answers = len(rows[0][1])
    largest = max(abs(value) for _, values in rows for value in values)
    correct = result["answer"]
    ticks = [index for index in range(answers) if index % 4 == 0 or index == correct]
    return HeatMap(
        Axis(
            f"answer (correct: {correct + 1})",
            ticks=tuple((float(x), str(x + 1)) for x in ticks),
        ),
        Axis("", ticks=tuple((float(y), row) for y, (row, _) in enumerate(rows))),
        tuple(x - 0.5 for x in range(answers + 1)),
        tuple(y - 0.5 for y in range(len(rows) + 1)),
        tuple(tuple(values) for _, values in rows),
        "score",
        title=f"{_NAMES[name]}: scores of answers",
        hover_texts=tuple(
            tuple(f"{row}, answer {x + 1}: {value:.2f}" for x, value in enumerate(values))
            for row, values in rows
        ),
        low=-largest,
        high=largest,
    )


def _caption(result: Mapping[str, Any]) -> str:
    models = [
        f"{_NAMES[name]}: {result[name]['heads']} heads, {result[name]['parameters']:,} "
        f"parameters, recalls {100 * result[name]['accuracy']:.3g}% of the facts in any noise."
        for name in _NAMES
    ]
    return (
        f"Both models store the same {_CONFIG['subjects'] * _CONFIG['relations']} facts "
        f"(S = {_CONFIG['subjects']}, R = {_CONFIG['relations']}, D = {_CONFIG['answers']}; "
        f"d = {_CONFIG['dim']}, d_h = {_CONFIG['head_dim']}, m = {_CONFIG['width']:,}, blocks of "
        f"{_CONFIG['block']} tokens) and get the same prompt; all values are computed. "
        "Left: heads whose block contains the subject or the relation attend to it, all others to "
        "EOS, from which nothing is read. Right: scores of all answers; "
        f"{result['answer'] + 1} is correct. " + " ".join(models)
    )
