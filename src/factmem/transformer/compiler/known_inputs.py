"""What the compiler fits: the model on the known input of every fact, without noise.

Every fact has a known input: the mixture of its subject, its relation and EOS that each head
attends to. Keys, values, outputs and the MLP are fitted jointly on these inputs.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from factmem.transformer.shape import Shape

__all__ = [
    "AnyArray",
    "FitData",
    "FittedWeights",
    "attended_values",
    "attention_outputs",
    "balance",
    "hidden_units",
    "initial_weights",
    "model_outputs",
]

_BIAS_SCALE = 0.5
"""Initial biases relative to variance 1."""
_SAMPLE_FACTS = 4096
"""Facts from which the scale of F_MHSA is estimated."""

AnyArray = Array | np.ndarray


class FittedWeights(NamedTuple):
    """The fitted weights: all except queries. A head scores token z by key·φ(z), in nats."""

    key: Float[AnyArray, "heads dim"]
    value: Float[AnyArray, "heads head_dim dim"]
    output: Float[AnyArray, "heads head_dim dim"]
    mlp_in: Float[AnyArray, "width dim"]
    mlp_bias: Float[AnyArray, " width"] | None
    mlp_out: Float[AnyArray, "width dim"]


class FitData(NamedTuple):
    """The inputs and targets of the fit for all facts.

    Args:
        tokens: embeddings of the prompt tokens.
        known: subject, relation and EOS of each fact.
        outputs: the table over which predictions are decoded.
        target: the output id of each fact's answer.
        noise: φ(noise) − φ(EOS) of every noise token.
        noise_gap: by how many nats EOS has to score above all noise.
    """

    tokens: Float[AnyArray, "prompt_tokens dim"]
    known: Int[AnyArray, "facts 3"]
    outputs: Float[AnyArray, "outputs dim"]
    target: Int[AnyArray, " facts"]
    noise: Float[AnyArray, "noise dim"]
    noise_gap: Float[AnyArray, ""]


def attended_values(weights: FittedWeights, data: FitData) -> Float[Array, "facts values"]:
    """Compute the mean values V φ of all heads for every fact, without the attention to noise."""
    heads, head_dim, dim = weights.value.shape
    known, tokens = jnp.asarray(data.known), jnp.asarray(data.tokens)
    value = jnp.reshape(jnp.asarray(weights.value), (heads * head_dim, dim))
    directions = jnp.concatenate([jnp.asarray(weights.key), value]).T
    # Scores and values of all tokens, or of the tokens of these facts if they are fewer.
    few = tokens.shape[0] <= known.size
    products = (tokens @ directions)[known] if few else tokens[known] @ directions
    shares = jax.nn.softmax(products[:, :, :heads], axis=1)
    values = jnp.reshape(products[:, :, heads:], (-1, 3, heads, head_dim))
    mixture = jnp.sum(shares[:, :, :, None] * values, axis=1)
    return jnp.reshape(mixture, (-1, heads * head_dim))


def attention_outputs(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_MHSA of every fact, without the attention to noise."""
    output = jnp.reshape(jnp.asarray(weights.output), (-1, weights.output.shape[2]))
    return attended_values(weights, data) @ output


def hidden_units(
    weights: FittedWeights, x: Float[Array, "facts dim"]
) -> Float[Array, "facts width"]:
    """Compute the hidden units of the MLP for its inputs x."""
    hidden = x @ weights.mlp_in.T
    if weights.mlp_bias is not None:
        hidden = hidden + weights.mlp_bias[None, :]
    return jax.nn.relu(hidden)


def model_outputs(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_TF of every fact."""
    x = attention_outputs(weights, data)
    return x + hidden_units(weights, x) @ weights.mlp_out


def initial_weights(
    data: FitData,
    key: Float[np.ndarray, "heads dim"],
    shape: Shape,
    *,
    bias: bool,
    rng: np.random.Generator,
) -> FittedWeights:
    """Draw weights such that F_MHSA, and the neurons' inputs, have variance 1."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    per_neuron = (shape.width, shape.dim)
    value, output = rng.normal(size=per_head), rng.normal(size=per_head)
    mlp_in = rng.normal(size=per_neuron) / math.sqrt(shape.dim)
    mlp_out = rng.normal(size=per_neuron) / math.sqrt(max(shape.width, 1))
    sample = data._replace(known=data.known[:_SAMPLE_FACTS])
    drawn = FittedWeights(key, value, output, mlp_in, None, mlp_out)
    x = np.asarray(attention_outputs(drawn, sample))
    spread = np.sqrt(np.mean((x - x.mean(axis=0)) ** 2)) or 1.0  # a single fact has no spread
    mlp_bias = _BIAS_SCALE * rng.normal(size=shape.width) - mlp_in @ (x.mean(axis=0) / spread)
    return drawn._replace(output=output / spread, mlp_bias=mlp_bias if bias else None)


def balance(weights: FittedWeights, data: FitData) -> FittedWeights:
    """Rescale the weights of every head and neuron to equal norms; outputs change by one factor.

    All weights of a tensor are rounded to the same levels. Equal norms make the rounding errors of
    all heads and neurons similar. Keys stay as they are.
    """
    sample = data._replace(known=data.known[:_SAMPLE_FACTS])
    rms = np.sqrt(np.mean(np.asarray(attention_outputs(weights, sample)) ** 2))
    key, value, output, mlp_in, mlp_bias, mlp_out = jax.tree.map(np.asarray, weights)
    output = output / rms
    ratio = _balancing_factor(np.linalg.norm(output, axis=2), np.linalg.norm(value, axis=2))
    value, output = value * ratio[:, :, None], output / ratio[:, :, None]
    mlp_bias = None if mlp_bias is None else mlp_bias / rms
    incoming = np.sum(mlp_in**2, axis=1) + (0.0 if mlp_bias is None else mlp_bias**2)
    ratio = _balancing_factor(np.linalg.norm(mlp_out, axis=1), np.sqrt(incoming))
    mlp_bias = None if mlp_bias is None else mlp_bias * ratio
    mlp_in, mlp_out = mlp_in * ratio[:, None], mlp_out / ratio[:, None]
    return FittedWeights(key, value, output, mlp_in, mlp_bias, mlp_out)


def _balancing_factor(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the factor that makes left / factor and right · factor equal."""
    both = (left > 0) & (right > 0)
    return np.sqrt(np.where(both, left, 1.0) / np.where(both, right, 1.0))
