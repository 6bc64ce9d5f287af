"""Compiled transformers: what is proved of them holds, and what cannot be compiled is said."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.memories import rounded
from factmem.transformer import (
    EXPERIMENTS,
    THEORY,
    Certificate,
    Embeddings,
    Probe,
    Shape,
    Transformer,
    certify,
    compile_facts,
    compile_smallest,
    recall,
)
from factmem.transformer.compiler.compiler import FitData, Readout, _balanced, _outputs
from factmem.transformer.compiler.smallest import natural_dim

TABLE = FactTable.random(8, 8, 3, seed=0)
ASKED = PromptDistribution.of(TABLE)
SHAPE = Shape(12, 8, 1, 16)


def compiled(asked=ASKED, shape=SHAPE, convention=EXPERIMENTS, seed=0, **options):
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(embedding_key, shape.dim, asked.vocabulary, convention)
    return compile_facts(key, asked, phi, shape, convention=convention, **options)


@pytest.fixture(scope="module")
def small():
    return compiled()


def test_every_fact_is_certified_and_recalled(small):
    assert small.certificate.certified_accuracy == 1.0
    found = recall(small.model, ASKED, jr.key(5), sampled=20)
    assert found.accuracy == 1.0
    assert found.min_margin >= small.certificate.min_certified_margin > 0
    assert small.model.shape == SHAPE
    assert small.iterations > 0


def test_the_certificate_is_of_the_model_that_is_given(small):
    again = certify(small.model, ASKED)
    np.testing.assert_array_equal(again.margins, small.certificate.margins)
    assert small.certificate.leaks.max() <= 2.0**-29


def test_what_ends_the_fit_is_the_certificate_of_the_very_weights_that_are_given(monkeypatch):
    seen = []

    def recording(model, asked):
        seen.append((model.weights, certify(model, asked)))
        return seen[-1][1]

    monkeypatch.setattr("factmem.transformer.compiler.compiler.certify", recording)
    compiled()
    # The last look, inside the fit and so in 64-bit mode, and the final certificate.
    (looked_at, enough), (given, final) = seen[-2:]
    assert enough.certified_accuracy == final.certified_accuracy == 1
    assert eqx.tree_equal(looked_at, given)
    np.testing.assert_array_equal(enough.margins, final.margins)


def test_weights_stand_on_sixteen_bits(small):
    again = rounded(small.model.weights, 16)
    for here, there in zip(*map(jax.tree.leaves, (small.model.weights, again)), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-6, atol=0)
        assert here.dtype == jnp.float32


def test_blocks_and_margin_are_those_of_the_scores(small):
    names = ASKED.vocabulary
    scores = np.asarray(small.model.scores(), float)
    assert (scores[names.first_noise : names.eos] < scores[names.eos]).all()
    for head in range(8):
        above = scores[:, head] > scores[names.eos, head]
        np.testing.assert_array_equal(small.blocks[head], above)
    gaps = np.abs(scores[: names.eos] - scores[names.eos]).min()
    assert small.denoiser_margin == pytest.approx(gaps / small.beta, rel=1e-4)


def test_heads_read_one_token_each(small):
    """The model's stream is the sum of what each head writes for its strongest known token."""
    model = small.model
    scores = np.asarray(model.scores(), float)
    W_OV = np.asarray(model.W_OV, float)
    phi = np.asarray(model.embeddings.tokens, float)
    prompts = ASKED.ask(jr.key(1), jnp.arange(ASKED.facts), form="counts")
    found = eqx.filter_jit(model.attention)(prompts.content)
    for fact, known in enumerate(ASKED.known_tokens()):
        read = [max(known, key=lambda z, h=head: scores[z, h]) for head in range(8)]
        expected = sum(W_OV[head] @ phi[read[head]] for head in range(8))
        np.testing.assert_allclose(found[fact], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("convention", "shape"),
    [(THEORY, Shape(14, 6, 2, 24)), (EXPERIMENTS, Shape(24, 12, 4, 0))],
)
def test_both_conventions_and_attention_alone(convention, shape):
    found = compiled(convention=convention, shape=shape)
    assert found.certificate.certified_accuracy == 1.0
    assert (found.model.weights.mlp_bias is None) == (convention is THEORY)
    assert recall(found.model, ASKED, jr.key(2), sampled=2).accuracy == 1.0


def test_partial_tables_and_shared_answers():
    grid = np.random.default_rng(1).integers(6, size=(8, 8))
    grid[np.random.default_rng(2).random((8, 8)) < 0.4] = MISSING
    table = FactTable(grid)
    assert not table.disjoint
    asked = PromptDistribution.of(table)
    found = compiled(asked)
    assert found.certificate.certified_accuracy == 1.0
    assert recall(found.model, asked, jr.key(2), sampled=2).accuracy == 1.0
    assert found.notes == (
        f"{64 - table.facts} of 64 questions have no fact: what is answered to them is not "
        "defined.",
    )


def test_a_single_fact():
    asked = PromptDistribution.of(FactTable(np.array([[0]]), answer_names=("yes", "no")))
    found = compiled(asked, Shape(4, 1, 1, 1))
    assert found.certificate.certified_accuracy == 1.0


def test_a_shape_that_is_too_small_is_not_certified():
    reports = []
    found = compiled(shape=Shape(10, 4, 1, 1), report=lambda steps, loss: reports.append(steps))
    assert found.certificate.certified_accuracy < 1.0
    assert reports == sorted(reports)
    assert reports[-1] <= found.iterations


def test_the_same_under_strict_types_and_with_64_bits():
    asked = PromptDistribution.of(FactTable.random(4, 4, 2))
    plain = compiled(asked, Shape(8, 4, 1, 8))
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        strict = compiled(asked, Shape(8, 4, 1, 8))
    assert strict.certificate.certified_accuracy == plain.certificate.certified_accuracy == 1.0
    assert strict.model.weights.value.dtype == jnp.float32


@given(st.integers(0, 10**6))
def test_balancing_only_scales_the_outputs(seed):
    rng = np.random.default_rng(seed)
    readout = Readout(*(rng.normal(size=s) for s in ((3, 2, 5), (3, 2, 5), (4, 5), (4,), (4, 5))))
    readout = readout._replace(mlp_in=readout.mlp_in * np.array([[1e-3], [1], [1], [1e3]]))
    lesson = FitData(
        rng.normal(size=(9, 5)), rng.integers(9, size=(7, 3)), np.zeros((2, 5)), np.zeros(7, int)
    )
    with jax.enable_x64(True):
        before = np.asarray(_outputs(readout, lesson))
        balanced = _balanced(readout, lesson)
        after = np.asarray(_outputs(balanced, lesson))
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
        (Shape(4, 2, 5, 2), "d_h = 5 needs d of at least 5"),
        (Shape(1, 1, 1, 0), "bits, and 4 weights of 16 bits only 64; at least 7 weights could do"),
    ],
)
def test_impossible_shapes(shape, message):
    with pytest.raises(FactmemError, match=message):
        compiled(shape=shape)


def test_embeddings_of_another_dimension():
    phi = Embeddings.draw(jr.key(0), 5, ASKED.vocabulary, EXPERIMENTS)
    with pytest.raises(FactmemError, match="the embeddings have 5 dimensions, the shape 12"):
        compile_facts(jr.key(1), ASKED, phi, SHAPE)


def test_an_answer_that_no_output_can_reach():
    phi = Embeddings.draw(jr.key(0), 12, ASKED.vocabulary, EXPERIMENTS)
    target = int(ASKED.fact_answers[0])
    answers = np.asarray(phi.answers).copy()
    answers[target] = np.delete(answers, target, axis=0).mean(axis=0)
    hidden = eqx.tree_at(lambda e: e.answers, phi, jnp.asarray(answers))
    with pytest.raises(FactmemError, match=f"no output can have answer {target} as its best"):
        compile_facts(jr.key(1), ASKED, hidden, SHAPE)


# ---- the search for the smallest shape -----------------------------------------------------------


@pytest.fixture
def pretend(monkeypatch, small):
    """Makes a compiler that certifies everything from so many parameters on."""

    def with_enough(enough):
        def compile_facts(key, asked, tables, shape, **options):
            good = shape.parameters >= enough(shape.dim)
            margins = np.array([1.0, 1.0 if good else -1.0])
            return dataclasses.replace(
                small,
                model=eqx.filter_eval_shape(Transformer.draw, key, shape, asked.vocabulary),
                certificate=Certificate(margins, np.zeros(2)),
            )

        monkeypatch.setattr("factmem.transformer.compiler.smallest.compile_facts", compile_facts)

    return with_enough


def tables(dim):
    return Embeddings.draw(jr.key(0), dim, ASKED.vocabulary, EXPERIMENTS)


@pytest.mark.parametrize("enough", [250, 400, 2000])
def test_the_search_ends_just_above_what_is_needed(pretend, enough):
    pretend(lambda dim: enough)
    best, probes = compile_smallest(jr.key(0), ASKED, tables, 5)
    assert enough <= best.model.shape.parameters <= 1.08 * enough
    assert best.model.shape.dim == 5
    assert {probe.certified_accuracy for probe in probes} == {0.5, 1.0}
    assert all(isinstance(probe, Probe) for probe in probes)


def test_the_search_ends_where_no_neuron_is_left(pretend):
    pretend(lambda dim: 0)
    best, _ = compile_smallest(jr.key(0), ASKED, tables, 5)
    assert best.model.shape.width == 0


def test_the_search_keeps_the_best_dimension(pretend):
    natural = natural_dim(ASKED)
    pretend(lambda dim: 600 if dim == natural + 3 else 900)
    best, _ = compile_smallest(jr.key(0), ASKED, tables)
    assert best.model.shape.dim == natural + 3
    assert best.model.shape.parameters < 900


def test_a_search_that_finds_nothing(pretend):
    pretend(lambda dim: 10**9)
    with pytest.raises(FactmemError, match=r"do not hold the table: only 0\.5000 of the facts"):
        compile_smallest(jr.key(0), ASKED, tables, 5)


def test_the_smallest_shape_of_a_small_table():
    asked = PromptDistribution.of(FactTable.random(4, 4, 2))
    keys = jr.split(jr.key(0))

    def embeddings(dim):
        return Embeddings.draw(keys[0], dim, asked.vocabulary, EXPERIMENTS)

    best, probes = compile_smallest(keys[1], asked, embeddings, 8)
    assert best.certificate.certified_accuracy == 1.0
    assert best.model.shape.parameters == min(
        probe.shape.parameters for probe in probes if probe.certified_accuracy == 1
    )


# ---- what the project promises -------------------------------------------------------------------


@pytest.mark.slow  # five compilations of 900 facts and 10^5 prompts each
@pytest.mark.parametrize("seed", range(5))
def test_900_facts_in_6144_parameters(seed):
    asked = PromptDistribution.of(FactTable.random(30, 30, 8, seed=seed))
    found = compiled(asked, Shape(32, 8, 4, 32), seed=seed)
    assert found.certificate.certified_accuracy == 1.0
    assert recall(found.model, asked, jr.key(seed), sampled=112).accuracy == 1.0
