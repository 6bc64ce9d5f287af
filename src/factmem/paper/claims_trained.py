"""Section 4 of the paper: what trained transformers store.

Importing this loads no jax.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from factmem import experiments
from factmem.experiments.measurement import MeasurementGroup, IndependentTasks
from factmem.experiments.transformer_capacity import TransformerCapacityProblem
from factmem.paper.claim import (
    Claim,
    Finding,
    between,
    exponent,
    fitted_brackets,
)
from factmem.paper.results import Results, column
from factmem.paper.shape_map import QUICK_MAP, ShapeMap
from factmem.paper.transformer_lines import QUICK_DIMS, QUICK_LINES, QUICK_RATIO

__all__ = [
    "attention_against_mlp",
    "facts_per_parameter",
]


def attention_against_mlp(seeds: Sequence[int], places: ShapeMap = QUICK_MAP) -> Claim:
    """The right of Figure 4."""
    # (H, m): much attention, much MLP, little of both, too few heads.
    chosen = [(16, 4), (6, 64), (6, 4), (1, 112)]
    tasks = [places.task(heads, width, seed) for heads, width in chosen for seed in seeds]

    def judge(results: Results) -> Finding:
        accuracies = column(results, "best_accuracy").reshape(len(chosen), len(seeds))
        attention, mlp, neither, few = accuracies.mean(axis=1)
        floor = (
            f"best accuracy of 1 head and 112 neurons, H·d_h = {places.head_dim} against S + R = "
            f"{2 * places.subjects}"
        )
        return Finding.of(
            [
                between("best accuracy of 16 heads and 4 neurons", float(attention), 0.97),
                between("best accuracy of 6 heads and 64 neurons", float(mlp), 0.97),
                between("best accuracy of 6 heads and 4 neurons", float(neither), most=0.95),
                between(floor, float(few), most=0.8),
            ]
        )

    return Claim(
        "attention-against-mlp",
        "Facts can be stored in heads or in the MLP, one for the other, as long as H·d_h is about "
        "S + R at least.",
        "Figure 4, right",
        f"Transformers of d = {places.dim} and d_h = {places.head_dim} trained on "
        f"{places.subjects**2} facts (S = R = {places.subjects}, D = 8): four places of the map.",
        IndependentTasks(tuple(tasks)),
        judge,
    )


_LINES = {
    "Figure 4: S = R, H = 8": "4-left",
    "Figure 7: S = R, H = 4": "7",
    "Figure 8: S = R²": "8",
    "Figure 9: D = S = R": "9",
}
"""Which figure has which line is not known for certain: this is the natural order."""


def facts_per_parameter(
    seeds: Sequence[int], dims: Mapping[str, Sequence[int]] | None = None
) -> Claim:
    """Figures 4, 7, 8 and 9."""
    first = {name: QUICK_DIMS[figure][:2] for name, figure in _LINES.items()}
    quick = first if dims is None else dims
    thorough = dict.fromkeys(_LINES, (8, 16, 24, 32, 48))

    def judge(found: Mapping[str, Sequence[Any]]) -> Finding:
        checks = []
        for name, line in found.items():
            sizes = [each.problem.parameters for each in line for _ in each.seeds]
            stored = [_facts(each.problem, seed.bracket) for each in line for seed in each.seeds]
            law = fitted_brackets(sizes, stored)
            checks.append(exponent(f"{name}: facts against parameters", law, 0.85, 1.15))
            least = sum(0 if bracket is None else bracket[0] for bracket in stored) / sum(sizes)
            checks.append(between(f"{name}: facts per parameter, at least", least, 0.03, 1))
        return Finding.of(checks)

    return Claim(
        "facts-per-parameter",
        "The facts that trained transformers store grow in proportion to their parameters.",
        "Figures 4 (left), 7, 8 and 9",
        "The largest table at 99 %, by search for every seed, of shapes with H·d_h = m = d: the "
        "exponent of facts against parameters with its 95 % interval.",
        MeasurementGroup(_lines(quick, seeds, "quick", QUICK_RATIO)),
        judge,
        at_length=MeasurementGroup(
            _lines(thorough, [seeds[0] + more for more in range(5)], "paper", 1.05)
        ),
    )


def _facts(problem: TransformerCapacityProblem, bracket: Any) -> tuple[int, int] | None:
    """Facts of the largest table that is stored and of the smallest that is not."""
    if bracket.lower is None or bracket.upper is None:
        return None
    return problem.facts(bracket.lower), problem.facts(bracket.upper)


def _lines(
    dims: Mapping[str, Sequence[int]], seeds: Sequence[int], protocol: Any, ratio: float
) -> dict[str, experiments.CapacitySearches]:
    """The search of every line, by its name."""
    return {
        name: experiments.CapacitySearches(
            QUICK_LINES[_LINES[name]].problems(sizes, protocol, ratio), seeds
        )
        for name, sizes in dims.items()
    }
