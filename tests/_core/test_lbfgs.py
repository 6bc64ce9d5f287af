"""L-BFGS on problems with known solutions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import FitStatus, minimize


def quadratic(weights, data):
    return 0.5 * jnp.sum((weights["a"] - data) ** 2) + jnp.sum(weights["b"] ** 2)


START = {"a": np.ones(3), "b": np.full((2, 2), 5.0)}


def test_minimizes_a_quadratic_to_float64_precision():
    minimum = minimize(quadratic, START, jnp.array([1.0, 2.0, 3.0]), iterations=100)
    np.testing.assert_allclose(minimum.point["a"], [1, 2, 3], atol=1e-10)
    np.testing.assert_allclose(minimum.point["b"], 0, atol=1e-10)
    assert minimum.point["a"].dtype == np.float64
    assert minimum.status is FitStatus.CONVERGED
    assert minimum.loss < 1e-20
    assert minimum.max_gradient <= 1e-10


def test_precision_mode_of_the_user_is_unchanged():
    minimize(quadratic, START, jnp.zeros(3), iterations=2)
    assert jnp.ones(2).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_iteration_limit():
    def rosenbrock(weights, data):
        return jnp.sum((1 - weights[:-1]) ** 2 + 100 * (weights[1:] - weights[:-1] ** 2) ** 2)

    minimum = minimize(rosenbrock, -np.ones(4), (), iterations=3)
    assert minimum.status is FitStatus.ITERATION_LIMIT
    assert minimum.iterations == 3
    assert minimize(rosenbrock, -np.ones(4), (), iterations=1000).loss < 1e-15


def test_stop_when_ends_at_the_point_that_met_the_condition():
    checked = []

    def second_check(weights):
        checked.append(weights["b"].copy())
        return len(checked) == 2

    start = {"a": np.ones(3), "b": np.linspace(1, 9, 4).reshape(2, 2)}

    def ill_conditioned(weights, data):
        scales = jnp.array([[1.0, 5.0], [25.0, 125.0]])
        return quadratic({"a": weights["a"], "b": weights["b"] * scales}, data)

    minimum = minimize(
        ill_conditioned,
        start,
        jnp.zeros(3),
        iterations=50,
        stop_when=second_check,
        check_every=3,
    )
    assert minimum.status is FitStatus.CONDITION_MET
    assert minimum.iterations == 6
    np.testing.assert_array_equal(minimum.point["b"], checked[-1])


def test_start_with_nan():
    minimum = minimize(quadratic, {"a": np.full(3, np.nan), "b": START["b"]}, 0.0, iterations=5)
    assert minimum.status is FitStatus.NOT_FINITE


def test_stalls_if_no_step_lowers_the_loss():
    def absolute_value(weights, data):
        return jnp.sum(jnp.abs(weights)) + 1e8

    minimum = minimize(absolute_value, np.array([0.3, -0.7]), (), iterations=1000)
    assert minimum.status is FitStatus.STALLED


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


@pytest.mark.parametrize("options", [{"iterations": 0}, {"iterations": 5, "check_every": 0}])
def test_rejects_zero_iterations(options):
    with pytest.raises(FactmemError, match="must be at least 1"):
        minimize(quadratic, START, jnp.zeros(3), **options)


def test_labels_go_to_json_and_sentences_to_people():
    assert FitStatus.ITERATION_LIMIT.label == "iteration_limit"
    assert FitStatus.CONVERGED.sentence == "The gradient vanished."
