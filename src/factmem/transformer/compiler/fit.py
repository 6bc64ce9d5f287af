"""The compiler's fit of values, outputs and MLP, once the heads read known tokens.

The weights are fitted jointly on all facts by L-BFGS: first with the cross-entropy, then in stages
with the robust hinge of the outputs relative to their root mean square.
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

__all__ = ["FitData", "FittedWeights", "WeightsFit", "balance", "fit_weights", "initial_weights"]

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
        read: the token that each head reads for each fact.
        outputs: the table over which predictions are decoded.
        target: the output id of each fact's answer.
    """

    tokens: Float[AnyArray, "prompt_tokens dim"]
    read: Int[AnyArray, "facts heads"]
    outputs: Float[AnyArray, "outputs dim"]
    target: Int[AnyArray, " facts"]


class WeightsFit(NamedTuple):
    """A fitted weights, the iterations of all stages, and how the last stage ended."""

    weights: FittedWeights
    iterations: int
    status: FitStatus


def fit_weights(
    start: FittedWeights,
    data: FitData,
    is_certified: Callable[[FittedWeights], bool],
    report: Report | None = None,
) -> WeightsFit:
    """Fit a weights until it is certified, or until the last stage ends.

    Args:
        start: initial weights.
        data: inputs and targets.
        is_certified: whether every fact is certified with a balanced weights. It is called every 50
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
    hinge_scale = _LOGIT_SCALE * float(_rms_norm(_outputs(fit.point, data)))
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
    scaled = _LOGIT_SCALE * _outputs(weights, data)
    return jnp.sum(per_key_losses(cross_entropy_from_gaps, scaled, *decoding))


def _stage_loss(
    weights: FittedWeights, stage_data: tuple[FitData, Array, Array]
) -> Float[Array, ""]:
    data, hinge_scale, robustness = stage_data
    outputs = _outputs(weights, data)
    outputs = hinge_scale * outputs / _rms_norm(outputs)
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    return robust_hinge(outputs, *decoding, robustness)


def _attention(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_MHSA of every fact, if each head reads exactly one token."""
    heads, head_dim, dim = weights.value.shape
    values = jnp.einsum("zd,hkd->zhk", data.tokens, weights.value)
    read = values[data.read, jnp.arange(heads, dtype=data.read.dtype)[None, :]]
    return read.reshape(-1, heads * head_dim) @ weights.output.reshape(heads * head_dim, dim)


def _outputs(weights: FittedWeights, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_TF of every fact."""
    x = _attention(weights, data)
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
    return jnp.all(recalled(_outputs(weights, data), *decoding))


def initial_weights(
    data: FitData, shape: Shape, *, bias: bool, rng: np.random.Generator
) -> FittedWeights:
    """Draw weights such that F_MHSA, and the neurons' inputs, have variance 1."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    per_neuron = (shape.width, shape.dim)
    value, output = rng.normal(size=per_head), rng.normal(size=per_head)
    mlp_in = rng.normal(size=per_neuron) / math.sqrt(shape.dim)
    mlp_out = rng.normal(size=per_neuron) / math.sqrt(max(shape.width, 1))
    x = np.asarray(_attention(FittedWeights(value, output, mlp_in, None, mlp_out), data))
    spread = np.sqrt(np.mean((x - x.mean(axis=0)) ** 2)) or 1.0  # a single fact has no spread
    mlp_bias = _BIAS_SCALE * rng.normal(size=shape.width) - mlp_in @ (x.mean(axis=0) / spread)
    return FittedWeights(value, output / spread, mlp_in, mlp_bias if bias else None, mlp_out)


def balance(weights: FittedWeights, data: FitData) -> FittedWeights:
    """Rescale the weights of every head and neuron to equal norms; outputs change by one factor.

    All weights of a tensor are rounded to the same levels. Equal norms make the rounding errors of
    all heads and neurons similar.
    """
    rms = np.sqrt(np.mean(np.asarray(_attention(weights, data)) ** 2))
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
