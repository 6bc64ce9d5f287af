"""What both sides of Figure 5 share: losses against steps, with the stages of training."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Experiment, Task
from factmem.paper.figure import PaperFigure
from factmem.plotting.plot import Axis, Chart, DataTable, Level, Line, Plot, Span

__all__ = ["SIZES", "loss_figure", "measure_losses"]

SIZES = (16, 4, 8)
"""S, R and D of Figure 5."""
_POINTS = 257
_KEPT = ("loss", "relation_loss", "subject_loss")


def measure_losses(
    *,
    attention: Literal["linear", "softmax"],
    subjects: int,
    relations: int,
    answers: int,
    dim: int | None,
    rate: float,
    steps: int,
    batch: int,
    seed: int,
) -> dict[str, Any]:
    """Descent on the structured table: losses at evenly spaced steps, and the stages in them.

    Args:
        attention: linear over one-hot tokens, or a softmax head on random embeddings.
        subjects, relations, answers: S, R and D.
        dim: of the embeddings of a softmax head; its default if left out.
        rate, steps, batch: of plain gradient descent.
        seed: of embeddings and prompts.
    """
    from factmem.dynamics import find_stages, spaced
    from factmem.experiments import FlowSpec
    from factmem.facts import FactTable

    experiment = FlowSpec(FactTable.structured(subjects, relations, answers), seed=seed)
    settings: dict[str, Any] = {"rate": rate, "steps": steps, "batch": batch}
    settings["times"] = spaced(1.0, _POINTS, "equal")
    if attention == "linear":
        curves = experiment.descent(**settings)
        flow = experiment.flow(until=rate * steps, times=settings["times"])
        exact = {"exact_steps": (flow.times / rate).tolist(), "exact_loss": flow.loss.tolist()}
    else:
        curves, exact = experiment.softmax_descent(dim=dim, **settings), {}
    stages = find_stages(curves, experiment.population)
    population, seen = experiment.population, curves.seen
    return {
        "steps": (curves.times / rate).tolist(),
        **{name: np.asarray(getattr(seen, name)).tolist() for name in _KEPT},
        **exact,
        "init_end": None if stages.init_end is None else stages.init_end / rate,
        "hallucination_end": (
            None if stages.hallucination_end is None else stages.hallucination_end / rate
        ),
        "uniform": float(np.log(experiment.table.answers)),
        "relation": population.relation_level,
    }


MEASURE = Experiment("loss curves", 1, measure_losses)


def loss_figure(
    name: str, title: str, told: str, ran: str, seeds: Sequence[int], config: Mapping[str, Any]
) -> PaperFigure:
    """One side of Figure 5, drawn for the first seed; the others say how far stages move.

    Args:
        name, title, told: as in `PaperFigure`.
        ran: what was run, in sentences.
        seeds: a run for each.
        config: of `measure_losses`, without sizes and seed.
    """
    sizes = dict(zip(("subjects", "relations", "answers"), SIZES, strict=True))
    tasks = [Task(MEASURE, {**sizes, **config, "seed": seed}) for seed in seeds]

    def plot(results: Sequence[Mapping[str, Any]]) -> Plot:
        first = results[0]
        chart = Chart(
            Axis("steps of gradient descent"),
            Axis("cross-entropy (nats)"),
            _lines(first),
            levels=(
                Level(f"ln {sizes['relations'] * sizes['answers']}", first["uniform"]),
                Level(f"ln {sizes['answers']}", first["relation"]),
            ),
            spans=_spans(first),
        )
        caption = f"{ran} {_stages_told(results)}"
        return Plot(name, title, (chart,), caption, _data(results, seeds), columns=1)

    return PaperFigure(name, title, told, IndependentTasks(tuple(tasks)), plot)


def _lines(run: Mapping[str, Any]) -> tuple[Line, ...]:
    named = zip(("total", "relation only", "subject only"), _KEPT, strict=True)
    lines = [
        Line(name, tuple(run["steps"]), tuple(run[loss]), kind="curve") for name, loss in named
    ]
    if "exact_loss" in run:
        flow = (tuple(run["exact_steps"]), tuple(run["exact_loss"]))
        lines.append(Line("total, exact gradient flow", *flow, kind="reference"))
    return tuple(lines)


def _spans(run: Mapping[str, Any]) -> tuple[Span, ...]:
    begun, over, end = run["init_end"], run["hallucination_end"], run["steps"][-1]
    if begun is None or over is None:
        return ()
    return (
        Span("initialization", 0.0, begun),
        Span("hallucination", begun, over),
        Span("convergence", over, end),
    )


def _stages_told(results: Sequence[Mapping[str, Any]]) -> str:
    ends = [(run["init_end"], run["hallucination_end"]) for run in results]
    found = [(begun, over) for begun, over in ends if begun is not None and over is not None]
    many = f"{len(found)} of {len(results)} seeds"
    if not found:
        return "No seed has a hallucination stage here."
    begun, over = ([end[place] for end in found] for place in (0, 1))
    return (
        f"The hallucination stage, in which relations are known and subjects are not, begins after "
        f"{_range(begun)} steps and ends after {_range(over)} ({many}): the loss is within 0.1 of "
        f"ln {SIZES[2]} meanwhile. Shown is the first seed."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def _data(results: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> DataTable:
    rows = [
        [seed, *values]
        for seed, run in zip(seeds, results, strict=True)
        for values in zip(run["steps"], *(run[name] for name in _KEPT), strict=True)
    ]
    return DataTable.of(("seed", "step", *_KEPT), rows)
