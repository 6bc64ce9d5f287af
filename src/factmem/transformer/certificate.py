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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from factmem.activations import Relu
from factmem.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.denoiser import tokens_read
from factmem.transformer.model import Transformer

__all__ = ["Certificate", "certify"]

_UNIT = 2.0**-24
_WIDENED = 1 + 1e-6
_LEAST = 1e-36  # whatever underflows
_EXP_ERRORS = 16
"""Roundings of a softmax weight: exp itself, its argument, products, sums and the division."""
_PAIRS_AT_ONCE = 2**22


@dataclass(frozen=True)
class Certificate:
    """What is proved of a transformer and a table.

    Args:
        margins: of every fact a lower bound of (u_a* − u_y)·F over all prompts and other outputs y.
        leak: of every fact, the largest share of attention that can stray, over heads.
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

    centre: np.ndarray
    error: np.ndarray

    @property
    def size(self) -> np.ndarray:
        return np.abs(self.centre) + self.error


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
    attended, leaks = _attended(model, asked)
    weights = model.weights
    written = _product(attended, _wide(weights.output).reshape(attended.centre.shape[1], -1))
    outputs = _through_mlp(model, written)
    targets = np.asarray(model.targets(asked.fact_answers))
    margins = _smallest_margins(outputs, _wide(model.embeddings.outputs), targets)
    return Certificate(margins, leaks)


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
    centre, own_error = values.centre[read, heads], values.error[read, heads]
    spread = np.ptp(values.centre, axis=0) + 2 * values.error.max(axis=0)
    # Adding b to a is wrong by |b| at most: where all but one term are small, so is the error.
    adding = names.prompt_tokens * np.minimum(leaks[:, :, None], _UNIT) * values.size.max(axis=0)
    rounding = _gamma(_EXP_ERRORS) * (np.abs(centre) + own_error) + adding
    error = own_error + leaks[:, :, None] * spread[None] + rounding * _WIDENED
    rows = (asked.facts, -1)
    return _Bounded(centre.reshape(rows), error.reshape(rows)), leaks.max(axis=1)


def _read(
    scores: _Bounded, known: Int[np.ndarray, "facts 3"], noise: slice, places: int
) -> tuple[Int[np.ndarray, "facts heads"], Float[np.ndarray, "facts heads"]]:
    """The strongest of the known tokens for every head, and the attention that others get."""
    high, low = scores.centre + scores.error, scores.centre - scores.error
    read = tokens_read(scores.centre, known)
    floor = np.take_along_axis(low, read, axis=0)
    over = np.where(known[:, :, None] == read[:, None, :], -np.inf, high[known] - floor[:, None, :])
    others = np.exp(np.minimum(over, 700.0))
    strongest = np.minimum(high[noise].max(axis=0)[None, :] - floor, 700.0)
    leaks = others.sum(axis=1) + places * np.exp(strongest)
    return read, leaks / (1 + leaks) * (1 + 4 * _EXP_ERRORS * _UNIT) + _LEAST


def _scores(model: Transformer) -> _Bounded:
    """Of every token and head, as `Transformer.scores` has them: three products and a scale."""
    tokens = _wide(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]
    query, key = _wide(model.weights.query), _wide(model.weights.key)

    def product(phi: np.ndarray, key: np.ndarray, query: np.ndarray) -> np.ndarray:
        directions = np.einsum("hkd,hk->dh", key, np.einsum("hkd,d->hk", query, phi[-1]))
        return phi @ directions * model.score_scale

    terms = 2 * model.shape.dim + model.shape.head_dim + 2
    size = product(np.abs(tokens), np.abs(key), np.abs(query))
    return _Bounded(product(tokens, key, query), _gamma(terms) * size + _LEAST)


def _values(model: Transformer) -> _Bounded:
    tokens = _wide(model.embeddings.tokens)[: model.vocabulary.prompt_tokens]
    value = _wide(model.weights.value)
    size = np.einsum("zd,hkd->zhk", np.abs(tokens), np.abs(value))
    error = _gamma(model.shape.dim) * size + _LEAST
    return _Bounded(np.einsum("zd,hkd->zhk", tokens, value), error)


# ---- everything after it -------------------------------------------------------------------------


def _product(left: _Bounded, right: np.ndarray, summands: int = 0) -> _Bounded:
    """left @ right for exact right, and room for so many further summands."""
    strength = np.abs(right)
    rounding = _gamma(right.shape[0] + summands) * (left.size @ strength)
    return _Bounded(left.centre @ right, (left.error @ strength + rounding) * _WIDENED + _LEAST)


def _through_mlp(model: Transformer, x: _Bounded) -> _Bounded:
    if model.shape.width == 0:
        return x
    weights = model.weights
    inner = _product(x, _wide(weights.mlp_in).T, summands=1)
    if weights.mlp_bias is not None:
        bias = _wide(weights.mlp_bias)[None, :]
        inner = _Bounded(inner.centre + bias, inner.error + _gamma(1) * np.abs(bias))
        inner = _Bounded(inner.centre, inner.error + _gamma(1) * inner.size)
    # ReLU moves nothing further apart, and a neuron that cannot be active has no error at all.
    off = inner.centre + inner.error < 0
    hidden = _Bounded(np.maximum(inner.centre, 0.0), np.where(off, 0.0, inner.error))
    out = _product(hidden, _wide(weights.mlp_out), summands=1)
    total = _Bounded(x.centre + out.centre, x.error + out.error)
    return _Bounded(total.centre, (total.error + _gamma(1) * total.size) * _WIDENED)


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
        centre, error = outputs.centre[some], outputs.error[some]
        right = targets[some]
        scores = centre @ answers.T
        margins = np.take_along_axis(scores, right[:, None], axis=1) - scores
        apart = np.abs(answers[right][:, None, :] - answers[None, :, :])
        moved = np.einsum("fyd,fd->fy", apart, error)
        logit_errors = _gamma(dim) * ((np.abs(centre) + error) @ strength.T)
        rounded = logit_errors + np.take_along_axis(logit_errors, right[:, None], axis=1)
        bound = margins - (moved + rounded) * _WIDENED - _LEAST
        np.put_along_axis(bound, right[:, None], np.inf, axis=1)
        smallest[some] = bound.min(axis=1)
    return smallest


def _gamma(terms: int) -> float:
    """How far a float32 sum of so many products can be from the exact one, relative to |·| sums."""
    return terms * _UNIT / (1 - terms * _UNIT)


def _wide(array: object) -> np.ndarray:
    return np.asarray(array, np.float64)
