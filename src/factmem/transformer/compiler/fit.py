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

__all__ = ["FitData", "Readout", "ReadoutFit", "balance", "fit_readout", "initial_readout"]

_CROSS_ENTROPY_ITERATIONS = 3000
_STAGE_ITERATIONS = 400
_ROBUSTNESS = (0.3,) * 6 + tuple(0.3 * 10 ** (-stage / 6) for stage in range(1, 7))
"""c of the robust hinge in each stage. For facts beyond those that the cross-entropy fits, 0.3 is
faster than 0.03."""
_SOFT_SHARPNESS = 400.0
"""The sharpness at which the hinge asks for a margin of 0.25 % of the outputs' size."""
_LOGIT_SCALE, _BIAS_SCALE = 0.3, 0.5
"""Initial logits and biases relative to variance 1. Near the capacity limit (900 facts in 4,000
parameters, three seeds) 1 and 1 took 2,650 to 3,950 iterations, these 2,200 to 2,500; 0.1 and 0.3
took fewer, but for easier tables their margins were too small to be certified."""
_CHECK_EVERY = 50

Numbers = Array | np.ndarray


class Readout(NamedTuple):
    """The fitted weights: all except queries and keys."""

    value: Float[Numbers, "heads head_dim dim"]
    output: Float[Numbers, "heads head_dim dim"]
    mlp_in: Float[Numbers, "width dim"]
    mlp_bias: Float[Numbers, " width"] | None
    mlp_out: Float[Numbers, "width dim"]


class FitData(NamedTuple):
    """The inputs and targets of the readout for all facts.

    Args:
        tokens: embeddings of the prompt tokens.
        read: the token that each head reads for each fact.
        outputs: the table over which predictions are decoded.
        target: the output id of each fact's answer.
    """

    tokens: Float[Numbers, "prompt_tokens dim"]
    read: Int[Numbers, "facts heads"]
    outputs: Float[Numbers, "outputs dim"]
    target: Int[Numbers, " facts"]


class ReadoutFit(NamedTuple):
    """A fitted readout, the iterations of all stages, and how the last stage ended."""

    readout: Readout
    iterations: int
    status: FitStatus


def fit_readout(
    start: Readout,
    data: FitData,
    is_certified: Callable[[Readout], bool],
    report: Report | None = None,
) -> ReadoutFit:
    """Fit a readout until it is certified, or until the last stage ends.

    Args:
        start: initial weights.
        data: inputs and targets.
        is_certified: whether every fact is certified with a balanced readout. It is called every 50
            iterations once all facts are recalled.
        report: called with the number of iterations and the loss.
    """
    iterations = 0

    def report_total(stage_iterations: int, loss: float) -> None:
        if report is not None:
            report(iterations + stage_iterations, loss=loss)

    def stop_when(readout: Readout) -> bool:
        return _recalls_all(readout, data) and is_certified(balance(readout, data))

    run = partial(minimize, stop_when=stop_when, check_every=_CHECK_EVERY, report=report_total)
    fit = run(_cross_entropy, start, data, iterations=_CROSS_ENTROPY_ITERATIONS)
    iterations += fit.iterations
    sharpness = _LOGIT_SCALE * float(_root_mean_square(_outputs(fit.point, data)))
    if _recalls_all(fit.point, data):
        sharpness = _SOFT_SHARPNESS
    for robustness in _ROBUSTNESS:
        if fit.status is FitStatus.CONDITION_MET:
            break
        stage_data = (data, np.asarray(sharpness), np.asarray(robustness))
        fit = run(_stage_loss, balance(fit.point, data), stage_data, iterations=_STAGE_ITERATIONS)
        iterations += fit.iterations
        sharpness = _next_sharpness(sharpness, fit.point, data)
    return ReadoutFit(fit.point, iterations, fit.status)


def _next_sharpness(sharpness: float, readout: Readout, data: FitData) -> float:
    """Increase the sharpness until all facts are recalled, then decrease it for larger margins."""
    if _recalls_all(readout, data):
        return min(_SOFT_SHARPNESS, 0.7 * sharpness)
    return 1.5 * sharpness


def _cross_entropy(readout: Readout, data: FitData) -> Float[Array, ""]:
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    scaled = _LOGIT_SCALE * _outputs(readout, data)
    return jnp.sum(per_key_losses(cross_entropy_from_gaps, scaled, *decoding))


def _stage_loss(readout: Readout, stage_data: tuple[FitData, Array, Array]) -> Float[Array, ""]:
    data, sharpness, robustness = stage_data
    outputs = _outputs(readout, data)
    outputs = sharpness * outputs / _root_mean_square(outputs)
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    return robust_hinge(outputs, *decoding, robustness)


def _attention(readout: Readout, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_MHSA of every fact, if each head reads exactly one token."""
    heads, head_dim, dim = readout.value.shape
    values = jnp.einsum("zd,hkd->zhk", data.tokens, readout.value)
    read = values[data.read, jnp.arange(heads, dtype=data.read.dtype)[None, :]]
    return read.reshape(-1, heads * head_dim) @ readout.output.reshape(heads * head_dim, dim)


def _outputs(readout: Readout, data: FitData) -> Float[Array, "facts dim"]:
    """Compute F_TF of every fact."""
    x = _attention(readout, data)
    hidden = x @ readout.mlp_in.T
    if readout.mlp_bias is not None:
        hidden = hidden + readout.mlp_bias[None, :]
    return x + jax.nn.relu(hidden) @ readout.mlp_out


def _root_mean_square(outputs: Float[Array, "facts dim"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.sum(outputs**2, axis=1)))


def _recalls_all(readout: Readout, data: FitData) -> bool:
    """Return whether all facts are recalled in float64, before any rounding."""
    with jax.enable_x64(True):
        return bool(_recalls_all_jitted(readout, data))


@jax.jit
def _recalls_all_jitted(readout: Readout, data: FitData) -> Array:
    decoding = jnp.asarray(data.outputs), jnp.asarray(data.target)
    return jnp.all(recalled(_outputs(readout, data), *decoding))


def initial_readout(
    data: FitData, shape: Shape, *, bias: bool, rng: np.random.Generator
) -> Readout:
    """Draw weights such that F_MHSA, and the neurons' inputs, have variance 1."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    per_neuron = (shape.width, shape.dim)
    value, output = rng.normal(size=per_head), rng.normal(size=per_head)
    mlp_in = rng.normal(size=per_neuron) / math.sqrt(shape.dim)
    mlp_out = rng.normal(size=per_neuron) / math.sqrt(max(shape.width, 1))
    x = np.asarray(_attention(Readout(value, output, mlp_in, None, mlp_out), data))
    spread = np.sqrt(np.mean((x - x.mean(axis=0)) ** 2)) or 1.0  # a single fact has no spread
    mlp_bias = _BIAS_SCALE * rng.normal(size=shape.width) - mlp_in @ (x.mean(axis=0) / spread)
    return Readout(value, output / spread, mlp_in, mlp_bias if bias else None, mlp_out)


def balance(readout: Readout, data: FitData) -> Readout:
    """Rescale the weights of every head and neuron to equal norms; outputs change by one factor.

    All weights of a tensor are rounded to the same levels. Equal norms make the rounding errors of
    all heads and neurons similar.
    """
    size = np.sqrt(np.mean(np.asarray(_attention(readout, data)) ** 2))
    value, output, mlp_in, mlp_bias, mlp_out = jax.tree.map(np.asarray, readout)
    output = output / size
    ratio = _balancing_factor(np.linalg.norm(output, axis=2), np.linalg.norm(value, axis=2))
    value, output = value * ratio[:, :, None], output / ratio[:, :, None]
    mlp_bias = None if mlp_bias is None else mlp_bias / size
    incoming = np.sum(mlp_in**2, axis=1) + (0.0 if mlp_bias is None else mlp_bias**2)
    ratio = _balancing_factor(np.linalg.norm(mlp_out, axis=1), np.sqrt(incoming))
    mlp_bias = None if mlp_bias is None else mlp_bias * ratio
    return Readout(value, output, mlp_in * ratio[:, None], mlp_bias, mlp_out / ratio[:, None])


def _balancing_factor(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the factor that makes left / factor and right · factor equal."""
    both = (left > 0) & (right > 0)
    return np.sqrt(np.where(both, left, 1.0) / np.where(both, right, 1.0))
