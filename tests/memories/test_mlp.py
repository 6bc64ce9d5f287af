"""The two shapes of MLP memories, written out."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem.memories import BilinearMemory, MLPMemory
from factmem.memories.activations import HermitePolynomial, Relu

W, V, B = (np.asarray(jr.normal(jr.key(i), (5, 3)), float) for i in range(3))
E = np.asarray(jr.normal(jr.key(9), (3,)), float)
BIAS = np.linspace(-1, 1, 5)


def single(array):
    return jnp.asarray(array, jnp.float32)


def test_an_mlp_is_v_transposed_sigma_of_w_e_plus_b():
    memory = MLPMemory(single(W), single(V), Relu(), single(BIAS))
    np.testing.assert_allclose(
        memory(single(E)), V.T @ np.maximum(0, W @ E + BIAS), rtol=1e-4, atol=1e-5
    )
    assert memory.parameters == 2 * 15 + 5


def test_without_a_bias_there_is_none():
    memory = MLPMemory(single(W), single(V), HermitePolynomial((0.0, 0.0, 1.0)))
    expected = V.T @ (((W @ E) ** 2 - 1) / np.sqrt(2))
    np.testing.assert_allclose(memory(single(E)), expected, rtol=1e-4, atol=1e-5)
    assert memory.parameters == 2 * 15


def test_a_bilinear_memory_multiplies_two_linear_functions():
    memory = BilinearMemory(single(W), single(B), single(V))
    expected = V.T @ ((W @ E) * (B @ E))
    np.testing.assert_allclose(memory(single(E)), expected, rtol=1e-4, atol=1e-5)
    assert memory.parameters == 3 * 15
