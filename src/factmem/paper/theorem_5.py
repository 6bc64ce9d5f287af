"""Theorem 5: gradient flow of linear attention converges.

Importing this module loads no jax.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem.experiments.flow_spec import FlowSpec
from factmem.experiments.measurement import uncached_tasks
from factmem.experiments.specs import TableSpec
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, column, maximum, minimum

__all__ = ["invariant", "theorem_5"]

_STARTS = ("balanced", "equal")


def measure_invariant(*, sizes: Sequence[int], inits: Sequence[str], seed: int) -> dict[str, Any]:
    """Measure the drift of W_KQ(z)² − Σ_a W_OV(a, z)² along flows, relative to max W_KQ²."""
    table = TableSpec.random(*sizes)
    specs = [FlowSpec(table=table, init=init, seed=seed) for init in inits]  # pyright: ignore[reportArgumentType]
    flows = [spec.draw().flow() for spec in specs]
    return {
        "drift": max(float(flow.invariant_drift) for flow in flows),
        "largest_kq": min(float(np.abs(flow.kq).max()) for flow in flows),
        "final_loss": max(float(flow.loss[-1]) for flow in flows),
    }


@register_claim("invariant", order=(5, 10))
def invariant(seeds: Sequence[int], sizes: Sequence[int] = (8, 3, 4)) -> Claim:
    """Check the conserved quantity."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between("largest drift / max W_KQ²", maximum(results, "drift"), high=1e-10),
                check_between("largest W_KQ reached", minimum(results, "largest_kq"), 0.1),
                check_between("final loss", maximum(results, "final_loss"), high=0.02),
            ]
        )

    return Claim(
        "invariant",
        "W_KQ(z)² − Σ_a W_OV(a, z)² is conserved for every token.",
        "Section 5, before Theorem 5",
        f"Gradient flow in 64 bits on random tables of {sizes}, from balanced and equal weights.",
        uncached_tasks(measure_invariant, seeds, sizes=list(sizes), inits=list(_STARTS)),
        judge,
    )


def measure_convergence(
    *, sizes: Sequence[int], times: Sequence[float], seed: int
) -> dict[str, Any]:
    """Measure the loss of a long flow at several times, and its largest rise."""
    spec = FlowSpec(table=TableSpec.random(*sizes), init="balanced", seed=seed)
    flow = spec.draw().flow(until=float(times[-1]))
    loss = np.asarray(flow.loss, np.float64)
    return {
        "losses": loss[flow.nearest(np.array(times))].tolist(),
        "rise": float(np.diff(loss).max()),
    }


@register_claim("theorem-5", order=(5, 20))
def theorem_5(
    seeds: Sequence[int],
    sizes: Sequence[int] = (6, 3, 3),
    times: Sequence[float] = (100.0, 1e3, 1e4),
) -> Claim:
    """Check Theorem 5."""

    def judge(results: SeedResults) -> Finding:
        losses = column(results, "losses")
        factors = losses[:, -2] / losses[:, -1]
        return Finding.from_checks(
            [
                check_between(
                    f"largest loss at t = {times[-1]:g}", float(losses[:, -1].max()), 0, 1e-3
                ),
                check_between("largest rise of the loss", maximum(results, "rise"), high=1e-12),
                check_between(
                    "smallest factor by which it falls in the last decade of t",
                    float(factors.min()),
                    5,
                ),
            ]
        )

    return Claim(
        "theorem-5",
        "Gradient flow of linear attention learns every fact: its loss goes to zero.",
        "Theorem 5",
        f"The flow on random tables of {sizes} from the balanced start, until t = {times[-1]:g}: "
        "the loss never rises, and finally falls like 1/t.",
        uncached_tasks(measure_convergence, seeds, sizes=list(sizes), times=list(times)),
        judge,
    )
