"""Where there is a hallucination stage: one experiment, measured, for maps over many.

What decides is not S/R alone. For balanced tables the rates at which relations and subjects leave
zero are

    λ_r = √((R − 1) / (R·D)) / R,        λ_s = √((D − 1) / (R·D)) / S,

so that relations come first when λ_r / λ_s = (S/R) √((R − 1) / (D − 1)) is above 1. Weights need a
time of about ln(1/α)/λ to grow from α to 1, whence for small α the relations' stage lasts for
1 − λ_s/λ_r of the time until subjects are learned.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from factmem.dynamics.flow import Flow
from factmem.dynamics.problems import Population
from factmem.dynamics.rates import escape_rates
from factmem.dynamics.stages import Plateau, find_stages
from factmem.experiments.flow_spec import FlowSpec
from factmem.experiments.task import Experiment
from factmem.facts import FactTable

__all__ = ["FLOW", "SOFTMAX", "measure_flow", "measure_softmax"]

_SAID = 0.1
"""What a kind of token must add to some logit, in nats, to have left zero."""


def measure_flow(
    *,
    subjects: int,
    relations: int,
    answers: int,
    table: Literal["structured", "random"],
    noise: int | None,
    length: int,
    subject_power: float,
    scale: float,
    seed: int,
) -> Mapping[str, Any]:
    """The exact flow from equal weights until it has converged, in a few numbers.

    Returns:
        Times at which stages begin and end, tokens leave zero and each subject is learned (its loss
        is half of where it started), the rates of the formulas, and what is predicted in the middle
        of a stage.
    """
    if table == "structured":
        facts = FactTable.structured(subjects, relations, answers)
    else:
        facts = FactTable.random(subjects, relations, answers, seed=seed)
    experiment = FlowSpec(
        facts, noise=noise, length=length, subject_power=subject_power, scale=scale
    )
    questions, flow = experiment.population, experiment.flow()
    stages = find_stages(flow, questions)
    rates = escape_rates(questions)
    whole = flow.converged_at
    return {
        "whole": whole,
        "init_end": stages.init_end,
        "hallucination": _told(stages.hallucination, flow, whole),
        "subject_only": _told(stages.subject_only, flow, whole),
        "nearest": float(np.asarray(flow.seen.distance).min()),
        "levels": {
            "marginal": questions.marginal_level,
            "relation": questions.relation_level,
            "subject": questions.subject_level,
        },
        "rates": {
            "relations": float(np.median(rates.relations)),
            "subjects": float(np.median(rates.subjects)),
            "noise": float(rates.noise[0]),
            "eos": rates.eos,
        },
        "left_zero": _left_zero(flow, questions),
        "chances": questions.subject_chances.tolist(),
        "learned": _learned(flow),
    }


def measure_softmax(
    *,
    subjects: int,
    relations: int,
    answers: int,
    dim: int,
    rate: float,
    steps: int,
    scale: float,
    seed: int,
) -> Mapping[str, Any]:
    """Descent of a softmax head on the structured table, in a few numbers."""
    experiment = FlowSpec(
        FactTable.structured(subjects, relations, answers), scale=scale, seed=seed
    )
    descent = experiment.softmax_descent(dim=dim, rate=rate, steps=steps)
    stages = find_stages(descent, experiment.population)
    return {
        "init_end": stages.init_end,
        "hallucination_end": stages.hallucination_end,
        "distance": float(np.asarray(descent.seen.distance).min()),
        "loss": float(descent.loss[-1]),
        "relation_loss": float(np.asarray(descent.seen.relation_loss)[-1]),
        "times": descent.times.tolist(),
        "losses": descent.loss.tolist(),
    }


FLOW = Experiment("flow", 2, measure_flow)
SOFTMAX = Experiment("softmax flow", 2, measure_softmax)


def _told(plateau: Plateau | None, flow: Flow, whole: float | None) -> dict[str, Any] | None:
    """A stage, the part of the whole that it takes, and what is predicted in its middle."""
    if plateau is None or plateau.end is None or whole is None:
        return None
    middle = int(flow.nearest(np.array([(plateau.start + plateau.end) / 2]))[0])
    seen = flow.seen
    return {
        "start": plateau.start,
        "end": plateau.end,
        "share": (plateau.end - plateau.start) / whole,
        "loss": float(seen.loss[middle]),
        "relation_loss": float(seen.relation_loss[middle]),
        "subject_loss": float(seen.subject_loss[middle]),
        "relation_gap": float(seen.relation_gap[middle]),
        "subject_gap": float(seen.subject_gap[middle]),
        "distance": float(seen.distance[middle]),
    }


def _left_zero(flow: Flow, questions: Population) -> dict[str, float | None]:
    """When each kind of token first says something: how much its tokens in a prompt add."""
    kinds = questions.by_kind(np.abs(flow.kq) * flow.largest_ov)
    added = kinds._replace(noise=(questions.length - 3) * kinds.noise)
    return {
        kind: _first(flow.times, of_tokens.max(axis=1) >= _SAID)
        for kind, of_tokens in added._asdict().items()
    }


def _first(times: np.ndarray, happened: np.ndarray) -> float | None:
    return float(times[np.argmax(happened)]) if happened.any() else None


def _learned(flow: Flow) -> list[float | None]:
    """When the loss of each subject's questions first was half of where it started."""
    losses = np.asarray(flow.seen.loss_of_subjects)
    return [_first(flow.times, each) for each in (losses <= losses[:1] / 2).T]
