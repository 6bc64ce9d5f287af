"""Theorem 4, against Hermite tensors and sums written out."""

from math import comb

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.transformer import THEORY, Embeddings, mlp_construction, recall
from factmem.transformer.constructions.attention_mlp import pair_features


def built(table, dim, head_dim, width, seed=0, **options):
    asked = PromptDistribution.of(table)
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(embedding_key, dim, asked.vocabulary, THEORY)
    construction = mlp_construction(key, asked, phi, head_dim, width, **options)
    return construction, asked


def projected(construction, asked):
    """P_S φ(s) and P_R φ(r), with projectors from the heads' own W_OV."""
    model, names = construction.model, asked.vocabulary
    W_OV = np.asarray(model.W_OV, float)
    of_subject = construction.blocks[:, 0]
    of_relation = construction.blocks[:, names.first_relation]
    phi = np.asarray(model.embeddings.tokens, float)
    P_S, P_R = W_OV[of_subject].sum(axis=0), W_OV[of_relation].sum(axis=0)
    return P_S, P_R, phi[: names.subjects] @ P_S, phi[names.subjects : names.first_noise] @ P_R


@pytest.mark.parametrize("degrees", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_pair_features_are_contractions_of_hermite_tensors(degrees):
    """⟨He_k(w), (t a + b)^⊗k⟩ = |ta + b|^k h_k(…) is a polynomial in t: compare coefficients."""
    p, q = degrees
    k = p + q
    rng = np.random.default_rng(k)
    basis, _ = np.linalg.qr(rng.normal(size=(5, 2)))
    a, b, w = 0.7 * basis[:, 0], 1.3 * basis[:, 1], rng.normal(size=5)
    t = np.linspace(-1, 1, k + 1)
    along = t[:, None] * a + b
    lengths = np.linalg.norm(along, axis=1)
    unit_he = np.polynomial.hermite_e.HermiteE.basis(k)
    values = (
        lengths**k * unit_he(along @ w / lengths) / np.sqrt(float(np.prod(np.arange(1, k + 1))))
    )
    coefficients = np.polynomial.polynomial.polyfit(t, values, k)
    left, right = pair_features(*(jnp.asarray(x[None], jnp.float32) for x in (w, a, b)), degrees)
    assert float(left[0, 0] * right[0, 0]) == pytest.approx(coefficients[p] / comb(k, p), rel=1e-4)


@pytest.mark.parametrize(("dim", "head_dim"), [(13, 3), (12, 5), (9, 9)])
def test_heads_write_two_orthogonal_projections(dim, head_dim):
    construction, asked = built(FactTable.random(5, 3, 2), dim, head_dim, 4, block=2, beta=1e5)
    P_S, P_R, _, _ = projected(construction, asked)
    half = (dim - 1) // 2
    for P in (P_S, P_R):
        np.testing.assert_allclose(P, P.T, atol=1e-5)
        np.testing.assert_allclose(P @ P, P, atol=1e-5)
        assert np.trace(P) == pytest.approx(half, abs=1e-4)
    np.testing.assert_allclose(P_S @ P_R, 0.0, atol=1e-5)
    eos = np.asarray(construction.model.embeddings.tokens)[asked.vocabulary.eos]
    np.testing.assert_allclose((P_S + P_R) @ eos, 0.0, atol=1e-5)
    group = -(-half // head_dim)
    assert construction.model.shape.heads == (3 + 2) * group
    assert construction.blocks.shape[0] == (3 + 2) * group


def test_the_stream_is_subject_plus_relation():
    construction, asked = built(FactTable.random(6, 3, 2), 256, 64, 4, block=1)
    assert construction.denoiser_margin > 0
    _, _, subjects, relations = projected(construction, asked)
    prompts = asked.ask(jr.key(3), jnp.arange(18), form="counts")
    found = construction.model.attention(prompts.content)
    expected = (subjects[:, None] + relations[None]).reshape(18, 256)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_readout_is_that_of_the_equation():
    table = FactTable.random(4, 3, 2, seed=2)
    construction, asked = built(table, 11, 3, 6, block=1)
    model = construction.model
    _, _, subjects, relations = projected(construction, asked)
    phi = np.asarray(model.embeddings.tokens, float)
    into = np.asarray(model.weights.mlp_in, float)
    c = model.activation.coefficients
    assert c == (0.1, 0.1, 1.0)
    for w, v in zip(into, np.asarray(model.weights.mlp_out), strict=True):
        he2 = (np.outer(w, w) - np.eye(11)) / np.sqrt(2)
        expected = sum(
            phi[asked.vocabulary.first_answer + a] * (subjects[s] @ he2 @ relations[r])
            for s, r, a in zip(*table.fact_ids, strict=True)
        )
        np.testing.assert_allclose(v, 10 * 2**2 / c[2] / 6 * expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("degrees", [(1, 1), (3, 1)])
def test_a_wide_mlp_is_a_memory_of_pairs(degrees):
    """The mean over features: λ c_k Σ φ(a') ⟨φ̃(s'), φ̃(s)⟩^p ⟨φ̃(r'), φ̃(r)⟩^q."""
    table = FactTable.random(3, 2, 2, seed=1)
    width = 60_000 if degrees == (1, 1) else 400_000
    construction, asked = built(table, 9, 8, width, block=1, degrees=degrees)
    model = construction.model
    _, _, subjects, relations = projected(construction, asked)
    x = jnp.asarray((subjects[:, None] + relations[None]).reshape(6, 9), jnp.float32)
    found = np.asarray(model.with_mlp(x) - x)
    p, q = degrees
    kernel = ((subjects @ subjects.T) ** p)[:, None, :, None] * ((relations @ relations.T) ** q)[
        None, :, None, :
    ]
    phi = np.asarray(model.embeddings.tokens, float)
    answers = phi[asked.vocabulary.first_answer + table.answer_of]
    expected = np.einsum("srtu,tud->srd", kernel, answers).reshape(6, 9)
    expected *= 10 * 2 ** (p + q)
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < (0.06 if p == 1 else 0.3) * scale
    assert np.vdot(found, expected) / np.vdot(expected, expected) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_fact_is_recalled(seed):
    table = FactTable.random(16, 4, 4, seed=seed)
    construction, asked = built(table, 384, 96, 2048, seed, block=4)
    assert construction.denoiser_margin > 0
    assert construction.notes == ()
    assert recall(construction.model, asked, jr.key(seed)).accuracy == 1.0


def test_shared_and_missing_answers_are_recalled_too():
    grid = np.random.default_rng(3).integers(12, size=(8, 4))
    grid[0, 0] = grid[5, 2] = MISSING
    table = FactTable(grid)
    assert not table.disjoint
    construction, asked = built(table, 384, 96, 2048, block=4)
    (note,) = construction.notes
    assert note.startswith("2 of 32 questions have no fact")
    assert recall(construction.model, asked, jr.key(4)).accuracy == 1.0


def test_a_width_below_the_facts_of_one_answer_is_said():
    table = FactTable.structured(8, 2, 1)
    construction, _ = built(table, 64, 16, 8, block=1)
    assert construction.notes == (
        "One answer has 8 facts: Theorem 4 needs a width m above that, and m is 8.",
    )
    assert built(table, 64, 16, 9, block=1)[0].notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "a width of at least 1, not 0"),
        ({"degrees": (2, 1)}, "p and q are odd"),
        ({"degrees": (1, 0)}, "p and q are odd"),
        ({"head_dim": 9}, "not 9"),
        ({"dim": 2, "head_dim": 1}, "d of at least 3"),
    ],
)
def test_what_cannot_be_built(options, message):
    given = {"dim": 8, "head_dim": 4, "width": 4} | options
    with pytest.raises(FactmemError, match=message):
        built(FactTable.random(4, 2, 2), **given)


@pytest.mark.slow  # twenty seeds of the size that the project promises
def test_seventeen_of_twenty_seeds():
    def holds(seed):
        table = FactTable.random(16, 4, 4, seed=seed)
        construction, asked = built(table, 384, 96, 2048, seed, block=4)
        found = recall(construction.model, asked, jr.key(seed))
        return found.accuracy == 1.0 and construction.denoiser_margin > 0

    assert sum(map(holds, range(20))) >= 17
