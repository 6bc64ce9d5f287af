"""A proof that a transformer recalls its facts, whatever noise the prompt contains.

A prompt has one subject, one relation, EOS and T − 3 noise tokens with any multiplicities. In it, a
head gives the strongest of the three known tokens, t, all attention except a fraction

    leak ≤ Σ_{other two} exp(s(z) − s(t)) + (T − 3) max_{noise} exp(s(n) − s(t)),

so its output is within leak · (largest − smallest value) of the value of t. This error, and the
rounding errors of float32 in every product (γ_n = n u/(1 − n u) for sums of n terms in any order,
u = 2⁻²⁴), are propagated through the outputs, the MLP and the logits, entry by entry. Subtracting
them from a fact's margin gives a lower bound; if it is positive, no prompt can make float32
arithmetic give another answer.

The certificate holds for any weights, also for trained transformers, but it is loose if their heads
do not concentrate on one token. It is computed in float64, with errors a billion times smaller than
those it bounds; the bounds are widened by one part in a million to cover them.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.memories.activations import Relu
from factmem.transformer.constructions.denoiser import tokens_read
from factmem.transformer.model import Transformer

__all__ = ["Certificate", "certify"]

_UNIT_ROUNDOFF = 2.0**-24
_WIDENING = 1 + 1e-6
_TINY, _HUGE = 2.0**-126, 2.0**127
"""Smaller numbers may be flushed to zero, larger ones may overflow and are never certified."""
_FLUSHED = 2.0 ** (-23 * 1.25)
"""Attention weights below this fraction of their sum may vanish in the shared-shift form."""
_SOFTMAX_ROUNDINGS = 16
"""Roundings of a softmax weight: exp, its argument, products, sums and the division."""
_MAX_PAIR_ENTRIES = 2**22
"""Largest array of differences between answers that is in memory at once."""


@dataclass(frozen=True)
class Certificate:
    """Proven bounds for a transformer and a table.

    Args:
        margins: for every fact, a lower bound of (u_a* − u_y)·F over all prompts and other
            outputs y.
        attention_leaks: for every fact, an upper bound of the attention that any head gives to
            tokens other than the one it reads.
    """

    margins: Float[np.ndarray, " facts"]
    attention_leaks: Float[np.ndarray, " facts"]

    @property
    def certified_accuracy(self) -> float:
        """The fraction of facts that are recalled in every prompt."""
        return float(np.mean(self.margins > 0))

    @property
    def min_certified_margin(self) -> float:
        """The smallest bound of a margin; not positive if some fact is not certified."""
        return float(self.margins.min())

    @property
    def max_attention_leak(self) -> float:
        """The largest attention leak of any fact."""
        return float(self.attention_leaks.max())

    @property
    def metrics(self) -> dict[str, Any]:
        """The summary of the certificate as JSON data."""
        return {
            "certified_accuracy": self.certified_accuracy,
            "min_certified_margin": self.min_certified_margin,
            "max_attention_leak": self.max_attention_leak,
        }


class _Interval(NamedTuple):
    """Numbers `center` ± `error`: the error covers float32 arithmetic and the worst prompt."""

    center: np.ndarray
    error: np.ndarray

    @property
    def magnitude(self) -> np.ndarray:
        return np.abs(self.center) + self.error


def certify(model: Transformer, prompts: PromptDistribution) -> Certificate:
    """Bound the margin of every fact over every prompt that asks for it.

    Args:
        model: a transformer with float32 weights, and with ReLU or without an MLP.
        prompts: the facts and the prompt length T.

    Raises:
        FactmemError: the activation is not ReLU; its slope is unbounded.
    """
    if model.shape.width and not isinstance(model.activation, Relu):
        raise FactmemError(
            f"a certificate needs ReLU, got {type(model.activation).__name__}, whose slope is "
            "unbounded"
        )
    targets = np.asarray(model.targets(prompts.fact_answers))
    with np.errstate(over="ignore", invalid="ignore"):
        attended, leaks = _attend(model, prompts)
        attention = _product(attended, _float64(model.weights.output).reshape(-1, model.shape.dim))
        outputs = _add_mlp(model, attention)
        margins = _min_margins(outputs, _float64(model.embeddings.outputs), targets)
    return Certificate(np.where(np.isnan(margins), -np.inf, margins), leaks)


# ---- attention -----------------------------------------------------------------------------------


def _attend(model: Transformer, prompts: PromptDistribution) -> tuple[_Interval, np.ndarray]:
    """Bound the heads' attention outputs [facts, heads · head_dim] and the leak of every fact."""
    scores = _scores(model)
    values = _values(model)
    vocabulary = model.vocabulary
    read, leaks = _read_tokens(
        scores,
        prompts.known_tokens(),
        slice(vocabulary.first_noise, vocabulary.eos),
        prompts.length - 3,
    )
    heads = np.arange(model.shape.heads)[None, :]
    center, value_error = values.center[read, heads], values.error[read, heads]
    spread = np.ptp(values.center, axis=0) + 2 * values.error.max(axis=0)
    # Adding b to a has an error of at most |b|. If all terms but one are small, so is the error of
    # the sum, both of weighted values and of weights.
    sum_error = (
        2
        * prompts.length
        * np.minimum(leaks[:, :, None], _UNIT_ROUNDOFF)
        * values.magnitude.max(axis=0)
    )
    rounding = _gamma(_SOFTMAX_ROUNDINGS) * (np.abs(center) + value_error) + sum_error
    error = value_error + leaks[:, :, None] * spread[None] + rounding * _WIDENING
    error += prompts.length * _FLUSHED
    rows = (prompts.facts, -1)
    return _Interval(center.reshape(rows), error.reshape(rows)), leaks.max(axis=1)


def _read_tokens(
    scores: _Interval, known: Int[np.ndarray, "facts 3"], noise: slice, noise_positions: int
) -> tuple[Int[np.ndarray, "facts heads"], Float[np.ndarray, "facts heads"]]:
    """Return the strongest known token of every fact and head, and a bound of its leak."""
    # The argument of exp is a difference of scores, and is rounded itself.
    error = scores.error + 2 * _UNIT_ROUNDOFF * np.ptp(scores.center, axis=0)
    high, low = scores.center + error, scores.center - error
    read = tokens_read(scores.center, known)
    read_low = np.take_along_axis(low, read, axis=0)
    gaps = np.where(
        known[:, :, None] == read[:, None, :], -np.inf, high[known] - read_low[:, None, :]
    )
    others = np.exp(np.minimum(gaps, 600.0))
    noise_gap = np.minimum(high[noise].max(axis=0)[None, :] - read_low, 600.0)
    leaks = others.sum(axis=1) + noise_positions * np.exp(noise_gap)
    leaks = leaks / (1 + leaks) * (1 + 4 * _SOFTMAX_ROUNDINGS * _UNIT_ROUNDOFF) + _TINY
    return read, leaks


def _scores(model: Transformer) -> _Interval:
    """Bound `Transformer.scores`: three products and a scale."""
    tokens = _exact(_prompt_tokens(model))
    queries = _einsum("hkd,d->hk", _float64(model.weights.query), _exact(tokens.center[-1]))
    directions = _einsum("hkd,hk->dh", _float64(model.weights.key), queries)
    scores = _einsum("zd,dh->zh", tokens.center, directions)
    scaled = _Interval(scores.center * model.score_scale, scores.error * model.score_scale)
    return _Interval(scaled.center, scaled.error + _gamma(2) * scaled.magnitude + _TINY)


def _values(model: Transformer) -> _Interval:
    return _einsum("hkd,zd->zhk", _float64(model.weights.value), _exact(_prompt_tokens(model)))


def _prompt_tokens(model: Transformer) -> np.ndarray:
    return _float64(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]


# ---- after attention -----------------------------------------------------------------------------


def _product(left: _Interval, right: np.ndarray) -> _Interval:
    """Bound left @ right for exact `right`."""
    return _einsum("ij,fi->fj", right, left)


def _einsum(subscripts: str, exact: np.ndarray, interval: _Interval) -> _Interval:
    """Bound an einsum of exact numbers with intervals, summed in float32 in any order."""
    inputs, output = subscripts.split("->")
    summed = set(inputs.split(",")[0]) - set(output)
    terms = math.prod(exact.shape[inputs.index(index)] for index in summed)
    absolute = np.abs(exact)
    magnitude = np.einsum(subscripts, absolute, interval.magnitude, optimize=True)
    error = np.einsum(subscripts, absolute, interval.error, optimize=True)
    error = error + _gamma(terms) * magnitude
    largest = 1 + absolute.max(initial=0.0) + interval.magnitude.max(initial=0.0)
    flushed = terms * _TINY * largest
    error = np.where(magnitude < _HUGE, (error + flushed) * _WIDENING, np.inf)
    return _Interval(np.einsum(subscripts, exact, interval.center, optimize=True), error)


def _add_mlp(model: Transformer, x: _Interval) -> _Interval:
    """Bound `Transformer.add_mlp`."""
    if model.shape.width == 0:
        return x
    weights = model.weights
    preactivation = _product(x, _float64(weights.mlp_in).T)
    if weights.mlp_bias is not None:
        preactivation = _sum(preactivation, _exact(_float64(weights.mlp_bias)[None, :]))
    # ReLU does not increase distances, and a neuron that cannot be active has no error at all.
    inactive = preactivation.center + preactivation.error < 0
    hidden = _Interval(
        np.maximum(preactivation.center, 0.0), np.where(inactive, 0.0, preactivation.error)
    )
    return _sum(x, _product(hidden, _float64(weights.mlp_out)))


def _sum(left: _Interval, right: _Interval) -> _Interval:
    total = _Interval(left.center + right.center, left.error + right.error)
    return _Interval(total.center, (total.error + _gamma(1) * total.magnitude) * _WIDENING)


def _min_margins(
    outputs: _Interval, answers: Float[np.ndarray, "outputs dim"], targets: np.ndarray
) -> Float[np.ndarray, " facts"]:
    """Bound the smallest margin of every fact from below."""
    count, dim = answers.shape
    chunk_size = max(1, _MAX_PAIR_ENTRIES // (count * dim))
    absolute = np.abs(answers)
    min_margins = np.empty(len(targets))
    for start in range(0, len(targets), chunk_size):
        chunk = slice(start, start + chunk_size)
        center, error = outputs.center[chunk], outputs.error[chunk]
        target = targets[chunk]
        logits = center @ answers.T
        margins = np.take_along_axis(logits, target[:, None], axis=1) - logits
        differences = np.abs(answers[target][:, None, :] - answers[None, :, :])
        output_error = np.einsum("fyd,fd->fy", differences, error)
        magnitudes = (np.abs(center) + error) @ absolute.T
        rounding = _gamma(dim) * magnitudes + dim * _TINY * (1 + absolute.max() + error.max())
        rounding = np.where(magnitudes < _HUGE, rounding, np.inf)
        rounding = rounding + np.take_along_axis(rounding, target[:, None], axis=1)
        bound = margins - (output_error + rounding) * _WIDENING
        np.put_along_axis(bound, target[:, None], np.inf, axis=1)
        finite = np.isfinite(center).all(axis=1) & np.isfinite(error).all(axis=1)
        min_margins[chunk] = np.where(finite, bound.min(axis=1), -np.inf)
    return min_margins


def _gamma(terms: int) -> float:
    """Return γ_n, the error of a float32 sum of n products relative to the sum of magnitudes."""
    return terms * _UNIT_ROUNDOFF / (1 - terms * _UNIT_ROUNDOFF)


def _exact(numbers: np.ndarray) -> _Interval:
    return _Interval(numbers, np.zeros_like(numbers))


def _float64(array: object) -> np.ndarray:
    return np.asarray(array, np.float64)
