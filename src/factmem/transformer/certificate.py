"""A proof that a transformer recalls its facts, whatever noise stands in the prompt.

A prompt holds one subject, one relation, EOS and T − 3 noise tokens in any multiplicity. In such a
prompt a head gives the strongest of the three known tokens, t, all attention but a share

    leak ≤ Σ_{other two} exp(s(z) − s(t)) + (T − 3) max_{noise} exp(s(n) − s(t)),

so what it reads is within leak · (largest − smallest value) of the value of t. This error, and the
rounding errors of float32 at every product on the way (γ_n = n u/(1 − n u) for sums of n terms in
any order, u = 2⁻²⁴), are carried through the outputs, the MLP and the logits, entry by entry. What
remains of a fact's margin is a bound from below; where it is positive, no prompt can make float32
arithmetic give another answer.

The certificate asks nothing of the weights: it holds for trained transformers too, and says little
where their heads do not settle. Its own arithmetic is float64, with errors a billion times smaller
than those it bounds; the bounds are widened by one part in a million for them.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.memories.activations import Relu
from factmem.transformer.constructions.denoiser import tokens_read
from factmem.transformer.model import Transformer

__all__ = ["Certificate", "certify"]

_UNIT = 2.0**-24
_WIDENED = 1 + 1e-6
_TINY, _HUGE = 2.0**-126, 2.0**127
"""What may be flushed to zero, and what may overflow: beyond it nothing is certified."""
_FLUSHED = 2.0 ** (-23 * 1.25)
"""Weights of the shared form of attention may vanish below this, relative to their sum."""
_EXP_ERRORS = 16
"""Roundings of a softmax weight: exp itself, its argument, products, sums and the division."""
_PAIRS_AT_ONCE = 2**22


@dataclass(frozen=True)
class Certificate:
    """What is proved of a transformer and a table.

    Args:
        margins: of every fact a lower bound of (u_a* − u_y)·F over all prompts and other outputs y.
        leaks: of every fact, the largest share of attention that can stray, over heads.
    """

    margins: Float[np.ndarray, " facts"]
    leaks: Float[np.ndarray, " facts"]

    @property
    def certified_accuracy(self) -> float:
        """The share of facts that no prompt can break."""
        return float(np.mean(self.margins > 0))

    @property
    def min_certified_margin(self) -> float:
        """The smallest bound; negative if some fact is not certified."""
        return float(self.margins.min())


class _Bounded(NamedTuple):
    """A number and how far float32 arithmetic, and the worst prompt, can be from it."""

    center: np.ndarray
    error: np.ndarray

    @property
    def size(self) -> np.ndarray:
        return np.abs(self.center) + self.error


def certify(model: Transformer, asked: PromptDistribution) -> Certificate:
    """Bounds the margin of every fact over every prompt that can ask for it.

    Args:
        model: with ReLU or without an MLP, its weights in float32.
        asked: the facts, and T.

    Raises:
        FactmemError: another activation; its slope has no bound.
    """
    if model.shape.width and not isinstance(model.activation, Relu):
        raise FactmemError("a certificate needs ReLU: other activations have no bounded slope")
    targets = np.asarray(model.targets(asked.fact_answers))
    with np.errstate(over="ignore", invalid="ignore"):
        attended, leaks = _attended(model, asked)
        written = _product(attended, _wide(model.weights.output).reshape(-1, model.shape.dim))
        outputs = _through_mlp(model, written)
        margins = _smallest_margins(outputs, _wide(model.embeddings.outputs), targets)
    return Certificate(np.where(np.isnan(margins), -np.inf, margins), leaks)


# ---- attention -----------------------------------------------------------------------------------


def _attended(model: Transformer, asked: PromptDistribution) -> tuple[_Bounded, np.ndarray]:
    """What the heads read, [facts, heads · head_dim], and the largest leak of every fact."""
    scores = _scores(model)
    values = _values(model)
    names = model.vocabulary
    read, leaks = _read(
        scores, asked.known_tokens(), slice(names.first_noise, names.eos), asked.length - 3
    )
    heads = np.arange(model.shape.heads)[None, :]
    center, own_error = values.center[read, heads], values.error[read, heads]
    spread = np.ptp(values.center, axis=0) + 2 * values.error.max(axis=0)
    # Adding b to a is wrong by |b| at most: where all but one term are small, so is the error, of
    # the weighted sum of values as of that of weights.
    adding = 2 * asked.length * np.minimum(leaks[:, :, None], _UNIT) * values.size.max(axis=0)
    rounding = _gamma(_EXP_ERRORS) * (np.abs(center) + own_error) + adding
    error = own_error + leaks[:, :, None] * spread[None] + rounding * _WIDENED
    error += asked.length * _FLUSHED
    rows = (asked.facts, -1)
    return _Bounded(center.reshape(rows), error.reshape(rows)), leaks.max(axis=1)


def _read(
    scores: _Bounded, known: Int[np.ndarray, "facts 3"], noise: slice, places: int
) -> tuple[Int[np.ndarray, "facts heads"], Float[np.ndarray, "facts heads"]]:
    """The strongest of the known tokens for every head, and the attention that others get."""
    # The argument of exp is a difference of scores, and rounded itself.
    error = scores.error + 2 * _UNIT * np.ptp(scores.center, axis=0)
    high, low = scores.center + error, scores.center - error
    read = tokens_read(scores.center, known)
    floor = np.take_along_axis(low, read, axis=0)
    over = np.where(known[:, :, None] == read[:, None, :], -np.inf, high[known] - floor[:, None, :])
    others = np.exp(np.minimum(over, 600.0))
    strongest = np.minimum(high[noise].max(axis=0)[None, :] - floor, 600.0)
    leaks = others.sum(axis=1) + places * np.exp(strongest)
    return read, leaks / (1 + leaks) * (1 + 4 * _EXP_ERRORS * _UNIT) + _TINY


def _scores(model: Transformer) -> _Bounded:
    """Of every token and head, as `Transformer.scores` has them: three products and a scale."""
    tokens = _exact(_prompt_tokens(model))
    queries = _contracted("hkd,d->hk", _wide(model.weights.query), _exact(tokens.center[-1]))
    directions = _contracted("hkd,hk->dh", _wide(model.weights.key), queries)
    scores = _contracted("zd,dh->zh", tokens.center, directions)
    scaled = _Bounded(scores.center * model.score_scale, scores.error * model.score_scale)
    return _Bounded(scaled.center, scaled.error + _gamma(2) * scaled.size + _TINY)


def _values(model: Transformer) -> _Bounded:
    return _contracted("hkd,zd->zhk", _wide(model.weights.value), _exact(_prompt_tokens(model)))


def _prompt_tokens(model: Transformer) -> np.ndarray:
    return _wide(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]


# ---- everything after it -------------------------------------------------------------------------


def _product(left: _Bounded, right: np.ndarray) -> _Bounded:
    """left @ right for exact right."""
    return _contracted("ij,fi->fj", right, left)


def _contracted(sums: str, exact: np.ndarray, bounded: _Bounded) -> _Bounded:
    """Sums of products of exact numbers with bounded ones, in float32 and in any order."""
    inputs, output = sums.split("->")
    gone = set(inputs.split(",")[0]) - set(output)
    terms = math.prod(exact.shape[inputs.index(index)] for index in gone)
    strength = np.abs(exact)
    size = np.einsum(sums, strength, bounded.size, optimize=True)
    error = np.einsum(sums, strength, bounded.error, optimize=True) + _gamma(terms) * size
    flushed = terms * _TINY * (1 + strength.max(initial=0.0) + bounded.size.max(initial=0.0))
    error = np.where(size < _HUGE, (error + flushed) * _WIDENED, np.inf)
    return _Bounded(np.einsum(sums, exact, bounded.center, optimize=True), error)


def _through_mlp(model: Transformer, x: _Bounded) -> _Bounded:
    if model.shape.width == 0:
        return x
    weights = model.weights
    inner = _product(x, _wide(weights.mlp_in).T)
    if weights.mlp_bias is not None:
        inner = _sum(inner, _exact(_wide(weights.mlp_bias)[None, :]))
    # ReLU moves nothing further apart, and a neuron that cannot be active has no error at all.
    off = inner.center + inner.error < 0
    hidden = _Bounded(np.maximum(inner.center, 0.0), np.where(off, 0.0, inner.error))
    return _sum(x, _product(hidden, _wide(weights.mlp_out)))


def _sum(left: _Bounded, right: _Bounded) -> _Bounded:
    total = _Bounded(left.center + right.center, left.error + right.error)
    return _Bounded(total.center, (total.error + _gamma(1) * total.size) * _WIDENED)


def _smallest_margins(
    outputs: _Bounded, answers: Float[np.ndarray, "outputs dim"], targets: np.ndarray
) -> Float[np.ndarray, " facts"]:
    """The smallest margin of every fact, less all that it may be wrong by."""
    count, dim = answers.shape
    at_once = max(1, _PAIRS_AT_ONCE // (count * dim))
    strength = np.abs(answers)
    smallest = np.empty(len(targets))
    for start in range(0, len(targets), at_once):
        some = slice(start, start + at_once)
        center, error = outputs.center[some], outputs.error[some]
        right = targets[some]
        scores = center @ answers.T
        margins = np.take_along_axis(scores, right[:, None], axis=1) - scores
        apart = np.abs(answers[right][:, None, :] - answers[None, :, :])
        moved = np.einsum("fyd,fd->fy", apart, error)
        sizes = (np.abs(center) + error) @ strength.T
        rounding = _gamma(dim) * sizes + dim * _TINY * (1 + strength.max() + error.max())
        rounding = np.where(sizes < _HUGE, rounding, np.inf)
        rounding = rounding + np.take_along_axis(rounding, right[:, None], axis=1)
        bound = margins - (moved + rounding) * _WIDENED
        np.put_along_axis(bound, right[:, None], np.inf, axis=1)
        known = np.isfinite(center).all(axis=1) & np.isfinite(error).all(axis=1)
        smallest[some] = np.where(known, bound.min(axis=1), -np.inf)
    return smallest


def _gamma(terms: int) -> float:
    """How far a float32 sum of so many products can be from the exact one, relative to |·| sums."""
    return terms * _UNIT / (1 - terms * _UNIT)


def _exact(numbers: np.ndarray) -> _Bounded:
    return _Bounded(numbers, np.zeros_like(numbers))


def _wide(array: object) -> np.ndarray:
    return np.asarray(array, np.float64)
