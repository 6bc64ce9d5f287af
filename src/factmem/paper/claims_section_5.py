"""Section 5 of the paper: what gradient flow learns, and when.

Importing this loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import dynamics, experiments
from factmem.experiments.flow_measures import SOFTMAX, measure_flow, measure_softmax
from factmem.experiments.measurement import IndependentTasks, unstored_tasks
from factmem.experiments.task import Task
from factmem.facts.table import FactTable
from factmem.paper.claim import Claim, Finding, between, close
from factmem.paper.results import Results, column, least, most

__all__ = [
    "convergence",
    "invariant",
    "plateau",
    "sequential_learning",
    "softmax_stages",
    "without_many_subjects",
]

_FIGURE_5 = (16, 4, 8)
_STARTS = ("balanced", "equal")


def measure_invariant(*, sizes: Sequence[int], starts: Sequence[str], seed: int) -> dict[str, Any]:
    """How far W_KQ(z)² − Σ_a W_OV(a, z)² drifts along flows, relative to the largest W_KQ²."""
    table = FactTable.random(*sizes, seed=seed)
    flows = [
        experiments.FlowSpec(table, start=start, seed=seed).flow()  # pyright: ignore[reportArgumentType]
        for start in starts
    ]
    return {
        "drift": max(float(flow.invariant_drift) for flow in flows),
        "moved": min(float(np.abs(flow.kq).max()) for flow in flows),
        "end": max(float(flow.loss[-1]) for flow in flows),
    }


def invariant(seeds: Sequence[int], sizes: Sequence[int] = (8, 3, 4)) -> Claim:
    """The conserved quantity."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between("largest drift over max W_KQ²", most(results, "drift"), most=1e-10),
                between("largest W_KQ that was reached", least(results, "moved"), 0.1),
                between("loss in the end", most(results, "end"), most=0.02),
            ]
        )

    return Claim(
        "invariant",
        "W_KQ(z)² − Σ_a W_OV(a, z)² stays what it was at the start, for every token.",
        "Section 5, before Theorem 5",
        f"Gradient flow in 64 bits on random tables of {sizes}, from balanced and equal weights.",
        unstored_tasks(measure_invariant, seeds, sizes=list(sizes), starts=list(_STARTS)),
        judge,
    )


def measure_convergence(
    *, sizes: Sequence[int], times: Sequence[float], seed: int
) -> dict[str, Any]:
    """The loss of a long flow at several times, and its largest rise."""
    table = FactTable.random(*sizes, seed=seed)
    experiment = experiments.FlowSpec(table, start="balanced", seed=seed)
    flow = experiment.flow(until=float(times[-1]))
    loss = np.asarray(flow.loss, np.float64)
    return {
        "losses": loss[flow.nearest(np.array(times))].tolist(),
        "rise": float(np.diff(loss).max()),
    }


def convergence(
    seeds: Sequence[int],
    sizes: Sequence[int] = (6, 3, 3),
    times: Sequence[float] = (100.0, 1e3, 1e4),
) -> Claim:
    """Theorem 5."""

    def judge(results: Results) -> Finding:
        losses = column(results, "losses")
        falls = losses[:, -2] / losses[:, -1]
        return Finding.of(
            [
                between(
                    f"largest loss at the time {times[-1]:g}", float(losses[:, -1].max()), 0, 1e-3
                ),
                between("largest rise between two times", most(results, "rise"), most=1e-12),
                between("fall in the last tenfold time, least", float(falls.min()), 5),
            ]
        )

    return Claim(
        "theorem-5",
        "Gradient flow of linear attention learns every fact: its loss goes to zero.",
        "Theorem 5",
        f"The flow on random tables of {sizes} from the balanced start, until t = {times[-1]:g}: "
        "the loss never rises, and falls like 1/t in the end.",
        unstored_tasks(measure_convergence, seeds, sizes=list(sizes), times=list(times)),
        judge,
    )


def measure_sequential(
    *, sizes: Sequence[int], noise: int, length: int, scale: float, seed: int
) -> dict[str, Any]:
    """Theorem 6's time in one flow, if there is one."""
    table = FactTable.structured(*sizes)
    experiment = experiments.FlowSpec(
        table, noise=noise, length=length, start="balanced", scale=scale, seed=seed
    )
    flow = experiment.flow(until=160.0)
    found = dynamics.sequential_learning(flow, experiment.population, scale)
    return {
        "conditions": float(dynamics.Conditions.of(experiment.population).met),
        "distance": found.distance,
        "largest_weight": found.largest_weight,
        "bound": found.bound,
    }


def sequential_learning(seeds: Sequence[int], scale: float = 1e-6) -> Claim:
    """Theorem 6."""

    def judge(results: Results) -> Finding:
        met, missed = results
        return Finding.of(
            [
                between("its conditions are met, with equality", met["conditions"], 1),
                between(
                    "Σ (p − p(·|r))² while subjects and noise are small",
                    _or_nan(met["distance"]),
                    most=1e-3,
                ),
                between(
                    "largest weight of subjects and noise by then, over √α",
                    _over(met["largest_weight"], met["bound"]),
                    most=0.1,
                ),
                between(
                    "the same distance with S = 4, against the conditions",
                    _or_nan(missed["distance"]),
                    0.01,
                ),
            ]
        )

    met = unstored_tasks(measure_sequential, seeds[:1], sizes=[32, 2, 2], noise=80, length=5, scale=scale)
    missed = unstored_tasks(measure_sequential, seeds[:1], sizes=[4, 2, 2], noise=80, length=5, scale=scale)
    return Claim(
        "theorem-6",
        "From a small balanced start relations are learned first: predictions are p(a|r) while "
        "every weight of subjects and noise is still below √α.",
        "Theorem 6",
        f"The smallest instance that meets its conditions: S = 32, R = D = 2, T = 5, |N| = 80, "
        f"α = {scale:g}; and S = 4, which does not.",
        IndependentTasks((*met.tasks, *missed.tasks)),
        judge,
    )


def _over(number: float | None, other: float) -> float:
    return math.nan if number is None else number / other


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def measure_plateau(*, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Figure 5's flow: the levels of its loss, its stages, and the rates at which it begins."""
    experiment = experiments.FlowSpec(FactTable.structured(*sizes), seed=seed)
    flow = experiment.flow()
    stages = dynamics.find_stages(flow, experiment.population)
    formula = dynamics.escape_rates(experiment.population)
    fitted = dynamics.fitted_rates(flow, experiment.population)
    stage = stages.hallucination
    if stage is None or stage.end is None:
        return {"start": float(flow.loss[0]), "middle": None}
    middle = (stage.start + stage.end) / 2
    place = int(flow.nearest(np.array([middle]))[0])
    return {
        "start": float(flow.loss[0]),
        "middle": float(flow.seen.loss[place]),
        "relation_loss": float(flow.seen.relation_loss[place]),
        "share": (stage.end - stage.start) / float(flow.times[-1]),
        "relations": float(np.mean(fitted.relations) / np.mean(formula.relations)),
        "subjects": float(np.mean(fitted.subjects) / np.mean(formula.subjects)),
    }


def plateau(seeds: Sequence[int], sizes: Sequence[int] = _FIGURE_5) -> Claim:
    """The left of Figure 5."""
    _, relations, answers = sizes

    def judge(results: Results) -> Finding:
        (found,) = results
        if found["middle"] is None:
            return Finding.of([between("part of the flow that the stage takes", math.nan, 0.1)])
        return Finding.of(
            [
                close("loss at the start", found["start"], math.log(relations * answers), 1e-3),
                close("loss in the middle of the stage", found["middle"], math.log(answers), 0.02),
                between("relation-only loss there", found["relation_loss"], most=0.05),
                between("part of the flow that the stage takes", found["share"], 0.1, 0.9),
                close("rate of relations over its formula", found["relations"], 1, 0.03),
                close("rate of subjects over its formula", found["subjects"], 1, 0.03),
            ]
        )

    return Claim(
        "plateau",
        "The loss stays at log |A|, falls to log D while relations alone are known, stays there, "
        "and falls to zero when subjects are learned.",
        "Figure 5, left; after Theorem 6",
        f"The flow of Figure 5, S, R, D = {sizes}: the loss in the middle of the stage, and the "
        "rates at which weights leave zero against their formulas.",
        unstored_tasks(measure_plateau, seeds[:1], sizes=list(sizes)),
        judge,
    )


def softmax_stages(
    seeds: Sequence[int], dim: int = 292, steps: int = 2048, at_length: int = 4096
) -> Claim:
    """The right of Figure 5."""
    subjects, relations, answers = _FIGURE_5
    config = {
        "subjects": subjects,
        "relations": relations,
        "answers": answers,
        "dim": dim,
        "rate": 16.0,
        "steps": steps,
        "scale": 1e-5,
    }

    def judge(results: Results) -> Finding:
        staged = [result["hallucination_end"] is not None for result in results]
        return Finding.of(
            [
                between("seeds with a stage of relations alone", float(sum(staged)), len(staged)),
                between("largest loss in the end", most(results, "loss"), most=0.5),
                close(
                    "loss at the start", _first_loss(results), math.log(relations * answers), 0.01
                ),
            ]
        )

    return Claim(
        "softmax-stages",
        "A softmax head on random embeddings goes through the same stages.",
        "Figure 5, right",
        f"Stochastic gradient descent on Figure 5's table, d = {dim}, rate 16, {steps} steps of "
        "1024 prompts (the paper's own settings are not known).",
        unstored_tasks(measure_softmax, seeds, **config),
        judge,
        at_length=IndependentTasks(
            tuple(
                Task(SOFTMAX, {**config, "steps": at_length, "seed": seeds[0] + more})
                for more in range(5)
            )
        ),
    )


def _first_loss(results: Results) -> float:
    return float(np.mean([result["losses"][0] for result in results]))


def without_many_subjects(
    seeds: Sequence[int], sizes: Sequence[tuple[int, int]] = ((32, 2), (8, 8), (2, 16))
) -> Claim:
    """What happens without S ≫ R."""

    def run(subjects: int, relations: int) -> IndependentTasks:
        return unstored_tasks(
            measure_flow,
            seeds[:1],
            subjects=subjects,
            relations=relations,
            answers=8,
            table="structured",
            noise=subjects + relations,
            length=32,
            subject_power=0.0,
            scale=1e-5,
        )

    def judge(results: Results) -> Finding:
        many, equal, few = results
        return Finding.of(
            [
                between(
                    f"stage of relations, S, R = {sizes[0]}", _share(many["hallucination"]), 0.1
                ),
                between(
                    f"stage of relations, S, R = {sizes[1]}", _share(equal["hallucination"]), most=0
                ),
                between(
                    f"stage of relations, S, R = {sizes[2]}", _share(few["hallucination"]), most=0
                ),
                between(f"stage of subjects, S, R = {sizes[2]}", _share(few["subject_only"]), 0.05),
            ],
            "λ_r/λ_s = (S/R)√((R−1)/(D−1)) decides, not S/R alone.",
        )

    return Claim(
        "without-many-subjects",
        "S ≫ R matters: with S = R = 8 there is no stage of relations alone, and with R ≫ S it is "
        "subjects that are known alone.",
        "Section 5, beside Theorem 6",
        "Gradient flow on three tables: the part of the training that each stage takes.",
        IndependentTasks(tuple(task for each in sizes for task in run(*each).tasks)),
        judge,
    )


def _share(stage: Any) -> float:
    """The part of the training that a stage takes; 0 if there is none."""
    return 0.0 if stage is None else _or_nan(stage["share"])
