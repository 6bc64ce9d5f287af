"""The hinges against their definitions, and the solver against problems with known answers."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.special import logsumexp

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import Outcome, minimize
from factmem.memories.margin_losses import gentle_hinge, smooth_hinge, squared_hinge

from .test_decoding import margins_by_loops, problem

seeds = st.integers(0, 10**6)


def smooth_slacks(outputs, values, target):
    margins, _ = margins_by_loops(outputs, values, target)
    return np.logaddexp(0, 1 + logsumexp(-margins, axis=1))


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_hinges_are_those_of_the_definitions(seed, scale):
    outputs, values, target = problem(seed)
    data = (scale * outputs, values, target)
    margins, _ = margins_by_loops(*data)
    slacks = smooth_slacks(*data)
    np.testing.assert_allclose(
        squared_hinge(*data), (np.maximum(0, 1 - margins) ** 2).sum(), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(smooth_hinge(*data), (slacks**2).sum(), rtol=1e-4)
    np.testing.assert_allclose(
        gentle_hinge(*data, jnp.asarray(0.3)), np.log(1 + 0.3 * slacks**2).sum() / 0.3, rtol=1e-4
    )


@pytest.mark.parametrize("loss", [squared_hinge, smooth_hinge, gentle_hinge])
@pytest.mark.parametrize("seed", range(3))
def test_their_gradients_are_those_of_finite_differences(float64, loss, seed):
    outputs, values, target = jax.tree.map(np.asarray, problem(seed))
    more = (jnp.asarray(0.3),) if loss is gentle_hinge else ()

    @jax.jit
    def of_flat(flat):
        return loss(flat.reshape(outputs.shape), jnp.asarray(values), jnp.asarray(target), *more)

    flat = jnp.asarray(outputs, jnp.float64).ravel()
    error = check_grad(
        lambda point: float(of_flat(jnp.asarray(point))),
        lambda point: np.asarray(jax.grad(of_flat)(jnp.asarray(point))),
        np.asarray(flat),
        epsilon=1e-7,
    )
    assert error < 1e-4


@given(seed=seeds)
def test_the_smooth_slack_is_at_least_what_is_missing_to_a_margin_of_one(seed):
    data = problem(seed)
    margins, _ = margins_by_loops(*data)
    missing = np.maximum(0, 1 - margins.min(axis=1))
    assert (smooth_slacks(*data) >= missing).all()
    assert float(smooth_hinge(*data)) >= (missing**2).sum() - 1e-4


@given(seed=seeds, share=st.floats(0, 1))
def test_squared_and_smooth_hinge_are_convex_in_the_outputs(seed, share):
    first, values, target = problem(seed)
    second = problem(seed + 1)[0]
    between = share * first + (1 - share) * second
    for loss in (squared_hinge, smooth_hinge):
        at_ends = share * loss(first, values, target) + (1 - share) * loss(second, values, target)
        assert loss(between, values, target) <= at_ends * (1 + 1e-5) + 1e-5


def test_the_gentle_hinge_is_the_smooth_hinge_for_small_c():
    data = problem(0)
    np.testing.assert_allclose(
        gentle_hinge(*data, jnp.asarray(1e-4)), smooth_hinge(*data), rtol=1e-2
    )


def test_a_single_answer_has_no_slack():
    data = (jnp.ones((3, 2)), jnp.ones((1, 2)), jnp.zeros(3, int))
    for loss in (squared_hinge, smooth_hinge):
        value, slope = jax.value_and_grad(loss)(*data)
        assert value == 0
        assert (slope == 0).all()


def quadratic(weights, data):
    return 0.5 * jnp.sum((weights["a"] - data) ** 2) + jnp.sum(weights["b"] ** 2)


START = {"a": np.ones(3), "b": np.full((2, 2), 5.0)}


def test_a_quadratic_is_solved_to_float64():
    found = minimize(quadratic, START, jnp.array([1.0, 2.0, 3.0]), iterations=100)
    np.testing.assert_allclose(found.point["a"], [1, 2, 3], atol=1e-10)
    np.testing.assert_allclose(found.point["b"], 0, atol=1e-10)
    assert found.point["a"].dtype == np.float64
    assert found.outcome is Outcome.FLAT
    assert found.loss < 1e-20
    assert found.gradient <= 1e-10


def test_the_users_precision_is_left_alone():
    minimize(quadratic, START, jnp.zeros(3), iterations=2)
    assert jnp.ones(2).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_few_iterations_are_an_outcome():
    def valley(weights, data):
        return jnp.sum((1 - weights[:-1]) ** 2 + 100 * (weights[1:] - weights[:-1] ** 2) ** 2)

    found = minimize(valley, -np.ones(4), (), iterations=3)
    assert found.outcome is Outcome.ITERATIONS
    assert found.iterations == 3
    assert minimize(valley, -np.ones(4), (), iterations=1000).loss < 1e-15


def test_enough_ends_it_at_the_point_that_was_enough():
    seen = []

    def enough(weights):
        seen.append(weights["b"].copy())
        return len(seen) == 2

    slow = {"a": np.ones(3), "b": np.linspace(1, 9, 4).reshape(2, 2)}

    def stretched(weights, data):
        scales = jnp.array([[1.0, 5.0], [25.0, 125.0]])
        return quadratic({"a": weights["a"], "b": weights["b"] * scales}, data)

    found = minimize(stretched, slow, jnp.zeros(3), iterations=50, enough=enough, check_every=3)
    assert found.outcome is Outcome.ENOUGH
    assert found.iterations == 6
    np.testing.assert_array_equal(found.point["b"], seen[-1])


def test_a_start_that_is_not_finite_is_an_outcome():
    found = minimize(quadratic, {"a": np.full(3, np.nan), "b": START["b"]}, 0.0, iterations=5)
    assert found.outcome is Outcome.NOT_FINITE


def test_no_further_way_down_is_an_outcome():
    def kink(weights, data):
        return jnp.sum(jnp.abs(weights)) + 1e8

    found = minimize(kink, np.array([0.3, -0.7]), (), iterations=1000)
    assert found.outcome is Outcome.STALLED


def test_one_shape_compiles_once():
    traces = 0

    def loss(weights, data):
        nonlocal traces
        traces += 1
        return jnp.sum((weights - data) ** 2)

    for seed in range(3):
        minimize(loss, np.zeros(5), jr.normal(jr.key(seed), (5,)), iterations=20)
    assert traces == 1


def test_progress_is_reported():
    reports = []
    minimize(
        quadratic,
        START,
        jnp.zeros(3),
        iterations=4,
        check_every=1,
        report=lambda steps, loss: reports.append((steps, loss)),
    )
    assert [steps for steps, _ in reports] == list(range(1, len(reports) + 1))
    assert reports[-1][1] < reports[0][1]


def test_no_iterations_are_refused():
    with pytest.raises(FactmemError, match="at least one iteration"):
        minimize(quadratic, START, jnp.zeros(3), iterations=0)
