"""Figure 6: with a fixed number of outputs an MLP stores N associations if m·d exceeds N."""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem.experiments.measurement import MeasurementGroup
from factmem.paper.capacity_figure import capacity_figure
from factmem.paper.claim import Claim, Finding, check_between, check_exponent, fit_brackets
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.memory_figures import (
    AUTHORS_SEEDS,
    QUICK_DIMS,
    QUICK_SEEDS,
    Ends,
    authors_line,
    bracket_ends,
    capacity_law,
    comma_separated,
    describe_mlps,
    half_powers,
    mlp_lines,
    mlp_searches,
    n_log_n_ends,
)
from factmem.paper.registry import register_claim, register_figure
from factmem.plotting.plot import Axis

__all__ = ["few_outputs", "figure_6"]

_OUTPUTS = 32
_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 6.5)}
_FITTED_SHAPES = {
    "quick": ((8, 32), (8, 128)),
    "paper": tuple((dim, dim) for dim in half_powers(3, 5.5)),
}
"""(d, m)."""
_WIDTH_RATIOS = {"quick": (1,), "paper": (1, 2, 4, 8)}
"""m/d."""
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


@register_figure("6", order=(6,))
def figure_6(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of associations with 32 outputs stored by MLPs against m·d."""
    dims, seeds, width_ratios = _DIMS[scale], _SEEDS[scale], _WIDTH_RATIOS[scale]
    return capacity_figure(
        "6",
        "Figure 6: MLP associative memory with 32 outputs",
        description="The logarithm in Figure 1 is the price of distinguishing more and more "
        "outputs. With 32 outputs, however many inputs there are, it disappears: N itself grows as "
        "m·d.",
        lines=mlp_lines(width_ratios, dims, _FITTED_SHAPES[scale], _OUTPUTS, seeds, scale),
        axes=(Axis("m·d, half of the MLP's weights", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.width * problem.dim),
        law=capacity_law("N", "m·d"),
        reference=authors_line("authors' line, m·d = 1.2 N", (50, 50000), 1.2, logarithm=False),
        setup=f"As Figure 1, right, with {_OUTPUTS} outputs, f(x) = ⌊{_OUTPUTS}x/N⌋. "
        + describe_mlps(dims, width_ratios, seeds, scale),
        explanation=f"At d = 8 there are {_OUTPUTS // 8} times as many outputs as dimensions, "
        "which reduces the capacity of small MLPs.",
    )


@register_claim("few-outputs", order=(3, 110))
def few_outputs(
    seeds: Sequence[int], dim: int = 8, widths: Sequence[int] = (32, 128), outputs: int = 8
) -> Claim:
    """Compare a fixed number of outputs with as many outputs as keys."""

    def judge(results: Mapping[str, Sequence[Any]]) -> Finding:
        few, many = (_sizes_and_ends(results[name]) for name in ("few", "many"))
        few_law, many_law = fit_brackets(*few), fit_brackets(*many)
        n_log_n_law = fit_brackets(many[0], [n_log_n_ends(ends) for ends in many[1]])
        return Finding.from_checks(
            [
                check_exponent("M fixed: N against m·d", few_law, 0.9, 1.1),
                check_exponent("M = N: N ln N against m·d", n_log_n_law, 0.85, 1.15),
                check_between(
                    "difference of the exponents of N", few_law.exponent - many_law.exponent, 0.1
                ),
            ]
        )

    return Claim(
        "few-outputs",
        "With a fixed number of outputs, the capacity N of an MLP is proportional to m·d, without "
        "a logarithm.",
        "Figure 6; compare Figure 1, right",
        f"The largest N that fitted ReLU MLPs of d = {dim} with 16-bit weights recall completely, "
        f"at m = {comma_separated(widths)}: exponents for M = {outputs} and for M = N; at paper "
        "scale for the paper's M = 32 and m = d.",
        MeasurementGroup(
            {
                name: mlp_searches(seeds, [(dim, width) for width in widths], count)
                for name, count in (("few", outputs), ("many", None))
            }
        ),
        judge,
        paper_measurement=MeasurementGroup(
            {
                name: mlp_searches(seeds, [(d, d) for d in (16, 24, 32)], count, 1.01)
                for name, count in (("few", 32), ("many", None))
            }
        ),
    )


def _sizes_and_ends(capacities: Sequence[Any]) -> tuple[list[float], list[Ends]]:
    """Return m·d and the bracket of N, for every seed of every size."""
    sizes = [
        float(each.problem.dim * each.problem.width) for each in capacities for _ in each.seeds
    ]
    ends = [bracket_ends(seed.bracket) for each in capacities for seed in each.seeds]
    return sizes, ends
