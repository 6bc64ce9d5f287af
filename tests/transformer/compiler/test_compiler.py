"""Compiled transformers are certified, and impossible inputs are rejected."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import FitStatus
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.memories import rounded_to_integers
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Certificate,
    CompileStatus,
    Embeddings,
    Probe,
    Shape,
    Transformer,
    certify,
    compile_facts,
    compile_smallest,
    recall,
)
from factmem.transformer.compiler.fit import Schedule
from factmem.transformer.compiler.known_inputs import (
    FitData,
    FittedWeights,
    balance,
    model_outputs,
)
from factmem.transformer.compiler.shapes import default_dim

TABLE = FactTable.random(8, 8, 3, seed=0)
PROMPTS = PromptDistribution.from_table(TABLE)
SHAPE = Shape(12, 8, 1, 16)


def compile_table(
    prompts=PROMPTS, shape=SHAPE, convention=EXPERIMENT_CONVENTION, seed=0, **options
):
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(shape.dim, prompts.vocabulary, convention, key=embedding_key)
    return compile_facts(prompts, phi, shape, **options, key=key, convention=convention)


@pytest.fixture(scope="module")
def small():
    return compile_table()


def test_every_fact_is_certified_and_recalled(small):
    assert small.certificate.certified_accuracy == 1.0
    assert small.status is CompileStatus.CERTIFIED
    assert small.fit_status is FitStatus.CONDITION_MET
    result = recall(small.model, PROMPTS, key=jr.key(5), prompts_per_fact=20)
    assert result.accuracy == 1.0
    assert result.min_margin >= small.certificate.min_certified_margin > 0
    assert small.model.shape == SHAPE
    assert small.iterations > 0
    assert small.probes == ()


def test_certificate_is_that_of_the_returned_model(small):
    again = certify(small.model, PROMPTS)
    np.testing.assert_array_equal(again.margins, small.certificate.margins)
    assert small.certificate.max_attention_leak <= 2.0**-15


def test_fit_stops_at_the_weights_that_are_returned(monkeypatch):
    calls = []

    def record(model, prompts, **options):
        calls.append((model.weights, certify(model, prompts, **options)))
        return calls[-1][1]

    monkeypatch.setattr("factmem.transformer.compiler.compiler.certify", record)
    result = compile_table()
    # The last check, inside the fit, is the final certificate.
    weights, certificate = calls[-1]
    assert certificate.certified_accuracy == 1
    assert eqx.tree_equal(weights, result.model.weights)
    np.testing.assert_array_equal(certificate.margins, result.certificate.margins)


def test_weights_have_16_bits(small):
    again = rounded_to_integers(small.model.weights, 16)
    leaves = map(jax.tree.leaves, (small.model.weights, again))
    for actual, expected in zip(*leaves, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=0)
        assert actual.dtype == jnp.float32


def test_blocks_and_margin_follow_from_the_scores(small):
    vocabulary = PROMPTS.vocabulary
    scores = np.asarray(small.model.scores(), float)
    assert (scores[vocabulary.first_noise : vocabulary.eos] < scores[vocabulary.eos]).all()
    for head in range(8):
        above = scores[:, head] > scores[vocabulary.eos, head]
        np.testing.assert_array_equal(small.blocks[head], above)
    gap = (scores[vocabulary.eos] - scores[vocabulary.first_noise : vocabulary.eos]).min()
    assert small.denoiser_margin == pytest.approx(gap / small.beta, rel=1e-3)


def test_attention_is_the_mixture_of_the_known_tokens(small):
    model = small.model
    scores = np.asarray(model.scores(), float)
    W_OV = np.asarray(model.W_OV, float)
    phi = np.asarray(model.embeddings.tokens, float)
    batch = PROMPTS.sample(jnp.arange(PROMPTS.facts), form="counts", key=jr.key(1))
    actual = eqx.filter_jit(model.attention)(batch.content)
    for fact, known in enumerate(PROMPTS.known_tokens()):
        shares = np.exp(scores[known] - scores[known].max(axis=0))
        shares /= shares.sum(axis=0)
        expected = np.einsum("ih,hab,ib->a", shares, W_OV, phi[known])
        # Noise gets at most 2⁻¹⁶ of the attention of a head.
        np.testing.assert_allclose(actual[fact], expected, atol=1e-3)


@pytest.mark.parametrize(
    ("convention", "shape"),
    [(THEORY_CONVENTION, Shape(14, 6, 2, 24)), (EXPERIMENT_CONVENTION, Shape(24, 12, 4, 0))],
)
def test_compiles_both_conventions_and_attention_only(convention, shape):
    result = compile_table(convention=convention, shape=shape)
    assert result.certificate.certified_accuracy == 1.0
    assert (result.model.weights.mlp_bias is None) == (convention is THEORY_CONVENTION)
    assert recall(result.model, PROMPTS, key=jr.key(2), prompts_per_fact=2).accuracy == 1.0


def test_compiles_partial_tables_with_shared_answers():
    grid = np.random.default_rng(1).integers(6, size=(8, 8))
    grid[np.random.default_rng(2).random((8, 8)) < 0.4] = MISSING
    table = FactTable(grid)
    assert not table.disjoint
    prompts = PromptDistribution.from_table(table)
    result = compile_table(prompts)
    assert result.certificate.certified_accuracy == 1.0
    assert recall(result.model, prompts, key=jr.key(2), prompts_per_fact=2).accuracy == 1.0
    assert result.notes == (
        f"{64 - table.facts} of 64 (subject, relation) pairs have no fact; the model's answers to "
        "them are arbitrary.",
    )


def test_compiles_a_single_fact():
    prompts = PromptDistribution.from_table(FactTable(np.array([[0]]), answer_names=("yes", "no")))
    result = compile_table(prompts, Shape(4, 1, 1, 1))
    assert result.certificate.certified_accuracy == 1.0


def test_too_small_a_shape_is_not_certified(monkeypatch):
    # The full schedule does not certify this shape either; a short one keeps the test fast.
    short = Schedule(64, 300, rate=0.1, max_rounds=2, finish_epochs=60)
    monkeypatch.setattr(Schedule, "default", staticmethod(lambda facts, load: short))
    reports, checks = [], []

    def report(steps, *, certificate="", **values):
        (checks if steps is None else reports).append(certificate or steps)

    result = compile_table(shape=Shape(10, 4, 1, 1), report=report)
    assert result.certificate.certified_accuracy < 1.0
    assert result.status is CompileStatus.NOT_CERTIFIED
    assert result.metrics["fit_status"] != "condition_met"
    assert reports == sorted(reports)
    assert reports[-1] <= result.iterations
    assert checks[-1] == "64 of 64 facts"


def test_result_is_float32_under_strict_promotion_and_64_bit_mode(small):
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        strict = compile_table()
    assert strict.certificate.certified_accuracy == small.certificate.certified_accuracy == 1.0
    assert strict.model.weights.value.dtype == jnp.float32


@given(st.integers(0, 10**6))
def test_balance_only_scales_the_outputs(seed):
    rng = np.random.default_rng(seed)
    shapes = ((3, 5), (3, 2, 5), (3, 2, 5), (4, 5), (4,), (4, 5))
    readout = FittedWeights(*(rng.normal(size=shape) for shape in shapes))
    readout = readout._replace(mlp_in=readout.mlp_in * np.array([[1e-3], [1], [1], [1e3]]))
    data = FitData(
        tokens=rng.normal(size=(9, 5)),
        known=rng.integers(9, size=(7, 3)),
        outputs=np.zeros((2, 5)),
        target=np.zeros(7, int),
        noise=np.zeros((1, 5)),
        noise_gap=np.zeros(()),
    )
    with jax.enable_x64(True):
        before = np.asarray(model_outputs(readout, data))
        balanced = balance(readout, data)
        after = np.asarray(model_outputs(balanced, data))
    ratio = np.vdot(before, after) / np.vdot(before, before)
    assert ratio > 0
    np.testing.assert_allclose(after, ratio * before, rtol=1e-9, atol=1e-9 * np.abs(after).max())
    incoming = np.sqrt((balanced.mlp_in**2).sum(axis=1) + balanced.mlp_bias**2)
    np.testing.assert_allclose(incoming, np.linalg.norm(balanced.mlp_out, axis=1))
    lengths = (np.linalg.norm(part, axis=2) for part in (balanced.value, balanced.output))
    np.testing.assert_allclose(*lengths)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(4, 2, 5, 2), "head_dim must be from 1 to dim = 4, got 5"),
        (
            Shape(1, 1, 1, 0),
            "bits, but 4 weights of 16 bits have only 64; at least 7 weights are needed",
        ),
    ],
)
def test_rejects_impossible_shapes(shape, message):
    with pytest.raises(FactmemError, match=message):
        compile_table(shape=shape)


def test_rejects_embeddings_of_another_dimension():
    phi = Embeddings.draw(5, PROMPTS.vocabulary, EXPERIMENT_CONVENTION, key=jr.key(0))
    with pytest.raises(FactmemError, match="embeddings must have dim = 12, got 5"):
        compile_facts(PROMPTS, phi, SHAPE, key=jr.key(1))


def test_rejects_an_answer_that_cannot_be_decoded():
    phi = Embeddings.draw(12, PROMPTS.vocabulary, EXPERIMENT_CONVENTION, key=jr.key(0))
    target = int(PROMPTS.fact_answers[0])
    answers = np.asarray(phi.answers).copy()
    answers[target] = np.delete(answers, target, axis=0).mean(axis=0)
    hidden = eqx.tree_at(lambda e: e.answers, phi, jnp.asarray(answers))
    with pytest.raises(FactmemError, match=f"no output decodes to answer {target}"):
        compile_facts(PROMPTS, hidden, SHAPE, key=jr.key(1))


# ---- the search for the smallest shape -----------------------------------------------------------


@pytest.fixture
def fake_compiler(monkeypatch, small):
    """Replace the compiler by one that certifies shapes with enough parameters."""

    def replace_compiler(enough):
        def compile_facts(prompts, tables, shape, *, key, report, **options):
            report(50, loss=0.5)
            is_enough = shape.parameters >= enough(shape.dim)
            certificate = Certificate(np.array([1.0, 1.0 if is_enough else -1.0]), np.zeros(2))
            draw = partial(Transformer.draw, shape, prompts.vocabulary)
            return dataclasses.replace(
                small,
                model=eqx.filter_eval_shape(draw, key=key),
                status=CompileStatus.of_certificate(certificate),
                certificate=certificate,
            )

        monkeypatch.setattr("factmem.transformer.compiler.smallest.compile_facts", compile_facts)

    return replace_compiler


def draw_embeddings(dim):
    return Embeddings.draw(dim, PROMPTS.vocabulary, EXPERIMENT_CONVENTION, key=jr.key(0))


@pytest.mark.parametrize("enough", [250, 400, 2000])
def test_search_ends_just_above_the_threshold(fake_compiler, enough):
    fake_compiler(lambda dim: enough)
    best = compile_smallest(PROMPTS, draw_embeddings, 5, key=jr.key(0))
    assert enough <= best.model.shape.parameters <= 1.08 * enough
    assert best.model.shape.dim == 5
    assert {probe.certified_accuracy for probe in best.probes} == {0.5, 1.0}
    assert all(isinstance(probe, Probe) for probe in best.probes)


def test_search_ends_at_width_0(fake_compiler):
    fake_compiler(lambda dim: 0)
    best = compile_smallest(PROMPTS, draw_embeddings, 5, key=jr.key(0))
    assert best.model.shape.width == 0


def test_search_returns_the_best_dimension(fake_compiler):
    dim = default_dim(PROMPTS)
    fake_compiler(lambda d: 600 if d == dim + 3 else 900)
    best = compile_smallest(PROMPTS, draw_embeddings, key=jr.key(0))
    assert best.model.shape.dim == dim + 3
    assert best.model.shape.parameters < 900


def test_search_reports_the_shape_that_it_tries(fake_compiler):
    fake_compiler(lambda dim: 400)
    shapes = []
    best = compile_smallest(
        PROMPTS,
        draw_embeddings,
        5,
        key=jr.key(0),
        report=lambda iterations, *, loss, shape: shapes.append(shape),
    )
    probed = [probe.shape for probe in best.probes]
    assert shapes == [f"d={s.dim} H={s.heads} d_h={s.head_dim} m={s.width}" for s in probed]


def test_search_raises_if_no_shape_is_certified(fake_compiler):
    fake_compiler(lambda dim: 10**9)
    with pytest.raises(FactmemError, match=r"stores the table: only 0\.5000 of the facts"):
        compile_smallest(PROMPTS, draw_embeddings, 5, key=jr.key(0))


def test_search_begins_nothing_after_its_time_limit(fake_compiler):
    fake_compiler(lambda dim: 0)
    best = compile_smallest(PROMPTS, draw_embeddings, key=jr.key(0), time_limit=0.0)
    assert len(best.probes) == 1
    assert best.model.shape == best.probes[0].shape


def test_search_of_large_tables_takes_larger_steps(fake_compiler, monkeypatch):
    monkeypatch.setattr("factmem.transformer.compiler.smallest.MAX_FULL_BATCH_FACTS", 0)
    monkeypatch.setattr("factmem.transformer.compiler.shapes.MAX_FULL_BATCH_FACTS", 0)
    fake_compiler(lambda dim: 400)
    best = compile_smallest(PROMPTS, draw_embeddings, 4, key=jr.key(0))
    assert 400 <= best.model.shape.parameters <= 1.25 * 400


def test_search_finds_the_smallest_shape_of_a_small_table():
    prompts = PromptDistribution.from_table(FactTable.random(4, 4, 2))
    keys = jr.split(jr.key(0))

    def draw_embeddings(dim):
        return Embeddings.draw(dim, prompts.vocabulary, EXPERIMENT_CONVENTION, key=keys[0])

    best = compile_smallest(prompts, draw_embeddings, 8, key=keys[1])
    assert best.certificate.certified_accuracy == 1.0
    assert best.model.shape.parameters == min(
        probe.shape.parameters for probe in best.probes if probe.certified_accuracy == 1
    )


# ---- the documented size -------------------------------------------------------------------------


@pytest.mark.slow  # five compilations of 900 facts and 10^5 prompts each
@pytest.mark.parametrize("seed", range(5))
def test_900_facts_in_6144_parameters(seed):
    prompts = PromptDistribution.from_table(FactTable.random(30, 30, 8, seed=seed))
    result = compile_table(prompts, Shape(32, 8, 4, 32), seed=seed)
    assert result.certificate.certified_accuracy == 1.0
    assert recall(result.model, prompts, key=jr.key(seed), prompts_per_fact=112).accuracy == 1.0
