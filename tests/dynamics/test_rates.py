"""Rates: the formulas against the equation at zero, and against what flows do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.dynamics import made, small

from factmem.dynamics import LinearAttention, Population, escape_rates, fitted_rates
from factmem.experiments import FlowSpec
from factmem.facts import FactTable


def test_the_rates_of_figure_5_are_those_of_the_paper():
    rates = escape_rates(Population.of(FactTable.structured(16, 4, 8)))
    assert np.allclose(rates.relations, np.sqrt(1 / 8 - 1 / 32) / 4, rtol=1e-12)
    assert np.allclose(rates.subjects, np.sqrt(1 / 4 - 1 / 32) / 16, rtol=1e-12)
    assert rates.noise[0] == pytest.approx(0, abs=1e-12)
    assert rates.eos == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("power", [0.0, 1.5])
def test_rates_are_eigenvalues_of_the_equation_at_zero(power):
    """Of each token's own part of the Jacobian there, all prompts written down."""
    questions = Population.of(small.TABLE, noise=small.N, length=small.T, subject_power=power)
    rates = escape_rates(questions)
    step = 1e-6
    found = []
    for z in range(small.TOKENS):
        columns = []
        for place in range(small.ANSWERS + 1):
            moved = np.zeros((small.TOKENS, small.ANSWERS + 1))
            moved[z, place] = step
            of_ov, of_kq = small.velocity(moved[:, 1:], moved[:, 0], power)
            columns.append(np.append(of_kq[z], of_ov[z]) / step)
        found.append(np.linalg.eigvals(np.array(columns)).real.max())
    noise = rates.noise.repeat(small.N)
    expected = [*rates.subjects, *rates.relations, *noise, rates.eos]
    assert np.allclose(found, expected, atol=1e-7)
    assert rates.eos > 0.1  # the marginal of this table is not uniform


def test_fitted_rates_are_those_of_the_formulas():
    experiment = FlowSpec(FactTable.structured(16, 4, 8))
    exact = escape_rates(experiment.population)
    fitted = fitted_rates(experiment.flow(), experiment.population)
    # 3 % is asked for.
    assert np.allclose(fitted.relations, exact.relations, rtol=1e-3)
    assert np.allclose(fitted.subjects, exact.subjects, rtol=1e-3)
    # Noise and EOS have nothing to learn from this table.
    assert np.isnan(fitted.noise).all()
    assert np.isnan(fitted.eos)


def test_the_first_to_leave_zero_in_a_random_table_do_so_at_their_rate():
    """Later ones feel what the first have learned."""
    experiment = FlowSpec(FactTable.random(16, 4, 8, seed=0), start="balanced", scale=1e-6)
    exact = escape_rates(experiment.population)
    fitted = fitted_rates(experiment.flow(), experiment.population)
    assert exact.noise[0] > exact.relations.max()
    assert fitted.noise[0] == pytest.approx(exact.noise[0], rel=0.03)


def test_rates_are_norms_of_the_errors_at_zero():
    questions = Population.of(FactTable.random(16, 4, 8, seed=1), subject_power=1.0)
    rates = escape_rates(questions)
    with jax.enable_x64(True):
        errors = np.asarray(questions.errors(jnp.zeros((questions.tokens, 32))))
    each = [*rates.subjects, *rates.relations, *rates.noise, rates.eos]
    assert np.allclose(np.linalg.norm(errors, axis=1), each, rtol=1e-10)


def grown(rates, most=1.0, scale=1e-5):
    """Tokens that grow as small weights do, each at its rate, up to a largest weight."""
    times = np.linspace(0, 400, 4001)
    kq = np.minimum(scale * np.cosh(np.outer(times, rates)), most)
    start = LinearAttention(np.full((len(rates), 4), scale), np.full(len(rates), scale))
    return made.flow(times, kq, start=start)


QUESTIONS = Population.of(small.TABLE, noise=small.N, length=small.T)
RATES = [0.1, 0.11, 0.12, 0.2, 0.21, 0.05, 0.08]


def test_every_token_has_its_own_fitted_rate():
    found = fitted_rates(grown(RATES), QUESTIONS)
    assert np.allclose(found.subjects, RATES[:3], rtol=0.01)
    assert np.allclose(found.relations, RATES[3:5], rtol=0.01)
    assert np.allclose(found.noise, RATES[5:6], rtol=0.01)
    assert found.eos == pytest.approx(RATES[6], rel=0.01)


def test_a_token_that_stops_early_is_fitted_while_it_rises():
    """Its later life, on a plateau or shrinking, says nothing about how it left zero."""
    flow = grown(RATES, most=5e-3)
    shrinking = np.linspace(1, 0.5, len(flow.times))[:, None]
    for each in (flow, made.flow(flow.times, flow.kq * shrinking, start=flow.start)):
        assert fitted_rates(each, QUESTIONS).eos == pytest.approx(RATES[6], rel=0.05)


def test_a_token_that_hardly_grows_has_no_fitted_rate():
    found = fitted_rates(grown(RATES, most=1e-4), QUESTIONS)
    assert np.isnan(found.eos)
    # Nor has one that starts near zero by chance, and grows to the size of its other weights.
    times = np.linspace(0, 10, 101)
    kq = np.linspace(1e-9, 1e-5, 101)[:, None] * np.ones(7)
    start = LinearAttention(np.full((7, 4), 1e-5), np.full(7, 1e-9))
    assert np.isnan(fitted_rates(made.flow(times, kq, start=start), QUESTIONS).eos)
