"""`factmem flow`: when facts are learned, with the stages of training."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.answer import Answer, Output
from factmem.cli.asked import check_sizes
from factmem.cli.checks import (
    check_length,
    check_numbers,
    check_positive,
    check_seed,
    check_writable,
)
from factmem.cli.facts import read_table
from factmem.cli.progress import progress
from factmem.cli.shown import shown

if TYPE_CHECKING:
    import numpy as np

    from factmem.dynamics import Curves, Flow, Rates, Stages
    from factmem.experiments import FlowSpec
    from factmem.experiments.flow_spec import SGDConfig
    from factmem.facts import FactTable

__all__ = ["flow"]

_MADE = ("structured", "random")
_MOST_POINTS = 100_000
_STEEPEST = 4.0
_LARGEST_SCALE = 10.0
_LARGEST_BATCH = 2**20
_MOST = 2**31 - 1


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What is to be learned, and how it is asked."""

    subjects: int | None = None
    """S."""
    relations: int | None = None
    """R."""
    answers: int | None = None
    """D, the answers of each relation."""
    table: str = "structured"
    """structured: equally frequent answers, as in Figure 5. random: drawn. Or a CSV file."""
    noise: int | None = None
    """How many different noise tokens there are (default: S + R)."""
    length: int = 32
    """T, the tokens in a prompt."""
    zipf: float = 0.0
    """Subject k is asked for in proportion to k to the minus this; 0 is uniform."""
    seed: int = 0
    """Randomness of table, start, embeddings and prompts."""


@Parameter(name="*")
@dataclass(frozen=True)
class Learning:
    """How it is learned."""

    attention: Literal["linear", "softmax"] = "linear"
    """linear: orthonormal embeddings, as in the theorems. softmax: random unit embeddings."""
    method: Literal["flow", "sgd"] | None = None
    """flow: gradient flow, exact (default for linear). sgd: steps with fresh prompts."""
    start: Literal["equal", "balanced", "random"] = "equal"
    """equal: all weights the same. balanced: as in the theorems. random: normal."""
    scale: float = 1e-5
    """α, the size of weights at the start."""
    until: float | None = None
    """When a flow ends, in flow time (default: when the loss is 0.01)."""
    rate: float | None = None
    """Of sgd (default: 0.1 for linear, 16 for softmax attention)."""
    steps: int | None = None
    """Of sgd (default: 8192 for linear, 4096 for softmax attention)."""
    batch: int | None = None
    """Prompts in a step of sgd (default: 1024)."""
    dim: int | None = None
    """d, the dimension of embeddings (default: enough; for softmax four times the vocabulary)."""


@Parameter(name="*")
@dataclass(frozen=True)
class Curve:
    """What is shown of it."""

    points: int = 512
    """Times at which losses are given."""
    spacing: Literal["equal", "log"] = "equal"
    """Of the times: equal steps from 0, or equal factors over three decades."""
    plot: str | None = None
    """Draw losses and stages into this file (.png, .pdf or .svg)."""


def flow(
    *,
    asked: Asked = Asked(),
    learning: Learning = Learning(),
    curve: Curve = Curve(),
    output: Output = Output(),
) -> Answer:
    """Follow the training of one attention layer: when are relations learned, when subjects?

    Times are flow time: steps × rate. The initialization ends when the loss is first within 0.1 of
    what the relation alone allows (log D); the hallucination stage ends when it is last there. A
    stage that does not exist is null.
    """
    _check(asked, learning, curve)
    table = _table(asked)
    from factmem._core.timing import Stopwatch
    from factmem.dynamics import find_stages, spaced
    from factmem.experiments import FlowSpec

    experiment = FlowSpec(
        table,
        noise=asked.noise,
        length=asked.length,
        subject_power=asked.zipf,
        start=learning.start,
        scale=learning.scale,
        seed=asked.seed,
    )
    _check_dim(experiment, learning)
    label = f"{learning.attention} {_method(learning)}"
    parts = spaced(1.0, curve.points, curve.spacing)
    descending = _descending(learning)
    told = (None, "point") if descending is None else (descending.steps, "step")
    with progress(output, label, *told) as report, Stopwatch() as watch:
        curves = _learn(experiment, learning, descending, parts, report)
        beside = _beside(experiment, learning, curves)
    stages = find_stages(curves, experiment.population)
    chosen = sorted(set(curves.nearest(parts * float(curves.times[-1])).tolist()))
    if curve.plot is not None:
        _draw(curve, asked, learning, experiment, curves, stages, beside)
    data = {
        **_sizes(asked, learning, descending, experiment),
        **_losses(curves, chosen),
        "stages": _told(stages),
        "levels": _levels(experiment),
        "converged_at": curves.converged_at,
        **_measured(experiment, curves),
        "exact_flow": None if beside is None else _compared(curves, beside, experiment),
        "seconds": watch.seconds,
        "compile_seconds": watch.compile_seconds,
    }
    return Answer(data, lambda: _shown(data, float(curves.loss[0])), output)


# ---- what is asked -------------------------------------------------------------------------------


def _check(asked: Asked, learning: Learning, curve: Curve) -> None:
    """What can be said before anything is loaded."""
    _check_asked(asked)
    _check_learning(learning)
    _check_prompts(asked, learning)
    if not 2 <= curve.points <= _MOST_POINTS:
        raise FactmemError(f"--points is from 2 to {_MOST_POINTS}, not {curve.points}")
    if curve.plot is not None:
        from factmem.plotting.drawing import check_format

        check_format(curve.plot)
        check_writable(curve.plot)


def _check_asked(asked: Asked) -> None:
    made = asked.table in _MADE
    check_sizes(asked.subjects, asked.relations, asked.answers, None if made else asked.table)
    check_positive(noise=asked.noise)
    check_length(asked.length)
    check_seed(asked.seed)
    if not 0 <= asked.zipf <= _STEEPEST:
        raise FactmemError(f"--zipf is from 0 to {_STEEPEST:g}, not {asked.zipf}")
    if made:
        facts = (asked.subjects or 1) * (asked.relations or 1)
        check_numbers(facts, (asked.relations or 1) * (asked.answers or 1))


def _check_learning(learning: Learning) -> None:
    check_positive(steps=learning.steps, batch=learning.batch, dim=learning.dim)
    for name, most in (("steps", _MOST), ("batch", _LARGEST_BATCH), ("dim", _MOST)):
        if (getattr(learning, name) or 0) > most:
            raise FactmemError(f"--{name} is at most {most}")
    check_numbers(learning.dim or 1, learning.dim or 1)
    if not 0 < learning.scale <= _LARGEST_SCALE:
        raise FactmemError(f"--scale is above 0 and at most {_LARGEST_SCALE:g}")
    for name in ("rate", "until"):
        value = getattr(learning, name)
        if value is not None and not 0 < value < math.inf:
            raise FactmemError(f"--{name} is a number above 0, not {value}")
    if learning.attention == "softmax" and learning.method == "flow":
        raise FactmemError("the flow is that of linear attention; softmax attention has sgd")
    if learning.attention == "softmax" and learning.start != "equal":
        raise FactmemError("a softmax head starts with equal weights: leave --start out")
    sgd = _method(learning) == "sgd"
    for name in ("until",) if sgd else ("rate", "steps", "batch"):
        if getattr(learning, name) is not None:
            other = "flow" if sgd else "sgd"
            raise FactmemError(f"--{name} belongs to --method {other}")


def _check_prompts(asked: Asked, learning: Learning) -> None:
    """Where prompts are sampled, every noise token counts."""
    if (asked.noise or 0) > _MOST:
        raise FactmemError(f"--noise is at most {_MOST}")
    if _method(learning) == "sgd" or learning.start == "random":
        facts, made = (asked.subjects or 1) * (asked.relations or 1), asked.answers or 1
        widest = max(facts, learning.batch or 1024, learning.dim or 1, made)
        check_numbers(asked.noise or 1, widest)
        check_numbers(asked.length, widest)


def _method(learning: Learning) -> str:
    return learning.method or {"linear": "flow", "softmax": "sgd"}[learning.attention]


def _descending(learning: Learning) -> "SGDConfig | None":
    """The steps of sgd, with what was not given."""
    if _method(learning) != "sgd":
        return None
    from factmem.experiments.flow_spec import LINEAR_DESCENT, SOFTMAX_DESCENT

    default = {"linear": LINEAR_DESCENT, "softmax": SOFTMAX_DESCENT}[learning.attention]
    given = {name: getattr(learning, name) for name in default._fields}
    return default._replace(**{name: value for name, value in given.items() if value is not None})


def _table(asked: Asked) -> "FactTable":
    from factmem.facts import FactTable

    sizes: Any = (asked.subjects, asked.relations, asked.answers)
    if asked.table == "structured":
        return FactTable.structured(*sizes)
    if asked.table == "random":
        return FactTable.random(*sizes, seed=asked.seed)
    table = read_table(asked.table)
    check_numbers(table.subjects * table.relations, table.answers)
    return table


def _check_dim(experiment: "FlowSpec", learning: Learning) -> None:
    """The reduced form needs no embeddings, but what it stands for must exist."""
    if learning.attention == "linear" and learning.dim is not None:
        from factmem.dynamics.linear_attention import check_dim

        names = experiment.asked.vocabulary
        check_dim(learning.dim, names.prompt_tokens, names.answers)


# ---- what is done --------------------------------------------------------------------------------


def _learn(
    experiment: "FlowSpec",
    learning: Learning,
    descending: "SGDConfig | None",
    parts: "np.ndarray",
    report: Any,
) -> "Curves":
    if descending is None:
        return experiment.flow(until=learning.until, times=parts, report=report)
    steps = {**descending._asdict(), "times": parts, "report": report}
    if learning.attention == "linear":
        return experiment.descent(**steps)
    return experiment.softmax_descent(dim=learning.dim, **steps)


def _beside(experiment: "FlowSpec", learning: Learning, curves: "Curves") -> "Flow | None":
    """The exact flow over the same time, for descent that has one."""
    if learning.attention == "softmax" or _method(learning) == "flow":
        return None
    if learning.start == "random":
        return None
    end = float(curves.times[-1])
    try:
        return experiment.flow(until=end, times=curves.times / end)
    except FactmemError:  # a table from which no flow leaves its start
        return None


def _draw(
    curve: Curve,
    asked: Asked,
    learning: Learning,
    experiment: "FlowSpec",
    curves: "Curves",
    stages: "Stages",
    beside: "Flow | None",
) -> None:
    from factmem.plotting import flow_curves, save_figure

    table = experiment.table
    figure5 = (asked.subjects, asked.relations, asked.answers) == (16, 4, 8)
    drawn = flow_curves(
        curves,
        stages,
        experiment.population,
        title=f"{table.subjects} subjects, {table.relations} relations, "
        f"{table.answers_per_relation} answers each, {learning.attention} attention, "
        f"{_method(learning)}",
        authors=figure5 and learning.attention == "linear" and asked.table == "structured",
        beside=beside,
        logarithmic=curve.spacing == "log",
    )
    assert curve.plot is not None
    save_figure(drawn, curve.plot)


# ---- what is said --------------------------------------------------------------------------------


def _sizes(
    asked: Asked, learning: Learning, descending: "SGDConfig | None", experiment: "FlowSpec"
) -> dict[str, Any]:
    table, names = experiment.table, experiment.asked.vocabulary
    rate, steps, batch = descending or (None, None, None)
    dim = learning.dim
    if dim is None and learning.attention == "softmax":
        dim = experiment.default_dim
    return {
        "attention": learning.attention,
        "method": _method(learning),
        "start": learning.start,
        "scale": learning.scale,
        "table": asked.table,
        "subjects": table.subjects,
        "relations": table.relations,
        "answers_per_relation": table.answers_per_relation,
        "answers": table.answers,
        "facts": table.facts,
        "noise": names.noise,
        "length": asked.length,
        "zipf": asked.zipf,
        "seed": asked.seed,
        "dim": dim,
        "rate": rate,
        "steps": steps,
        "batch": batch,
        "sampled_prompts": None if descending else experiment.sampled_prompts,
    }


def _losses(curves: "Curves", chosen: list[int]) -> dict[str, Any]:
    import numpy as np

    seen = curves.seen
    return {
        "times": curves.times[chosen],
        "loss": np.asarray(seen.loss)[chosen],
        "relation_loss": np.asarray(seen.relation_loss)[chosen],
        "subject_loss": np.asarray(seen.subject_loss)[chosen],
        "relation_distance": np.asarray(seen.distance)[chosen],
    }


def _told(stages: "Stages") -> dict[str, Any]:
    plateaus = {"hallucination": stages.hallucination, "subject_only": stages.subject_only}
    return {
        "init_end": stages.init_end,
        "hallucination_end": stages.hallucination_end,
        **{name: None if found is None else asdict(found) for name, found in plateaus.items()},
    }


def _levels(experiment: "FlowSpec") -> dict[str, float]:
    population = experiment.population
    return {
        "uniform": math.log(experiment.table.answers),
        "marginal": population.marginal_level,
        "relation": population.relation_level,
        "subject": population.subject_level,
    }


def _measured(experiment: "FlowSpec", curves: "Curves") -> dict[str, Any]:
    """What the theorems speak of, where there is an exact flow."""
    from factmem.dynamics import Flow, escape_rates, fitted_rates

    if not isinstance(curves, Flow):
        return {"rates": None, "invariant_drift": None, "theorem_6": None, "solver_steps": None}
    population = experiment.population
    exact, fitted = escape_rates(population), fitted_rates(curves, population)
    return {
        "rates": {"exact": _ranges(exact), "fitted": _ranges(fitted)},
        "invariant_drift": curves.invariant_drift,
        "theorem_6": _theorem_6(experiment, curves),
        "solver_steps": curves.solver_steps,
    }


def _theorem_6(experiment: "FlowSpec", flow: "Flow") -> dict[str, Any]:
    from factmem.dynamics import Conditions, sequential_learning

    conditions = Conditions.of(experiment.population)
    found = sequential_learning(flow, experiment.population, experiment.scale)
    table = experiment.table
    whole = table.facts == table.subjects * table.relations and table.disjoint
    uniform = experiment.subject_power == 0
    return {
        "subjects_needed": conditions.subjects_needed,
        "noise_needed": conditions.noise_needed,
        "conditions_met": conditions.met and whole and uniform and experiment.start == "balanced",
        **asdict(found),
        "holds": found.holds,
    }


def _ranges(rates: "Rates") -> dict[str, Any]:
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


def _compared(curves: "Curves", beside: "Flow", experiment: "FlowSpec") -> dict[str, Any]:
    """How far stochastic descent is from the flow that it follows."""
    import numpy as np

    from factmem.dynamics import find_stages

    at = beside.loss[beside.nearest(curves.times)]
    return {
        "stages": _told(find_stages(beside, experiment.population)),
        "largest_gap": float(np.abs(curves.loss - at).max()),
    }


def _shown(data: dict[str, Any], start: float) -> Any:
    stages, levels = data["stages"], data["levels"]
    rows = {
        "facts": data["facts"],
        "start": start,
        "init_end": stages["init_end"],
        "level": levels["relation"],
        "hallucination_end": stages["hallucination_end"],
        "end": float(data["times"][-1]),
        "loss": float(data["loss"][-1]),
        "drift": data["invariant_drift"],
        "seconds": data["seconds"],
        "compile_seconds": data["compile_seconds"],
    }
    notes = []
    if stages["hallucination_end"] is None:
        notes.append("There is no stage that knows relations alone, or its end was not reached.")
    if stages["subject_only"] is not None:
        notes.append("There is a stage that knows subjects alone.")
    if data["exact_flow"] is not None:
        gap = data["exact_flow"]["largest_gap"]
        notes.append(f"The loss is never further than {gap:.2g} from that of the exact flow.")
    title = f"{data['attention']} attention, {data['method']}"
    return shown(title, _LABELS, rows, notes)


_LABELS = {
    "facts": "facts",
    "start": "loss at the start",
    "init_end": "initialization ends at the time",
    "level": "loss of one who knows relations alone",
    "hallucination_end": "hallucination ends at the time",
    "end": "training ends at the time",
    "loss": "loss at the end",
    "drift": "change of the invariant, relative",
    "seconds": "seconds",
    "compile_seconds": "seconds of compilation besides",
}
