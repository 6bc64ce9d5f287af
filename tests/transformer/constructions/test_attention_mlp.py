"""Theorem 4, compared with Hermite tensors and explicit sums."""

from math import comb

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.transformer import THEORY_CONVENTION, Embeddings, mlp_construction, recall
from factmem.transformer.constructions.attention_mlp import pair_features


def construct(table, dim, head_dim, width, seed=0, **options):
    prompts = PromptDistribution.from_table(table)
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(dim, prompts.vocabulary, THEORY_CONVENTION, key=embedding_key)
    construction = mlp_construction(prompts, phi, head_dim, width, **options, key=key)
    return construction, prompts


def projections(construction, prompts):
    """P_S, P_R, P_S φ(s) and P_R φ(r), with projectors from the heads' W_OV."""
    model, vocabulary = construction.model, prompts.vocabulary
    W_OV = np.asarray(model.W_OV, float)
    reads_subject = construction.blocks[:, 0]
    reads_relation = construction.blocks[:, vocabulary.first_relation]
    phi = np.asarray(model.embeddings.tokens, float)
    P_S, P_R = W_OV[reads_subject].sum(axis=0), W_OV[reads_relation].sum(axis=0)
    return (
        P_S,
        P_R,
        phi[: vocabulary.subjects] @ P_S,
        phi[vocabulary.subjects : vocabulary.first_noise] @ P_R,
    )


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
def test_heads_are_two_orthogonal_projections(dim, head_dim):
    construction, prompts = construct(
        FactTable.random(5, 3, 2), dim, head_dim, 4, block_size=2, beta=1e5
    )
    P_S, P_R, _, _ = projections(construction, prompts)
    half = (dim - 1) // 2
    for P in (P_S, P_R):
        np.testing.assert_allclose(P, P.T, atol=1e-5)
        np.testing.assert_allclose(P @ P, P, atol=1e-5)
        assert np.trace(P) == pytest.approx(half, abs=1e-4)
    np.testing.assert_allclose(P_S @ P_R, 0.0, atol=1e-5)
    eos = np.asarray(construction.model.embeddings.tokens)[prompts.vocabulary.eos]
    np.testing.assert_allclose((P_S + P_R) @ eos, 0.0, atol=1e-5)
    group = -(-half // head_dim)
    assert construction.model.shape.heads == (3 + 2) * group
    assert construction.blocks.shape[0] == (3 + 2) * group


def test_attention_output_is_subject_plus_relation():
    construction, prompts = construct(FactTable.random(6, 3, 2), 256, 64, 4, block_size=1)
    assert construction.denoiser_margin > 0
    _, _, subjects, relations = projections(construction, prompts)
    batch = prompts.sample(jnp.arange(18), form="counts", key=jr.key(3))
    actual = construction.model.attention(batch.content)
    expected = (subjects[:, None] + relations[None]).reshape(18, 256)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_mlp_output_weights_match_the_equation():
    table = FactTable.random(4, 3, 2, seed=2)
    construction, prompts = construct(table, 11, 3, 6, block_size=1)
    model = construction.model
    _, _, subjects, relations = projections(construction, prompts)
    phi = np.asarray(model.embeddings.tokens, float)
    mlp_in = np.asarray(model.weights.mlp_in, float)
    c = model.activation.coefficients
    assert c == (0.1, 0.1, 1.0)
    for w, v in zip(mlp_in, np.asarray(model.weights.mlp_out), strict=True):
        he2 = (np.outer(w, w) - np.eye(11)) / np.sqrt(2)
        expected = sum(
            phi[prompts.vocabulary.first_answer + a] * (subjects[s] @ he2 @ relations[r])
            for s, r, a in zip(*table.fact_ids, strict=True)
        )
        np.testing.assert_allclose(v, 10 * 2**2 / c[2] / 6 * expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("degrees", [(1, 1), (3, 1)])
def test_wide_mlp_approaches_the_pair_kernel(degrees):
    """The mean over features is λ c_k Σ φ(a') ⟨φ̃(s'), φ̃(s)⟩^p ⟨φ̃(r'), φ̃(r)⟩^q."""
    table = FactTable.random(3, 2, 2, seed=1)
    width = 60_000 if degrees == (1, 1) else 400_000
    construction, prompts = construct(table, 9, 8, width, block_size=1, degrees=degrees)
    model = construction.model
    _, _, subjects, relations = projections(construction, prompts)
    x = jnp.asarray((subjects[:, None] + relations[None]).reshape(6, 9), jnp.float32)
    actual = np.asarray(model.add_mlp(x) - x)
    p, q = degrees
    kernel = ((subjects @ subjects.T) ** p)[:, None, :, None] * ((relations @ relations.T) ** q)[
        None, :, None, :
    ]
    phi = np.asarray(model.embeddings.tokens, float)
    answers = phi[prompts.vocabulary.first_answer + table.answer_of]
    expected = np.einsum("srtu,tud->srd", kernel, answers).reshape(6, 9)
    expected *= 10 * 2 ** (p + q)
    scale = np.abs(expected).max()
    assert np.abs(actual - expected).max() < (0.06 if p == 1 else 0.3) * scale
    assert np.vdot(actual, expected) / np.vdot(expected, expected) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("seed", [0, 1])
def test_recalls_every_fact(seed):
    table = FactTable.random(16, 4, 4, seed=seed)
    construction, prompts = construct(table, 384, 96, 2048, seed, block_size=4)
    assert construction.denoiser_margin > 0
    assert construction.notes == ()
    assert recall(construction.model, prompts, key=jr.key(seed)).accuracy == 1.0


def test_recalls_tables_with_shared_and_missing_answers():
    grid = np.random.default_rng(3).integers(12, size=(8, 4))
    grid[0, 0] = grid[5, 2] = MISSING
    table = FactTable(grid)
    assert not table.disjoint
    construction, prompts = construct(table, 384, 96, 2048, block_size=4)
    (note,) = construction.notes
    assert note.startswith("2 of 32 (subject, relation) pairs have no fact")
    assert recall(construction.model, prompts, key=jr.key(4)).accuracy == 1.0


def test_notes_a_width_below_the_facts_of_one_answer():
    table = FactTable.structured(8, 2, 1)
    construction, _ = construct(table, 64, 16, 8, block_size=1)
    assert construction.notes == (
        "One answer has 8 facts; Theorem 4 needs a width above that, got 8.",
    )
    assert construct(table, 64, 16, 9, block_size=1)[0].notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"degrees": (2, 1)}, "degrees must be odd"),
        ({"degrees": (1, 0)}, "degrees must be odd"),
        ({"head_dim": 9}, "got 9"),
        ({"dim": 2, "head_dim": 1}, "dim must be at least 3, got 2"),
    ],
)
def test_rejects_impossible_options(options, message):
    arguments = {"dim": 8, "head_dim": 4, "width": 4} | options
    with pytest.raises(FactmemError, match=message):
        construct(FactTable.random(4, 2, 2), **arguments)


@pytest.mark.slow  # twenty constructions of the documented size
def test_recalls_every_fact_for_17_of_20_seeds():
    def holds(seed):
        table = FactTable.random(16, 4, 4, seed=seed)
        construction, prompts = construct(table, 384, 96, 2048, seed, block_size=4)
        result = recall(construction.model, prompts, key=jr.key(seed))
        return result.accuracy == 1.0 and construction.denoiser_margin > 0

    assert sum(map(holds, range(20))) >= 17
