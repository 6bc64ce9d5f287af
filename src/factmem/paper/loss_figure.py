"""What both parts of Figure 5 share: losses against SGD steps, with the stages of training."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from factmem.experiments.flow_spec import FlowSpec, SGDConfig
from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.specs import TableSpec
from factmem.experiments.task import Experiment, Task
from factmem.paper.figure import PaperFigure
from factmem.plotting.plot import Axis, Chart, DataTable, Level, Line, Plot, Span

__all__ = ["AUTHORS_STAGES", "TABLE_SIZES", "loss_figure", "measure_losses"]

TABLE_SIZES = (16, 4, 8)
"""S, R and D of Figure 5."""
AUTHORS_STAGES = (180.0, 500.0, 819.2)
"""Ends of the stages that the authors shade by hand, in flow time."""
_POINTS = 257
_LOSSES = ("loss", "relation_loss", "subject_loss")


def measure_losses(
    *,
    attention: Literal["linear", "softmax"],
    subjects: int,
    relations: int,
    answers: int,
    dim: int | None,
    learning_rate: float,
    steps: int,
    batch_size: int,
    seed: int,
) -> dict[str, Any]:
    """Run SGD on the structured table.

    Args:
        attention: linear over one-hot tokens, or a softmax head on random embeddings.
        subjects, relations, answers: S, R and D.
        dim: embedding dimension of a softmax head; None for its default.
        learning_rate, steps, batch_size: of plain SGD.
        seed: seed of embeddings and prompts.

    Returns:
        Losses at evenly spaced steps, and the steps at which the stages of training end.
    """
    from factmem.dynamics import find_stages, spaced_times

    spec = FlowSpec(table=TableSpec.structured(subjects, relations, answers), seed=seed)
    instance, sgd = spec.draw(), SGDConfig(learning_rate, steps, batch_size)
    times = spaced_times(1.0, _POINTS, "equal")
    if attention == "linear":
        curves = instance.sgd(sgd, times=times)
        flow = instance.flow(until=learning_rate * steps, times=times)
        exact = {
            "exact_steps": (flow.times / learning_rate).tolist(),
            "exact_loss": flow.loss.tolist(),
        }
    else:
        curves, exact = instance.softmax_sgd(sgd, dim=dim, times=times), {}
    stages = find_stages(curves, instance.population)
    statistics = curves.statistics
    return {
        "steps": (curves.times / learning_rate).tolist(),
        **{name: np.asarray(getattr(statistics, name)).tolist() for name in _LOSSES},
        **exact,
        "init_end": None if stages.init_end is None else stages.init_end / learning_rate,
        "hallucination_end": (
            None if stages.hallucination_end is None else stages.hallucination_end / learning_rate
        ),
        "uniform": float(np.log(instance.table.answers)),
        "relation": instance.population.relation_entropy,
    }


EXPERIMENT = Experiment("loss curves", 1, measure_losses)


def loss_figure(
    name: str,
    title: str,
    description: str,
    setup: str,
    seeds: Sequence[int],
    config: Mapping[str, Any],
) -> PaperFigure:
    """Build one part of Figure 5. It shows the first seed; the caption has the range over seeds.

    Args:
        name, title, description: as in `PaperFigure`.
        setup: what was run, in sentences, for the caption.
        seeds: one run for each.
        config: of `measure_losses`, without table sizes and seed.
    """
    sizes = dict(zip(("subjects", "relations", "answers"), TABLE_SIZES, strict=True))
    tasks = [Task(EXPERIMENT, {**sizes, **config, "seed": seed}) for seed in seeds]

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
        caption = f"{setup} {_describe_stages(results)}"
        return Plot(name, title, (chart,), caption, _data(results, seeds), columns=1)

    return PaperFigure(name, title, description, IndependentTasks(tuple(tasks)), plot)


def _lines(run: Mapping[str, Any]) -> tuple[Line, ...]:
    names = ("total", "relation loss", "subject loss")
    lines = [
        Line(name, tuple(run["steps"]), tuple(run[loss]), kind="curve")
        for name, loss in zip(names, _LOSSES, strict=True)
    ]
    if "exact_loss" in run:
        flow = (tuple(run["exact_steps"]), tuple(run["exact_loss"]))
        lines.append(Line("total, exact gradient flow", *flow, kind="reference"))
    return tuple(lines)


def _spans(run: Mapping[str, Any]) -> tuple[Span, ...]:
    start, end, last = run["init_end"], run["hallucination_end"], run["steps"][-1]
    if start is None or end is None:
        return ()
    return (
        Span("initialization", 0.0, start),
        Span("hallucination", start, end),
        Span("convergence", end, last),
    )


def _describe_stages(results: Sequence[Mapping[str, Any]]) -> str:
    ends = [(run["init_end"], run["hallucination_end"]) for run in results]
    stages = [(start, end) for start, end in ends if start is not None and end is not None]
    if not stages:
        return "No seed has a hallucination stage here."
    starts, ends = zip(*stages, strict=True)
    return (
        "The hallucination stage, in which the model knows relations but not subjects, begins "
        f"after {_range(starts)} steps and ends after {_range(ends)} ({len(stages)} of "
        f"{len(results)} seeds); during it the loss is within 0.1 of ln {TABLE_SIZES[2]}. The plot "
        "shows the first seed."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def _data(results: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> DataTable:
    rows = [
        [seed, *values]
        for seed, run in zip(seeds, results, strict=True)
        for values in zip(run["steps"], *(run[name] for name in _LOSSES), strict=True)
    ]
    return DataTable.of(("seed", "step", *_LOSSES), rows)
