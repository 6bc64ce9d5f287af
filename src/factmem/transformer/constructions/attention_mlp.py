"""Theorem 4: a transformer whose MLP recalls every fact.

1. Each block of tokens has a group of heads with the same denoiser, whose values together are a
   projection: P_S on a subspace for the blocks of subjects, P_R on an orthogonal one for those of
   relations, both orthogonal to φ(EOS). The heads write x = φ̃(s) + φ̃(r), with φ̃(s) = P_S φ(s)
   and φ̃(r) = P_R φ(r).
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

from factmem._core.errors import FactmemError
from factmem._core.random import normal
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import FactTable
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import HIGHEST_DEGREE, hermite
from factmem.memories.hermite import mixed_activation
from factmem.transformer.constructions.construction import (
    Construction,
    check_embeddings,
    partial_note,
)
from factmem.transformer.constructions.denoiser import (
    consecutive_blocks,
    largest_separable_block,
    rank_one,
    superposed_key,
)
from factmem.transformer.convention import THEORY
from factmem.transformer.model import Embeddings, Shape, Transformer, Weights

__all__ = ["mlp_construction", "pair_features"]

_EXACT = jax.lax.Precision.HIGHEST
_ENTRIES_AT_ONCE = 2**24


def mlp_construction(
    key: Key[Array, ""],
    asked: PromptDistribution,
    embeddings: Embeddings,
    head_dim: int,
    width: int,
    *,
    block: int | None = None,
    degrees: tuple[int, int] = (1, 1),
    beta: float = 400.0,
) -> Construction:
    """The weights of Theorem 4.

    It takes H d_h ≳ S + R, m d ≳ K for K facts, and m ≳ C(a), the facts of one answer, up to
    logarithms, for every fact to be recalled. Relations may share answers.

    Args:
        key: randomness of the subspaces and of the features w_i.
        asked: the facts and the tokens, noise included.
        embeddings: given, one table for tokens and answers.
        head_dim: d_h.
        width: m.
        block: how many tokens a group of heads serves; from d if left out.
        degrees: p and q, both odd.
        beta: β, how sharply heads attend.

    Raises:
        FactmemError: d_h above d, d below 3, two embedding tables, an empty block, no neurons, or
            a degree that is even.
    """
    check_embeddings(embeddings, head_dim)
    table, vocabulary = asked.table, asked.vocabulary
    _check(embeddings, width, degrees)
    dim = embeddings.tokens.shape[1]
    block = largest_separable_block(dim, vocabulary) if block is None else block
    blocks = consecutive_blocks(vocabulary, block)
    head_key, feature_key = jr.split(key)
    heads, bases = _heads(
        head_key, embeddings.tokens, blocks, vocabulary, head_dim, jnp.asarray(beta)
    )
    activation = mixed_activation(sum(degrees))
    # λ c_k ‖φ̃(s)‖^2p ‖φ̃(r)‖^2q is about 10, well above what the heads write themselves.
    strength = 10 * 2 ** sum(degrees) / activation.coefficients[-1]
    into, out = _memory(
        feature_key, embeddings.tokens, bases, table.fact_ids, vocabulary, width, degrees
    )
    weights = Weights(*heads, mlp_in=into, mlp_bias=None, mlp_out=strength * out)
    group = bases.shape[1]
    shape = Shape(dim, len(blocks) * group, head_dim, width)
    model = Transformer(weights, embeddings, shape, vocabulary, THEORY, activation)
    notes = partial_note(asked) + _width_note(table, width)
    return Construction(model, np.repeat(blocks, group, axis=0), beta, notes)


@partial(jax.jit, static_argnames=("vocabulary", "head_dim"))
def _heads(
    key: Key[Array, ""],
    tokens: Float[Array, "tokens dim"],
    blocks: Bool[Array, "blocks prompt_tokens"],
    vocabulary: Vocabulary,
    head_dim: int,
    beta: Float[Array, ""],
) -> tuple[tuple[Array, Array, Array, Array], Float[Array, "2 group head_dim dim"]]:
    """Queries, keys, values and outputs of all heads, group by group, and the two bases."""
    prompt_tokens = tokens[: vocabulary.prompt_tokens]
    bases = _orthogonal_halves(key, prompt_tokens[-1], head_dim)
    keys = jnp.repeat(superposed_key(prompt_tokens, blocks), bases.shape[1], axis=0)
    query, key_rows = rank_one(keys, prompt_tokens[-1], head_dim)
    of_relations = jnp.any(blocks[:, vocabulary.first_relation :], axis=1).astype(jnp.int32)
    value = bases[of_relations].reshape(-1, head_dim, tokens.shape[1])
    sharpness = jnp.sqrt(beta).astype(tokens.dtype)
    return (sharpness * query, sharpness * key_rows, value, value), bases


def pair_features(
    weights: Float[Array, "width dim"],
    subjects: Float[Array, "subjects dim"],
    relations: Float[Array, "relations dim"],
    degrees: tuple[int, int],
) -> tuple[Float[Array, "width subjects"], Float[Array, "width relations"]]:
    """Two factors whose product is ⟨He_k(w), a^⊗p ⊗ b^⊗q⟩ for orthogonal a and b.

    √(p! q!/k!) · |a|^p h_p(⟨w, a⟩/|a|) · |b|^q h_q(⟨w, b⟩/|b|), the root with the first factor.
    """
    p, q = degrees
    root = math.sqrt(math.factorial(p) * math.factorial(q) / math.factorial(p + q))
    return root * _factor(weights, subjects, p), _factor(weights, relations, q)


def _factor(weights: Array, vectors: Array, degree: int) -> Float[Array, "width vectors"]:
    """|a|^p h_p(⟨w, a⟩/|a|) for all w and a."""
    lengths = jnp.linalg.norm(vectors, axis=1)
    inner = jnp.matmul(weights, (vectors / lengths[:, None]).T, precision=_EXACT)
    return lengths[None, :] ** degree * hermite(degree, inner)


@partial(jax.jit, static_argnames=("vocabulary", "width", "degrees"))
def _memory(
    key: Key[Array, ""],
    tokens: Float[Array, "tokens dim"],
    bases: Float[Array, "2 group head_dim dim"],
    fact_ids: tuple[Array, Array, Array],
    vocabulary: Vocabulary,
    width: int,
    degrees: tuple[int, int],
) -> tuple[Float[Array, "{width} dim"], Float[Array, "{width} dim"]]:
    """w_i, and v_i but for its factor λ."""
    subjects = _projected(tokens[: vocabulary.first_relation], bases[0])
    relations = _projected(tokens[vocabulary.first_relation : vocabulary.first_noise], bases[1])
    s, r, a = fact_ids
    answers = tokens[a + vocabulary.first_answer]
    into = normal(key, (width, tokens.shape[1]), tokens.dtype)

    def out_of_one(weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        left, right = pair_features(weights[None, :], subjects, relations, degrees)
        return jnp.matmul(left[0, s] * right[0, r], answers, precision=_EXACT)

    at_once = min(width, max(1, _ENTRIES_AT_ONCE // s.shape[0]))
    return into, jax.lax.map(out_of_one, into, batch_size=at_once) / width


def _projected(
    vectors: Float[Array, "vectors dim"], basis: Float[Array, "group head_dim dim"]
) -> Float[Array, "vectors dim"]:
    rows = basis.reshape(-1, basis.shape[2])
    return jnp.matmul(jnp.matmul(vectors, rows.T, precision=_EXACT), rows, precision=_EXACT)


def _orthogonal_halves(
    key: Key[Array, ""], eos: Float[Array, " dim"], head_dim: int
) -> Float[Array, "2 group head_dim dim"]:
    """Orthonormal bases of E_S and E_R, cut into heads; a head may end in rows of zeros.

    Both have ⌊(d − 1)/2⌋ dimensions and are orthogonal to φ(EOS) and to each other.
    """
    (dim,) = eos.shape
    half = (dim - 1) // 2
    drawn = normal(key, (dim, 2 * half), eos.dtype)
    basis, _ = jnp.linalg.qr(jnp.concatenate([eos[:, None], drawn], axis=1))
    rows = basis[:, 1:].T.reshape(2, half, dim)
    group = math.ceil(half / head_dim)
    padded = jnp.zeros((2, group * head_dim, dim), eos.dtype).at[:, :half].set(rows)
    return padded.reshape(2, group, head_dim, dim)


def _check(embeddings: Embeddings, width: int, degrees: tuple[int, int]) -> None:
    if embeddings.tokens.shape[1] < 3:
        raise FactmemError("two subspaces orthogonal to EOS need d of at least 3")
    if width < 1:
        raise FactmemError(f"Theorem 4 needs an MLP: a width of at least 1, not {width}")
    p, q = degrees
    if p < 1 or q < 1 or p % 2 == 0 or q % 2 == 0 or p + q > HIGHEST_DEGREE:
        raise FactmemError(f"p and q are odd, and at most {HIGHEST_DEGREE} together, not {p}, {q}")


def _width_note(table: FactTable, width: int) -> tuple[str, ...]:
    most = int(table.answer_counts.max())
    if width > most:
        return ()
    return (
        f"One answer has {most} facts: Theorem 4 needs a width m above that, and m is {width}.",
    )
