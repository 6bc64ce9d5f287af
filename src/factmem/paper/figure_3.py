"""Figure 3: the two constructions, as they are. What heads look at, and what is then scored."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Experiment, Task
from factmem.paper.figure import FigureScale, PaperFigure
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
    """Builds both theorems' models for one table and asks both the same prompt.

    Returns:
        For each: how much every head looks at every token of the prompt, what every head writes
        for every answer, the scores of all answers with and without the MLP, and the accuracy
        over all facts.
    """
    import jax.random as jr

    from factmem.facts import FactTable, PromptDistribution
    from factmem.transformer import THEORY, Embeddings, attention_construction, mlp_construction

    table = FactTable.random(subjects, relations, answers, seed=seed)
    asked = PromptDistribution.of(table, length=length)
    keys = jr.split(jr.key(seed), 4)
    phi = Embeddings.draw(keys[0], dim, asked.vocabulary, THEORY)
    built = {
        "attention": attention_construction(keys[1], asked, phi, head_dim, block=block),
        "mlp": mlp_construction(keys[1], asked, phi, head_dim, width, block=block),
    }
    prompt = asked.sample(keys[2], 1, form="tokens")
    found = {name: _looked_at(each.model, asked, prompt, keys[3]) for name, each in built.items()}
    words = asked.vocabulary
    return {
        **found,
        "prompt": [_name(int(token), words) for token in prompt.content[0]],
        "answer": int(prompt.answers[0]),
    }


def _looked_at(model: Any, asked: Any, prompt: Any, key: Any) -> dict[str, Any]:
    import jax
    import numpy as np

    from factmem.facts.prompts import count_tokens
    from factmem.transformer import recall

    tokens = prompt.content[0]
    shares = jax.nn.softmax(model.scores()[tokens], axis=0)
    read = np.einsum("th,thk->hk", np.asarray(shares), np.asarray(model.values()[tokens]))
    written = np.einsum("hk,hkd->hd", read, np.asarray(model.weights.output))
    outputs = np.asarray(model.embeddings.outputs[asked.vocabulary.first_answer :])
    counts = count_tokens(prompt.content, asked.vocabulary.prompt_tokens)
    return {
        "attention": np.asarray(shares).T.tolist(),
        "written": (written @ outputs.T).tolist(),
        "before": (np.asarray(model.attention(counts))[0] @ outputs.T).tolist(),
        "scores": (np.asarray(model(counts))[0] @ outputs.T).tolist(),
        "accuracy": recall(model, asked, key).accuracy,
        "heads": model.shape.heads,
        "parameters": model.shape.parameters,
    }


def _name(token: int, words: Any) -> str:
    for first, letter in ((words.eos, ""), (words.first_noise, "n"), (words.first_relation, "r")):
        if token >= first:
            return f"{letter}{token - first + 1}" if letter else "EOS"
    return f"s{token + 1}"


MEASURE = Experiment("constructions shown", 1, measure_constructions)


def figure_3(scale: FigureScale = "quick") -> PaperFigure:
    """Attention and scores of a Theorem 3 and a Theorem 4 model. Both scales are the same."""
    return PaperFigure(
        "3",
        "Figure 3: the two constructions",
        "Where does a transformer keep facts? In two ways that the paper writes down. With "
        "attention alone, one head finds the subject and votes for all answers that it ever has, "
        "another finds the relation and votes for all that it allows; the one answer with two "
        "votes wins. With an MLP, heads only pass subject and relation on, and the MLP holds "
        "the facts.",
        IndependentTasks((Task(MEASURE, _CONFIG),)),
        _plot,
    )


def _plot(results: Sequence[Mapping[str, Any]]) -> Plot:
    (found,) = results
    panels = [panel for name in _NAMES for panel in (_attention(name, found), _scores(name, found))]
    rows = [
        [_NAMES[name], f"head {head + 1}", token, share]
        for name in _NAMES
        for head, looks in enumerate(found[name]["attention"])
        for token, share in zip(found["prompt"], looks, strict=True)
    ]
    rows += [
        [_NAMES[name], row, f"answer {place + 1}", value]
        for name in _NAMES
        for row, values in _score_rows(name, found)
        for place, value in enumerate(values)
    ]
    data = DataTable.of(("construction", "row", "column", "value"), rows)
    return Plot(
        "3", "Figure 3: the two constructions", tuple(panels), _caption(found), data, columns=2
    )


def _attention(name: str, found: Mapping[str, Any]) -> HeatMap:
    looks, prompt = found[name]["attention"], found["prompt"]
    heads = range(len(looks))
    return HeatMap(
        Axis("token of the prompt", ticks=tuple((float(x), t) for x, t in enumerate(prompt))),
        Axis("head", ticks=tuple((float(y), str(y + 1)) for y in heads)),
        tuple(x - 0.5 for x in range(len(prompt) + 1)),
        tuple(y - 0.5 for y in range(len(looks) + 1)),
        tuple(map(tuple, looks)),
        "attention",
        title=f"{_NAMES[name]}: what heads look at",
        told=tuple(
            tuple(
                f"head {y + 1} looks at {token}: {100 * share:.0f} %"
                for token, share in zip(prompt, looks[y], strict=True)
            )
            for y in heads
        ),
    )


def _score_rows(name: str, found: Mapping[str, Any]) -> list[tuple[str, Sequence[float]]]:
    """What is drawn of the scores, from the bottom up."""
    each = found[name]
    if name == "attention":
        heads = [(f"head {y + 1}", row) for y, row in enumerate(each["written"])]
        return [("together", each["scores"]), *heads[::-1]]
    return [("with MLP", each["scores"]), ("heads together", each["before"])]


def _scores(name: str, found: Mapping[str, Any]) -> HeatMap:
    rows = _score_rows(name, found)
    answers = len(rows[0][1])
    largest = max(abs(value) for _, values in rows for value in values)
    right = found["answer"]
    shown = [place for place in range(answers) if place % 4 == 0 or place == right]
    return HeatMap(
        Axis(
            f"answer (right: {right + 1})",
            ticks=tuple((float(x), str(x + 1)) for x in shown),
        ),
        Axis("", ticks=tuple((float(y), row) for y, (row, _) in enumerate(rows))),
        tuple(x - 0.5 for x in range(answers + 1)),
        tuple(y - 0.5 for y in range(len(rows) + 1)),
        tuple(tuple(values) for _, values in rows),
        "score",
        title=f"{_NAMES[name]}: scores of answers",
        told=tuple(
            tuple(f"{row}, answer {x + 1}: {value:.2f}" for x, value in enumerate(values))
            for row, values in rows
        ),
        low=-largest,
        high=largest,
    )


def _caption(found: Mapping[str, Any]) -> str:
    told = [
        f"{_NAMES[name]}: {found[name]['heads']} heads, {found[name]['parameters']:,} parameters, "
        f"recalls {100 * found[name]['accuracy']:.3g} % of the facts in any noise."
        for name in _NAMES
    ]
    return (
        f"Both models hold the same {_CONFIG['subjects'] * _CONFIG['relations']} facts "
        f"(S = {_CONFIG['subjects']}, R = {_CONFIG['relations']}, D = {_CONFIG['answers']}; "
        f"d = {_CONFIG['dim']}, d_h = {_CONFIG['head_dim']}, m = {_CONFIG['width']:,}, blocks of "
        f"{_CONFIG['block']} tokens) and are asked the same prompt; nothing is drawn by hand. "
        "Left: heads whose block holds the subject or the relation look at it, all others at "
        "EOS, from which nothing is read. Right: scores of all answers; "
        f"{found['answer'] + 1} is right. " + " ".join(told)
    )
