"""Losses against flow time with the stages of training."""

from typing import TYPE_CHECKING

import numpy as np

from factmem.plotting.plot import Axis, Chart, Level, Line, Plot, Span

if TYPE_CHECKING:
    from factmem.dynamics import Curves, PromptPopulation, Stages

__all__ = ["flow_curves"]

_STAGE_NAMES = ("initialization", "hallucination", "convergence")


def flow_curves(
    curves: "Curves",
    stages: "Stages",
    population: "PromptPopulation",
    *,
    title: str = "",
    reference_stages: tuple[float, ...] = (),
    exact_flow: "Curves | None" = None,
    log_time: bool = False,
) -> Plot:
    """Plot total loss, relation loss and subject loss, with the stages shaded.

    Args:
        curves: the losses.
        stages: the stages found in them.
        population: the prompts, for the levels of the loss.
        title: title of the plot.
        reference_stages: ends of the stages that the authors show, drawn above ours.
        exact_flow: the exact gradient flow, to compare SGD with.
        log_time: whether time is logarithmic, over three decades.
    """
    end = float(curves.times[-1])
    lines = [
        Line(name, _floats(curves.times), _floats(values), kind="curve")
        for name, values in (
            ("total", curves.statistics.loss),
            ("relation loss", curves.statistics.relation_loss),
            ("subject loss", curves.statistics.subject_loss),
        )
    ]
    if exact_flow is not None:
        visible = exact_flow.times <= end
        exact = _floats(exact_flow.times[visible]), _floats(exact_flow.loss[visible])
        lines.append(Line("total, exact flow", *exact, kind="reference"))
    time = Axis(
        "flow time (steps × rate)",
        "log" if log_time else "linear",
        limits=(end / 1000 if log_time else 0.0, end),
    )
    chart = Chart(
        time,
        Axis("loss (nats)", limits=(0.0, None)),
        tuple(lines),
        levels=_levels(population),
        spans=_spans(stages, end),
        spans_label="ours",
        brackets=_reference_spans(reference_stages, end),
        brackets_label="authors",
    )
    return Plot("flow", title, (chart,), columns=1, shared_legend=True)


def _spans(stages: "Stages", end: float) -> tuple[Span, ...]:
    """Return the stages up to the end of the curves."""
    if stages.init_end is None or stages.hallucination is None:
        return ()
    over = stages.hallucination.end
    ends = [0.0, stages.init_end, end] if over is None else [0.0, stages.init_end, over, end]
    return _named_spans(ends)


def _reference_spans(stages: tuple[float, ...], end: float) -> tuple[Span, ...]:
    ends = [0.0, *stages]
    count = sum(start < end for start in ends[:-1])
    return _named_spans([min(time, end) for time in ends[: count + 1]])


def _named_spans(ends: list[float]) -> tuple[Span, ...]:
    return tuple(map(Span, _STAGE_NAMES, ends[:-1], ends[1:]))


def _levels(population: "PromptPopulation") -> tuple[Level, ...]:
    answers, entropy = population.given_relation.shape[1], population.relation_entropy
    # As many answers have this entropy if all are equally likely.
    equivalent = round(float(np.exp(entropy)))
    uniform = abs(entropy - np.log(equivalent)) < 1e-9
    return (
        Level(f"ln {answers}", float(np.log(answers))),
        Level(f"ln {equivalent}" if uniform else "H(a | r)", entropy),
    )


def _floats(values: object) -> tuple[float, ...]:
    return tuple(np.asarray(values, float).tolist())
