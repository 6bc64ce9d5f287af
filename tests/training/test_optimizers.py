"""Muon and the schedules, against formulas written out in numpy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.training.optimizers import Settings, learning_rate, transformation
from factmem.transformer import EXPERIMENTS, THEORY, Shape
from factmem.transformer.model import draw_weights


def settings(rate=0.05, momentum=0.95, memory=0.99, horizon=100.0):
    return Settings(*(jnp.asarray(number) for number in (rate, momentum, memory, horizon)))


def orthogonalized(matrix):
    """Muon's five Newton-Schulz steps, on the whole matrix."""
    matrix = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.7750 * square + 2.0315 * square @ square) @ matrix
    return matrix


def directions(gradients, momentum, memory):
    """What Muon makes of a sequence of gradients: the last direction of every weight."""
    names = gradients[0].keys()
    first = {name: np.zeros_like(gradients[0][name]) for name in names}
    second = np.zeros_like(gradients[0]["mlp_bias"])
    step = len(gradients)
    for now in gradients:
        first = {name: momentum * first[name] + (1 - momentum) * now[name] for name in names}
        second = memory * second + (1 - memory) * now["mlp_bias"] ** 2
    # Nesterov: the momentum as it would be after the same gradient once more, without its bias.
    ahead = {
        name: momentum * first[name] / (1 - momentum ** (step + 1))
        + (1 - momentum) * now[name] / (1 - momentum**step)
        for name in names
    }
    found = {}
    for name in ("query", "key"):
        heads, head_dim, dim = ahead[name].shape
        joined = orthogonalized(ahead[name].reshape(heads * head_dim, dim))
        found[name] = 0.3 * joined.reshape(heads, head_dim, dim)
    for name in ("value", "output"):
        found[name] = np.stack([orthogonalized(head) for head in ahead[name]])
    for name in ("mlp_in", "mlp_out"):
        found[name] = orthogonalized(ahead[name])
    mean = first["mlp_bias"] / (1 - momentum**step)
    found["mlp_bias"] = 0.1 * mean / (np.sqrt(second / (1 - memory**step)) + 1e-8)
    return found


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shape", [Shape(12, 2, 3, 5), Shape(6, 3, 4, 9)], ids=str)
def test_muon_by_hand(shape):
    own = settings(momentum=0.9, memory=0.8)
    optimizer = transformation("muon", own)
    weights = draw_weights(jr.key(0), shape)
    state, given_gradients, update = optimizer.init(weights), [], jax.jit(optimizer.update)
    for step in range(1, 4):
        gradient = jax.tree.map(
            lambda leaf, step=step: jr.normal(jr.key(100 * step + leaf.size), leaf.shape), weights
        )
        given_gradients.append({k: np.asarray(v) for k, v in vars(gradient).items()})
        found, state = update(gradient, state, weights)
    expected = directions(given_gradients, 0.9, 0.8)
    for name, direction in expected.items():
        np.testing.assert_allclose(getattr(found, name), direction, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("convention", [EXPERIMENTS, THEORY], ids=["biases", "no biases"])
@pytest.mark.parametrize("shape", [Shape(6, 2, 3, 4), Shape(6, 2, 3, 0)], ids=str)
@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_every_convention_can_be_trained(kind, shape, convention):
    optimizer = transformation(kind, settings())
    weights = draw_weights(jr.key(0), shape, convention)
    found, _ = jax.jit(optimizer.update)(weights, optimizer.init(weights), weights)
    assert jax.tree.structure(found) == jax.tree.structure(weights)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.usefixtures("float64")
def test_muon_moves_every_direction_alike():
    """Newton-Schulz takes singular values to about 1, whatever they were."""
    weights = draw_weights(jr.key(0), Shape(8, 2, 3, 6))
    optimizer = transformation("muon", settings())
    tilt = {size: jnp.diag(jnp.geomspace(1, 0.1, size)) for size in (6, 8)}
    tilted = jax.tree.map(lambda leaf: leaf @ tilt[leaf.shape[-1]], weights)
    found, _ = jax.jit(optimizer.update)(tilted, optimizer.init(weights), weights)
    for head in found.output:
        assert (np.abs(np.linalg.svd(head, compute_uv=False) - 0.95) < 0.35).all()


@given(st.floats(1e-6, 1e3), st.integers(0, 2000), st.integers(1, 1000))
def test_schedules(rate, step, horizon):
    own = settings(rate=rate, horizon=float(horizon))
    now = jnp.asarray(float(step))
    assert learning_rate(own, "constant", now) == jnp.asarray(rate)
    expected = rate * 0.5 * (1 + np.cos(np.pi * min(step / horizon, 1)))
    found = float(learning_rate(own, "cosine", now))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6 * rate)


def test_a_cosine_begins_with_the_full_rate_and_ends_with_none():
    own = settings(rate=3.0, horizon=10.0)
    found = [float(learning_rate(own, "cosine", jnp.asarray(float(t)))) for t in range(12)]
    assert found[0] == 3
    assert found[5] == pytest.approx(1.5)
    assert found[10:] == pytest.approx([0, 0], abs=1e-6)
    assert (np.diff(found) <= 1e-6).all()
