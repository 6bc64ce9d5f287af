"""Figure 5, left: linear attention learns relations first, then subjects."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import dynamics
from factmem.experiments.flow_spec import FlowSpec
from factmem.experiments.measurement import uncached_tasks
from factmem.experiments.specs import TableSpec
from factmem.paper.claim import Claim, Finding, check_between, check_close
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.loss_figure import TABLE_SIZES, loss_figure
from factmem.paper.registry import register_claim, register_figure
from factmem.paper.statistics import SeedResults

__all__ = ["figure_5_left", "measure_plateau", "plateau"]

_SEEDS = {"quick": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}


@register_figure("5-left", order=(5, 1))
def figure_5_left(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of losses of linear attention. Both scales are the full experiment."""
    return loss_figure(
        "5-left",
        "Figure 5, left: linear attention learns in stages",
        "When are facts learned? First nothing happens; then the model suddenly knows which "
        "answers fit a relation and gives one of them whatever the subject is: it hallucinates. "
        "Much later it learns subjects, and with them the facts.",
        "Linear attention over one-hot tokens, S = {}, R = {}, D = {}, |N| = 20, T = 32, all "
        "weights 1e-5; plain gradient descent at rate 0.1, 8,192 steps of 1,024 prompts. The "
        "dashed curve is the exact gradient flow over all prompts.".format(*TABLE_SIZES),
        _SEEDS[scale],
        {
            "attention": "linear",
            "dim": None,
            "learning_rate": 0.1,
            "steps": 8192,
            "batch_size": 1024,
        },
    )


def measure_plateau(*, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Measure the loss levels, the stages and the initial growth rates of Figure 5's flow."""
    instance = FlowSpec(table=TableSpec.structured(*sizes), seed=seed).draw()
    flow = instance.flow()
    stages = dynamics.find_stages(flow, instance.population)
    formula = dynamics.escape_rates(instance.population)
    fitted = dynamics.fit_escape_rates(flow, instance.population)
    stage = stages.hallucination
    if stage is None or stage.end is None:
        return {"start": float(flow.loss[0]), "middle": None}
    middle = (stage.start + stage.end) / 2
    index = int(flow.nearest(np.array([middle]))[0])
    return {
        "start": float(flow.loss[0]),
        "middle": float(flow.statistics.loss[index]),
        "relation_loss": float(flow.statistics.relation_loss[index]),
        "share": (stage.end - stage.start) / float(flow.times[-1]),
        "relations": float(np.mean(fitted.relations) / np.mean(formula.relations)),
        "subjects": float(np.mean(fitted.subjects) / np.mean(formula.subjects)),
    }


@register_claim("plateau", order=(5, 40))
def plateau(seeds: Sequence[int], sizes: Sequence[int] = TABLE_SIZES) -> Claim:
    """Check the plateau of the loss at log D."""
    _, relations, answers = sizes

    def judge(results: SeedResults) -> Finding:
        (result,) = results
        if result["middle"] is None:
            check = check_between("share of the flow in the hallucination stage", math.nan, 0.1)
            return Finding.from_checks([check])
        return Finding.from_checks(
            [
                check_close("initial loss", result["start"], math.log(relations * answers), 1e-3),
                check_close(
                    "loss in the middle of the stage", result["middle"], math.log(answers), 0.02
                ),
                check_between("relation loss there", result["relation_loss"], high=0.05),
                check_between(
                    "share of the flow in the hallucination stage", result["share"], 0.1, 0.9
                ),
                check_close(
                    "growth rate of relations over its formula", result["relations"], 1, 0.03
                ),
                check_close(
                    "growth rate of subjects over its formula", result["subjects"], 1, 0.03
                ),
            ]
        )

    return Claim(
        "plateau",
        "The loss stays at log |A|, falls to log D when relations are learned, stays there, and "
        "falls to zero when subjects are learned.",
        "Figure 5, left; after Theorem 6",
        f"The flow of Figure 5, S, R, D = {sizes}: the loss in the middle of the stage, and the "
        "rates at which weights leave zero against their formulas.",
        uncached_tasks(measure_plateau, seeds[:1], sizes=list(sizes)),
        judge,
    )
