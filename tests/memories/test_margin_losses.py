"""Margin losses compared with their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.special import logsumexp

from factmem.memories.margin_losses import robust_hinge, smooth_hinge, squared_hinge

from .test_decoding import margins_by_loops, problem

seeds = st.integers(0, 10**6)


def smooth_slacks(outputs, values, target):
    margins, _ = margins_by_loops(outputs, values, target)
    return np.logaddexp(0, 1 + logsumexp(-margins, axis=1))


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_losses_match_their_definitions(seed, scale):
    outputs, values, target = problem(seed)
    data = (scale * outputs, values, target)
    margins, _ = margins_by_loops(*data)
    slacks = smooth_slacks(*data)
    np.testing.assert_allclose(
        squared_hinge(*data), (np.maximum(0, 1 - margins) ** 2).sum(), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(smooth_hinge(*data), (slacks**2).sum(), rtol=1e-4)
    np.testing.assert_allclose(
        robust_hinge(*data, jnp.asarray(0.3)), np.log(1 + 0.3 * slacks**2).sum() / 0.3, rtol=1e-4
    )


@pytest.mark.parametrize("loss", [squared_hinge, smooth_hinge, robust_hinge])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_match_finite_differences(float64, loss, seed):
    outputs, values, target = jax.tree.map(np.asarray, problem(seed))
    options = (jnp.asarray(0.3),) if loss is robust_hinge else ()

    @jax.jit
    def loss_of_flat(flat):
        return loss(flat.reshape(outputs.shape), jnp.asarray(values), jnp.asarray(target), *options)

    flat = jnp.asarray(outputs, jnp.float64).ravel()
    error = check_grad(
        lambda point: float(loss_of_flat(jnp.asarray(point))),
        lambda point: np.asarray(jax.grad(loss_of_flat)(jnp.asarray(point))),
        np.asarray(flat),
        epsilon=1e-7,
    )
    assert error < 1e-4


@given(seed=seeds)
def test_smooth_slacks_are_at_least_the_hinge_slacks(seed):
    data = problem(seed)
    margins, _ = margins_by_loops(*data)
    slacks = np.maximum(0, 1 - margins.min(axis=1))
    assert (smooth_slacks(*data) >= slacks).all()
    assert float(smooth_hinge(*data)) >= (slacks**2).sum() - 1e-4


@given(seed=seeds, fraction=st.floats(0, 1))
def test_squared_and_smooth_hinge_are_convex(seed, fraction):
    first, values, target = problem(seed)
    second = problem(seed + 1)[0]
    between = fraction * first + (1 - fraction) * second
    for loss in (squared_hinge, smooth_hinge):
        ends = [loss(outputs, values, target) for outputs in (first, second)]
        chord = fraction * ends[0] + (1 - fraction) * ends[1]
        assert loss(between, values, target) <= chord * (1 + 1e-5) + 1e-5


def test_robust_hinge_approaches_smooth_hinge_for_small_c():
    data = problem(0)
    np.testing.assert_allclose(
        robust_hinge(*data, jnp.asarray(1e-4)), smooth_hinge(*data), rtol=1e-2
    )


def test_a_single_value_has_zero_loss():
    data = (jnp.ones((3, 2)), jnp.ones((1, 2)), jnp.zeros(3, int))
    for loss in (squared_hinge, smooth_hinge):
        value, gradient = jax.value_and_grad(loss)(*data)
        assert value == 0
        assert (gradient == 0).all()
