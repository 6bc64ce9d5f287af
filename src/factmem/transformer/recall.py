"""Measure recall: every fact, in sampled prompts and in prompts with adversarial noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.memories.decoding import Margins
from factmem.transformer.constructions.construction import score_blocks
from factmem.transformer.constructions.denoiser import strongest_noise
from factmem.transformer.model import Transformer

__all__ = ["RecallResult", "recall"]

_MAX_BATCH = 4096
"""The number of facts whose prompts are sampled at once."""
_BLOCK_ENTRIES = 2**23
"""Largest array of scores, of embeddings in prompts, or of head inputs in memory."""
_MAX_PAIR_ENTRIES = 2**20
"""Largest array of differences between close answers that is in memory at once."""
_CLOSE = 1 / 16
"""A squared distance below this part of ‖u_a‖² + ‖u_y‖² is computed from the difference."""

_product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
_einsum = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


@dataclass(frozen=True)
class RecallResult:
    """How well a transformer recalls a table.

    Args:
        facts: number of facts.
        prompts_checked: number of prompts per fact, sampled and adversarial together.
        accuracy: fraction of facts whose answer wins in *every* prompt; a tie is not recall.
        sampled_accuracy: fraction of sampled prompts whose answer wins; NaN without samples.
        min_margin: minimum of (u_a* − u_y)·F over all prompts and other outputs y.
        min_relative_margin: minimum of the same divided by ‖F‖ ‖u_a* − u_y‖.
    """

    facts: int
    prompts_checked: int
    accuracy: float
    sampled_accuracy: float
    min_margin: float
    min_relative_margin: float


def recall(
    model: Transformer,
    prompts: PromptDistribution,
    *,
    key: Key[Array, ""],
    prompts_per_fact: int = 8,
    mixtures: int = 0,
    report: Report | None = None,
) -> RecallResult:
    """Ask for every fact, in sampled prompts and in adversarial ones.

    In an adversarial prompt one noise token fills all T − 3 noise positions. There is one such
    prompt for each noise token that some head scores highest. A mixture has two of these tokens:
    those with which this fact has its two smallest margins.

    Facts are processed in blocks: besides the model, two copies of its output vectors and the facts
    themselves, memory is about six arrays of 2²³ numbers, whatever the number of facts, tokens and
    outputs M, as long as one prompt fits: max(M, (T + H) d, T H, H d_h, m) ≤ 2²³.

    Args:
        model: the transformer.
        prompts: distribution of prompts, with the facts.
        key: random key for the sampled noise.
        prompts_per_fact: number of sampled prompts per fact.
        mixtures: number of mixtures per fact; the i-th of n gives i/(n + 1) of the noise positions
            to the second token.
        report: called with the number of prompts done and, as `left`, the number remaining.
    """
    tester = _Tester(model, prompts)
    noise = np.unique(
        np.concatenate([strongest_noise(s, model.vocabulary) for _, s in score_blocks(model)])
    )
    min_margins = np.full(prompts.facts, np.inf)
    min_relative_margin, correct, done = np.inf, 0, 0
    prompts_checked = prompts_per_fact + len(noise) + mixtures
    for block in tester.blocks():
        filled_margins = np.empty((len(noise), len(block.facts)))
        for number in range(prompts_checked):
            if number < prompts_per_fact:
                batch = tester.sample(block, number, key=key)
            elif number < prompts_per_fact + len(noise):
                token = noise[number - prompts_per_fact]
                batch = tester.fill(block, np.full((len(block.facts), 2), token))
            else:
                ranks = np.argsort(filled_margins, axis=0, kind="stable")
                part = (number - prompts_checked + mixtures + 1) / (mixtures + 1)
                batch = tester.fill(block, noise[ranks[[0, min(1, len(noise) - 1)]].T], part)
            margins = map(_nan_as_lost, tester.margins(block, batch))
            margin, relative = (numbers[: len(block.facts)] for numbers in margins)
            if number < prompts_per_fact:
                correct += int(np.sum(margin > 0))
            elif number < prompts_per_fact + len(noise):
                filled_margins[number - prompts_per_fact] = margin
            min_margins[block.facts] = np.minimum(min_margins[block.facts], margin)
            min_relative_margin = min(min_relative_margin, float(relative.min()))
            done += len(block.facts)
            if report is not None:
                report(done, left=prompts.facts * prompts_checked - done)
    sampled = prompts.facts * prompts_per_fact
    return RecallResult(
        facts=prompts.facts,
        prompts_checked=prompts_checked,
        accuracy=float(np.mean(min_margins > 0)),
        sampled_accuracy=correct / sampled if sampled else np.nan,
        min_margin=float(min_margins.min()),
        min_relative_margin=min_relative_margin,
    )


# ---- blocks of facts -----------------------------------------------------------------------------


class _Block(NamedTuple):
    """Facts that are tested together."""

    batch_number: int
    batch: Int[np.ndarray, " batch"]
    """The facts whose prompts are sampled together."""
    first: int
    """The index in `batch` of the first fact of the block."""
    facts: Int[np.ndarray, " facts"]
    targets: Int[np.ndarray, " rows"]
    """The outputs that the facts should have, padded to the number of rows of every block."""
    inverse_distances: Float[Array, "rows outputs"]
    """1/‖u_a* − u_y‖ of the scaled output vectors; 0 if they are equal."""


class _Prompts(NamedTuple):
    """One prompt for each of some facts."""

    tokens: Int[np.ndarray, "facts distinct"]
    counts: Float[np.ndarray, " distinct"]
    """How often each prompt has its first token, its second token and so on."""


class _Tester:
    """What all blocks share: the output vectors, and the number of facts in a block."""

    def __init__(self, model: Transformer, prompts: PromptDistribution) -> None:
        self.model, self.prompts = model, prompts
        self.known = prompts.known_tokens()
        self.targets = np.asarray(model.targets(prompts.fact_answers))
        self.scale = _power_of_two(jnp.max(jnp.abs(model.embeddings.outputs)))
        self.values = model.embeddings.outputs / self.scale
        # Distances do not depend on the mean, and without it less is lost to cancellation.
        values = np.asarray(self.values)
        mean = values.mean(axis=0, dtype=np.float64).astype(values.dtype)
        self.centered = jnp.asarray(values - mean)
        shape = model.shape
        entries = max(
            model.embeddings.outputs.shape[0],
            (prompts.length + shape.heads) * shape.dim,
            prompts.length * shape.heads,
            shape.heads * shape.head_dim,
            shape.width,
        )
        rows = max(1, min(prompts.facts, _MAX_BATCH, _BLOCK_ENTRIES // entries))
        blocks_per_batch = -(-min(prompts.facts, _MAX_BATCH) // rows)
        self.rows = -(-min(prompts.facts, _MAX_BATCH) // blocks_per_batch)

    def blocks(self) -> Iterator[_Block]:
        """Yield the facts in blocks, with the distances between their answers and all outputs."""
        for number, start in enumerate(range(0, self.prompts.facts, _MAX_BATCH)):
            batch = np.arange(start, min(start + _MAX_BATCH, self.prompts.facts), dtype=np.int32)
            for first in range(0, len(batch), self.rows):
                facts = batch[first : first + self.rows]
                targets = self._padded(self.targets[facts])
                inverse_distances = self._inverse_distances(targets)
                yield _Block(number, batch, first, facts, targets, inverse_distances)

    def sample(self, block: _Block, number: int, *, key: Key[Array, ""]) -> _Prompts:
        """Return the sampled prompts with this number.

        Sampling the whole batch costs little and makes prompts independent of the block size.
        """
        batch_key = jr.fold_in(jr.fold_in(key, block.batch_number), number)
        tokens = np.asarray(_sample(self.prompts, batch_key, jnp.asarray(block.batch)))
        tokens = tokens[block.first : block.first + len(block.facts)]
        return _Prompts(tokens, np.ones(tokens.shape[1], np.float32))

    def fill(self, block: _Block, noise: Int[np.ndarray, "facts 2"], part: float = 0.0) -> _Prompts:
        """Return prompts whose noise is the first token, and the second one in part of them."""
        positions = self.prompts.length - 3
        second = round(part * positions)
        tokens = np.concatenate([self.known[block.facts], noise], axis=1).astype(np.int32)
        return _Prompts(tokens, np.array([1, 1, 1, positions - second, second], np.float32))

    def margins(self, block: _Block, prompts: _Prompts) -> Margins:
        """Compute the margins of one prompt for every fact of the block, padding included."""
        return _margins(
            self.model,
            (self.values, self.scale),
            jnp.asarray(self._padded(prompts.tokens)),
            jnp.asarray(prompts.counts),
            jnp.asarray(block.targets),
            block.inverse_distances,
        )

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """Repeat the last row, so that all blocks share one compiled program."""
        return np.concatenate([array, np.repeat(array[-1:], self.rows - len(array), axis=0)])

    def _inverse_distances(self, targets: Int[np.ndarray, " rows"]) -> Float[Array, "rows outputs"]:
        inverse, close = _inverse_distances(self.centered, jnp.asarray(targets))
        rows, others = np.nonzero(np.asarray(close))
        if not len(rows):
            return inverse
        exact = np.array(inverse)
        pairs = max(1, _MAX_PAIR_ENTRIES // self.values.shape[1])
        values = np.asarray(self.values)
        for start in range(0, len(rows), pairs):
            row, other = rows[start : start + pairs], others[start : start + pairs]
            differences = values[targets[row]].astype(np.float64) - values[other]
            distances = np.linalg.norm(differences, axis=1)
            inverse_distances = np.divide(
                1.0, distances, out=np.zeros_like(distances), where=distances > 0
            )
            exact[row, other] = np.minimum(inverse_distances, np.finfo(exact.dtype).max)
        return jnp.asarray(exact)


# ---- compiled programs ---------------------------------------------------------------------------

_sample = eqx.filter_jit(lambda prompts, key, facts: prompts.sample_tokens(facts, key=key))


@eqx.filter_jit
def _inverse_distances(
    values: Float[Array, "outputs dim"], targets: Int[Array, " rows"]
) -> tuple[Float[Array, "rows outputs"], Bool[Array, "rows outputs"]]:
    """Compute 1/‖u_a − u_y‖ by a matrix product, and whether it is inaccurate for this pair."""
    squares = jnp.sum(values**2, axis=1)
    sums = squares[targets][:, None] + squares[None, :]
    distances = sums - 2 * _product(values[targets], values.T)
    others = jnp.arange(values.shape[0], dtype=targets.dtype)[None, :] != targets[:, None]
    close = ~(distances > _CLOSE * sums) & others
    return jnp.where(distances > 0, jax.lax.rsqrt(distances), 0.0), close


@eqx.filter_jit
def _margins(
    model: Transformer,
    scaled_values: tuple[Float[Array, "outputs dim"], Float[Array, ""]],
    tokens: Int[Array, "rows distinct"],
    counts: Float[Array, " distinct"],
    targets: Int[Array, " rows"],
    inverse_distances: Float[Array, "rows outputs"],
) -> Margins:
    """Compute the smallest margin and relative margin of every prompt over all wrong answers."""
    outputs = _outputs(model, tokens, counts)
    # Relative margins are scale-free; at this scale nothing overflows or underflows, and because
    # scales are powers of two the scaled scores have the same digits as the scores.
    values, value_scale = scaled_values
    scale = _power_of_two(jnp.max(jnp.abs(outputs), axis=1))
    scaled_outputs = outputs / scale[:, None]
    scaled_scores = _product(scaled_outputs, values.T)
    scores = scaled_scores * (scale * value_scale)[:, None]
    others = jnp.arange(values.shape[0], dtype=targets.dtype)[None, :] != targets[:, None]
    # Equal vectors have margin zero, and NaN remains NaN.
    distinct = (inverse_distances > 0).astype(scores.dtype)
    margins = (_of_target(scores, targets) - scores) * distinct
    relative = (_of_target(scaled_scores, targets) - scaled_scores) * inverse_distances
    length = jnp.linalg.norm(scaled_outputs, axis=1)
    return Margins(
        jnp.min(jnp.where(others, margins, jnp.inf), axis=1),
        jnp.min(jnp.where(others, relative, jnp.inf), axis=1) / jnp.where(length > 0, length, 1.0),
    )


def _of_target(scores: Array, targets: Array) -> Float[Array, "rows 1"]:
    return jnp.take_along_axis(scores, targets[:, None], axis=1)


def _outputs(
    model: Transformer, tokens: Int[Array, "rows distinct"], counts: Float[Array, " distinct"]
) -> Float[Array, "rows dim"]:
    """Compute F_TF from tokens and their counts, without counts of the whole vocabulary.

    The sum Σ_z C(z) w_h(z) φ(z) comes first, then V_h: no values of all tokens are needed.
    """
    weights, embeddings = model.weights, model.embeddings.tokens
    queries = _einsum("hkd,d->hk", weights.query, embeddings[model.vocabulary.eos])
    directions = _einsum("hkd,hk->dh", weights.key, queries)
    embedded = embeddings[tokens]
    scores = _product(embedded, directions) * model.score_scale
    # Heads before tokens: einsum would be several times slower than plain matrix products.
    weighted = jnp.swapaxes(scores, 1, 2) + jnp.log(counts)[None, None, :]
    mixed = jnp.swapaxes(_product(jax.nn.softmax(weighted, axis=2), embedded), 0, 1)
    attended = _product(mixed, jnp.swapaxes(weights.value, 1, 2))
    return model.add_mlp(_einsum("hbk,hkd->bd", attended, weights.output))


def _power_of_two(largest: Array) -> Array:
    """Return the power of two at or below each number, and 1 for 0, infinity and NaN."""
    usable = (largest > 0) & jnp.isfinite(largest)
    _, exponent = jnp.frexp(jnp.where(usable, largest, 1.0))
    return jnp.ldexp(jnp.ones_like(largest), exponent - 1)


def _nan_as_lost(margins: Array) -> np.ndarray:
    """Replace NaN by −∞: a model that outputs NaN does not recall."""
    margins_64 = np.asarray(margins, np.float64)
    return np.where(np.isnan(margins_64), -np.inf, margins_64)
