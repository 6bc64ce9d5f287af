"""Muon and the schedules, against formulas in numpy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.training.hyperparameters import Hyperparameters, scheduled_learning_rate
from factmem.training.optimizers import gradient_transformation
from factmem.transformer import EXPERIMENT_CONVENTION, THEORY_CONVENTION, Shape
from factmem.transformer.model import draw_weights


def make_hyperparameters(rate=0.05, momentum=0.95, beta2=0.99, decay_steps=100.0):
    return Hyperparameters(
        *(jnp.asarray(number) for number in (rate, momentum, beta2, decay_steps))
    )


def orthogonalize(matrix):
    """Do Muon's five Newton-Schulz iterations."""
    matrix = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.7750 * square + 2.0315 * square @ square) @ matrix
    return matrix


def muon_directions(gradients, momentum, beta2):
    """Return the direction of every weight after a sequence of gradients."""
    names = gradients[0].keys()
    first = {name: np.zeros_like(gradients[0][name]) for name in names}
    second = np.zeros_like(gradients[0]["mlp_bias"])
    step = len(gradients)
    for now in gradients:
        first = {name: momentum * first[name] + (1 - momentum) * now[name] for name in names}
        second = beta2 * second + (1 - beta2) * now["mlp_bias"] ** 2
    # Nesterov momentum with bias correction.
    ahead = {
        name: momentum * first[name] / (1 - momentum ** (step + 1))
        + (1 - momentum) * now[name] / (1 - momentum**step)
        for name in names
    }
    directions = {}
    for name in ("query", "key"):
        heads, head_dim, dim = ahead[name].shape
        joined = orthogonalize(ahead[name].reshape(heads * head_dim, dim))
        directions[name] = 0.3 * joined.reshape(heads, head_dim, dim)
    for name in ("value", "output"):
        directions[name] = np.stack([orthogonalize(head) for head in ahead[name]])
    for name in ("mlp_in", "mlp_out"):
        directions[name] = orthogonalize(ahead[name])
    mean = first["mlp_bias"] / (1 - momentum**step)
    directions["mlp_bias"] = 0.1 * mean / (np.sqrt(second / (1 - beta2**step)) + 1e-8)
    return directions


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shape", [Shape(12, 2, 3, 5), Shape(6, 3, 4, 9)], ids=str)
def test_muon_matches_numpy(shape):
    optimizer = gradient_transformation("muon", make_hyperparameters(momentum=0.9, beta2=0.8))
    weights = draw_weights(shape, key=jr.key(0))
    state, gradients, update = optimizer.init(weights), [], jax.jit(optimizer.update)
    for step in range(1, 4):
        gradient = jax.tree.map(
            lambda leaf, step=step: jr.normal(jr.key(100 * step + leaf.size), leaf.shape), weights
        )
        gradients.append({k: np.asarray(v) for k, v in vars(gradient).items()})
        directions, state = update(gradient, state, weights)
    expected = muon_directions(gradients, 0.9, 0.8)
    for name, direction in expected.items():
        np.testing.assert_allclose(getattr(directions, name), direction, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    "convention", [EXPERIMENT_CONVENTION, THEORY_CONVENTION], ids=["biases", "no biases"]
)
@pytest.mark.parametrize("shape", [Shape(6, 2, 3, 4), Shape(6, 2, 3, 0)], ids=str)
@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_updates_every_convention(kind, shape, convention):
    optimizer = gradient_transformation(kind, make_hyperparameters())
    weights = draw_weights(shape, convention, key=jr.key(0))
    directions, _ = jax.jit(optimizer.update)(weights, optimizer.init(weights), weights)
    assert jax.tree.structure(directions) == jax.tree.structure(weights)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(directions))


@pytest.mark.usefixtures("float64")
def test_muon_orthogonalizes():
    """Newton-Schulz moves all singular values to about 1."""
    weights = draw_weights(Shape(8, 2, 3, 6), key=jr.key(0))
    optimizer = gradient_transformation("muon", make_hyperparameters())
    tilt = {size: jnp.diag(jnp.geomspace(1, 0.1, size)) for size in (6, 8)}
    tilted = jax.tree.map(lambda leaf: leaf @ tilt[leaf.shape[-1]], weights)
    directions, _ = jax.jit(optimizer.update)(tilted, optimizer.init(weights), weights)
    for head in directions.output:
        assert (np.abs(np.linalg.svd(head, compute_uv=False) - 0.95) < 0.35).all()


@given(st.floats(1e-6, 1e3), st.integers(0, 2000), st.integers(1, 1000))
def test_schedules(rate, step, decay_steps):
    hyperparameters = make_hyperparameters(rate, decay_steps=float(decay_steps))
    step_array = jnp.asarray(float(step))
    constant = scheduled_learning_rate(hyperparameters, "constant", step_array)
    assert constant == jnp.asarray(rate)
    expected = rate * 0.5 * (1 + np.cos(np.pi * min(step / decay_steps, 1)))
    cosine = float(scheduled_learning_rate(hyperparameters, "cosine", step_array))
    assert cosine == pytest.approx(expected, rel=1e-4, abs=1e-6 * rate)


def test_cosine_decays_from_the_full_rate_to_0():
    hyperparameters = make_hyperparameters(3.0, decay_steps=10.0)
    rates = [
        float(scheduled_learning_rate(hyperparameters, "cosine", jnp.asarray(float(step))))
        for step in range(12)
    ]
    assert rates[0] == 3
    assert rates[5] == pytest.approx(1.5)
    assert rates[10:] == pytest.approx([0, 0], abs=1e-6)
    assert (np.diff(rates) <= 1e-6).all()
