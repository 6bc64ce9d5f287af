"""The compiler's fit of values, outputs and MLP by L-BFGS, for small tables.

Every fact has a known input: the mixture of its subject, its relation and EOS that each head
attends to. The weights are fitted jointly on all facts: first with the cross-entropy, then in
stages with the robust hinge of the outputs relative to their root mean square.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from factmem._core.lbfgs import FitStatus, minimize
from factmem._core.progress import Report
from factmem.memories.decoding import cross_entropy_from_gaps, per_key_losses, recalled
from factmem.memories.margin_losses import robust_hinge
from factmem.transformer.shape import Shape

__all__ = [
    "FitData",
    "FittedWeights",
    "WeightsFit",
    "attention_outputs",
    "balance",
    "fit_weights",
    "initial_weights",
    "model_outputs",
]

_CROSS_ENTROPY_ITERATIONS = 3000
_STAGE_ITERATIONS = 400
_ROBUSTNESS = (0.3,) * 6 + tuple(0.3 * 10 ** (-stage / 6) for stage in range(1, 7))
"""c of the robust hinge in each stage. For facts beyond those that the cross-entropy fits, 0.3 is
faster than 0.03."""
_MAX_FINAL_SCALE = 400.0
"""The hinge scale at which the hinge requires a margin of 0.25% of the outputs' norm."""
_LOGIT_SCALE, _BIAS_SCALE = 0.3, 0.5
"""Initial logits and biases relative to variance 1. Near the capacity limit (900 facts in 4,000
parameters, three seeds) 1 and 1 took 2,650 to 3,950 iterations, these 2,200 to 2,500; 0.1 and 0.3
took fewer, but for easier tables their margins were too small to be certified."""
_CHECK_EVERY = 50
_SAMPLE_FACTS = 4096
"""Facts from which the scale of F_MHSA is estimated."""

AnyArray = Array | np.ndarray


class FittedWeights(NamedTuple):
    """The fitted weights: all except queries and keys."""

    value: Float[AnyArray, "heads head_dim dim"]
    output: Float[AnyArray, "heads head_dim dim"]
    mlp_in: Float[AnyArray, "width dim"]
    mlp_bias: Float[AnyArray, " width"] | None
    mlp_out: Float[AnyArray, "width dim"]


class FitData(NamedTuple):
    """The inputs and targets of the fit for all facts.

    Args:
        tokens: embeddings of the prompt tokens.
        scores: the score of every prompt token in every head, in nats.
        known: subject, relation and EOS of each fact.
        outputs: the table over which predictions are decoded.
        target: the output id of each fact's answer.
    """

    tokens: Float[AnyArray, "prompt_tokens dim"]
    scores: Float[AnyArray, "prompt_tokens heads"]
    known: Int[AnyArray, "facts 3"]
    outputs: Float[AnyArray, "outputs dim"]
    target: Int[AnyArray, " facts"]


class WeightsFit(NamedTuple):
    """Fitted weights, the iterations of all stages, and how the last stage ended."""

    weights: FittedWeights
    iterations: int
    status: FitStatus


def fit_weights(
    start: FittedWeights,
    data: FitData,
    is_certified: Callable[[FittedWeights], bool],
    report: Report | None = None,
) -> WeightsFit:
    """Fit weights until they are certified, or until the last stage ends.

    Args:
        start: initial weights.
        data: inputs and targets.
        is_certified: whether every fact is certified with balanced weights. It is called every 50
            iterations once all facts are recalled.
        report: called with the number of iterations and the loss.
    """
    iterations = 0

    def report_total(stage_iterations: int, loss: float) -> None:
        if report is not None:
            report(iterations + stage_iterations, loss=loss)

    def stop_when(weights: FittedWeights) -> bool:
        return _recalls_all(weights, data) and is_certified(balance(weights, data))

    run = partial(minimize, stop_when=stop_when, check_every=_CHECK_EVERY, report=report_total)
    fit = run(_cross_entropy, start, data, iterations=_CROSS_ENTROPY_ITERATIONS)
    iterations += fit.iterations
    hinge_scale = _LOGIT_SCALE * float(_rms_norm(model_outputs(fit.point, data)))
    if _recalls_all(fit.point, data):
        hinge_scale = _MAX_FINAL_SCALE
    for robustness in _ROBUSTNESS:
        if fit.status is FitStatus.CONDITION_MET:
            break
        stage_data = (data, np.asarray(hinge_scale), np.asarray(robustness))
        fit = run(_stage_loss, balance(fit.point, data), stage_data, iterations=_STAGE_ITERATIONS)
        iterations += fit.iterations
        hinge_scale = _next_hinge_scale(hinge_scale, fit.point, data)
    return WeightsFit(fit.point, iterations, fit.status)


def _next_hinge_scale(hinge_scale: float, weights: FittedWeights, data: FitData) -> float:
    """Increase the scale until all facts are recalled, then decrease it for larger margins."""
    if _recalls_all(weights, data):
        return min(_MAX_FINAL_SCALE, 0.7 * hinge_scale)
    return 1.5 * hinge_scale


def _cross_entropy(weights: FittedWeights, data: FitData) -> Float[Array, ""]:
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    scaled = _LOGIT_SCALE * model_outputs(weights, data)
    return jnp.sum(per_key_losses(cross_entropy_from_gaps, scaled, *decoding))


def _stage_loss(
    weights: FittedWeights, stage_data: tuple[FitData, Array, Array]
) -> Float[Array, ""]:
    data, hinge_scale, robustness = stage_data
    outputs = model_outputs(weights, data)
    outputs = hinge_scale * outputs / _rms_norm(outputs)
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    return robust_hinge(outputs, *decoding, robustness)


def attention_outputs(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_MHSA of every fact, without the attention to noise."""
    heads, head_dim, dim = weights.value.shape
    known, tokens = jnp.asarray(data.known), jnp.asarray(data.tokens)
    shares = jax.nn.softmax(jnp.asarray(data.scores)[known], axis=1)
    value = jnp.reshape(jnp.asarray(weights.value), (heads * head_dim, dim))
    if tokens.shape[0] <= known.size:
        values = (tokens @ value.T)[known]
    else:  # Only the tokens of these facts: the cost does not grow with the vocabulary.
        values = tokens[known] @ value.T
    values = jnp.reshape(values, (-1, 3, heads, head_dim))
    mixture = jnp.sum(shares[:, :, :, None] * values, axis=1)
    return jnp.reshape(mixture, (-1, heads * head_dim)) @ jnp.reshape(
        jnp.asarray(weights.output), (-1, dim)
    )


def model_outputs(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_TF of every fact."""
    x = attention_outputs(weights, data)
    hidden = x @ weights.mlp_in.T
    if weights.mlp_bias is not None:
        hidden = hidden + weights.mlp_bias[None, :]
    return x + jax.nn.relu(hidden) @ weights.mlp_out


def _rms_norm(outputs: Float[Array, "facts dim"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.sum(outputs**2, axis=1)))


def _recalls_all(weights: FittedWeights, data: FitData) -> bool:
    """Return whether all facts are recalled in float64, before any rounding."""
    with jax.enable_x64(True):
        return bool(_recalls_all_jitted(weights, data))


@jax.jit
def _recalls_all_jitted(weights: FittedWeights, data: FitData) -> Array:
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    return jnp.all(recalled(model_outputs(weights, data), *decoding))


def initial_weights(
    data: FitData, shape: Shape, *, bias: bool, rng: np.random.Generator
) -> FittedWeights:
    """Draw weights such that F_MHSA, and the neurons' inputs, have variance 1."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    per_neuron = (shape.width, shape.dim)
    value, output = rng.normal(size=per_head), rng.normal(size=per_head)
    mlp_in = rng.normal(size=per_neuron) / math.sqrt(shape.dim)
    mlp_out = rng.normal(size=per_neuron) / math.sqrt(max(shape.width, 1))
    sample = data._replace(known=data.known[:_SAMPLE_FACTS])
    x = np.asarray(attention_outputs(FittedWeights(value, output, mlp_in, None, mlp_out), sample))
    spread = np.sqrt(np.mean((x - x.mean(axis=0)) ** 2)) or 1.0  # a single fact has no spread
    mlp_bias = _BIAS_SCALE * rng.normal(size=shape.width) - mlp_in @ (x.mean(axis=0) / spread)
    return FittedWeights(value, output / spread, mlp_in, mlp_bias if bias else None, mlp_out)


def balance(weights: FittedWeights, data: FitData) -> FittedWeights:
    """Rescale the weights of every head and neuron to equal norms; outputs change by one factor.

    All weights of a tensor are rounded to the same levels. Equal norms make the rounding errors of
    all heads and neurons similar.
    """
    sample = data._replace(known=data.known[:_SAMPLE_FACTS])
    rms = np.sqrt(np.mean(np.asarray(attention_outputs(weights, sample)) ** 2))
    value, output, mlp_in, mlp_bias, mlp_out = jax.tree.map(np.asarray, weights)
    output = output / rms
    ratio = _balancing_factor(np.linalg.norm(output, axis=2), np.linalg.norm(value, axis=2))
    value, output = value * ratio[:, :, None], output / ratio[:, :, None]
    mlp_bias = None if mlp_bias is None else mlp_bias / rms
    incoming = np.sum(mlp_in**2, axis=1) + (0.0 if mlp_bias is None else mlp_bias**2)
    ratio = _balancing_factor(np.linalg.norm(mlp_out, axis=1), np.sqrt(incoming))
    mlp_bias = None if mlp_bias is None else mlp_bias * ratio
    return FittedWeights(value, output, mlp_in * ratio[:, None], mlp_bias, mlp_out / ratio[:, None])


def _balancing_factor(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the factor that makes left / factor and right · factor equal."""
    both = (left > 0) & (right > 0)
    return np.sqrt(np.where(both, left, 1.0) / np.where(both, right, 1.0))
