"""The certificate of hard reading: each head reads one token, and all other attention is error.

This is what `certify` did before it knew the mixture of the known tokens. It bounds all leaked
attention by the spread of all values, and everything else entry by entry. The tests require that
`certify` is at least as tight. Scores, and the sizes of rounding errors, are those of `certify`.
"""

import math
from typing import NamedTuple

import numpy as np

from factmem.transformer.certificate import _scores
from factmem.transformer.constructions.denoiser import tokens_read

_UNIT_ROUNDOFF = 2.0**-24
_WIDENING = 1 + 1e-6
_TINY, _HUGE = 2.0**-126, 2.0**127
_FLUSHED = 2.0 ** (-23 * 1.25)
_SOFTMAX_ROUNDINGS = 16


def hard_reading_margins(model, prompts):
    """Return a lower bound of every fact's margin, −∞ if a number overflows."""
    targets = np.asarray(model.targets(prompts.fact_answers))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        attended = _attend(model, prompts)
        attention = _product(attended, _float64(model.weights.output).reshape(-1, model.shape.dim))
        outputs = _add_mlp(model, attention)
        margins = _min_margins(outputs, _float64(model.embeddings.outputs), targets)
    return np.where(np.isnan(margins), -np.inf, margins)


class _Interval(NamedTuple):
    """Numbers `center` ± `error`: the error covers float32 arithmetic and the worst prompt."""

    center: np.ndarray
    error: np.ndarray

    @property
    def magnitude(self):
        return np.abs(self.center) + self.error


# ---- attention -----------------------------------------------------------------------------------


def _attend(model, prompts):
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
    value, tokens = np.abs(_float64(model.weights.value)), np.abs(_prompt_tokens(model))
    sizes = np.einsum("hkd,zd->zhk", value, tokens)
    length, largest = prompts.length, sizes.max(axis=0)
    leak = leaks[:, :, None]
    rounding = _gamma(_SOFTMAX_ROUNDINGS) * sizes[read, heads]
    rounding = rounding + 2 * length * np.minimum(leak, _UNIT_ROUNDOFF) * largest
    vanished = 2 * length * np.minimum(leak * largest, _FLUSHED * (1 + largest))
    error = value_error + leak * spread[None] + rounding * _WIDENING
    error += vanished + length * (_TINY * (1 + largest) + _FLUSHED)
    rows = (prompts.facts, -1)
    return _Interval(center.reshape(rows), error.reshape(rows))


def _read_tokens(scores, known, noise, noise_positions):
    """Return the strongest known token of every fact and head, and a bound of its leak."""
    # The argument of exp is a difference of scores, and is rounded itself.
    # So is the sum of a score and the logarithm of a count.
    largest = np.abs(scores.center).max(axis=0) + math.log(noise_positions + 3)
    error = scores.error + _UNIT_ROUNDOFF * (2 * np.ptp(scores.center, axis=0) + largest)
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


def _values(model):
    return _einsum("hkd,zd->zhk", _float64(model.weights.value), _exact(_prompt_tokens(model)))


def _prompt_tokens(model):
    return _float64(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]


# ---- after attention -----------------------------------------------------------------------------


def _product(left, right):
    """Bound left @ right for exact `right`."""
    return _einsum("ij,fi->fj", right, left)


def _einsum(subscripts, exact, interval):
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


def _add_mlp(model, x):
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


def _sum(left, right):
    total = _Interval(left.center + right.center, left.error + right.error)
    return _Interval(total.center, (total.error + _gamma(1) * total.magnitude) * _WIDENING)


def _min_margins(outputs, answers, targets):
    """Bound the smallest margin of every fact from below."""
    count, dim = answers.shape
    chunk_size = max(1, 2**22 // (count * dim))
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


def _gamma(terms):
    """Return γ_n, the error of a float32 sum of n products relative to the sum of magnitudes."""
    return terms * _UNIT_ROUNDOFF / (1 - terms * _UNIT_ROUNDOFF)


def _exact(numbers):
    return _Interval(numbers, np.zeros_like(numbers))


def _float64(array):
    return np.asarray(array, np.float64)
