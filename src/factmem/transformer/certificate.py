"""A proof that a transformer recalls its facts, whatever noise the prompt contains.

A prompt has one subject, one relation, EOS and T − 3 noise tokens with any multiplicities. The
attention of a head *among the three known tokens* does not depend on the noise, so their mixture

    mix = Σ_i p_i v_i,        p = softmax(s(subject), s(relation), s(EOS)),

is known for every fact. Noise takes a share of the attention of at most

    leak = n / (n + Σ_i exp(s_i)),        n = (T − 3) max_{noise} exp(s),

so the head's output lies between mix and (1 − leak) mix + leak · (a mean of noise values). If all
noise tokens of a prompt are different, n is the sum of the T − 3 largest exp(s) instead.

The error of the outputs, and the rounding errors of float32 in every product (γ_n = n u/(1 − n u)
for sums of n terms in any order, u = 2⁻²⁴), are propagated through the output matrices, the MLP and
the logits in two ways: entry by entry, and as a Euclidean norm with the spectral norms of the
matrices. The smaller one counts. Facts that this does not certify, although their center is right,
are bounded once more through the linear map of their active neurons. Subtracting the error from a
fact's margin gives a lower bound; if it is positive, no prompt can make float32 arithmetic give
another answer.

The certificate holds for any weights, also for trained transformers. It is computed in float64,
with errors a billion times smaller than those it bounds; the bounds are widened by one part in a
million to cover them. Facts are processed in blocks: beyond the model and a few numbers per fact,
memory holds about 100 MB and does not grow with the table.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.memories.activations import Relu
from factmem.transformer.model import Transformer

__all__ = ["Certificate", "NoiseModel", "certify"]

_UNIT_ROUNDOFF = 2.0**-24
_WIDENING = 1 + 1e-6
_TINY, _HUGE = 2.0**-126, 2.0**127
"""Smaller numbers may be flushed to zero, larger ones may overflow and are never certified."""
_FLUSHED = 2.0 ** (-23 * 1.25)
"""Attention weights below this fraction of their sum may vanish in the shared-shift form."""
_SOFTMAX_ROUNDINGS = 16
"""Roundings of a softmax weight: exp, its argument, products, sums and the division."""
_MAX_BLOCK_ENTRIES = 2**22
"""Largest array of a block of facts, and of differences between answers, in memory at once."""
_MAX_REFINED_ENTRIES = 2**31
"""Facts × answers × dimensions that are bounded entry by entry in any case: ten seconds. Other
facts are if the bound by norms does not certify them although their center is right."""

NoiseModel = Literal["any", "distinct"]
"""Whether noise tokens may repeat in a prompt, or are all different."""


@dataclass(frozen=True)
class Certificate:
    """Proven bounds for a transformer and a table.

    Args:
        margins: for every fact, a lower bound of (u_a* − u_y)·F over all prompts and other
            outputs y.
        attention_leaks: for every fact, an upper bound of the attention that any head gives to
            noise tokens.
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


class _Ball(NamedTuple):
    """Rows `center` ± `error`, entry by entry, and within `radius` of `center` in norm."""

    center: np.ndarray
    error: np.ndarray
    radius: np.ndarray

    @classmethod
    def around(cls, center: np.ndarray, error: np.ndarray, radius: np.ndarray | None = None):
        """Use the smaller of both bounds for every entry and for every row."""
        norms = np.linalg.norm(error, axis=1) * _WIDENING
        smaller = norms if radius is None else np.fmin(norms, radius)
        return cls(center, np.fmin(error, smaller[:, None]), smaller)

    @property
    def finite(self) -> np.ndarray:
        """Whether all numbers of a row are finite."""
        return np.asarray(np.isfinite(self.center + self.error).all(axis=1))


class _Matrix(NamedTuple):
    """A matrix with what its products need: absolute values and spectral norm."""

    entries: np.ndarray
    absolute: np.ndarray
    norm: float

    @classmethod
    def of(cls, entries: np.ndarray) -> "_Matrix":
        return cls(entries, np.abs(entries), _spectral_norm(entries))


class _Answers(NamedTuple):
    """The output embeddings and their norms."""

    table: Float[np.ndarray, "outputs dim"]
    norms: Float[np.ndarray, " outputs"]

    @classmethod
    def of(cls, table: Float[np.ndarray, "outputs dim"]) -> "_Answers":
        return cls(table, np.linalg.norm(table, axis=1))


def certify(
    model: Transformer,
    prompts: PromptDistribution,
    *,
    noise: NoiseModel = "any",
    report: Report | None = None,
) -> Certificate:
    """Bound the margin of every fact over every prompt that asks for it.

    Args:
        model: a transformer with float32 weights, and with ReLU or without an MLP.
        prompts: the facts and the prompt length T.
        noise: "any" covers all prompts; "distinct" covers prompts whose noise tokens are all
            different.
        report: called with the number of facts that are done.

    Raises:
        FactmemError: the activation is not ReLU, the vocabularies differ, `noise` is unknown, or
            there are too few noise tokens for distinct ones.
    """
    if model.shape.width and not isinstance(model.activation, Relu):
        raise FactmemError(
            f"a certificate needs ReLU, got {type(model.activation).__name__}, whose slope is "
            "unbounded"
        )
    if noise not in ("any", "distinct"):
        raise ArgumentError("noise", f"must be 'any' or 'distinct', got {str(noise)!r}")
    if noise == "distinct" and prompts.length - 3 > model.vocabulary.noise:
        raise ArgumentError(
            "noise",
            f"cannot be 'distinct': {prompts.length - 3} positions have only "
            f"{model.vocabulary.noise} noise tokens",
        )
    if model.vocabulary != prompts.vocabulary:
        raise FactmemError("the model and the prompts must have the same vocabulary")
    targets = np.asarray(model.targets(prompts.fact_answers))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        bounds = _Bounds(model, prompts, noise)
        margins, leaks, exact = (np.empty(prompts.facts) for _ in range(3))
        if bounds.overflow:
            return Certificate(np.full(prompts.facts, -np.inf), np.ones(prompts.facts))
        for block in bounds.blocks():
            outputs, leaks[block] = bounds.outputs(block)
            margins[block], exact[block] = _margins_by_norm(outputs, bounds.answers, targets[block])
            if report is not None:
                report(block.stop, left=prompts.facts - block.stop)
        few = max(1, _MAX_REFINED_ENTRIES // bounds.answers.table.size)
        smallest = np.argsort(margins, kind="stable")[:few]
        for facts in bounds.blocks_of(smallest):
            outputs, _ = bounds.outputs(facts)
            refined = _margins_by_entry(outputs, bounds.answers, targets[facts], np.inf)
            margins[facts] = np.fmax(margins[facts], refined)
        for facts in bounds.blocks_of(np.flatnonzero((margins <= 0) & (exact > 0))):
            outputs = bounds.linearized_outputs(facts)
            refined = _margins_by_entry(outputs, bounds.answers, targets[facts], 0.0)
            margins[facts] = np.fmax(margins[facts], refined)
    leaks = np.where(np.isnan(leaks), 1.0, leaks)
    return Certificate(np.where(np.isnan(margins), -np.inf, margins), leaks)


class _Bounds:
    """The tables of a model that bounds of facts need, and the outputs of blocks of facts."""

    def __init__(self, model: Transformer, prompts: PromptDistribution, noise: NoiseModel) -> None:
        vocabulary, weights = model.vocabulary, model.weights
        self.known = prompts.known_tokens()
        self.length = prompts.length
        scores = _scores(model)
        # The argument of exp is a difference of scores, and is rounded itself.
        # So is its sum with the logarithm of a count.
        rounding = 2 * _UNIT_ROUNDOFF * np.ptp(scores.center, axis=0)
        largest = np.abs(scores.center).max(axis=0) + math.log(prompts.length)
        rounding = rounding + _UNIT_ROUNDOFF * largest
        self.scores = _Interval(scores.center, scores.error + rounding[None, :])
        noise_tokens = slice(vocabulary.first_noise, vocabulary.eos)
        self.log_noise = _log_noise_weight(
            self.scores.center[noise_tokens] + self.scores.error[noise_tokens],
            prompts.length - 3,
            noise,
        )
        self.values = _values(model)
        # 0 · ∞ is not a number: an overflow in any token, in a prompt or not, may reach all facts.
        overflow = ~np.isfinite(self.scores.error).all() | ~np.isfinite(self.values.error).all()
        self.overflow = bool(overflow)
        # Σ p φ may be summed before V is applied: rounding errors have the size of |V||φ|, and
        # terms p φ that are flushed to zero that of |V|.
        value, tokens = np.abs(_float64(weights.value)), np.abs(_prompt_tokens(model))
        self.value_sizes = value.sum(axis=2)
        self.sizes = np.einsum("hkd,zd->zhk", value, tokens, optimize=True) * _WIDENING
        self.largest_size = self.sizes.max(axis=0)
        self.largest_noise_size = self.sizes[noise_tokens].max(axis=0)
        # Noise values that cannot occur, because there is no position for them, do no harm.
        self.noise_values = (
            (self.values.center - self.values.error)[noise_tokens].min(axis=0),
            (self.values.center + self.values.error)[noise_tokens].max(axis=0),
        )
        self.output = _Matrix.of(_float64(weights.output).reshape(-1, model.shape.dim))
        self.mlp = None
        if model.shape.width:
            bias = None if weights.mlp_bias is None else _float64(weights.mlp_bias)
            mlp_in, mlp_out = _float64(weights.mlp_in).T, _float64(weights.mlp_out)
            self.mlp = _Matrix.of(mlp_in), bias, _Matrix.of(mlp_out)
        self.answers = _Answers.of(_float64(model.embeddings.outputs))
        widest = max(3 * self.output.entries.shape[0], model.shape.width, len(self.answers.table))
        self.block_size = max(1, _MAX_BLOCK_ENTRIES // widest)

    def blocks(self) -> Iterator[slice]:
        """Yield slices that cover all facts."""
        for start in range(0, len(self.known), self.block_size):
            yield slice(start, min(start + self.block_size, len(self.known)))

    def blocks_of(self, facts: Int[np.ndarray, " facts"]) -> Iterator[Int[np.ndarray, " block"]]:
        """Split some facts into blocks."""
        for start in range(0, len(facts), self.block_size):
            yield facts[start : start + self.block_size]

    def outputs(self, facts: slice | np.ndarray) -> tuple[_Ball, np.ndarray]:
        """Bound F_TF of some facts, and the attention that their noise gets."""
        attended, leaks = _attend(self, self.known[facts])
        attention = _product(attended, self.output)
        return _add_mlp(self.mlp, attention), leaks

    def linearized_outputs(self, facts: np.ndarray) -> _Ball:
        """Bound F_TF of some facts more tightly, with one d × d matrix for each fact."""
        attended, _ = _attend(self, self.known[facts])
        attention = _product(attended, self.output)
        if self.mlp is None:
            return attention
        whole = _add_mlp(self.mlp, attention)
        error = _linearized_error(attended, self.output, self.mlp)
        return _Ball.around(whole.center, np.fmin(error, whole.error), whole.radius)


# ---- attention -----------------------------------------------------------------------------------


def _attend(bounds: _Bounds, known: Int[np.ndarray, "facts 3"]) -> tuple[_Ball, np.ndarray]:
    """Bound the heads' attention outputs [facts, heads · head_dim] and the leak of every fact."""
    low, high, leaks, rest = _attention_shares(bounds.scores, known, bounds.log_noise)
    shares, share_errors = (low + high) / 2, (high - low) / 2
    center, value_error = bounds.values.center[known], bounds.values.error[known]
    strongest = shares.argmax(axis=1)[:, None, :, None]
    reference = np.take_along_axis(center, strongest, axis=1)
    # Exactly 0 for the strongest token, so that the rounding of its share does no harm.
    differences = center - reference
    mix = reference[:, 0] + np.einsum("fih,fihk->fhk", shares, differences)
    error = np.einsum("fih,fihk->fhk", share_errors, np.abs(differences))
    error += np.einsum("fih,fihk->fhk", high, value_error)
    lowest, highest = bounds.noise_values
    leak = leaks[:, :, None]
    # The output is a mean of the mixture and of noise values, which have a share of at most `leak`.
    lower = mix - error + leak * np.minimum(0.0, lowest[None] - (mix - error))
    upper = mix + error + leak * np.maximum(0.0, highest[None] - (mix + error))
    magnitude = np.einsum("fih,fihk->fhk", high, bounds.sizes[known])
    magnitude += leak * bounds.largest_noise_size
    magnitude += _reference_size(bounds, known, leaks, rest)
    rounding = _gamma(_SOFTMAX_ROUNDINGS) * magnitude + _sum_rounding(bounds, magnitude, rest)
    error = (upper - lower) / 2 + rounding * _WIDENING
    rows = (len(known), -1)
    middle = (upper + lower) / 2
    return _Ball.around(middle.reshape(rows), error.reshape(rows) * _WIDENING), leaks.max(axis=1)


def _reference_size(
    bounds: _Bounds, known: Int[np.ndarray, "facts 3"], leaks: np.ndarray, rest: np.ndarray
) -> Float[np.ndarray, "facts heads head_dim"]:
    """Bound (1 − p_s)|v_s|, where s is the token with the highest float32 score in a prompt.

    Attention by position is v_s + Σ p_i (v_i − v_s). If s is the strongest known token, 1 − p_s is
    at most `rest`; if it is another token, p_s is at least as large as the share of the former,
    which is then at most 1/2. Noise cannot be the strongest if its share is below 1/4, for then
    some known token has more weight than all noise.
    """
    size = bounds.sizes[known].max(axis=1)
    strong_noise = (leaks >= 0.25)[:, :, None] * bounds.largest_noise_size
    return 2 * rest[:, :, None] * np.maximum(size, strong_noise)


def _sum_rounding(
    bounds: _Bounds, magnitude: Float[np.ndarray, "facts heads head_dim"], rest: np.ndarray
) -> Float[np.ndarray, "facts heads head_dim"]:
    """Bound the rounding error of sums over tokens, of weighted values and of weights.

    Adding b to a has an error of at most |b|. If all terms but the strongest are small, with a
    share of `rest`, so is the error of the sum. Weights below 2⁻²⁸·⁷⁵ of their sum may vanish.
    """
    terms, size = bounds.length, bounds.largest_size
    if terms * _UNIT_ROUNDOFF >= 0.5:  # counts of tokens are no longer exact
        return np.full_like(magnitude, np.inf)
    small = terms * rest[:, :, None] * size
    sums = 2 * np.minimum(small, _gamma(terms) * magnitude) / (1 - terms * _UNIT_ROUNDOFF)
    vanished = 2 * np.minimum(small, terms * _FLUSHED * (1 + size))
    return sums + vanished + terms * (_TINY * (1 + size + bounds.value_sizes) + _FLUSHED)


def _attention_shares(
    scores: _Interval, known: Int[np.ndarray, "facts 3"], log_noise: Float[np.ndarray, " heads"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bound every known token's share of the attention among the known tokens.

    Returns:
        The smallest and the largest share of every known token, [facts, 3, heads]; the largest
        share of noise; and the largest share of all tokens but the strongest, [facts, heads].
    """
    error = scores.error[known] + _SOFTMAX_ROUNDINGS * _UNIT_ROUNDOFF
    center = scores.center[known]
    shift = center.max(axis=1, keepdims=True)
    smallest = np.exp(np.maximum(center - shift - error, -700.0)) * (center - shift - error > -700)
    largest = np.exp(np.minimum(center - shift + error, 600.0))
    low = smallest / (smallest + _sum_of_others(largest))
    high = largest / (largest + _sum_of_others(smallest))
    noise = np.exp(np.minimum(log_noise[None, :] - shift[:, 0], 600.0))
    widening = 1 + 4 * _SOFTMAX_ROUNDINGS * _UNIT_ROUNDOFF
    leaks = noise / (noise + smallest.sum(axis=1)) * widening + _TINY
    strongest = center.argmax(axis=1)[:, None, :]
    others = noise + np.take_along_axis(_sum_of_others(largest), strongest, axis=1)[:, 0]
    read = np.take_along_axis(smallest, strongest, axis=1)[:, 0]
    rest = others / (others + read) * widening + _TINY
    return low, np.minimum(high, 1.0), leaks, rest


def _sum_of_others(weights: Float[np.ndarray, "facts 3 heads"]) -> np.ndarray:
    """Sum the weights of the other two tokens; subtracting from a total would lose small ones."""
    return weights[:, [1, 2, 0]] + weights[:, [2, 0, 1]]


def _log_noise_weight(
    scores: Float[np.ndarray, "noise heads"], positions: int, noise: NoiseModel
) -> Float[np.ndarray, " heads"]:
    """Return the logarithm of the largest Σ exp(s) of the noise tokens of a prompt."""
    if positions == 0:
        return np.full(scores.shape[1], -np.inf)
    largest = scores.max(axis=0)
    if noise == "any":
        return largest + math.log(positions)
    strongest = np.sort(scores, axis=0)[::-1][:positions]
    return largest + np.log(np.exp(strongest - largest[None, :]).sum(axis=0)) + 1e-12


def _scores(model: Transformer) -> _Interval:
    """Bound `Transformer.scores`: three products, in both orders, and a scale."""
    tokens = _exact(_prompt_tokens(model))
    key = _float64(model.weights.key)
    queries = _einsum("hkd,d->hk", _float64(model.weights.query), _exact(tokens.center[-1]))
    directions = _einsum("hkd,hk->dh", key, queries)
    scores = _einsum("zd,dh->zh", tokens.center, directions)
    error = np.maximum(scores.error, _scores_by_projection(tokens, key, queries).error)
    scaled = _Interval(scores.center * model.score_scale, error * model.score_scale)
    return _Interval(scaled.center, scaled.error + _gamma(2) * scaled.magnitude + _TINY)


def _scores_by_projection(tokens: _Interval, key: np.ndarray, queries: _Interval) -> _Interval:
    """Bound (φ K) q, the order of the reference implementation."""
    projections = _einsum("hkd,zd->zhk", key, tokens)
    terms = int(np.count_nonzero(queries.magnitude, axis=1).max(initial=0))
    magnitude = np.einsum("zhk,hk->zh", projections.magnitude, queries.magnitude)
    error = np.einsum("zhk,hk->zh", projections.error, queries.magnitude)
    error += np.einsum("zhk,hk->zh", np.abs(projections.center), queries.error)
    flushed = terms * _TINY * (1 + projections.magnitude.max() + queries.magnitude.max())
    error = (error + _gamma(terms) * magnitude + flushed) * _WIDENING
    error = np.where(magnitude < _HUGE, error, np.inf)
    return _Interval(np.einsum("zhk,hk->zh", projections.center, queries.center), error)


def _values(model: Transformer) -> _Interval:
    return _einsum("hkd,zd->zhk", _float64(model.weights.value), _exact(_prompt_tokens(model)))


def _prompt_tokens(model: Transformer) -> np.ndarray:
    return _float64(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]


def _einsum(subscripts: str, exact: np.ndarray, interval: _Interval) -> _Interval:
    """Bound an einsum of exact numbers with intervals, summed in float32 in any order."""
    inputs, output = subscripts.split("->")
    axes = inputs.split(",")[0]
    summed = tuple(axes.index(index) for index in set(axes) - set(output))
    # Products with zero, and sums with them, are exact.
    terms = int(np.count_nonzero(exact, axis=summed).max(initial=0))
    absolute = np.abs(exact)
    magnitude = np.einsum(subscripts, absolute, interval.magnitude, optimize=True)
    error = np.einsum(subscripts, absolute, interval.error, optimize=True)
    error = error + _gamma(terms) * magnitude
    largest = 1 + absolute.max(initial=0.0) + interval.magnitude.max(initial=0.0)
    flushed = terms * _TINY * largest
    error = np.where(magnitude < _HUGE, (error + flushed) * _WIDENING, np.inf)
    return _Interval(np.einsum(subscripts, exact, interval.center, optimize=True), error)


# ---- after attention -----------------------------------------------------------------------------


def _product(left: _Ball, right: _Matrix) -> _Ball:
    """Bound left @ right, summed in float32 in any order."""
    propagated = left.error @ right.absolute
    rounding = _product_rounding(left, right, propagated)
    radius = right.norm * left.radius + np.linalg.norm(rounding, axis=1)
    error = propagated * _WIDENING + rounding
    return _Ball.around(left.center @ right.entries, error, radius * _WIDENING)


def _product_rounding(left: _Ball, right: _Matrix, propagated: np.ndarray) -> np.ndarray:
    """Bound the rounding errors of left @ right alone; `propagated` is left.error @ |right|."""
    magnitude = np.abs(left.center) @ right.absolute + propagated
    terms = len(right.entries)
    largest = 1 + right.absolute.max(initial=0.0) + _row_max(np.abs(left.center) + left.error)
    rounding = _gamma(terms) * magnitude + terms * _TINY * largest[:, None]
    return np.where(magnitude < _HUGE, rounding * _WIDENING, np.inf)


_MLP = tuple[_Matrix, np.ndarray | None, _Matrix]


def _add_mlp(mlp: _MLP | None, x: _Ball) -> _Ball:
    """Bound `Transformer.add_mlp`."""
    if mlp is None:
        return x
    hidden = _hidden(_preactivation(mlp, x))
    return _sum(x, _product(hidden, mlp[2]))


def _preactivation(mlp: _MLP, x: _Ball) -> _Ball:
    mlp_in, bias, _ = mlp
    preactivation = _product(x, mlp_in)
    if bias is None:
        return preactivation
    exact = np.broadcast_to(bias[None, :], preactivation.center.shape)
    return _sum(preactivation, _Ball.around(exact, np.zeros_like(exact)))


def _hidden(preactivation: _Ball) -> _Ball:
    # ReLU does not increase distances, and a neuron that cannot be active has no error at all.
    inactive = preactivation.center + preactivation.error < 0
    return _Ball.around(
        np.maximum(preactivation.center, 0.0),
        np.where(inactive, 0.0, preactivation.error),
        preactivation.radius,
    )


def _linearized_error(attended: _Ball, output: _Matrix, mlp: _MLP) -> np.ndarray:
    """Bound the error of F_TF, entry by entry, through the linear map of each fact.

    Neurons that are active for all errors form a linear map, so that errors of different heads and
    neurons may cancel: an error δ of the attended values changes F_TF by δ O (I + Wᵀ D V), where D
    selects these neurons. Neurons that may be active or not add their whole error.
    """
    mlp_in, bias, mlp_out = mlp
    x = _product(attended, output)
    x_rounding = _product_rounding(attended, output, attended.error @ output.absolute)
    preactivation = _preactivation(mlp, x)
    rounding = _product_rounding(x, mlp_in, x.error @ mlp_in.absolute)
    if bias is not None:
        size = np.abs(preactivation.center) + preactivation.error
        rounding = rounding + _gamma(2) * size + 3 * _TINY
    # Products of O and W are known exactly: errors of a head reach a neuron by one number.
    direct = attended.error @ np.abs(output.entries @ mlp_in.entries)
    direct = (direct + x_rounding @ mlp_in.absolute + rounding) * _WIDENING
    error = np.fmin(direct, preactivation.error)
    preactivation = _Ball.around(preactivation.center, error, preactivation.radius)
    hidden = _hidden(preactivation)
    change = _product_rounding(hidden, mlp_out, hidden.error @ mlp_out.absolute)
    result = x.center + hidden.center @ mlp_out.entries
    size = np.abs(result) + x.error + hidden.error @ mlp_out.absolute
    change = change + _gamma(2) * size + 3 * _TINY
    active = preactivation.center > preactivation.error
    uncertain = ~active & (preactivation.center >= -preactivation.error)
    own_error = np.where(active, rounding, np.where(uncertain, preactivation.error, 0.0))
    change = change + own_error @ mlp_out.absolute
    for fact, on in enumerate(active):
        linear = mlp_in.entries[:, on] @ mlp_out.entries[on]
        linear[np.diag_indices_from(linear)] += 1
        change[fact] += attended.error[fact] @ np.abs(output.entries @ linear)
        change[fact] += x_rounding[fact] @ np.abs(linear)
    return np.where(np.isnan(change), np.inf, change) * _WIDENING


def _sum(left: _Ball, right: _Ball) -> _Ball:
    center, error = left.center + right.center, left.error + right.error
    size = np.abs(center) + error
    rounding = (_gamma(1) * size + 3 * _TINY) * _WIDENING
    rounding = np.where(size < _HUGE, rounding, np.inf)
    radius = left.radius + right.radius + np.linalg.norm(rounding, axis=1)
    return _Ball.around(center, error * _WIDENING + rounding, radius * _WIDENING)


# ---- margins -------------------------------------------------------------------------------------


def _margins_by_norm(
    outputs: _Ball, answers: _Answers, targets: Int[np.ndarray, " facts"]
) -> tuple[Float[np.ndarray, " facts"], Float[np.ndarray, " facts"]]:
    """Bound the smallest margin of every fact with one matrix product.

    Returns:
        A lower bound, and an upper bound: the margin of the center.
    """
    logits, right = _center_logits(outputs, answers, targets)
    margins = right - logits.max(axis=1)
    bound = margins - _slack_by_norm(outputs, answers, targets)
    return np.where(outputs.finite, bound, -np.inf), np.where(outputs.finite, margins, -np.inf)


def _margins_by_entry(
    outputs: _Ball,
    answers: _Answers,
    targets: Int[np.ndarray, " facts"],
    needed: float,
) -> Float[np.ndarray, " facts"]:
    """Bound the smallest margin of every fact, entry by entry for the answers that matter.

    Those are the answers whose bound by norms is below `needed` and below the smallest margin of
    the center: no answer above the latter can have the smallest bound.
    """
    table, center, error = answers.table, outputs.center, outputs.error
    logits, right = _center_logits(outputs, answers, targets)
    slack = _slack_by_norm(outputs, answers, targets)
    enough = np.minimum(right - logits.max(axis=1), needed)
    facts, others = np.nonzero(logits > (right - slack - enough)[:, None])
    margins = right[facts] - logits[facts, others]
    logits[facts, others] = -np.inf
    result = right - logits.max(axis=1) - slack  # of the answers that do not matter
    sizes = np.abs(center) + error
    largest = _row_max(sizes)
    size = max(1, _MAX_BLOCK_ENTRIES // table.shape[1])
    for start in range(0, len(facts), size):
        block = slice(start, start + size)
        fact, target, other = facts[block], table[targets[facts[block]]], table[others[block]]
        differences = np.abs(target - other)
        by_entries = np.einsum("pd,pd->p", differences, error[fact])
        by_norms = np.linalg.norm(differences, axis=1) * outputs.radius[fact]
        rounding = np.zeros(len(fact))
        for embedding in (target, other):
            magnitudes = np.einsum("pd,pd->p", sizes[fact], np.abs(embedding))
            rounding += _logit_rounding(magnitudes, table, largest[fact])
        error_of_margin = (np.fmin(by_entries, by_norms) + rounding) * _WIDENING
        np.minimum.at(result, fact, margins[block] - error_of_margin)
    return np.where(outputs.finite, result, -np.inf)


def _slack_by_norm(
    outputs: _Ball, answers: _Answers, targets: Int[np.ndarray, " facts"]
) -> Float[np.ndarray, " facts"]:
    """Bound the error of every margin of a fact.

    |(u_a* − u_y)·δ| ≤ (‖u_a*‖ + max ‖u‖) ‖δ‖, and Σ |u_i F_i| ≤ ‖u‖ ‖F‖.
    """
    reach = answers.norms[targets] + answers.norms.max()
    magnitudes = (np.linalg.norm(outputs.center, axis=1) + outputs.radius) * reach
    largest = _row_max(np.abs(outputs.center) + outputs.error)
    rounding = 2 * _logit_rounding(magnitudes, answers.table, largest)
    return (outputs.radius * reach + rounding) * _WIDENING


def _center_logits(
    outputs: _Ball, answers: _Answers, targets: Int[np.ndarray, " facts"]
) -> tuple[Float[np.ndarray, "facts outputs"], Float[np.ndarray, " facts"]]:
    """Compute the logits of the center, −∞ for the right answer, and those of the right answer."""
    logits = outputs.center @ answers.table.T
    right = np.take_along_axis(logits, targets[:, None], axis=1)
    np.put_along_axis(logits, targets[:, None], -np.inf, axis=1)
    return logits, right[:, 0]


def _logit_rounding(
    magnitudes: np.ndarray, answers: np.ndarray, largest_output: np.ndarray
) -> np.ndarray:
    """Bound the rounding error of logits whose terms have absolute sums of at most `magnitudes`."""
    dim = answers.shape[1]
    flushed = dim * _TINY * (1 + np.abs(answers).max() + largest_output)
    rounding = _gamma(dim) * magnitudes + flushed
    return np.where(magnitudes < _HUGE, rounding, np.inf)


def _spectral_norm(matrix: np.ndarray) -> float:
    """Return an upper bound of ‖matrix‖₂, infinite if an entry is not finite."""
    if not np.isfinite(matrix).all():
        return math.inf
    scale = float(np.abs(matrix).max(initial=0.0))
    if scale == 0:
        return 0.0
    scaled = matrix / scale
    gram = scaled.T @ scaled if matrix.shape[0] > matrix.shape[1] else scaled @ scaled.T
    return scale * math.sqrt(float(np.linalg.eigvalsh(gram)[-1])) * _WIDENING


def _row_max(rows: np.ndarray) -> np.ndarray:
    return rows.max(axis=1, initial=0.0)


def _gamma(terms: int) -> float:
    """Return γ_n, the error of a float32 sum of n products relative to the sum of magnitudes."""
    relative = terms * _UNIT_ROUNDOFF
    return relative / (1 - relative) if relative < 1 else math.inf


def _exact(numbers: np.ndarray) -> _Interval:
    return _Interval(numbers, np.zeros_like(numbers))


def _float64(array: object) -> np.ndarray:
    return np.asarray(array, np.float64)
