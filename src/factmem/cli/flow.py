"""`factmem flow`: follows training and finds its stages."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from factmem._core.errors import FactmemError
from factmem.cli.flow_options import (
    CurveOptions,
    FlowFactOptions,
    LearningOptions,
    check_flow_options,
    flow_spec,
)
from factmem.cli.options import check_array_size
from factmem.cli.progress import progress
from factmem.cli.render import TIME_LABELS, CommandResult, OutputOptions, render_table

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType

    from factmem.dynamics import Curves, EscapeRates, Flow, Stages
    from factmem.experiments.flow_spec import FlowInstance, SGDConfig

__all__ = ["flow"]


def flow(
    *,
    facts: FlowFactOptions = FlowFactOptions(),
    learning: LearningOptions = LearningOptions(),
    curve: CurveOptions = CurveOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Follow the training of one attention layer and find its stages.

    The stages show when relations are learned and when subjects are. Times are flow times: steps ×
    learning rate. Initialization ends when the loss first comes within 0.1 of the relation-only
    loss, H(a | r), which is log D if the answers of a relation are equally frequent; the
    hallucination stage ends when the loss is last within 0.1 of it. With --json, a stage that
    does not exist is null.
    """
    check_flow_options(facts, learning, curve)
    from factmem._core.timing import Stopwatch
    from factmem.dynamics import find_stages, spaced_times

    spec = flow_spec(facts, learning)
    instance = spec.draw()
    _check_sizes(instance, learning)
    fractions = spaced_times(1.0, curve.points, curve.spacing)
    sgd = spec.sgd
    total, unit = (None, "point") if sgd is None else (sgd.steps, "step")
    label = f"{learning.attention} {learning.resolved_method}"
    with progress(output, label, total, unit) as report, Stopwatch() as stopwatch:
        curves = spec.run(report, fractions, instance)
        exact = _exact_flow(instance, learning, curves)
    stages = find_stages(curves, instance.population)
    points = sorted(set(curves.nearest(fractions * float(curves.times[-1])).tolist()))
    if curve.plot is not None:
        _plot(curve, facts, learning, instance, curves, stages, exact)
    data = {
        **_settings(facts, learning, sgd, instance),
        **_losses(curves, points),
        "stages": _stages_data(stages),
        "levels": _levels(instance),
        "converged_at": curves.converged_at,
        **_theory(instance, curves),
        "exact_flow": None if exact is None else _compare(curves, exact, instance),
        "seconds": stopwatch.seconds,
        "compile_seconds": stopwatch.compile_seconds,
    }
    return CommandResult(data, lambda: _render(data, float(curves.loss[0])), output)


def _check_sizes(instance: "FlowInstance", learning: LearningOptions) -> None:
    table, vocabulary = instance.table, instance.prompts.vocabulary
    check_array_size(table.subjects * table.relations, table.answers)
    if learning.attention == "linear" and learning.dim is not None:
        # The flow never builds orthonormal embeddings, but assumes that they exist.
        from factmem.dynamics.linear_attention import check_dim

        check_dim(learning.dim, vocabulary.prompt_tokens, vocabulary.answers)


def _exact_flow(
    instance: "FlowInstance", learning: LearningOptions, curves: "Curves"
) -> "Flow | None":
    """Return the exact flow over the same time, to compare sgd with; None if there is none."""
    if learning.attention == "softmax" or learning.resolved_method == "flow":
        return None
    if learning.init == "random":
        return None
    end = float(curves.times[-1])
    try:
        return instance.flow(until=end, times=curves.times / end)
    except FactmemError:  # no single token predicts the answer, so no flow leaves its start
        return None


def _plot(
    curve: CurveOptions,
    facts: FlowFactOptions,
    learning: LearningOptions,
    instance: "FlowInstance",
    curves: "Curves",
    stages: "Stages",
    exact: "Flow | None",
) -> None:
    from factmem.paper.loss_figure import AUTHORS_STAGES
    from factmem.plotting import draw_matplotlib, flow_curves, save_figure

    table = instance.table
    sizes = (facts.subjects, facts.relations, facts.answers)
    is_figure_5 = (sizes, facts.table, learning.attention) == ((16, 4, 8), "structured", "linear")
    plot = flow_curves(
        curves,
        stages,
        instance.population,
        title=f"{table.subjects} subjects, {table.relations} relations, "
        f"{table.answers_per_relation} answers each, {learning.attention} attention, "
        f"{learning.resolved_method}",
        reference_stages=AUTHORS_STAGES if is_figure_5 else (),
        exact_flow=exact,
        log_time=curve.spacing == "log",
    )
    assert curve.plot is not None
    save_figure(draw_matplotlib(plot), curve.plot)


# ---- JSON data -----------------------------------------------------------------------------------


def _settings(
    facts: FlowFactOptions,
    learning: LearningOptions,
    sgd: "SGDConfig | None",
    instance: "FlowInstance",
) -> dict[str, Any]:
    table = instance.table
    learning_rate, steps, batch_size = sgd or (None, None, None)
    dim = learning.dim
    if dim is None and learning.attention == "softmax":
        dim = instance.default_dim
    return {
        "attention": learning.attention,
        "method": learning.resolved_method,
        "init": learning.init,
        "scale": learning.scale,
        "table": facts.table,
        "subjects": table.subjects,
        "relations": table.relations,
        "answers_per_relation": table.answers_per_relation,
        "answers": table.answers,
        "facts": table.facts,
        "noise": instance.prompts.vocabulary.noise,
        "length": facts.length,
        "zipf": facts.zipf,
        "seed": facts.seed,
        "dim": dim,
        "learning_rate": learning_rate,
        "steps": steps,
        "batch_size": batch_size,
        "sampled_prompts": None if sgd else instance.sampled_prompts,
    }


def _losses(curves: "Curves", points: list[int]) -> dict[str, Any]:
    import numpy as np

    statistics = curves.statistics
    return {
        "times": curves.times[points],
        "loss": np.asarray(statistics.loss)[points],
        "relation_loss": np.asarray(statistics.relation_loss)[points],
        "subject_loss": np.asarray(statistics.subject_loss)[points],
        "relation_distance": np.asarray(statistics.relation_distance)[points],
    }


def _stages_data(stages: "Stages") -> dict[str, Any]:
    plateaus = {"hallucination": stages.hallucination, "subject_only": stages.subject_only}
    return {
        "init_end": stages.init_end,
        "hallucination_end": stages.hallucination_end,
        **{name: None if stage is None else asdict(stage) for name, stage in plateaus.items()},
    }


def _levels(instance: "FlowInstance") -> dict[str, float]:
    population = instance.population
    return {
        "uniform": math.log(instance.table.answers),
        "marginal": population.answer_entropy,
        "relation": population.relation_entropy,
        "subject": population.subject_entropy,
    }


def _theory(instance: "FlowInstance", curves: "Curves") -> dict[str, Any]:
    """Return the quantities of the theorems; null unless `curves` is an exact flow."""
    from factmem.dynamics import Flow, escape_rates, fit_escape_rates

    if not isinstance(curves, Flow):
        return {"rates": None, "invariant_drift": None, "theorem_6": None, "solver_steps": None}
    population = instance.population
    exact, fitted = escape_rates(population), fit_escape_rates(curves, population)
    return {
        "rates": {"exact": _ranges(exact), "fitted": _ranges(fitted)},
        "invariant_drift": curves.invariant_drift,
        "theorem_6": _theorem_6(instance, curves),
        "solver_steps": curves.solver_steps,
    }


def _theorem_6(instance: "FlowInstance", flow: "Flow") -> dict[str, Any]:
    from factmem.dynamics import SequentialConditions, sequential_learning

    conditions = SequentialConditions.from_population(instance.population)
    learning = sequential_learning(flow, instance.population, instance.scale)
    table = instance.table
    complete = table.facts == table.subjects * table.relations and table.disjoint
    uniform = instance.prompt_spec.subject_power == 0
    return {
        "subjects_needed": conditions.subjects_needed,
        "noise_needed": conditions.noise_needed,
        "conditions_met": conditions.met and complete and uniform and instance.init == "balanced",
        **asdict(learning),
        "holds": learning.holds,
    }


def _ranges(rates: "EscapeRates") -> dict[str, Any]:
    import numpy as np

    def span(values: "np.ndarray") -> list[float] | None:
        known = values[np.isfinite(values)]
        return [float(known.min()), float(known.max())] if len(known) else None

    return {
        "relations": span(rates.relations),
        "subjects": span(rates.subjects),
        "noise": span(rates.noise),
        "eos": span(np.array([rates.eos])),
    }


def _compare(curves: "Curves", exact: "Flow", instance: "FlowInstance") -> dict[str, Any]:
    """Compare sgd with the exact flow."""
    import numpy as np

    from factmem.dynamics import find_stages

    exact_loss = exact.loss[exact.nearest(curves.times)]
    return {
        "stages": _stages_data(find_stages(exact, instance.population)),
        "largest_gap": float(np.abs(curves.loss - exact_loss).max()),
    }


# ---- Text output ---------------------------------------------------------------------------------


def _render(data: dict[str, Any], initial_loss: float) -> "RenderableType":
    stages, levels = data["stages"], data["levels"]
    rows = {
        "facts": data["facts"],
        "initial_loss": initial_loss,
        "init_end": stages["init_end"],
        "relation_only_loss": levels["relation"],
        "hallucination_end": stages["hallucination_end"],
        "end": float(data["times"][-1]),
        "final_loss": float(data["loss"][-1]),
        "invariant_drift": data["invariant_drift"],
        "seconds": data["seconds"],
        "compile_seconds": data["compile_seconds"],
    }
    notes = _stage_notes(stages, rows["final_loss"] - levels["relation"])
    if stages["subject_only"] is not None:
        notes.append("There is a stage in which only subjects are known.")
    if data["exact_flow"] is not None:
        gap = data["exact_flow"]["largest_gap"]
        notes.append(f"The loss differs from that of the exact flow by at most {gap:.2g}.")
    title = f"{data['attention']} attention, {data['method']}"
    return render_table(title, _LABELS, rows, notes)


def _stage_notes(stages: dict[str, Any], final_excess: float) -> list[str]:
    """Say why there is no end of hallucination; the excess is over the relation-only loss."""
    from factmem.dynamics.stages import TOLERANCE

    if stages["hallucination_end"] is not None:
        return []
    if stages["hallucination"] is not None:
        return ["Training ended before the end of the hallucination stage."]
    if stages["init_end"] is None and final_excess > TOLERANCE:
        return [
            f"Training ended before the loss came within {TOLERANCE} of the relation-only loss."
        ]
    return ["There is no hallucination stage."]


_LABELS = {
    "facts": "facts",
    "initial_loss": "initial loss (nats)",
    "init_end": "end of initialization (flow time)",
    "relation_only_loss": "relation-only loss (nats)",
    "hallucination_end": "end of hallucination (flow time)",
    "end": "end of training (flow time)",
    "final_loss": "final loss (nats)",
    "invariant_drift": "relative drift of the invariant",
    **TIME_LABELS,
}
