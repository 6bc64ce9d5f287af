"""When are facts learned? The left of Figure 5 by exact gradient flow, and what theorems say."""

import numpy as np

from factmem import FactTable
from factmem.dynamics import (
    Conditions,
    escape_rates,
    find_stages,
    fitted_rates,
    sequential_learning,
)
from factmem.experiments import FlowSpec

figure_5 = FlowSpec(FactTable.structured(16, 4, 8))
flow = figure_5.flow()
stages = find_stages(flow, figure_5.population)
print("Figure 5, linear attention, 16 subjects, 4 relations, 8 answers each:")
print(f"  the loss is ln 32 = {flow.loss[0]:.3f} at first, and {flow.loss[-1]:.3f} at the end")
print(
    f"  relations are known from the time {stages.init_end:.1f} ({10 * stages.init_end:.0f} steps)"
)
print(f"  subjects are unknown until {stages.hallucination_end:.1f}: in between it hallucinates")
exact, fitted = escape_rates(figure_5.population), fitted_rates(flow, figure_5.population)
for name in ("relations", "subjects"):
    formula, found = getattr(exact, name)[0], np.median(getattr(fitted, name))
    print(f"  weights of {name} grow at the rate {found:.5f}; the formula says {formula:.5f}")
print(f"  the invariant changes by {flow.invariant_drift:.0e} of the largest W_KQ²")

alpha = 1e-6
theorem_6 = FlowSpec(
    FactTable.structured(32, 2, 2), noise=80, length=5, start="balanced", scale=alpha
)
conditions = Conditions.of(theorem_6.population)
found = sequential_learning(theorem_6.flow(), theorem_6.population, alpha)
print(f"Theorem 6, 32 subjects, 2 relations, conditions met: {conditions.met}")
print(f"  at the time {found.close_at:.0f} predictions are p(a | r), to 1e-3 squared and summed,")
print(
    f"  and subjects and noise are at most {found.largest_weight:.0e}, below √α = {found.bound:.0e}"
)
