"""Escape rates: the formulas, against the linearized equation and against flows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.dynamics import small_problem, synthetic_flows
from tests.dynamics.exact_flows import exact_flow

from factmem.dynamics import LinearAttention, PromptPopulation, escape_rates, fit_escape_rates
from factmem.facts import FactTable


def test_rates_of_figure_5_match_the_paper():
    rates = escape_rates(PromptPopulation.from_table(FactTable.structured(16, 4, 8)))
    assert np.allclose(rates.relations, np.sqrt(1 / 8 - 1 / 32) / 4, rtol=1e-12)
    assert np.allclose(rates.subjects, np.sqrt(1 / 4 - 1 / 32) / 16, rtol=1e-12)
    assert rates.noise[0] == pytest.approx(0, abs=1e-12)
    assert rates.eos == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("power", [0.0, 1.5])
def test_rates_are_eigenvalues_of_the_linearized_equation(power):
    """Of each token's block of the Jacobian, from sums over all prompts."""
    population = small_problem.make_population(power)
    rates = escape_rates(population)
    step = 1e-6
    eigenvalues = []
    for z in range(small_problem.TOKENS):
        columns = []
        for index in range(small_problem.ANSWERS + 1):
            weights = np.zeros((small_problem.TOKENS, small_problem.ANSWERS + 1))
            weights[z, index] = step
            ov_slope, kq_slope = small_problem.velocity(weights[:, 1:], weights[:, 0], power)
            columns.append(np.append(kq_slope[z], ov_slope[z]) / step)
        eigenvalues.append(np.linalg.eigvals(np.array(columns)).real.max())
    noise = rates.noise.repeat(small_problem.N)
    expected = [*rates.subjects, *rates.relations, *noise, rates.eos]
    assert np.allclose(eigenvalues, expected, atol=1e-7)
    assert rates.eos > 0.1  # the marginal of this table is not uniform


def test_fitted_rates_match_the_formulas():
    flow, population = exact_flow(FactTable.structured(16, 4, 8))
    exact, fitted = escape_rates(population), fit_escape_rates(flow, population)
    assert np.allclose(fitted.relations, exact.relations, rtol=1e-3)
    assert np.allclose(fitted.subjects, exact.subjects, rtol=1e-3)
    # Noise and EOS carry no information about this table.
    assert np.isnan(fitted.noise).all()
    assert np.isnan(fitted.eos)


def test_first_escape_in_a_random_table_has_the_predicted_rate():
    """Later escapes depend on what was learned before. The flow ends after the first."""
    table = FactTable.random(16, 4, 8, seed=0)
    exact = escape_rates(PromptPopulation.from_table(table))
    until = 1.2 * np.log(1e6) / exact.noise[0]
    flow, population = exact_flow(table, start="balanced", scale=1e-6, until=until)
    fitted = fit_escape_rates(flow, population)
    assert flow.kq[-1, -2] > 0.1
    assert exact.noise[0] > exact.relations.max()
    assert fitted.noise[0] == pytest.approx(exact.noise[0], rel=0.03)


def test_rates_are_norms_of_the_errors_at_zero():
    population = PromptPopulation.from_table(FactTable.random(16, 4, 8, seed=1), subject_power=1.0)
    rates = escape_rates(population)
    with jax.enable_x64(True):
        products = jnp.zeros((population.tokens, 32))
        errors = np.asarray(jax.jit(PromptPopulation.errors)(population, products))
    expected = [*rates.subjects, *rates.relations, *rates.noise, rates.eos]
    assert np.allclose(np.linalg.norm(errors, axis=1), expected, rtol=1e-10)


def growing_flow(rates, max_kq=1.0, scale=1e-5):
    """Return a flow whose tokens grow like small weights, up to a maximum."""
    times = np.linspace(0, 400, 4001)
    kq = np.minimum(scale * np.cosh(np.outer(times, rates)), max_kq)
    start = LinearAttention(np.full((len(rates), 4), scale), np.full(len(rates), scale))
    return synthetic_flows.flow(times, kq, start=start)


POPULATION = small_problem.make_population()
RATES = [0.1, 0.11, 0.12, 0.2, 0.21, 0.05, 0.08]


def test_fits_every_token():
    fitted = fit_escape_rates(growing_flow(RATES), POPULATION)
    assert np.allclose(fitted.subjects, RATES[:3], rtol=0.01)
    assert np.allclose(fitted.relations, RATES[3:5], rtol=0.01)
    assert np.allclose(fitted.noise, RATES[5:6], rtol=0.01)
    assert fitted.eos == pytest.approx(RATES[6], rel=0.01)


def test_fits_a_token_only_while_it_grows():
    """Not on its later plateau, and not while it shrinks."""
    flow = growing_flow(RATES, max_kq=5e-3)
    shrinking = np.linspace(1, 0.5, len(flow.times))[:, None]
    for each in (flow, synthetic_flows.flow(flow.times, flow.kq * shrinking, start=flow.start)):
        assert fit_escape_rates(each, POPULATION).eos == pytest.approx(RATES[6], rel=0.05)


def test_token_that_hardly_grows_has_no_fitted_rate():
    fitted = fit_escape_rates(growing_flow(RATES, max_kq=1e-4), POPULATION)
    assert np.isnan(fitted.eos)
    # The same for a token that only grows from 1e-9 to the size of its other weights.
    times = np.linspace(0, 10, 101)
    kq = np.linspace(1e-9, 1e-5, 101)[:, None] * np.ones(7)
    start = LinearAttention(np.full((7, 4), 1e-5), np.full(7, 1e-9))
    assert np.isnan(fit_escape_rates(synthetic_flows.flow(times, kq, start=start), POPULATION).eos)
