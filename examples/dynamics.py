"""When are facts learned? The left part of Figure 5 by exact gradient flow, and Theorem 6.

python examples/dynamics.py
"""

import numpy as np

from factmem import FlowSpec, PromptSpec, TableSpec, find_stages
from factmem.dynamics import (
    SequentialConditions,
    escape_rates,
    fit_escape_rates,
    sequential_learning,
)


def figure_5() -> None:
    """Follow the training of linear attention and find its stages."""
    spec = FlowSpec(table=TableSpec.structured(subjects=16, relations=4, answers=8))
    population, flow = spec.draw().population, spec.run()
    stages = find_stages(flow, population)
    print("Figure 5: linear attention, 16 subjects, 4 relations, 8 answers each")
    print(f"  loss at the start: {flow.loss[0]:.3f} = ln 32; at the end: {flow.loss[-1]:.3f}")
    print(f"  time {stages.init_end:.1f}: relations are known")
    print(f"  time {stages.hallucination_end:.1f}: subjects are known too")
    print("  between these times the model hallucinates")
    exact, fitted = escape_rates(population), fit_escape_rates(flow, population)
    for name in ("relations", "subjects"):
        formula, rate = getattr(exact, name)[0], np.median(getattr(fitted, name))
        print(f"  growth rate of {name}: {rate:.5f}; theory: {formula:.5f}")
    print(f"  drift of the invariant: {flow.invariant_drift:.0e} of the largest W_KQ²")


def theorem_6() -> None:
    """Check that relations are learned while subjects and noise still have small weights."""
    spec = FlowSpec(
        table=TableSpec.structured(subjects=32, relations=2, answers=2),
        prompts=PromptSpec(noise=80, length=5),
        init="balanced",
        scale=1e-6,
    )
    population = spec.draw().population
    conditions = SequentialConditions.from_population(population)
    result = sequential_learning(spec.run(), population, spec.scale)
    print(f"Theorem 6: 32 subjects, 2 relations; conditions met: {conditions.met}")
    print(
        f"  time {result.relations_learned_time:.0f}: predictions equal p(a | r), "
        "up to 1e-3 (sum of squares)"
    )
    print(f"  largest weight of subjects and noise: {result.max_other_weight:.0e}")
    print(f"  bound √α: {result.weight_bound:.0e}")


if __name__ == "__main__":
    figure_5()
    theorem_6()
