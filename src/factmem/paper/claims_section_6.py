"""Section 6 of the paper: what no model can beat, and who comes near."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import bounds
from factmem.experiments.measurement import MeasurementGroup, unstored_tasks
from factmem.paper.claim import (
    Claim,
    Finding,
    MeasurementError,
    between,
    close,
    fitted,
    fitted_brackets,
)
from factmem.paper.memory_searches import bracket_middle, ends, few_output_searches, matrix_searches
from factmem.paper.results import Results, column, least, most

__all__ = [
    "bound_is_met",
    "cubic_capacity",
    "scaling_law",
    "theorem_7",
    "theorem_8",
]

_WEIGHT_BITS = 16
_SCALE_BITS = 64
"""The scales of a memory's two matrices."""


def measure_theorem_7(*, facts: int, outputs: int, seed: int) -> dict[str, Any]:
    """The bound against the linear program it solves, and an ideal table on all maps."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    chances = np.sort(rng.dirichlet(np.ones(facts)))[::-1]
    each = math.log2(outputs)
    away, attained = [], []
    for bits in range(int(facts * each) + 2):
        bound = bounds.least_loss(float(bits), outputs, bounds.Chances(chances))
        program = linprog(
            -chances, A_ub=np.ones((1, facts)), b_ub=[bits], bounds=(0, each), method="highs"
        )
        away.append(abs(bound - (each + program.fun)))
        attained.append(abs(_loss_of_tables(facts, outputs, bits, chances) - bound))
    return {"away": max(away), "attained": max(attained)}


def _loss_of_tables(facts: int, outputs: int, bits: int, chances: np.ndarray) -> float:
    """The mean loss of ideal tables, over all maps from N questions to M answers."""
    losses = []
    for target in itertools.product(range(outputs), repeat=facts):
        table = bounds.IdealTable.of(target, outputs, bits)
        possible = [table.possible(x) for x in range(facts)]
        if any(answer not in those for answer, those in zip(target, possible, strict=True)):
            return math.inf
        losses.append(float(chances @ [math.log2(len(those)) for those in possible]))
    return float(np.mean(losses))


def theorem_7(seeds: Sequence[int], facts: int = 4, outputs: int = 4) -> Claim:
    """Theorem 7."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between("distance from the linear program", most(results, "away"), most=1e-9),
                between("distance of an ideal table", most(results, "attained"), most=1e-9),
            ]
        )

    return Claim(
        "theorem-7",
        "A model of B bits has an expected loss of at least log M times the chance of the "
        "questions beyond the B/log M likeliest; a table attains it.",
        "Theorem 7",
        f"Random chances of {facts} questions, M = {outputs}, every B: the bound against the "
        "linear program, and the mean loss of a table of B bits over all maps.",
        unstored_tasks(measure_theorem_7, seeds, facts=facts, outputs=outputs),
        judge,
    )


def measure_scaling_law(*, powers: Sequence[float], count: int, seed: int) -> dict[str, Any]:
    """Exponents of the bound and of its explicit form against bits."""
    bits = np.geomspace(2**12, 2**17, 11)
    found = {}
    for name in ("least_loss", "scaling_law"):
        function = getattr(bounds, name)
        laws = [
            fitted(
                bits.tolist(), [function(b, 32, bounds.Zipf(count, power)) for b in bits.tolist()]
            )
            for power in powers
        ]
        found[name] = [law.exponent for law in laws]
    return found


def scaling_law(
    seeds: Sequence[int], powers: Sequence[float] = (1.2, 1.5, 2.0, 3.0), count: int = 10**15
) -> Claim:
    """The corollary of Theorem 7."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                close(f"exponent of {name}, α = {power:g}", result[name][place], 1 - power, 0.05)
                for result in results
                for name in ("least_loss", "scaling_law")
                for place, power in enumerate(powers)
            ]
        )

    return Claim(
        "scaling-law",
        "With questions by Zipf's law of power α > 1 the least loss of B bits falls like "
        "B^(1 − α).",
        "Corollary of Theorem 7",
        "Slopes of the bound and of its explicit form for B from 2^12 to 2^17, M = 32, "
        f"N = {count:.0e}.",
        unstored_tasks(measure_scaling_law, seeds[:1], powers=list(powers), count=count),
        judge,
    )


def bound_is_met(
    seeds: Sequence[int],
    widths: Sequence[int] = (32, 128),
    outputs: int = 8,
    powers: Sequence[float] = (1.5, 2.0),
) -> Claim:
    """The quantized memory of the likeliest associations."""

    def judge(found: Sequence[Any]) -> Finding:
        models = [
            (
                float(_WEIGHT_BITS * each.problem.parameters + _SCALE_BITS),
                bracket_middle(seed.bracket),
                math.log2(each.problem.outputs),
            )
            for each in found
            for seed in each.seeds
        ]
        checks = []
        for power in powers:
            law = bounds.Zipf(10**15, power)
            # Stored associations cost nothing, all others log2 M: the model knows how many it has.
            losses = [answer * law.tail(stored) for _, stored, answer in models]
            least_losses = [
                bounds.least_loss(bits, round(2**answer), law) for bits, _, answer in models
            ]
            slope = fitted([bits for bits, *_ in models], losses).exponent
            checks.append(close(f"exponent of the loss, α = {power:g}", slope, 1 - power, 0.25))
            above = np.divide(losses, least_losses).min()
            checks.append(between(f"loss over the bound, least, α = {power:g}", float(above), 1))
        stored = [answer * facts / bits for bits, facts, answer in models]
        return Finding.of([*checks, between("bits stored over bits used", min(stored), 0.02, 1)])

    return Claim(
        "bound-met",
        "An MLP memory of quantized weights that stores the likeliest associations follows the "
        "slope 1 − α of the bound.",
        "Section 6, after Theorem 7",
        f"Fitted ReLU MLPs of d = 8, m = {', '.join(map(str, widths))}, M = {outputs} and weights "
        "of 16 bits: the most associations that are recalled entirely, and the loss with those "
        "alone known, N = 10^15; at length for M = 32 and m = d.",
        few_output_searches(seeds, [(8, width) for width in widths], outputs),
        judge,
        at_length=few_output_searches(seeds, [(d, d) for d in (16, 24, 32)], 32, 1.01),
    )


def measure_theorem_8(*, sizes: Sequence[Sequence[int]], seed: int) -> dict[str, Any]:
    """Entropies of random tables against all tables, one by one."""
    return {
        "away": [abs(bounds.random_table_bits(*each).bits - _enumerated(*each)) for each in sizes],
        "example": bounds.random_table_bits(32, 32, 8, 512).bits,
    }


def _enumerated(subjects: int, relations: int, answers: int, vocabulary: int) -> float:
    """The entropy of a random table: each choice of disjoint sets, each table of theirs."""
    chances: dict[tuple[int, ...], int] = {}
    for words in itertools.permutations(range(vocabulary), relations * answers):
        sets = [words[r * answers : (r + 1) * answers] for r in range(relations)]
        if any(list(own) != sorted(own) for own in sets):
            continue  # one order stands for each set
        for picks in itertools.product(range(answers), repeat=subjects * relations):
            table = tuple(sets[place % relations][pick] for place, pick in enumerate(picks))
            chances[table] = chances.get(table, 0) + 1
    counts = np.array(list(chances.values()), np.float64)
    return float(-(counts / counts.sum()) @ np.log2(counts / counts.sum()))


_SMALL_TABLES = ((4, 1, 2, 5), (8, 1, 2, 5), (2, 2, 2, 5), (3, 2, 2, 4), (2, 3, 1, 5))


def theorem_8(seeds: Sequence[int], sizes: Sequence[Sequence[int]] = _SMALL_TABLES) -> Claim:
    """Theorem 8."""
    printed = 32 * 32 * 3 + 32 * 8 * math.log2(512 / 8)

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between(
                    "distance from enumeration, bits",
                    float(column(results, "away").max()),
                    most=1e-9,
                ),
                between(
                    "S = R = 32, D = 8, |V| = 512: bits over the printed form",
                    least(results, "example") / printed,
                    0.9,
                    1.2,
                ),
            ],
            "The printed constant is not known; the entropy is what a model without loss needs.",
        )

    return Claim(
        "theorem-8",
        "A model without loss on a random table has at least S R log D + Ω(R D log(|V|/D)) bits.",
        "Theorem 8",
        "The exact entropy against all tables of small sizes, one by one; its value at one size "
        "against the printed form.",
        unstored_tasks(measure_theorem_8, seeds[:1], sizes=[list(each) for each in sizes]),
        judge,
    )


def cubic_capacity(
    seeds: Sequence[int], widths: Sequence[int] = (32, 128), matrices: Sequence[int] = (8, 16, 32)
) -> Claim:
    """A summary's misreading: m·d = d³ needs m = d², and then there are d³ parameters."""

    def judge(found: Mapping[str, Sequence[Any]]) -> Finding:
        checks = []
        for name, line in found.items():
            law = fitted_brackets(
                [each.problem.parameters for each in line for _ in each.seeds],
                [ends(seed.bracket) for each in line for seed in each.seeds],
            )
            if not math.isfinite(law.half_width):
                raise MeasurementError(f"{name}: nothing is known of what it stores")
            # d³ in d² parameters would be an exponent of 3/2.
            checks.append(between(f"{name}: exponent of N in parameters, upper end", law.high, 1.5))
        needed = bounds.bits_for_loss(0, 64**3, bounds.Zipf(64**3))
        checks.append(
            between(
                "bits of 64² weights of 32 bits over those of 64³ facts", 32 * 64**2 / needed, 1
            )
        )
        return Finding.of(checks, "Theorem 2 stores d³ where m = d², in 2d³ parameters.")

    return Claim(
        "cubic-capacity",
        "MLPs store O(d³) associations with d² parameters.",
        "Not in the paper: one of its summaries",
        "The exponent of N in parameters, of fitted MLPs and of the best matrices, which would be "
        "3/2; and the bits that so many associations need at d = 64 (Theorem 7).",
        MeasurementGroup(
            {
                "fitted MLP": few_output_searches(seeds, [(8, width) for width in widths], 8),
                "best matrix": matrix_searches(seeds[:2], matrices),
            }
        ),
        judge,
        refuted=True,
    )
