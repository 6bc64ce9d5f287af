"""Gradient flow: independent solutions by scipy, and conserved quantities."""

from functools import cache

import jax
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson, solve_ivp
from tests.dynamics import small_problem, synthetic_flows
from tests.dynamics.exact_flows import exact_flow

from factmem._core.errors import FactmemError
from factmem.dynamics import (
    CONVERGED_LOSS,
    FlowStatus,
    LinearAttention,
    PromptPopulation,
    PromptSample,
    gradient_flow,
)
from factmem.facts import FactTable, PromptDistribution

FIGURE_5 = FactTable.structured(16, 4, 8)
TOLERANCE = 1e-10  # of the invariant, relative to the largest W_KQ²


@cache
def figure_5_flow(start):
    return exact_flow(FIGURE_5, start=start)[0]


def drift(flow):
    """Return every token's largest change of its invariant over its largest W_KQ²."""
    start = flow.start.kq**2 - (flow.start.ov**2).sum(axis=1)
    change = np.abs(flow.invariant - start[None, :]).max(axis=0)
    return change / (flow.kq**2).max(axis=0)


# ---- independent solutions -----------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_flow_matches_scipy_on_all_prompts(power):
    population = small_problem.make_population(power)
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 0.5, 0)
    flow = gradient_flow(start, population, until=4.0)
    ov, kq = small_problem.expand_noise(start.ov), small_problem.expand_noise(start.kq)

    def slope(_, y):
        ov_slope, kq_slope = small_problem.velocity(
            y[: ov.size].reshape(ov.shape), y[ov.size :], power
        )
        return np.concatenate([ov_slope.ravel(), kq_slope])

    solved = solve_ivp(slope, (0, 4), np.concatenate([ov.ravel(), kq]), rtol=1e-8, atol=1e-10)
    end = solved.y[:, -1]
    assert np.allclose(
        small_problem.expand_noise(flow.model.ov), end[: ov.size].reshape(ov.shape), atol=1e-6
    )
    assert np.allclose(small_problem.expand_noise(flow.model.kq), end[ov.size :], atol=1e-6)
    expected = small_problem.loss(end[: ov.size].reshape(ov.shape), end[ov.size :], power)
    assert flow.loss[-1] == pytest.approx(expected, abs=1e-6)


def test_figure_5_matches_scipy_on_six_variables():
    """By symmetry, all subjects have equal weights, and all relations."""
    s, r, d = 16, 4, 8

    def losses_and_slopes(y):
        own, other, kr, fit, misfit, ks = y
        # Logits of the answer, the relation's other answers, the subject's other answers, the rest.
        logits = np.array(
            [
                own * kr + fit * ks,
                own * kr + misfit * ks,
                other * kr + fit * ks,
                other * kr + misfit * ks,
            ]
        )
        counts = np.array([1, d - 1, r - 1, (r - 1) * (d - 1)])
        p = np.exp(logits - logits.max())
        p /= counts @ p
        # Mean errors of the relations' own and other answers, and of the subjects'.
        inside, outside = p[0] + (d - 1) * p[1], p[2] + (d - 1) * p[3]
        of_own, of_other = (1 - inside) / d / r, -outside / d / r
        fits, misfits = p[0] + (r - 1) * p[2], p[1] + (r - 1) * p[3]
        of_fit, of_misfit = (1 - fits) / r / s, -misfits / r / s
        slope = [
            kr * of_own,
            kr * of_other,
            d * own * of_own + (r - 1) * d * other * of_other,
            ks * of_fit,
            ks * of_misfit,
            r * fit * of_fit + r * (d - 1) * misfit * of_misfit,
        ]
        return -np.log(p[0]), -np.log(inside), -np.log(fits), slope

    flow = figure_5_flow("equal")
    solved = solve_ivp(
        lambda _, y: losses_and_slopes(y)[3],
        (0, flow.times[-1]),
        np.full(6, 1e-5),
        rtol=1e-10,
        atol=1e-14,
        t_eval=flow.times,
        method="DOP853",
    )
    expected = np.array([losses_and_slopes(y)[:3] for y in solved.y.T])
    assert np.allclose(flow.loss, expected[:, 0], atol=1e-6)
    assert np.allclose(flow.statistics.relation_loss, expected[:, 1], atol=1e-6)
    assert np.allclose(flow.statistics.subject_loss, expected[:, 2], atol=1e-6)


# ---- theory --------------------------------------------------------------------------------------


def test_loss_of_figure_5_falls_from_log_32_over_log_8_to_0():
    flow = figure_5_flow("equal")
    assert flow.loss[0] == pytest.approx(np.log(32), abs=1e-8)
    assert flow.loss[flow.nearest(np.array([300.0]))[0]] == pytest.approx(np.log(8), abs=0.02)
    assert flow.loss[-1] == pytest.approx(CONVERGED_LOSS, abs=1e-6)
    assert (np.diff(flow.loss) <= 1e-12).all()


@pytest.mark.parametrize("start", ["equal", "balanced"])
def test_invariant_is_conserved(start):
    flow = figure_5_flow(start)
    assert drift(flow).max() < TOLERANCE
    assert flow.invariant_drift == pytest.approx(drift(flow).max(), rel=1e-9)
    if start == "balanced":
        deviation = np.abs(flow.invariant - 1e-10).max(axis=0)
        assert (deviation < TOLERANCE * (flow.kq**2).max(axis=0)).all()
        # So W_KQ never vanishes, and no |W_OV| exceeds it.
        assert (flow.kq >= 1e-5).all()
        assert (flow.largest_ov <= flow.kq).all()


def test_drift_is_relative_to_the_weights_of_the_token():
    invariant = np.array([[1.0, 1.0], [1.0, 1.5], [1.25, 1.0]])
    start = LinearAttention(np.zeros((2, 2)), np.ones(2))
    flow = synthetic_flows.flow(
        range(3), [[1, 1], [1, 2], [1, 100]], invariant=invariant, start=start
    )
    assert flow.invariant_drift == pytest.approx(0.25)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(-4, 0), st.floats(0, 2))
def test_invariant_is_conserved_on_random_tables(seed, exponent, power):
    population = PromptPopulation.from_table(
        FactTable.random(small_problem.S, small_problem.R, small_problem.D, seed=seed),
        noise=small_problem.N,
        length=small_problem.T,
        subject_power=power,
    )
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 10.0**exponent, seed)
    flow = gradient_flow(start, population)
    assert drift(flow).max() < TOLERANCE
    assert (np.diff(flow.loss) <= 1e-12).all()
    assert flow.loss[-1] <= CONVERGED_LOSS * (1 + 1e-6)  # Theorem 5


def test_invariant_is_conserved_with_sampled_prompts():
    table = FactTable.structured(4, 2, 2)
    population = PromptPopulation.from_table(table, length=5)
    prompts = PromptDistribution.from_table(table, length=5)
    sample = PromptSample.draw(population, prompts, prompts_per_fact=32, key=jr.key(0))
    start = LinearAttention.random(sample.tokens, table.answers, 0.1, 0)
    flow = gradient_flow(start, sample, until=40.0)
    assert flow.kq.shape[1] == 4 + 2 + 6 + 1
    assert len(set(flow.start.kq[6:12])) == 6
    assert drift(flow).max() < TOLERANCE
    assert flow.loss[-1] < flow.loss[0] - 0.5


def test_integral_of_the_squared_gradient_is_the_decrease_of_the_loss():
    """∫ ‖∇L‖² dt = L(0) − L(t), which a wrong factor in the equation would break."""
    population = small_problem.make_population()
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 0.5, 1)
    flow = gradient_flow(start, population, until=4.0)
    squares = []
    for time in np.linspace(0.0, 4.0, 41):
        at = start if time == 0 else gradient_flow(start, population, until=float(time)).model
        ov_slope, kq_slope = small_problem.velocity(
            small_problem.expand_noise(at.ov), small_problem.expand_noise(at.kq)
        )
        squares.append((ov_slope**2).sum() + (kq_slope**2).sum())
    assert simpson(squares, dx=0.1) == pytest.approx(flow.loss[0] - flow.loss[-1], rel=1e-5)


def test_loss_converges_to_0_for_every_subject():
    """At the end the loss is small for every subject, not only on average."""
    flow, _ = exact_flow(FIGURE_5, start="balanced", until=20_000.0)
    assert flow.loss[-1] < 3e-4
    assert flow.statistics.loss_by_subject[-1].max() < 4e-4


# ---- times ---------------------------------------------------------------------------------------


def test_records_requested_times_and_a_grid():
    population = small_problem.make_population()
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 0.5, 0)
    flow = gradient_flow(start, population, until=4.0, times=np.array([0.12345, 1.0]))
    assert 2048 <= len(flow.times) <= 2052
    assert flow.times[0] == 0
    assert flow.times[-1] == 4.0
    assert flow.status is FlowStatus.END_TIME
    assert np.isclose(flow.times, 4 * 0.12345, rtol=1e-14).any()
    assert flow.kq.shape == (len(flow.times), population.tokens)
    # A shorter flow ends where the longer one passes.
    index = flow.nearest(np.array([2.0]))[0]
    half = gradient_flow(start, population, until=2.0)
    assert flow.times[index] == 2.0
    assert flow.loss[index] == pytest.approx(half.loss[-1], abs=1e-10)


def test_crossing_times_do_not_depend_on_the_end_time():
    population = small_problem.make_population()
    start = LinearAttention.balanced(population.tokens, small_problem.ANSWERS, 1e-4)
    short, long = (gradient_flow(start, population, until=until) for until in (None, 1e6))
    assert long.times[-1] == 1e6
    assert short.status is FlowStatus.CONVERGED
    assert long.converged_at == pytest.approx(short.converged_at, rel=1e-3)
    for level in (0.2, 0.5, 0.9):
        assert long.first_below(level) == pytest.approx(short.first_below(level), rel=1e-3)


def test_reports_that_the_solver_reached_its_step_limit():
    population = small_problem.make_population()
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 0.5, 0)
    with pytest.raises(FactmemError, match=r"step limit between times .* earlier end time"):
        gradient_flow(start, population, until=1e300)


def test_stops_a_flow_that_does_not_converge():
    """With shared answers, sums over tokens may not represent the table."""
    table = FactTable(
        np.array([[0, 1], [1, 0], [0, 0]]), answer_names=small_problem.TABLE.answer_names
    )
    population = small_problem.make_population(table=table)
    flow = gradient_flow(LinearAttention.equal(population.tokens, 4, 1e-3), population)
    assert flow.status is FlowStatus.NOT_CONVERGED
    assert flow.loss[-1] > 0.1
    assert flow.loss[-1] < flow.loss[0] - 0.1


def test_reports_progress():
    reports = []
    population = small_problem.make_population()
    start = LinearAttention.random(population.tokens, small_problem.ANSWERS, 0.5, 0)
    gradient_flow(
        start, population, report=lambda points, **metrics: reports.append((points, metrics))
    )
    assert reports[-1][0] == 2048
    assert reports[-1][1]["loss"] == pytest.approx(CONVERGED_LOSS, abs=1e-6)
    counts = [points for points, _ in reports]
    searching = counts.count(None)
    assert searching > 0
    assert counts[:searching] == [None] * searching, "the end is found before points are recorded"
    assert counts[searching:] == sorted(counts[searching:])


def test_float64_is_disabled_afterwards():
    figure_5_flow("equal")
    assert not jax.config.jax_enable_x64


# ---- invalid arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-200])
def test_rejects_weights_whose_squares_underflow(scale):
    population = small_problem.make_population()
    with pytest.raises(FactmemError, match="underflow in float64"):
        gradient_flow(LinearAttention.equal(population.tokens, 4, scale), population)


def test_flow_from_the_minimum_scale_converges():
    population = small_problem.make_population()
    flow = gradient_flow(LinearAttention.balanced(population.tokens, 4, 2e-150), population)
    assert flow.loss[-1] == pytest.approx(CONVERGED_LOSS, abs=1e-6)
    assert drift(flow).max() < TOLERANCE


@pytest.mark.parametrize("until", [0.0, -1.0, float("nan"), float("inf")])
def test_rejects_end_times_that_are_not_positive(until):
    population = small_problem.make_population()
    with pytest.raises(FactmemError, match="until must be positive and finite, got"):
        gradient_flow(LinearAttention.equal(population.tokens, 4, 1e-3), population, until=until)


def test_rejects_weights_of_another_shape():
    with pytest.raises(FactmemError, match=r"W_OV must have shape \(7, 4\), got \(3, 4\)"):
        gradient_flow(LinearAttention.equal(3, 4, 1e-3), small_problem.make_population())


def test_rejects_infinite_weights():
    population = small_problem.make_population()
    with pytest.raises(FactmemError, match="finite"):
        gradient_flow(LinearAttention.equal(population.tokens, 4, np.inf), population)


@pytest.mark.parametrize("answers", [[[0, 1], [1, 0]], [[0], [0]]])
def test_rejects_tables_without_information_in_single_tokens(answers):
    population = PromptPopulation.from_table(FactTable(np.array(answers)), noise=2, length=4)
    start = LinearAttention.equal(population.tokens, population.given_relation.shape[1], 1e-3)
    with pytest.raises(FactmemError, match="no single token carries information"):
        gradient_flow(start, population)
