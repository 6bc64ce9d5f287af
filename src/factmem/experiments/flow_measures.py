"""Stages of training, measured for one experiment: for maps over many tables.

S/R alone does not decide whether there is a hallucination stage. For balanced tables the rates at
which relations and subjects leave zero are

    λ_r = √((R − 1) / (R·D)) / R,        λ_s = √((D − 1) / (R·D)) / S,

so relations are learned first if λ_r / λ_s = (S/R) √((R − 1) / (D − 1)) is above 1. Weights take a
time of about ln(1/α)/λ to grow from α to 1. For small α the stage of relations therefore lasts for
1 − λ_s/λ_r of the time until subjects are learned.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from factmem.experiments.flow_spec import FlowSpec
from factmem.experiments.task import Experiment

if TYPE_CHECKING:
    import numpy as np

    from factmem.dynamics import Flow, Plateau, PromptPopulation

__all__ = ["FLOW", "SGD", "measure_flow", "measure_sgd"]

_VISIBLE_LOGIT = 0.1
"""A kind of token has left zero when it adds this much to some logit, in nats."""


def measure_flow(**config: Any) -> Mapping[str, Any]:
    """Follow the gradient flow until it has converged and measure its stages.

    Args:
        config: a `FlowSpec` as JSON data.

    Returns:
        When stages begin and end, tokens leave zero and each subject is learned (its loss is half
        of the initial one); the theoretical rates; and the predictions in the middle of a stage.
    """
    import numpy as np

    from factmem.dynamics import escape_rates, find_stages

    instance = FlowSpec.from_config(config).draw()
    population, flow = instance.population, instance.flow(until=config["until"])
    stages = find_stages(flow, population)
    rates = escape_rates(population)
    total = flow.converged_at
    return {
        "converged_at": total,
        "init_end": stages.init_end,
        "hallucination": _describe(stages.hallucination, flow, total),
        "subject_only": _describe(stages.subject_only, flow, total),
        "min_relation_distance": float(np.asarray(flow.statistics.relation_distance).min()),
        "levels": {
            "marginal": population.answer_entropy,
            "relation": population.relation_entropy,
            "subject": population.subject_entropy,
        },
        "rates": {
            "relations": float(np.median(rates.relations)),
            "subjects": float(np.median(rates.subjects)),
            "noise": float(rates.noise[0]),
            "eos": rates.eos,
        },
        "left_zero": _times_of_leaving_zero(flow, population),
        "subject_probabilities": population.subject_probabilities.tolist(),
        "learned": _times_of_learning(flow),
    }


def measure_sgd(**config: Any) -> Mapping[str, Any]:
    """Train linear attention or a softmax head by SGD and measure its stages.

    Args:
        config: a `FlowSpec` as JSON data.
    """
    import numpy as np

    from factmem.dynamics import find_stages

    spec = FlowSpec.from_config(config)
    instance = spec.draw()
    result = spec.run(instance=instance)
    stages, statistics = find_stages(result, instance.population), result.statistics
    return {
        "init_end": stages.init_end,
        "hallucination_end": stages.hallucination_end,
        "min_relation_distance": float(np.asarray(statistics.relation_distance).min()),
        "loss": float(result.loss[-1]),
        "relation_loss": float(np.asarray(statistics.relation_loss)[-1]),
        "times": result.times.tolist(),
        "losses": result.loss.tolist(),
    }


FLOW = Experiment("flow", 3, measure_flow)
SGD = Experiment("sgd", 1, measure_sgd)


def _describe(
    plateau: "Plateau | None", flow: "Flow", total: float | None
) -> dict[str, Any] | None:
    """Return a stage, its share of the total time, and the predictions in its middle."""
    import numpy as np

    if plateau is None or plateau.end is None or total is None:
        return None
    middle = int(flow.nearest(np.array([(plateau.start + plateau.end) / 2]))[0])
    names = ("loss", "relation_loss", "subject_loss", "relation_kl", "subject_kl")
    statistics = flow.statistics
    return {
        "start": plateau.start,
        "end": plateau.end,
        "share": (plateau.end - plateau.start) / total,
        **{name: float(getattr(statistics, name)[middle]) for name in names},
        "relation_distance": float(statistics.relation_distance[middle]),
    }


def _times_of_leaving_zero(flow: "Flow", population: "PromptPopulation") -> dict[str, float | None]:
    """Return when the tokens of each kind first add `_VISIBLE_LOGIT` to some logit."""
    import numpy as np

    kinds = population.split_by_kind(np.abs(flow.kq) * flow.largest_ov)
    added = kinds._replace(noise=(population.length - 3) * kinds.noise)
    return {
        kind: _first_time(flow.times, values.max(axis=1) >= _VISIBLE_LOGIT)
        for kind, values in added._asdict().items()
    }


def _first_time(times: "np.ndarray", reached: "np.ndarray") -> float | None:
    return float(times[reached.argmax()]) if reached.any() else None


def _times_of_learning(flow: "Flow") -> list[float | None]:
    """Return when the mean loss of each subject first was half of the initial one."""
    import numpy as np

    losses = np.asarray(flow.statistics.loss_by_subject)
    return [_first_time(flow.times, halved) for halved in (losses <= losses[:1] / 2).T]
