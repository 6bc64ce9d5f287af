"""Figure 4, left: the facts that a transformer stores grow in proportion to its parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.capacity import CapacitySearches
from factmem.experiments.measurement import MeasurementGroup
from factmem.experiments.transformer_capacity import TransformerCapacityProblem
from factmem.paper import figure_7, figure_8, figure_9
from factmem.paper.claim import Claim, Finding, check_between, check_exponent, fit_brackets
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_claim, register_figure
from factmem.paper.transformer_figures import (
    QUICK_RATIO,
    TransformerGrid,
    TransformerLine,
    all_shapes,
    transformer_figure,
)

__all__ = ["facts_per_parameter", "figure_4_left"]

GRID = TransformerGrid(
    quick=TransformerLine(1.0, 1.0), quick_dims=(16, 32, 24, 12, 8), paper=all_shapes(8, "s=r")
)
"""Sizes over a factor of 9 or more in parameters. At d = 8 random answers are so close to each
other that no model can store most tables; only this figure shows it."""


@register_figure("4-left", order=(4, 1))
def figure_4_left(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of facts against parameters, S = R."""
    return transformer_figure(
        "4-left",
        "Figure 4, left: facts against parameters, S = R, H = 8",
        "How many facts does a transformer store? A constant of a little more than a tenth times "
        "its parameters: facts and parameters grow together. The compiled line shows that this is "
        "not an accident of training, because there every fact is certified.",
        GRID,
        scale,
        compiled=True,
    )


_GRIDS = {
    "Figure 4: S = R, H = 8": GRID,
    "Figure 7: S = R, H = 4": figure_7.GRID,
    "Figure 8: S = R²": figure_8.GRID,
    "Figure 9: D = S = R": figure_9.GRID,
}


@register_claim("facts-per-parameter", order=(4, 70))
def facts_per_parameter(
    seeds: Sequence[int], dims: Mapping[str, Sequence[int]] | None = None
) -> Claim:
    """Check that stored facts are proportional to parameters in Figures 4, 7, 8 and 9."""
    first_two = {name: grid.quick_dims[:2] for name, grid in _GRIDS.items()}
    quick = first_two if dims is None else dims
    thorough = dict.fromkeys(_GRIDS, (8, 16, 24, 32, 48))

    def judge(results: Mapping[str, Sequence[Any]]) -> Finding:
        checks = []
        for name, capacities in results.items():
            sizes = [each.problem.parameters for each in capacities for _ in each.seeds]
            stored = [
                _facts(each.problem, seed.bracket) for each in capacities for seed in each.seeds
            ]
            law = fit_brackets(sizes, stored)
            checks.append(check_exponent(f"{name}: facts against parameters", law, 0.85, 1.15))
            ratio = sum(0 if bracket is None else bracket[0] for bracket in stored) / sum(sizes)
            checks.append(check_between(f"{name}: facts per parameter, at least", ratio, 0.03, 1))
        return Finding.from_checks(checks)

    return Claim(
        "facts-per-parameter",
        "The number of facts that trained transformers store is proportional to their parameters.",
        "Figures 4 (left), 7, 8 and 9",
        "The largest table at 99%, searched for with every seed, of shapes with H·d_h = m = d: "
        "the exponent of facts against parameters with its 95% interval.",
        MeasurementGroup(_searches(quick, seeds, "quick", QUICK_RATIO)),
        judge,
        paper_measurement=MeasurementGroup(
            _searches(thorough, [seeds[0] + offset for offset in range(5)], "paper", 1.05)
        ),
    )


def _facts(problem: TransformerCapacityProblem, bracket: Any) -> tuple[int, int] | None:
    """Return the facts of the largest table stored and of the smallest not stored."""
    if bracket.lower is None or bracket.upper is None:
        return None
    return problem.facts(bracket.lower), problem.facts(bracket.upper)


def _searches(
    dims: Mapping[str, Sequence[int]], seeds: Sequence[int], protocol: Any, ratio: float
) -> dict[str, CapacitySearches]:
    return {
        name: CapacitySearches(_GRIDS[name].quick.problems(sizes, protocol, ratio), seeds)
        for name, sizes in dims.items()
    }
