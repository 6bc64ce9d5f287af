"""Theorem 4: a transformer whose MLP recalls every fact.

1. Each block of tokens has a group of heads with the same denoiser. Together, their values are a
   projection: P_S onto one subspace for blocks of subjects, P_R onto an orthogonal one for blocks
   of relations, both orthogonal to φ(EOS). The heads output x = φ̃(s) + φ̃(r), where
   φ̃(s) = P_S φ(s) and φ̃(r) = P_R φ(r).
2. The MLP is a memory of the pairs (s, r), with odd p and q, k = p + q and w_i ~ N(0, I):

    v_i = (λ/m) Σ_{s,r} φ(a*(s,r)) ⟨He_k(w_i), φ̃(s)^⊗p ⊗ φ̃(r)^⊗q⟩
    E_w Σ_i v_i σ(⟨w_i, x⟩) = λ c_k Σ_{s',r'} φ(a*(s',r')) ⟨φ̃(s'), φ̃(s)⟩^p ⟨φ̃(r'), φ̃(r)⟩^q

   where k is the degree of σ and c_k its last Hermite coefficient.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.random import normal
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import FactTable
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import MAX_DEGREE, hermite
from factmem.memories.hermite import mixed_activation
from factmem.transformer.constructions.construction import (
    ConstructionResult,
    ConstructionStatus,
    check_embeddings,
    check_memory,
    denoiser_margin,
    partial_table_notes,
)
from factmem.transformer.constructions.denoiser import (
    consecutive_blocks,
    largest_separable_block,
    rank_one_heads,
    superposed_keys,
)
from factmem.transformer.convention import THEORY_CONVENTION
from factmem.transformer.model import Embeddings, Transformer, Weights
from factmem.transformer.shape import Shape

__all__ = ["mlp_construction", "pair_features"]

_EXACT = jax.lax.Precision.HIGHEST
_MAX_ENTRIES = 2**24
"""Largest number of features, one per fact and neuron, that are in memory at once."""


def mlp_construction(
    prompts: PromptDistribution,
    embeddings: Embeddings,
    head_dim: int,
    width: int,
    *,
    key: Key[Array, ""],
    block_size: int | None = None,
    degrees: tuple[int, int] = (1, 1),
    beta: float = 400.0,
) -> ConstructionResult:
    """Construct the weights of Theorem 4.

    Every fact is recalled if H d_h ≳ S + R, m d ≳ K for K facts, and m ≳ C(a), the number of facts
    with answer a, up to logarithms. Relations may share answers.

    Args:
        prompts: the facts and the tokens, noise included.
        embeddings: one table for tokens and answers.
        head_dim: d_h.
        width: m.
        key: random key for the subspaces and the features w_i.
        block_size: number of tokens per group of heads; the default depends on d.
        degrees: p and q, both odd.
        beta: β, the factor of the scores.

    Raises:
        FactmemError: d_h exceeds d, d is below 3, there are two embedding tables, the block size or
            the width is below 1, a degree is even, or the heads do not fit into memory.
    """
    check_embeddings(embeddings, head_dim)
    table, vocabulary, dim = prompts.table, prompts.vocabulary, embeddings.dim
    _check(dim, width, degrees)
    block_size = largest_separable_block(dim, vocabulary) if block_size is None else block_size
    blocks = consecutive_blocks(vocabulary, block_size)
    group = math.ceil(_subspace_dim(dim) / head_dim)
    shape = Shape(dim, len(blocks) * group, head_dim, width)
    check_memory(shape, vocabulary)
    head_key, feature_key = jr.split(key)
    heads, bases = _heads(
        embeddings.tokens[vocabulary.eos],
        superposed_keys(embeddings.tokens[: vocabulary.prompt_tokens], blocks),
        blocks[:, vocabulary.first_relation :].any(axis=1),
        head_dim,
        jnp.asarray(beta),
        key=head_key,
    )
    activation = mixed_activation(sum(degrees))
    # λ c_k ‖φ̃(s)‖^2p ‖φ̃(r)‖^2q is about 10, well above the output of the heads themselves.
    strength = 10 * 2 ** sum(degrees) / activation.coefficients[-1]
    mlp_in, mlp_out = _memory(
        embeddings.tokens, bases, table.fact_ids, vocabulary, width, degrees, key=feature_key
    )
    weights = Weights(*heads, mlp_in=mlp_in, mlp_bias=None, mlp_out=strength * mlp_out)
    blocks = np.repeat(blocks, group, axis=0)
    model = Transformer(weights, embeddings, shape, vocabulary, THEORY_CONVENTION, activation)
    margin = denoiser_margin(model, blocks, beta)
    return ConstructionResult(
        model=model,
        status=ConstructionStatus.of_margin(margin),
        blocks=blocks,
        beta=beta,
        denoiser_margin=margin,
        notes=partial_table_notes(prompts) + _width_notes(table, width),
    )


@partial(jax.jit, static_argnames=("head_dim",))
def _heads(
    eos: Float[Array, " dim"],
    block_keys: Float[Array, "blocks dim"],
    reads_relation: Bool[Array, " blocks"],
    head_dim: int,
    beta: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> tuple[tuple[Array, Array, Array, Array], Float[Array, "2 group head_dim dim"]]:
    """Return query, key, value and output matrices, group by group, and bases of E_S and E_R."""
    bases = _orthogonal_bases(eos, head_dim, key=key)
    keys = jnp.repeat(block_keys, bases.shape[1], axis=0)
    query, key_matrix = rank_one_heads(keys, eos, head_dim)
    value = bases[reads_relation.astype(jnp.int32)].reshape(-1, head_dim, eos.shape[0])
    sharpness = jnp.sqrt(beta).astype(eos.dtype)
    return (sharpness * query, sharpness * key_matrix, value, value), bases


def pair_features(
    weights: Float[Array, "width dim"],
    subjects: Float[Array, "subjects dim"],
    relations: Float[Array, "relations dim"],
    degrees: tuple[int, int],
) -> tuple[Float[Array, "width subjects"], Float[Array, "width relations"]]:
    """Compute two factors whose product is ⟨He_k(w), a^⊗p ⊗ b^⊗q⟩ for orthogonal a and b.

    The product is √(p! q!/k!) · |a|^p h_p(⟨w, a⟩/|a|) · |b|^q h_q(⟨w, b⟩/|b|). The first factor
    includes the square root.
    """
    p, q = degrees
    root = math.sqrt(math.factorial(p) * math.factorial(q) / math.factorial(p + q))
    return root * _factor(weights, subjects, p), _factor(weights, relations, q)


def _factor(weights: Array, vectors: Array, degree: int) -> Float[Array, "width vectors"]:
    """Compute |a|^p h_p(⟨w, a⟩/|a|) for all w and a."""
    lengths = jnp.linalg.norm(vectors, axis=1)
    inner = jnp.matmul(weights, (vectors / lengths[:, None]).T, precision=_EXACT)
    return lengths[None, :] ** degree * hermite(degree, inner)


@partial(jax.jit, static_argnames=("vocabulary", "width", "degrees"))
def _memory(
    tokens: Float[Array, "tokens dim"],
    bases: Float[Array, "2 group head_dim dim"],
    fact_ids: tuple[Array, Array, Array],
    vocabulary: Vocabulary,
    width: int,
    degrees: tuple[int, int],
    *,
    key: Key[Array, ""],
) -> tuple[Float[Array, "{width} dim"], Float[Array, "{width} dim"]]:
    """Return w_i, and v_i without its factor λ."""
    subjects = _project(tokens[: vocabulary.first_relation], bases[0])
    relations = _project(tokens[vocabulary.first_relation : vocabulary.first_noise], bases[1])
    s, r, a = fact_ids
    answers = tokens[a + vocabulary.first_answer]
    mlp_in = normal(key, (width, tokens.shape[1]), tokens.dtype)

    def output_weights(weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        left, right = pair_features(weights[None, :], subjects, relations, degrees)
        return jnp.matmul(left[0, s] * right[0, r], answers, precision=_EXACT)

    batch_size = min(width, max(1, _MAX_ENTRIES // s.shape[0]))
    return mlp_in, jax.lax.map(output_weights, mlp_in, batch_size=batch_size) / width


def _project(
    vectors: Float[Array, "vectors dim"], basis: Float[Array, "group head_dim dim"]
) -> Float[Array, "vectors dim"]:
    rows = basis.reshape(-1, basis.shape[2])
    return jnp.matmul(jnp.matmul(vectors, rows.T, precision=_EXACT), rows, precision=_EXACT)


def _orthogonal_bases(
    eos: Float[Array, " dim"], head_dim: int, *, key: Key[Array, ""]
) -> Float[Array, "2 group head_dim dim"]:
    """Draw orthonormal bases of E_S and E_R, split into heads and padded with rows of zeros.

    Both have ⌊(d − 1)/2⌋ dimensions and are orthogonal to φ(EOS) and to each other.
    """
    (dim,) = eos.shape
    half = _subspace_dim(dim)
    vectors = normal(key, (dim, 2 * half), eos.dtype)
    basis, _ = jnp.linalg.qr(jnp.concatenate([eos[:, None], vectors], axis=1))
    rows = basis[:, 1:].T.reshape(2, half, dim)
    group = math.ceil(half / head_dim)
    padded = jnp.zeros((2, group * head_dim, dim), eos.dtype).at[:, :half].set(rows)
    return padded.reshape(2, group, head_dim, dim)


def _subspace_dim(dim: int) -> int:
    """Return the dimension of E_S and of E_R: they and φ(EOS) are orthogonal."""
    return (dim - 1) // 2


def _check(dim: int, width: int, degrees: tuple[int, int]) -> None:
    if dim < 3:
        raise ArgumentError(
            "dim",
            f"must be at least 3, got {dim}: Theorem 4 uses two subspaces orthogonal to φ(EOS)",
        )
    if width < 1:
        raise FactmemError(f"Theorem 4 needs an MLP: width must be at least 1, got {width}")
    p, q = degrees
    if p < 1 or q < 1 or p % 2 == 0 or q % 2 == 0 or p + q > MAX_DEGREE:
        raise FactmemError(f"degrees must be odd and sum to at most {MAX_DEGREE}, got {p} and {q}")


def _width_notes(table: FactTable, width: int) -> tuple[str, ...]:
    most_facts = int(table.answer_counts.max())
    if width > most_facts:
        return ()
    return (f"One answer has {most_facts} facts; Theorem 4 needs a width above that, got {width}.",)
