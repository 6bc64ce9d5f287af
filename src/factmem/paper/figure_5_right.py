"""Figure 5, right: a softmax head on random embeddings learns in the same stages."""

import math
from collections.abc import Sequence

import numpy as np

from factmem.experiments.flow_measures import measure_sgd
from factmem.experiments.flow_spec import FlowSpec, SGDConfig
from factmem.experiments.measurement import IndependentTasks, uncached_tasks
from factmem.experiments.specs import TableSpec
from factmem.paper.claim import Claim, Finding, check_between, check_close
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.loss_figure import TABLE_SIZES, loss_figure
from factmem.paper.registry import register_claim, register_figure
from factmem.paper.statistics import SeedResults, maximum

__all__ = ["figure_5_right", "softmax_stages"]

_SEEDS = {"quick": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}
_STEPS = {"quick": 2048, "paper": 4096}
_RATE, _DIM = 16.0, 292


@register_figure("5-right", order=(5, 2))
def figure_5_right(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of losses of a softmax head."""
    return loss_figure(
        "5-right",
        "Figure 5, right: a softmax head learns in the same stages",
        "The theorem is about linear attention over one-hot tokens. A softmax head over random "
        "embeddings, for which there is no theorem, learns in the same order: relations first, "
        "subjects later, and in between answers that fit only the relation.",
        "A softmax head on random embeddings of d = {3}, S = {0}, R = {1}, D = {2}, |N| = 20, "
        "T = 32, all weights 1e-5; plain gradient descent at rate {4:g}, {5:,} steps of 1,024 "
        "prompts. The authors' dimension, rate and steps are not known; these are ours.".format(
            *TABLE_SIZES, _DIM, _RATE, _STEPS[scale]
        ),
        _SEEDS[scale],
        {
            "attention": "softmax",
            "dim": _DIM,
            "learning_rate": _RATE,
            "steps": _STEPS[scale],
            "batch_size": 1024,
        },
    )


@register_claim("softmax-stages", order=(5, 50))
def softmax_stages(
    seeds: Sequence[int], dim: int = 292, steps: int = 2048, paper_steps: int = 4096
) -> Claim:
    """Check that a softmax head has a hallucination stage."""
    _, relations, answers = TABLE_SIZES

    def spec(steps: int, seed: int) -> FlowSpec:
        return FlowSpec(
            table=TableSpec.structured(*TABLE_SIZES),
            method="softmax-sgd",
            sgd=SGDConfig(_RATE, steps, 1024),
            dim=dim,
            seed=seed,
        )

    config = spec(steps, seeds[0]).config()
    del config["seed"]

    def judge(results: SeedResults) -> Finding:
        staged = [result["hallucination_end"] is not None for result in results]
        initial = float(np.mean([result["losses"][0] for result in results]))
        return Finding.from_checks(
            [
                check_between("seeds with a hallucination stage", float(sum(staged)), len(staged)),
                check_between("largest final loss", maximum(results, "loss"), high=0.5),
                check_close("initial loss", initial, math.log(relations * answers), 0.01),
            ]
        )

    return Claim(
        "softmax-stages",
        "A softmax head on random embeddings goes through the same stages.",
        "Figure 5, right",
        f"Stochastic gradient descent on Figure 5's table, d = {dim}, rate 16, {steps} steps of "
        "1024 prompts (the paper's own settings are not known).",
        uncached_tasks(measure_sgd, seeds, **config),
        judge,
        paper_measurement=IndependentTasks(
            tuple(spec(paper_steps, seeds[0] + offset).task() for offset in range(5))
        ),
    )
