"""MLP memories compared with their formulas."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem.memories import BilinearMemory, MLPMemory
from factmem.memories.activations import HermitePolynomial, Relu

W, V, B = (np.asarray(jr.normal(jr.key(i), (5, 3)), float) for i in range(3))
E = np.asarray(jr.normal(jr.key(9), (3,)), float)
BIAS = np.linspace(-1, 1, 5)


def float32(array):
    return jnp.asarray(array, jnp.float32)


def test_mlp_with_bias():
    memory = MLPMemory(float32(W), float32(V), Relu(), float32(BIAS))
    np.testing.assert_allclose(
        memory(float32(E)), V.T @ np.maximum(0, W @ E + BIAS), rtol=1e-4, atol=1e-5
    )
    assert memory.parameters == 2 * 15 + 5


def test_mlp_without_bias():
    memory = MLPMemory(float32(W), float32(V), HermitePolynomial((0.0, 0.0, 1.0)))
    expected = V.T @ (((W @ E) ** 2 - 1) / np.sqrt(2))
    np.testing.assert_allclose(memory(float32(E)), expected, rtol=1e-4, atol=1e-5)
    assert memory.parameters == 2 * 15


def test_bilinear_memory():
    memory = BilinearMemory(float32(W), float32(B), float32(V))
    expected = V.T @ ((W @ E) * (B @ E))
    np.testing.assert_allclose(memory(float32(E)), expected, rtol=1e-4, atol=1e-5)
    assert memory.parameters == 3 * 15
