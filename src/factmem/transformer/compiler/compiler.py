"""The compiler: it turns a table of facts into transformer weights, with a proof.

Nothing is trained on prompts. There are three steps:

1. *First keys* (`keys.py`). Each head gets a key that scores EOS above all noise, with a gap, and
   many subjects and relations above EOS. So noise gets next to no attention, and each head attends
   to a mixture of subject, relation and EOS that is known for every fact. Every fact has one known
   input to the rest of the network.
2. *Fit* (`fit.py`) of keys, values, outputs and the MLP on these inputs. The gap between EOS and
   noise is kept.
3. *Certificate* (`certificate.py`) of the weights, rounded to 16 bits: it covers every prompt and
   the rounding of float32. The fit stops when every fact is certified.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.constants import DEFAULT_WEIGHT_BITS
from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.lbfgs import FitStatus
from factmem._core.progress import Report
from factmem._core.result import Status
from factmem.facts.prompts import PromptDistribution
from factmem.memories.decoding import decodable
from factmem.memories.precision import rounded_to_integers
from factmem.transformer.certificate import Certificate, certify
from factmem.transformer.compiler.cost import check_memory
from factmem.transformer.compiler.fit import Schedule, fit_weights
from factmem.transformer.compiler.keys import choose_keys, draw_keys
from factmem.transformer.compiler.known_inputs import (
    FitData,
    FittedWeights,
    balance,
    initial_weights,
)
from factmem.transformer.compiler.shapes import MAX_FULL_BATCH_FACTS
from factmem.transformer.constructions.construction import (
    ConstructionResult,
    check_head_dim,
    partial_table_notes,
)
from factmem.transformer.constructions.denoiser import rank_one_heads
from factmem.transformer.convention import EXPERIMENT_CONVENTION, Convention
from factmem.transformer.model import Embeddings, Transformer, Weights
from factmem.transformer.shape import Shape

__all__ = ["CompileResult", "CompileStatus", "Probe", "compile_facts"]

_MAX_HEADS = 10_000
_MAX_LEAK = 2.0**-16
"""Largest attention to noise. 2⁻³⁰ needs keys 1.7 times as sharp, and then rounding errors of the
scores count more than noise does now: 156 instead of 93 of 9,646 facts were not certified."""


class CompileStatus(Status):
    """Whether a compiled transformer is proven to recall every fact."""

    CERTIFIED = "Every fact is certified: it is recalled in every prompt."
    NOT_CERTIFIED = "Some facts are not certified; the shape may be too small."

    @classmethod
    def of_certificate(cls, certificate: Certificate) -> "CompileStatus":
        """Return the status of a model with this certificate."""
        return cls.CERTIFIED if certificate.certified_accuracy == 1 else cls.NOT_CERTIFIED


@dataclass(frozen=True)
class Probe:
    """A shape that `compile_smallest` tried."""

    shape: Shape
    certified_accuracy: float


@dataclass(frozen=True, kw_only=True)
class CompileResult(ConstructionResult):
    """A compiled transformer with 16-bit weights, and its certificate.

    Args:
        certificate: lower bounds of every fact's margin, over all prompts.
        iterations: number of steps of the fit.
        fit_status: how the fit ended.
        probes: the shapes that `compile_smallest` tried, in order; empty for `compile_facts`.
    """

    certificate: Certificate
    iterations: int
    fit_status: FitStatus
    probes: tuple[Probe, ...] = ()

    @property
    def metrics(self) -> dict[str, Any]:
        """The denoiser margin, the summary of the certificate and the numbers of the fit."""
        return {
            **super().metrics,
            **self.certificate.metrics,
            "bits_per_weight": DEFAULT_WEIGHT_BITS,
            "iterations": self.iterations,
            "fit_status": self.fit_status.label,
        }


def compile_facts(
    prompts: PromptDistribution,
    embeddings: Embeddings,
    shape: Shape,
    *,
    key: Key[Array, ""],
    convention: Convention = EXPERIMENT_CONVENTION,
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> CompileResult:
    """Compute weights that recall every fact, with a certificate.

    Args:
        prompts: the facts, the noise tokens and the prompt length.
        embeddings: the embedding tables of the convention.
        shape: shape of the transformer.
        key: random key for the choice of head keys and the initial weights.
        convention: of the paper's experiments or theorems.
        report: called with the number of iterations, those left in this round, the loss and the
            accuracy; during a certificate or a repair with None and the number of facts.
        checkpoint: a file from which an interrupted compilation of a large table goes on.

    Returns:
        A transformer with 16-bit weights. If the shape is too small, its status is `NOT_CERTIFIED`
        and `certificate.certified_accuracy` is the fraction of certified facts.

    Raises:
        FactmemError: d_h exceeds d, the weights have fewer bits than the facts, the compilation
            does not fit into memory, no key scores all noise below EOS, the heads cannot
            distinguish all facts, or an answer cannot be decoded.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> prompts = PromptDistribution.from_table(FactTable.random(4, 4, 2))
        >>> embeddings = Embeddings.draw(8, prompts.vocabulary, key=jr.key(0))
        >>> result = compile_facts(prompts, embeddings, Shape(8, 4, 1, 8), key=jr.key(1))
        >>> result.status.label, result.certificate.certified_accuracy
        ('certified', 1.0)
    """
    _check(prompts, embeddings, shape)
    check_memory(prompts, shape)
    # The certificate is about float32, so everything is float32, whatever jax's default.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return _compile(prompts, embeddings, shape, key, convention, report, checkpoint)


def _compile(
    prompts: PromptDistribution,
    embeddings: Embeddings,
    shape: Shape,
    key: Key[Array, ""],
    convention: Convention,
    report: Report | None,
    checkpoint: str | os.PathLike[str] | None,
) -> CompileResult:
    embeddings = jax.tree.map(_float32, embeddings)
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    tokens = np.asarray(embeddings.tokens, np.float64)[: prompts.vocabulary.prompt_tokens]
    _check_decodable(prompts, embeddings, convention)
    large = prompts.facts > MAX_FULL_BATCH_FACTS
    keys = (draw_keys if large else choose_keys)(tokens, prompts, shape.heads, rng=rng)
    data = _fit_data(tokens, prompts, embeddings, convention)
    build = partial(_build_model, embeddings, shape, prompts, convention)
    checker = _Checker(build, prompts, report)
    gaps = -np.max(np.asarray(data.noise) @ keys.T, axis=0)
    first_keys = keys * (np.asarray(data.noise_gap) / gaps)[:, None]
    start = initial_weights(data, first_keys, shape, bias=convention.mlp_bias, rng=rng)
    fit = fit_weights(
        start,
        data,
        lambda weights: checker.check(weights)[1].margins,
        Schedule.default(prompts.facts, prompts.table.association_bits / shape.parameters),
        seed=int(rng.integers(2**31)),
        report=report,
        checkpoint=checkpoint,
    )
    model, certificate = checker.check(balance(fit.weights, data))
    scores, vocabulary = np.asarray(model.scores(), np.float64).T, prompts.vocabulary
    strongest_noise = scores[:, vocabulary.first_noise : vocabulary.eos].max(axis=1)
    beta = float(np.linalg.norm(fit.weights.key, axis=1).max())
    return CompileResult(
        model=model,
        status=CompileStatus.of_certificate(certificate),
        blocks=scores > scores[:, -1:],
        beta=beta,
        denoiser_margin=float((scores[:, -1] - strongest_noise).min()) / beta,
        notes=partial_table_notes(prompts),
        certificate=certificate,
        iterations=fit.steps,
        fit_status=fit.status,
    )


class _Checker:
    """Builds and certifies models; the last one is kept, for it is often the final one."""

    def __init__(
        self,
        build: Callable[[FittedWeights], Transformer],
        prompts: PromptDistribution,
        report: Report | None,
    ) -> None:
        self._build, self._prompts, self._report = build, prompts, report
        self._last: tuple[FittedWeights, Transformer, Certificate] | None = None

    def check(self, weights: FittedWeights) -> tuple[Transformer, Certificate]:
        """Return the model with these weights, rounded to 16 bits, and its certificate."""
        if self._last is not None and eqx.tree_equal(weights, self._last[0]) is True:
            return self._last[1:]
        model = self._build(weights)
        certificate = certify(model, self._prompts, report=self._report_facts)
        self._last = weights, model, certificate
        return model, certificate

    def _report_facts(self, facts: int, left: int) -> None:
        if self._report is not None:
            self._report(None, certificate=f"{facts:,} of {facts + left:,} facts")


# ---- assembly ------------------------------------------------------------------------------------


def _build_model(
    embeddings: Embeddings,
    shape: Shape,
    prompts: PromptDistribution,
    convention: Convention,
    fitted: FittedWeights,
) -> Transformer:
    """Build a transformer with 16-bit weights."""
    eos = np.asarray(embeddings.tokens[prompts.vocabulary.eos], np.float64)
    # A query with one entry: its product with φ(EOS) has one rounding, and scores stay accurate.
    entry = int(np.abs(eos).argmax())
    query = np.zeros_like(eos)
    query[entry] = (math.sqrt(shape.head_dim) if convention.scaled_scores else 1.0) / eos[entry]
    key, *others = jax.tree.map(_float32, fitted)
    heads = rank_one_heads(key, _float32(query), shape.head_dim)
    weights = rounded_to_integers(Weights(*heads, *others), DEFAULT_WEIGHT_BITS)
    return Transformer(weights, embeddings, shape, prompts.vocabulary, convention)


def _fit_data(
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    prompts: PromptDistribution,
    embeddings: Embeddings,
    convention: Convention,
) -> FitData:
    vocabulary = prompts.vocabulary
    first_answer = vocabulary.first_answer if convention.shared_table else 0
    return FitData(
        tokens=tokens,
        known=prompts.known_tokens().astype(np.int32),
        outputs=np.asarray(embeddings.outputs, np.float64),
        target=np.asarray(prompts.fact_answers) + np.int32(first_answer),
        noise=tokens[vocabulary.first_noise : vocabulary.eos] - tokens[-1],
        noise_gap=np.asarray(math.log(prompts.length / _MAX_LEAK)),
    )


def _float32(array: Array | np.ndarray) -> Array:
    return jnp.asarray(array, jnp.float32)


def _check(prompts: PromptDistribution, embeddings: Embeddings, shape: Shape) -> None:
    check_head_dim(shape.dim, shape.head_dim)
    if shape.heads > _MAX_HEADS:
        raise ArgumentError("heads", f"must be at most {_MAX_HEADS}, got {shape.heads}")
    if embeddings.dim != shape.dim:
        raise FactmemError(f"embeddings must have dim = {shape.dim}, got {embeddings.dim}")
    bits_needed, weights = prompts.table.association_bits, shape.parameters + shape.width
    if bits_needed > DEFAULT_WEIGHT_BITS * weights:
        raise FactmemError(
            f"{prompts.facts} facts have {bits_needed:,.0f} bits, but {weights:,} weights of "
            f"{DEFAULT_WEIGHT_BITS} bits have only {DEFAULT_WEIGHT_BITS * weights:,}; at least "
            f"{math.ceil(bits_needed / DEFAULT_WEIGHT_BITS):,} weights are needed"
        )


def _check_decodable(
    prompts: PromptDistribution, embeddings: Embeddings, convention: Convention
) -> None:
    """Raise FactmemError if no vector decodes to the answer of some fact."""
    first = prompts.vocabulary.first_answer if convention.shared_table else 0
    targets = np.unique(np.asarray(prompts.fact_answers)) + first
    outputs = np.asarray(embeddings.outputs)
    hidden = targets[~decodable(outputs, targets)]
    if len(hidden):
        raise FactmemError(
            f"no output decodes to answer {hidden[0]}: its vector lies in the convex hull of the "
            f"other outputs; use a dim larger than {outputs.shape[1]}"
        )
