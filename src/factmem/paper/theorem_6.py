"""Theorem 6: relations are learned before subjects.

Importing this module loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any

from factmem import dynamics
from factmem.experiments.flow_measures import measure_flow
from factmem.experiments.flow_spec import FlowSpec
from factmem.experiments.measurement import IndependentTasks, uncached_tasks
from factmem.experiments.specs import PromptSpec, TableSpec
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults

__all__ = ["theorem_6", "without_many_subjects"]


def measure_sequential(
    *, sizes: Sequence[int], noise: int, length: int, scale: float, seed: int
) -> dict[str, Any]:
    """Measure the time of Theorem 6 in one flow, if there is one."""
    instance = FlowSpec(
        table=TableSpec.structured(*sizes),
        prompts=PromptSpec(noise=noise, length=length),
        init="balanced",
        scale=scale,
        seed=seed,
    ).draw()
    flow = instance.flow(until=160.0)
    result = dynamics.sequential_learning(flow, instance.population, scale)
    conditions = dynamics.SequentialConditions.from_population(instance.population)
    return {
        "conditions": float(conditions.met),
        "min_relation_distance": result.min_relation_distance,
        "max_other_weight": result.max_other_weight,
        "weight_bound": result.weight_bound,
    }


@register_claim("theorem-6", order=(5, 30))
def theorem_6(seeds: Sequence[int], scale: float = 1e-6) -> Claim:
    """Check Theorem 6."""

    def judge(results: SeedResults) -> Finding:
        met, violated = results
        weight = _or_nan(met["max_other_weight"]) / met["weight_bound"]
        return Finding.from_checks(
            [
                check_between("conditions met, with equality", met["conditions"], 1),
                check_between(
                    "Σ (p − p(·|r))² while subjects and noise are small",
                    _or_nan(met["min_relation_distance"]),
                    high=1e-3,
                ),
                check_between("largest weight of subjects and noise then, / √α", weight, high=0.1),
                check_between(
                    "the same distance with S = 4, which violates the conditions",
                    _or_nan(violated["min_relation_distance"]),
                    0.01,
                ),
            ]
        )

    config = {"noise": 80, "length": 5, "scale": scale}
    met = uncached_tasks(measure_sequential, seeds[:1], sizes=[32, 2, 2], **config)
    violated = uncached_tasks(measure_sequential, seeds[:1], sizes=[4, 2, 2], **config)
    return Claim(
        "theorem-6",
        "From a small balanced start, relations are learned first: predictions are p(a|r) while "
        "every weight of subjects and noise is still below √α.",
        "Theorem 6",
        f"The smallest instance that meets its conditions: S = 32, R = D = 2, T = 5, |N| = 80, "
        f"α = {scale:g}; and S = 4, which does not.",
        IndependentTasks((*met.tasks, *violated.tasks)),
        judge,
    )


@register_claim("without-many-subjects", order=(5, 60))
def without_many_subjects(
    seeds: Sequence[int], sizes: Sequence[tuple[int, int]] = ((32, 2), (8, 8), (2, 16))
) -> Claim:
    """Check tables without S ≫ R."""

    def tasks(subjects: int, relations: int) -> IndependentTasks:
        spec = FlowSpec(
            table=TableSpec.structured(subjects, relations, 8),
            prompts=PromptSpec(noise=subjects + relations),
        )
        config = spec.config()
        del config["seed"]
        return uncached_tasks(measure_flow, seeds[:1], **config)

    def judge(results: SeedResults) -> Finding:
        many, equal, few = results
        stage = "share of the relation-only stage, S, R ="
        return Finding.from_checks(
            [
                check_between(f"{stage} {sizes[0]}", _share(many["hallucination"]), 0.1),
                check_between(f"{stage} {sizes[1]}", _share(equal["hallucination"]), high=0),
                check_between(f"{stage} {sizes[2]}", _share(few["hallucination"]), high=0),
                check_between(
                    f"share of the subject-only stage, S, R = {sizes[2]}",
                    _share(few["subject_only"]),
                    0.05,
                ),
            ],
            "λ_r/λ_s = (S/R)√((R−1)/(D−1)) decides, not S/R alone.",
        )

    return Claim(
        "without-many-subjects",
        "S ≫ R matters: with S = R = 8 there is no relation-only stage, and with R ≫ S there is a "
        "subject-only stage instead.",
        "Section 5, related to Theorem 6",
        "Gradient flow on three tables: the share of the training time of each stage.",
        IndependentTasks(tuple(task for each in sizes for task in tasks(*each).tasks)),
        judge,
    )


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _share(stage: Any) -> float:
    """Return the share of the training time of a stage; 0 if there is none."""
    return 0.0 if stage is None else _or_nan(stage["share"])
