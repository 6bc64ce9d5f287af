"""Theorem 7: the smallest loss of a model of B bits."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import bounds
from factmem._core.constants import DEFAULT_WEIGHT_BITS
from factmem.experiments.measurement import uncached_tasks
from factmem.paper.claim import Claim, Finding, check_between, check_close, fit_values
from factmem.paper.memory_figures import bracket_middle, comma_separated, mlp_searches
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, maximum

__all__ = ["bound_met", "scaling_law", "theorem_7"]

_SCALE_BITS = 64
"""Two 32-bit scales, one for each matrix of a memory."""


def measure_theorem_7(*, facts: int, outputs: int, seed: int) -> dict[str, Any]:
    """Compare the bound with the linear program it solves, and with ideal tables on all maps."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    probabilities = np.sort(rng.dirichlet(np.ones(facts)))[::-1]
    answer_bits = math.log2(outputs)
    program_errors, table_errors = [], []
    for bits in range(int(facts * answer_bits) + 2):
        distribution = bounds.QuestionProbabilities(probabilities)
        bound = bounds.min_loss(float(bits), outputs, distribution)
        program = linprog(
            -probabilities,
            A_ub=np.ones((1, facts)),
            b_ub=[bits],
            bounds=(0, answer_bits),
            method="highs",
        )
        program_errors.append(abs(bound - (answer_bits + program.fun)))
        table_errors.append(abs(_table_loss(facts, outputs, bits, probabilities) - bound))
    return {"program_error": max(program_errors), "table_error": max(table_errors)}


def _table_loss(facts: int, outputs: int, bits: int, probabilities: np.ndarray) -> float:
    """Return the mean loss of ideal tables over all maps from N questions to M answers."""
    losses = []
    for target in itertools.product(range(outputs), repeat=facts):
        table = bounds.IdealTable.encode(target, outputs, bits)
        possible = [table.possible_answers(x) for x in range(facts)]
        if any(answer not in those for answer, those in zip(target, possible, strict=True)):
            return math.inf
        losses.append(float(probabilities @ [math.log2(len(those)) for those in possible]))
    return float(np.mean(losses))


@register_claim("theorem-7", order=(6, 10))
def theorem_7(seeds: Sequence[int], facts: int = 4, outputs: int = 4) -> Claim:
    """Check Theorem 7."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between(
                    "distance to the linear program", maximum(results, "program_error"), high=1e-9
                ),
                check_between(
                    "distance to an ideal table", maximum(results, "table_error"), high=1e-9
                ),
            ]
        )

    return Claim(
        "theorem-7",
        "A model of B bits has an expected loss of at least log M times the probability of the "
        "questions beyond the B/log M most likely; a table attains it.",
        "Theorem 7",
        f"Random probabilities of {facts} questions, M = {outputs}, every B: the bound against the "
        "linear program, and the mean loss of a table of B bits over all maps.",
        uncached_tasks(measure_theorem_7, seeds, facts=facts, outputs=outputs),
        judge,
    )


def measure_scaling_law(*, powers: Sequence[float], count: int, seed: int) -> dict[str, Any]:
    """Measure the exponents of the bound and of its explicit form against bits."""
    bits = np.geomspace(2**12, 2**17, 11).tolist()
    exponents = {}
    for name in ("min_loss", "scaling_law"):
        function = getattr(bounds, name)
        laws = [
            fit_values(bits, [function(b, 32, bounds.Zipf(count, power)) for b in bits])
            for power in powers
        ]
        exponents[name] = [law.exponent for law in laws]
    return exponents


@register_claim("scaling-law", order=(6, 20))
def scaling_law(
    seeds: Sequence[int], powers: Sequence[float] = (1.2, 1.5, 2.0, 3.0), count: int = 10**15
) -> Claim:
    """Check the corollary of Theorem 7."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_close(
                    f"exponent of {name}, α = {power:g}", result[name][index], 1 - power, 0.05
                )
                for result in results
                for name in ("min_loss", "scaling_law")
                for index, power in enumerate(powers)
            ]
        )

    return Claim(
        "scaling-law",
        "If questions follow Zipf's law with power α > 1, the smallest loss of B bits falls like "
        "B^(1 − α).",
        "Corollary of Theorem 7",
        "Slopes of the bound and of its explicit form for B from 2^12 to 2^17, M = 32, "
        f"N = {count:.0e}.",
        uncached_tasks(measure_scaling_law, seeds[:1], powers=list(powers), count=count),
        judge,
    )


@register_claim("bound-met", order=(6, 30))
def bound_met(
    seeds: Sequence[int],
    widths: Sequence[int] = (32, 128),
    outputs: int = 8,
    powers: Sequence[float] = (1.5, 2.0),
) -> Claim:
    """Check that quantized memories of the most likely associations follow the bound."""

    def judge(capacities: Sequence[Any]) -> Finding:
        models = [
            (
                float(DEFAULT_WEIGHT_BITS * each.problem.parameters + _SCALE_BITS),
                bracket_middle(seed.bracket),
                math.log2(each.problem.outputs),
            )
            for each in capacities
            for seed in each.seeds
        ]
        checks = []
        for power in powers:
            law = bounds.Zipf(10**15, power)
            # Stored associations cost nothing, all others log2 M: the model knows how many it has.
            losses = [answer_bits * law.tail(stored) for _, stored, answer_bits in models]
            min_losses = [
                bounds.min_loss(bits, round(2**answer_bits), law) for bits, _, answer_bits in models
            ]
            slope = fit_values([bits for bits, *_ in models], losses).exponent
            checks.append(
                check_close(f"exponent of the loss, α = {power:g}", slope, 1 - power, 0.25)
            )
            ratio = float(np.divide(losses, min_losses).min())
            checks.append(check_between(f"smallest loss / bound, α = {power:g}", ratio, 1))
        usage = [answer_bits * stored / bits for bits, stored, answer_bits in models]
        return Finding.from_checks(
            [*checks, check_between("bits stored / bits used", min(usage), 0.02, 1)]
        )

    return Claim(
        "bound-met",
        "An MLP memory with quantized weights that stores the most likely associations has the "
        "slope 1 − α of the bound.",
        "Section 6, after Theorem 7",
        f"Fitted ReLU MLPs of d = 8, m = {comma_separated(widths)}, M = {outputs} with 16-bit "
        "weights: the largest N that is recalled completely, and the loss if only those are known, "
        "N = 10^15; at paper scale for M = 32 and m = d.",
        mlp_searches(seeds, [(8, width) for width in widths], outputs),
        judge,
        paper_measurement=mlp_searches(seeds, [(d, d) for d in (16, 24, 32)], 32, 1.01),
    )
