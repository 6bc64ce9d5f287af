"""One step of the compiler's fit: the loss of a batch, and Muon.

A step takes a batch of facts on their known inputs and lowers the cross-entropy over three sets of
answers: the right one, random ones that the batch shares, and the fact's hardest ones. A penalty
keeps the scores of noise below that of EOS by the gap that the fit requires, and separates facts
that no head distinguishes.

The optimizer is Muon: momentum, with each matrix replaced by (nearly) the nearest orthogonal one.
Keys and biases move by Adam. The learning rate falls linearly to zero in each round.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from factmem.transformer.compiler.confusion import ConfusedPairs, separation_penalty
from factmem.transformer.compiler.known_inputs import FitData, FittedWeights, model_outputs

__all__ = [
    "RoundNumbers",
    "State",
    "device_array",
    "initial_logit_scale",
    "loss_of_batch",
    "orthogonalize",
    "sampled_answers",
    "take_steps",
]

_MOMENTUM, _ADAM_DECAY = 0.95, 0.99
_WARM_UP = 0.02
_BIAS_RATE = 0.1
"""The rate of biases, relative to that of the matrices."""
_MLP_OUT_RATE = 5.0
"""The rate of the MLP's second matrix is this times d/m, at most 1. With 1 instead, 54,031 facts in
899,840 parameters had 50% right after 60 epochs; with this rule 2 were wrong after 40."""
_PENALTY = 0.02
"""The weight of the squared violations of gaps, in nats, summed over noise tokens and pairs."""
_LOGIT_SCALE = 0.1
"""Logits have about this standard deviation times √d at the start. At 27,430 facts 40 epochs left 4
facts wrong with 0.1 and 68 with 0.3."""
_ALL_ANSWERS = 1024
"""Up to this number of answers the cross-entropy is over all of them."""
_MIN_SAMPLED, _MAX_SAMPLED = 512, 2048
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5


class State(NamedTuple):
    """Weights, the momentum of their gradients, and Adam's second moments of keys and biases."""

    weights: FittedWeights
    momentum: FittedWeights
    key_square: Float[Array, "heads dim"]
    bias_square: Float[Array, " width"] | None
    steps: Int[Array, ""]

    @classmethod
    def start(cls, weights: FittedWeights) -> "State":
        """Return the state before the first step of a round."""
        zeros = jax.tree.map(jnp.zeros_like, weights)
        steps = jnp.zeros((), jnp.int32)
        return cls(weights, zeros, jnp.asarray(zeros.key), zeros.mlp_bias, steps)


class RoundNumbers(NamedTuple):
    """Numbers of a round that are data, not compiled in.

    Args:
        steps: the number of steps of the round.
        rate: the largest learning rate of matrices.
        key_rate: that of keys, relative to the size of each key's entries; 0 keeps them.
        scale: the factor of the logits.
    """

    steps: float
    rate: float
    key_rate: float
    scale: float


@partial(jax.jit, static_argnames="sampled")
def take_steps(
    state: State,
    data: FitData,
    pairs: ConfusedPairs,
    facts: Int[Array, "steps batch"],
    hard: Int[Array, "facts hard"],
    required: Float[Array, " facts"],
    numbers: RoundNumbers,
    key: Key[Array, ""],
    sampled: int,
) -> tuple[State, Array]:
    """Take one step for each batch of facts.

    Args:
        state: weights and momenta.
        data: inputs and targets of all facts; `noise` may have the strongest noise tokens alone.
        pairs: facts that no head distinguishes.
        facts: the facts of each step.
        hard: the hardest answers of every fact; not used if every step takes all answers.
        required: the margin that each fact needs.
        numbers: the plan of the round.
        key: random key of the drawn answers.
        sampled: how many answers are drawn in a step.

    Returns:
        The state after the steps, and the mean loss.
    """
    answers = data.outputs.shape[0]

    def step(state: State, batch_and_key: tuple[Array, Array]) -> tuple[State, Array]:
        batch, step_key = batch_and_key
        if sampled < answers:
            drawn = jr.randint(step_key, (sampled,), 0, answers, dtype=jnp.int32)
        else:
            drawn = jnp.arange(answers, dtype=jnp.int32)
        inputs = data._replace(known=data.known[batch], target=data.target[batch])
        competitors = hard[batch] if sampled < answers else None
        loss, gradient = jax.value_and_grad(loss_of_batch)(
            state.weights,
            inputs,
            pairs,
            drawn,
            competitors,
            required[batch],
            jnp.float32(numbers.scale),
        )
        return _update(state, gradient, numbers), loss

    keys = jr.split(key, facts.shape[0])
    state, losses = jax.lax.scan(step, state, (facts, keys))
    return state, jnp.mean(losses)


def loss_of_batch(
    weights: FittedWeights,
    inputs: FitData,
    pairs: ConfusedPairs,
    drawn: Int[Array, " sampled"],
    hard: Int[Array, "batch hard"] | None,
    required: Float[Array, " batch"],
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """Compute the mean cross-entropy over the right, the drawn and the hard answers.

    The required margin is subtracted from the logit of the right answer. The penalty is
    the sum of squared violations, by noise and by confused pairs, divided by the number of heads.
    """
    outputs = scale * model_outputs(weights, inputs)
    target = jnp.asarray(inputs.target)[:, None]
    table = jnp.asarray(inputs.outputs)
    right = jnp.sum(outputs * table[target[:, 0]], axis=1) - scale * required
    logits = outputs @ table[drawn].T
    logits = jnp.where(drawn[None, :] == target, -jnp.inf, logits)
    if hard is not None:
        hard_logits = jnp.einsum("bd,bkd->bk", outputs, table[hard])
        hard_logits = jnp.where(hard == target, -jnp.inf, hard_logits)
        logits = jnp.concatenate([logits, hard_logits], axis=1)
    everything = jnp.concatenate([right[:, None], logits], axis=1)
    scores = jnp.asarray(inputs.noise) @ jnp.asarray(weights.key).T
    violations = jnp.maximum(0.0, scores + jnp.asarray(inputs.noise_gap))
    penalty = jnp.sum(violations**2)
    penalty += separation_penalty(weights.key, inputs.tokens, pairs)
    penalty = _PENALTY * penalty / scores.shape[1]
    return jnp.mean(jax.nn.logsumexp(everything, axis=1) - right) + penalty


def _update(state: State, gradient: FittedWeights, numbers: RoundNumbers) -> State:
    """Move every matrix by Muon, keys and biases by Adam."""
    progress = state.steps.astype(jnp.float32) / numbers.steps
    phase = jnp.minimum(1.0, progress / _WARM_UP) * jnp.maximum(0.0, 1 - progress)
    rate = numbers.rate * phase
    momentum = jax.tree.map(lambda m, g: _MOMENTUM * m + g, state.momentum, gradient)
    nesterov = jax.tree.map(lambda m, g: _MOMENTUM * m + g, momentum, gradient)
    width, dim = gradient.mlp_out.shape
    factors = {"mlp_out": min(1.0, _MLP_OUT_RATE * dim / max(width, 1))}
    moved: dict[str, Any] = {
        name: getattr(state.weights, name)
        - rate * factors.get(name, 1.0) * orthogonalize(getattr(nesterov, name))
        for name in ("value", "output", "mlp_in", "mlp_out")
        if getattr(nesterov, name).size
    }
    count = state.steps.astype(jnp.float32) + 1
    key = jnp.asarray(state.weights.key)
    change, key_square = _adam(momentum.key, gradient.key, state.key_square, count)
    size = jnp.linalg.norm(key, axis=1, keepdims=True) / math.sqrt(dim)
    moved["key"] = key - numbers.key_rate * phase * size * change
    bias_square = state.bias_square
    if bias_square is not None:
        change, bias_square = _adam(momentum.mlp_bias, gradient.mlp_bias, bias_square, count)
        moved["mlp_bias"] = jnp.asarray(state.weights.mlp_bias) - _BIAS_RATE * rate * change
    weights = state.weights._replace(**moved)
    return State(weights, momentum, key_square, bias_square, state.steps + 1)


def _adam(momentum: Any, gradient: Any, square: Array, count: Array) -> tuple[Array, Array]:
    """Return the direction of Adam, and the new second moment."""
    square = _ADAM_DECAY * square + (1 - _ADAM_DECAY) * gradient**2
    mean = (1 - _MOMENTUM) * momentum / (1 - _MOMENTUM**count)
    return mean / (jnp.sqrt(square / (1 - _ADAM_DECAY**count)) + 1e-12), square


def orthogonalize(matrices: Float[Array, "*stack rows columns"]) -> Array:
    """Replace each matrix by one with nearly equal singular values, with entries of size 1/√n.

    n is the smaller dimension. The Newton-Schulz iteration of Muon runs on the n × n Gram matrix:
    X P(XᵀX) needs two products with X in all, instead of ten.
    """
    transposed = matrices.shape[-2] < matrices.shape[-1]
    tall = jnp.swapaxes(matrices, -1, -2) if transposed else matrices
    rows, columns = tall.shape[-2:]
    # First by the largest entry: the squares of gradients near 1e-20 would underflow.
    tall = tall / (jnp.max(jnp.abs(tall), axis=(-2, -1), keepdims=True) + 1e-30)
    tall = tall / (jnp.linalg.norm(tall, axis=(-2, -1), keepdims=True) + 1e-20)
    gram = jnp.swapaxes(tall, -1, -2) @ tall
    identity = jnp.broadcast_to(jnp.eye(columns, dtype=tall.dtype), gram.shape)
    factor = identity
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_STEPS):
        polynomial = a * identity + b * gram + c * gram @ gram
        factor = factor @ polynomial
        gram = polynomial @ gram @ polynomial
    result = math.sqrt(rows / columns) * tall @ factor
    return jnp.swapaxes(result, -1, -2) if transposed else result


def sampled_answers(answers: int) -> int:
    """Return how many random answers a step draws; all of them if they are few."""
    if answers <= _ALL_ANSWERS:
        return answers
    return min(_MAX_SAMPLED, max(_MIN_SAMPLED, answers // 8))


def initial_logit_scale(data: FitData) -> float:
    """Return a factor of the logits that gives them a deviation of 0.1 √d at the start.

    The outputs of initial weights have entries of size 1.
    """
    table = np.asarray(data.outputs, np.float64)
    norm = float(np.sqrt(np.mean(np.sum(table**2, axis=1)))) or 1.0
    return _LOGIT_SCALE * math.sqrt(table.shape[1]) / norm


def device_array(array: Array | np.ndarray) -> Array:
    """Return an array as float32 or int32 on the device."""
    array = np.asarray(array)
    return jnp.asarray(array, jnp.float32 if array.dtype.kind == "f" else jnp.int32)
