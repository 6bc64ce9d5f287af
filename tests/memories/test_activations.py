"""Hermite polynomials and activations."""

import json
from math import factorial, sqrt

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_hermitenorm

from factmem._core.errors import FactmemError
from factmem.memories.activations import HermitePolynomial, Relu, activation_from_config, hermite


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 5, 6, 12, 20])
def test_hermite_matches_scipy(degree):
    x = np.linspace(-3, 3, 31)
    expected = eval_hermitenorm(degree, x) / sqrt(factorial(degree))
    largest = np.abs(expected).max()
    assert np.asarray(hermite(degree, jnp.asarray(x))) == pytest.approx(
        expected, abs=3e-6 * largest
    )


def test_hermite_polynomials_are_orthonormal(float64):
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    values = np.stack([hermite(k, jnp.asarray(nodes)) for k in range(6)])
    assert (values * weights) @ values.T == pytest.approx(np.eye(6), abs=1e-10)


def test_polynomial_is_a_sum_of_hermite_polynomials():
    x = jnp.linspace(-2, 2, 9)
    sigma = HermitePolynomial((0.5, -1.0, 0.0, 2.0))
    expected = 0.5 * hermite(0, x) - hermite(1, x) + 2 * hermite(3, x)
    assert np.asarray(sigma(x)) == pytest.approx(np.asarray(expected), abs=1e-5)


def test_relu():
    assert Relu()(jnp.array([-2.0, 0.0, 3.0])).tolist() == [0, 0, 3]


@pytest.mark.parametrize(
    "activation",
    [Relu(), HermitePolynomial((0.1, 0.1, 1.0)), HermitePolynomial((np.float64(0.5), 1.0))],
)
def test_config_round_trip(activation):
    assert activation_from_config(json.loads(json.dumps(activation.config()))) == activation


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"name": "tanh"},
        {"name": "hermite"},
        {"name": "hermite", "coefficients": []},
        {"name": "hermite", "coefficients": [0.1] * 172},
        {"name": "hermite", "coefficients": [1e308]},
        {"name": "hermite", "coefficients": [float("nan")]},
    ],
)
def test_invalid_configs_are_rejected(config):
    with pytest.raises(FactmemError):
        activation_from_config(config)
