"""The compiler: any table of facts into the weights of a one-layer transformer, with a proof.

Nothing is trained on prompts. Three steps, each a full-batch problem of its own:

1. *Keys* (`keys.py`). Each head gets a key that puts EOS above all noise, with a margin, and many
   subjects and relations above EOS. With scores sharp enough it reads, of the subject, the
   relation and EOS, the one that it scores highest: one known token for every fact, whatever the
   noise. So every fact has one fixed input to the rest of the network.
2. *Everything else*: values, outputs and the MLP, fitted jointly on all facts at once by L-BFGS,
   first with the cross-entropy and then with the gentle hinge of outputs in units of their own
   size, ever sharper.
3. *The certificate* (`certificate.py`) of the weights, rounded to 16 bits: over every prompt, and
   in float32. The fit ends when it certifies every fact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import Minimum, Outcome, minimize
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.memories.decoding import cross_entropy_of_one, loss_of_each, recalled
from factmem.memories.margin_losses import gentle_hinge
from factmem.memories.precision import rounded
from factmem.transformer.certificate import Certificate, certify
from factmem.transformer.compiler.keys import choose_keys, widest_key
from factmem.transformer.constructions.construction import (
    Construction,
    check_head_dim,
    partial_note,
)
from factmem.transformer.constructions.denoiser import rank_one, tokens_read
from factmem.transformer.convention import EXPERIMENTS, Convention
from factmem.transformer.model import Embeddings, Shape, Transformer, Weights

__all__ = ["Compiled", "compile_facts"]

_BITS = 16
_MOST_HEADS = 10_000
_LEAK = 2.0**-30
"""The share of attention that may stray: well below the rounding errors of float32."""
_CROSS_ENTROPY_STEPS = 3000
_STAGE_STEPS = 400
_GENTLENESS = (0.3,) * 6 + tuple(0.3 * 10 ** (-stage / 6) for stage in range(1, 7))
"""c of the gentle hinge, stage by stage: past what cross-entropy learns 0.3 is faster than 0.03."""
_SOFT = 400.0
"""The sharpness at which a hinge asks for a margin of 0.25 % of the outputs' size."""
_TEMPERATURE, _BIAS = 0.3, 0.5
"""Logits and biases at the start, relative to variance 1. Near the limit (900 facts in 4,000
parameters, three seeds) 1 and 1 took 2,650 to 3,950 steps, these 2,200 to 2,500; 0.1 and 0.3 took
fewer still, but where there is room they end with margins too small to be certified."""
_LOOK_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class Compiled(Construction):
    """A compiled transformer, its weights on 2¹⁶ levels, and what is proved of it.

    Args:
        certificate: a lower bound of every fact's margin, over all prompts.
        iterations: of L-BFGS, in all.
        outcome: how the last minimization ended.
    """

    certificate: Certificate
    iterations: int
    outcome: Outcome


Numbers = Array | np.ndarray


class Readout(NamedTuple):
    """What is fitted: all weights but keys and queries."""

    value: Float[Numbers, "heads head_dim dim"]
    output: Float[Numbers, "heads head_dim dim"]
    mlp_in: Float[Numbers, "width dim"]
    mlp_bias: Float[Numbers, " width"] | None
    mlp_out: Float[Numbers, "width dim"]


class FitData(NamedTuple):
    """All facts, as the readout sees them."""

    tokens: Float[Numbers, "prompt_tokens dim"]
    read: Int[Numbers, "facts heads"]
    outputs: Float[Numbers, "outputs dim"]
    target: Int[Numbers, " facts"]


def compile_facts(
    key: Key[Array, ""],
    asked: PromptDistribution,
    embeddings: Embeddings,
    shape: Shape,
    *,
    convention: Convention = EXPERIMENTS,
    report: Report | None = None,
) -> Compiled:
    """Weights that recall every fact, and the proof of it.

    Args:
        key: randomness of the choice of keys and of the start of the fit.
        asked: the facts, the noise tokens and the length of prompts.
        embeddings: given.
        shape: of the transformer.
        convention: the experiments' (two tables, answers alone compete) or the theorems'.
        report: told how far it is: steps, and the loss.

    Returns:
        A transformer with weights of 16 bits. Where the shape is too small its certificate does
        not cover all facts: `certificate.certified_accuracy` says how many.

    Raises:
        FactmemError: d_h above d, fewer bits than the facts have, noise that no key puts below
            EOS, facts that the heads cannot tell apart, or an answer that no output can reach.
    """
    _check(asked, embeddings, shape)
    # The certificate is about float32, so everything is, whatever the user's mode.
    embeddings = jax.tree.map(_single, embeddings)
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    tokens = _prompt_tokens(embeddings, asked)
    keys = choose_keys(rng, tokens, asked, shape.heads)
    heads = _heads(keys, tokens, asked, shape, convention)
    frame = partial(_model, heads, embeddings, shape, asked, convention)
    lesson = _lesson(heads, tokens, asked, embeddings, convention)
    _check_reachable(lesson)
    start = _start(rng, lesson, shape, convention.mlp_bias)
    weights, found, steps = _fitted(start, lesson, frame, asked, report)
    with jax.enable_x64(False):
        model = frame(_balanced(weights, lesson))
        certificate = certify(model, asked)
    scores = np.asarray(model.scores()).T
    blocks = scores > scores[:, -1:]
    return Compiled(
        model=model,
        blocks=blocks,
        beta=heads.beta,
        certificate=certificate,
        notes=partial_note(asked),
        iterations=steps,
        outcome=found.outcome,
    )


# ---- heads ---------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """Queries and keys, on 2¹⁶ levels, and the token that each reads for each fact."""

    query: Float[Array, "heads head_dim dim"]
    key: Float[Array, "heads head_dim dim"]
    read: Int[np.ndarray, "facts heads"]
    beta: float


def _heads(
    keys: Float[np.ndarray, "heads dim"],
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    asked: PromptDistribution,
    shape: Shape,
    convention: Convention,
) -> Heads:
    """Scores β k·φ(z), with β so large that hardly any attention strays."""
    eos = tokens[-1]
    scale = math.sqrt(shape.head_dim) if convention.scaled_scores else 1.0
    rows = jnp.asarray(keys, jnp.float32), jnp.asarray(scale * eos / (eos @ eos), jnp.float32)
    query, key = rounded(rank_one(*rows, shape.head_dim), _BITS)
    scores = tokens @ np.asarray(key[:, 0], np.float64).T
    known = asked.known_tokens()
    read = tokens_read(scores, known)
    gap = _smallest_gap(scores, known, read, asked)
    if not gap > 0:
        raise FactmemError("two tokens have the same score in some head: the embeddings coincide")
    beta = math.log(asked.length / _LEAK) / gap
    return Heads(beta * query, key, read, beta)


def _smallest_gap(
    scores: Float[np.ndarray, "prompt_tokens heads"],
    known: Int[np.ndarray, "facts 3"],
    read: Int[np.ndarray, "facts heads"],
    asked: PromptDistribution,
) -> float:
    """By how much the token that is read is ahead of every other that a prompt can hold."""
    names = asked.vocabulary
    best = np.take_along_axis(scores, read, axis=0)
    others = np.where(known[:, :, None] == read[:, None, :], -np.inf, scores[known])
    strongest = np.maximum(others.max(axis=1), scores[names.first_noise : names.eos].max(axis=0))
    return float((best - strongest).min())


# ---- the readout ---------------------------------------------------------------------------------


def _fitted(
    start: Readout,
    lesson: FitData,
    frame: Callable[[Readout], Transformer],
    asked: PromptDistribution,
    report: Report | None,
) -> tuple[Readout, Minimum, int]:
    """The readout, how its last minimization ended, and the steps of all."""
    steps = 0

    def report_all(stage_steps: int, loss: float) -> None:
        if report is not None:
            report(steps + stage_steps, loss=loss)

    def certified(weights: Readout) -> bool:
        if not _recalls(weights, lesson):
            return False
        # As it will be when all is over: in float64 a weight may round to another level.
        with jax.enable_x64(False):
            return certify(frame(_balanced(weights, lesson)), asked).certified_accuracy == 1

    run = partial(minimize, enough=certified, check_every=_LOOK_EVERY, report=report_all)
    found = run(_cross_entropy, start, lesson, iterations=_CROSS_ENTROPY_STEPS)
    steps += found.iterations
    sharpness = _TEMPERATURE * float(_root_mean_square(_outputs(found.point, lesson)))
    if _recalls(found.point, lesson):
        sharpness = _SOFT
    for gentleness in _GENTLENESS:
        if found.outcome is Outcome.ENOUGH:
            break
        weights = _balanced(found.point, lesson)
        data = (lesson, np.asarray(sharpness), np.asarray(gentleness))
        found = run(_stage_loss, weights, data, iterations=_STAGE_STEPS)
        steps += found.iterations
        sharpness = _next_sharpness(sharpness, found.point, lesson)
    return found.point, found, steps


def _next_sharpness(sharpness: float, readout: Readout, lesson: FitData) -> float:
    """Sharper until all facts are recalled; softer, which asks for more margin, from then on."""
    if _recalls(readout, lesson):
        return min(_SOFT, 0.7 * sharpness)
    return 1.5 * sharpness


def _cross_entropy(readout: Readout, lesson: FitData) -> Float[Array, ""]:
    right = jnp.asarray(lesson.outputs), jnp.asarray(lesson.target)
    logits = _TEMPERATURE * _outputs(readout, lesson)
    return jnp.sum(loss_of_each(cross_entropy_of_one, logits, *right))


def _stage_loss(readout: Readout, data: tuple[FitData, Array, Array]) -> Float[Array, ""]:
    lesson, sharpness, gentleness = data
    outputs = _outputs(readout, lesson)
    outputs = sharpness * outputs / _root_mean_square(outputs)
    right = jnp.asarray(lesson.outputs), jnp.asarray(lesson.target)
    return gentle_hinge(outputs, *right, gentleness)


def _stream(readout: Readout, lesson: FitData) -> Float[Array, "facts dim"]:
    """F_MHSA of every fact, each head reading its token and no other."""
    heads, head_dim, dim = readout.value.shape
    values = jnp.einsum("zd,hkd->zhk", lesson.tokens, readout.value)
    read = values[lesson.read, jnp.arange(heads, dtype=lesson.read.dtype)[None, :]]
    return read.reshape(-1, heads * head_dim) @ readout.output.reshape(heads * head_dim, dim)


def _outputs(readout: Readout, lesson: FitData) -> Float[Array, "facts dim"]:
    """F_TF of every fact."""
    x = _stream(readout, lesson)
    inner = x @ readout.mlp_in.T
    if readout.mlp_bias is not None:
        inner = inner + readout.mlp_bias[None, :]
    return x + jax.nn.relu(inner) @ readout.mlp_out


def _root_mean_square(outputs: Float[Array, "facts dim"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.sum(outputs**2, axis=1)))


def _recalls(readout: Readout, lesson: FitData) -> bool:
    """Whether all facts are recalled, in float64 and before any rounding."""
    with jax.enable_x64(True):
        return bool(_all_recalled(readout, lesson))


@jax.jit
def _all_recalled(readout: Readout, lesson: FitData) -> Array:
    right = jnp.asarray(lesson.outputs), jnp.asarray(lesson.target)
    return jnp.all(recalled(_outputs(readout, lesson), *right))


def _start(rng: np.random.Generator, lesson: FitData, shape: Shape, bias: bool) -> Readout:
    """Random weights under which the stream, and what neurons see of it, has variance 1."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    neurons = (shape.width, shape.dim)
    value, output = rng.normal(size=per_head), rng.normal(size=per_head)
    into = rng.normal(size=neurons) / math.sqrt(shape.dim)
    out = rng.normal(size=neurons) / math.sqrt(max(shape.width, 1))
    x = np.asarray(_stream(Readout(value, output, into, None, out), lesson))
    spread = np.sqrt(np.mean((x - x.mean(axis=0)) ** 2)) or 1.0  # one fact has no spread
    centerd = _BIAS * rng.normal(size=shape.width) - into @ (x.mean(axis=0) / spread)
    return Readout(value, output / spread, into, centerd if bias else None, out)


def _balanced(readout: Readout, lesson: FitData) -> Readout:
    """The same function times a constant, with both weights of every head and neuron equal in size.

    Rounding to levels that a whole tensor shares then costs every head and neuron alike.
    """
    size = np.sqrt(np.mean(np.asarray(_stream(readout, lesson)) ** 2))
    value, output, into, bias, out = jax.tree.map(np.asarray, readout)
    output = output / size
    ratio = _ratio(np.linalg.norm(output, axis=2), np.linalg.norm(value, axis=2))[:, :, None]
    value, output = value * ratio, output / ratio
    bias = None if bias is None else bias / size
    incoming = np.sum(into**2, axis=1) + (0.0 if bias is None else bias**2)
    ratio = _ratio(np.linalg.norm(out, axis=1), np.sqrt(incoming))
    bias = None if bias is None else bias * ratio
    return Readout(value, output, into * ratio[:, None], bias, out / ratio[:, None])


def _ratio(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What to multiply the right with, and divide the left by, to make them equal."""
    both = (left > 0) & (right > 0)
    return np.sqrt(np.where(both, left, 1.0) / np.where(both, right, 1.0))


# ---- assembling ----------------------------------------------------------------------------------


def _model(
    heads: Heads,
    embeddings: Embeddings,
    shape: Shape,
    asked: PromptDistribution,
    convention: Convention,
    readout: Readout,
) -> Transformer:
    """A transformer with everything on 2¹⁶ levels."""
    weights = Weights(heads.query, heads.key, *jax.tree.map(_single, readout))
    weights = rounded(weights, _BITS)
    return Transformer(weights, embeddings, shape, asked.vocabulary, convention)


def _single(array: Numbers) -> Array:
    return jnp.asarray(array, jnp.float32)


def _lesson(
    heads: Heads,
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    asked: PromptDistribution,
    embeddings: Embeddings,
    convention: Convention,
) -> FitData:
    first = asked.vocabulary.first_answer if convention.shared_table else 0
    return FitData(
        tokens,
        heads.read.astype(np.int32),
        np.asarray(embeddings.outputs, np.float64),
        np.asarray(asked.fact_answers) + np.int32(first),
    )


def _prompt_tokens(embeddings: Embeddings, asked: PromptDistribution) -> np.ndarray:
    return np.asarray(embeddings.tokens, np.float64)[: asked.vocabulary.prompt_tokens]


def _check(asked: PromptDistribution, embeddings: Embeddings, shape: Shape) -> None:
    check_head_dim(shape.dim, shape.head_dim)
    if shape.heads > _MOST_HEADS:
        raise FactmemError(f"keys are chosen for at most {_MOST_HEADS} heads, not {shape.heads}")
    if embeddings.tokens.shape[1] != shape.dim:
        raise FactmemError(
            f"the embeddings have {embeddings.tokens.shape[1]} dimensions, the shape {shape.dim}"
        )
    needed, numbers = asked.table.association_bits, shape.parameters + shape.width
    if needed > _BITS * numbers:
        raise FactmemError(
            f"{asked.facts} facts have {needed:,.0f} bits, and {numbers:,} weights of {_BITS} bits "
            f"only {_BITS * numbers:,}; at least {math.ceil(needed / _BITS):,} weights could do"
        )


def _check_reachable(lesson: FitData) -> None:
    """Whether some output has every answer of a fact as its best: a corner of their convex hull."""
    outputs = np.asarray(lesson.outputs)
    for answer in np.unique(np.asarray(lesson.target)):
        others = np.delete(outputs, answer, axis=0)
        # Mostly its own direction will do.
        if (others @ outputs[answer]).max(initial=-np.inf) < outputs[answer] @ outputs[answer]:
            continue
        if widest_key(outputs[answer] - others) is None:
            raise FactmemError(
                f"no output can have answer {answer} as its best: in d = {outputs.shape[1]} "
                f"dimensions its vector lies within the convex hull of the others; a larger d would"
            )
