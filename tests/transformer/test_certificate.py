"""Certificates hold in every prompt, and are not vacuous."""

from itertools import combinations, combinations_with_replacement, product

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transformer.hard_reading import hard_reading_margins

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution
from factmem.facts.prompts import count_tokens
from factmem.memories.activations import HermitePolynomial
from factmem.memories.decoding import smallest_margins
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Embeddings,
    Shape,
    Transformer,
    Weights,
    attention_construction,
    certify,
    recall,
)
from factmem.transformer.certificate import (
    _add_mlp,
    _Answers,
    _attend,
    _attention_shares,
    _Ball,
    _Bounds,
    _Interval,
    _linearized_error,
    _log_noise_weight,
    _margins_by_entry,
    _margins_by_norm,
    _Matrix,
    _product,
    _scores,
    _spectral_norm,
    _sum,
    _values,
)

TABLE = FactTable.random(3, 2, 2, seed=2)
PROMPTS = PromptDistribution.from_table(TABLE, noise=3, length=6)


def every_prompt():
    """All multisets of noise tokens for every fact: facts × 10 prompts."""
    vocabulary = PROMPTS.vocabulary
    prompts, facts = [], []
    for fact, known in enumerate(PROMPTS.known_tokens()):
        for noise in combinations_with_replacement(
            range(vocabulary.first_noise, vocabulary.eos), 3
        ):
            prompts.append([*known[:2], *noise, known[2]])
            facts.append(fact)
    return count_tokens(jnp.asarray(prompts), vocabulary.prompt_tokens), np.array(facts)


COUNTS, FACTS = every_prompt()


@eqx.filter_jit
def margins_of(model, counts, targets):
    return smallest_margins(model(counts), model.embeddings.outputs, targets).margin


@eqx.filter_jit
def outputs_of(model, counts):
    return model(counts)


def min_margins(model):
    targets = model.targets(PROMPTS.fact_answers[FACTS])
    margins = np.asarray(margins_of(model, COUNTS, targets), float)
    return np.array([margins[fact == FACTS].min() for fact in range(PROMPTS.facts)])


def random_model(seed, convention, width, sharpness):
    model = Transformer.draw(
        Shape(5, 3, 2, width), PROMPTS.vocabulary, convention, key=jr.key(seed)
    )
    return eqx.tree_at(lambda m: m.weights.key, model, sharpness * model.weights.key)


@given(
    st.integers(0, 10**6),
    st.sampled_from([THEORY_CONVENTION, EXPERIMENT_CONVENTION]),
    st.sampled_from([0, 6]),
    st.sampled_from([0.1, 1.0, 10.0, 100.0, 3000.0]),
)
def test_no_margin_is_below_its_bound(seed, convention, width, sharpness):
    model = random_model(seed, convention, width, sharpness)
    certificate = certify(model, PROMPTS)
    assert (certificate.margins <= min_margins(model)).all()
    assert ((certificate.attention_leaks >= 0) & (certificate.attention_leaks <= 1 + 1e-5)).all()


@given(st.integers(0, 10**6), st.sampled_from([0, 6]))
def test_bounds_are_tight_if_attention_is_concentrated(seed, width):
    model = random_model(seed, EXPERIMENT_CONVENTION, width, 1e5)
    certificate = certify(model, PROMPTS)
    concentrated = certificate.attention_leaks < 1e-9
    slack = min_margins(model) - certificate.margins
    scale = np.abs(np.asarray(outputs_of(model, COUNTS))).max()
    assert (slack[concentrated] <= 1e-4 * max(scale, 1.0)).all()


@given(
    st.integers(0, 10**6),
    st.sampled_from([0, 6]),
    st.sampled_from([10.0, 100.0, 3000.0, 1e5]),
)
def test_known_mixtures_are_at_least_as_tight_as_hard_reading(seed, width, sharpness):
    model = random_model(seed, EXPERIMENT_CONVENTION, width, sharpness)
    before, now = hard_reading_margins(model, PROMPTS), certify(model, PROMPTS).margins
    assert (now >= before - 1e-6 * np.abs(before)).all()


@pytest.mark.parametrize("sharpness", [0.1, 1.0])
def test_soft_attention_among_known_tokens_is_no_error(sharpness):
    """A head that mixes its known tokens is certified if noise scores far below them."""
    gap = 60.0
    scores = np.array([sharpness, -sharpness, 0.0, -gap, -gap, 0.0])
    values = np.array([1.0, -1.0, 0.5, 3.0, -3.0, 0.2])
    model, prompts = handmade(scores, values, 1.0, [1, -1])
    for fact, margin in enumerate(certify(model, prompts).margins):
        known = prompts.known_tokens()[fact]
        shares = np.exp(scores[known]) / np.exp(scores[known]).sum()
        sign = 1 if fact == 0 else -1
        assert margin == pytest.approx(sign * 2 * shares @ values[known], abs=1e-4)
    assert (hard_reading_margins(model, prompts) < 0).all()


@given(st.integers(0, 10**6))
def test_shares_and_leaks_match_explicit_sums(seed):
    rng = np.random.default_rng(seed)
    vocabulary = PROMPTS.vocabulary
    scores = rng.normal(size=(vocabulary.prompt_tokens, 2)) * 3
    interval = _Interval(scores, np.zeros_like(scores))
    known = PROMPTS.known_tokens()
    log_noise = _log_noise_weight(scores[vocabulary.first_noise : vocabulary.eos], 3, "any")
    low, high, leaks, rest = _attention_shares(interval, known, log_noise)
    for fact, tokens in enumerate(known):
        for head in range(2):
            weights = np.exp(scores[tokens, head])
            worst = 3 * np.exp(scores[vocabulary.first_noise : vocabulary.eos, head].max())
            np.testing.assert_allclose(low[fact, :, head], weights / weights.sum(), rtol=1e-4)
            assert (low[fact, :, head] <= weights / weights.sum()).all()
            assert (high[fact, :, head] >= weights / weights.sum()).all()
            total = weights.sum() + worst
            assert leaks[fact, head] == pytest.approx(worst / total, rel=1e-4)
            assert rest[fact, head] == pytest.approx(1 - weights.max() / total, rel=1e-4)
            assert leaks[fact, head] >= worst / total


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
def test_weight_of_distinct_noise_is_the_largest_of_all_sets(seed, positions):
    scores = np.random.default_rng(seed).normal(size=(4, 2)) * 3
    weights = np.exp(scores)
    for noise, tuples in (
        ("any", combinations_with_replacement(range(4), positions)),
        ("distinct", combinations(range(4), positions)),
    ):
        largest = np.max([weights[list(chosen)].sum(axis=0) for chosen in tuples], axis=0)
        bound = np.exp(_log_noise_weight(scores, positions, noise))
        np.testing.assert_allclose(bound, largest, rtol=1e-9)
        assert (bound >= largest * (1 - 1e-12)).all()


@given(st.integers(0, 10**6), st.sampled_from([0, 6]), st.sampled_from([0.3, 1.0, 10.0]))
def test_distinct_noise_is_covered_and_certifies_more(seed, width, sharpness):
    model = random_model(seed, EXPERIMENT_CONVENTION, width, sharpness)
    distinct = (COUNTS[:, PROMPTS.vocabulary.first_noise : PROMPTS.vocabulary.eos] == 1).all(axis=1)
    certificate, of_all = certify(model, PROMPTS, noise="distinct"), certify(model, PROMPTS)
    assert (certificate.attention_leaks <= of_all.attention_leaks).all()
    # A fact that needs it is bounded more tightly, so margins alone may be larger for all noise.
    assert (certificate.margins > 0)[of_all.margins > 0].all()
    targets = model.targets(PROMPTS.fact_answers[FACTS])
    actual = np.asarray(margins_of(model, COUNTS, targets), float)[np.asarray(distinct)]
    assert (certificate.margins <= actual).all()  # one such prompt for every fact, in their order


def test_rejects_distinct_noise_if_there_are_too_few_noise_tokens():
    model = random_model(0, EXPERIMENT_CONVENTION, 0, 1.0)
    longer = PromptDistribution.from_table(TABLE, noise=3, length=7)
    with pytest.raises(FactmemError, match="4 positions have only 3 noise tokens"):
        certify(model, longer, noise="distinct")


@given(st.integers(0, 10**6), st.sampled_from([0, 6]), st.sampled_from([1.0, 100.0, 1e5]))
def test_blocks_and_norms_are_sound_and_blocks_change_nothing(seed, width, sharpness):
    model = random_model(seed, EXPERIMENT_CONVENTION, width, sharpness)
    whole = certify(model, PROMPTS).margins
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("factmem.transformer.certificate._MAX_BLOCK_ENTRIES", 30)
        np.testing.assert_allclose(certify(model, PROMPTS).margins, whole, rtol=1e-9, atol=1e-12)
        # Too large a table: most facts keep the bound by norms, unless they need the other.
        patch.setattr("factmem.transformer.certificate._MAX_REFINED_ENTRIES", 1)
        by_norms = certify(model, PROMPTS).margins
    np.testing.assert_array_equal(by_norms > 0, whole > 0)
    assert (by_norms <= min_margins(model)).all()


def test_progress_counts_facts(monkeypatch):
    monkeypatch.setattr("factmem.transformer.certificate._MAX_BLOCK_ENTRIES", 30)
    reports = []
    model = random_model(0, EXPERIMENT_CONVENTION, 6, 1.0)
    certify(model, PROMPTS, report=lambda facts, *, left: reports.append((facts, left)))
    assert len(reports) > 1
    assert all(facts + left == PROMPTS.facts for facts, left in reports)
    assert reports[-1] == (PROMPTS.facts, 0)


def test_margins_below_rounding_errors_are_not_certified():
    """Two answers differ in the last bit: the fact is recalled in exact arithmetic only."""
    model = random_model(0, EXPERIMENT_CONVENTION, 0, 1e5)
    target = int(PROMPTS.fact_answers[0])
    other = (target + 1) % TABLE.answers
    answers = np.asarray(model.embeddings.answers).copy()
    answers *= 1e-3
    answers[target] = 1.0
    answers[other] = np.float32(1.0)
    output = np.asarray(outputs_of(model, COUNTS))[0]
    answers[other, 0] = np.nextafter(np.float32(1.0), np.float32(-np.inf * np.sign(output[0])))
    model = eqx.tree_at(lambda m: m.embeddings.answers, model, jnp.asarray(answers))
    exact = (answers[target].astype(float) - answers[other]) @ output.astype(float)
    assert exact > 0
    assert certify(model, PROMPTS).margins[0] < exact
    assert certify(model, PROMPTS).margins[0] < 0


def handmade(scores, values, output, answers, query=1.0, key=1.0, eos=1.0, length=5, noise=2):
    """Two facts (0 and 1) and one head, with separate axes of scores, values and logits."""
    prompts = PromptDistribution.from_table(
        FactTable(np.array([[0], [1]])), noise=noise, length=length
    )
    vocabulary = prompts.vocabulary
    tokens = np.zeros((vocabulary.prompt_tokens, 4), np.float32)
    tokens[:, 1], tokens[:, 2] = scores, values
    tokens[-1, 0] = eos
    table = np.zeros((2, 4), np.float32)
    table[:, 0] = answers

    def row(axis, size):
        return jnp.zeros((1, 1, 4)).at[0, 0, axis].set(size)

    no_mlp = jnp.zeros((0, 4))
    weights = Weights(
        row(0, query), row(1, key), row(2, 1.0), row(0, output), no_mlp, jnp.zeros(0), no_mlp
    )
    embeddings = Embeddings(jnp.asarray(tokens), jnp.asarray(table))
    return Transformer(weights, embeddings, Shape(4, 1, 1), vocabulary), prompts


SEPARATED = ([60, 60, 0, 0, 0, 0], [1, -1, 0, 0, 0, 0])
FAR_APART = ([-100, 0, -140, -140, -140, -140], [1e-12, -1e-12, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        ((*SEPARATED, 1e20, [1e20, -1e20]), {}),  # logits overflow
        (
            (SEPARATED[0], [1e20, -1e20, 0, 0, 0, 0], 1e20, [1e-30, -1e-30]),
            {},
        ),  # attention outputs overflow
        (
            (np.array(SEPARATED[0]) * 100, [1, -1, 0.5, -3, -3, -3], 1.0, [1, -1]),
            {"query": 1e-25, "key": 1e38, "eos": 1e-15},
        ),  # queries are flushed to zero
        ((*FAR_APART, 1e12, [1, -1]), {}),  # weights times values are flushed to zero
    ],
)
def test_overflow_and_underflow_are_not_certified(numbers, options):
    model, prompts = handmade(*numbers, **options)
    certificate = certify(model, prompts)
    batch = prompts.fill_noise(jnp.arange(2), jnp.asarray(prompts.vocabulary.first_noise))
    margins = margins_of(model, batch.content, model.targets(batch.answers))
    actual = np.where(np.isnan(margins), -np.inf, margins)
    assert (certificate.margins <= actual).all()
    assert (certificate.margins <= 0).any()


def test_handmade_model_is_certified():
    model, prompts = handmade(*SEPARATED, 1.0, [1, -1])
    np.testing.assert_allclose(certify(model, prompts).margins, 2.0, rtol=1e-5)


def test_bounds_are_finite_for_very_long_prompts():
    model, prompts = handmade(
        [-900, -900, 0, 900, 900, 0], SEPARATED[1], 1.0, [1, -1], length=2**20
    )
    certificate = certify(model, prompts)
    assert np.isfinite(certificate.margins).all()
    assert certificate.certified_accuracy == 0


def test_rounding_errors_of_many_small_weights_add_up():
    """1,000 noise tokens, each with a weight just below half a unit in the last place."""
    unit, noise = 2.0**-24, 1000
    scores = np.full(noise + 4, -60.0)
    scores[0], scores[1], scores[3:-1] = 0.0, 1.1003794758650358, -16.643167
    values = np.ones(noise + 4)
    values[3:-1] = 0.99
    model, prompts = handmade(scores, values, 1.0, [1, -1], length=noise + 3, noise=noise)
    counts = np.ones((1, noise + 4), int)
    counts[0, 1] = 0
    (read,) = np.asarray(outputs_of(model, jnp.asarray(counts)))[:, 0]
    certificate = certify(model, prompts)
    # A margin is twice the output, here the value that the head reads.
    assert certificate.margins[0] / 2 <= read
    assert certificate.margins[0] / 2 <= 1.0 - 1.9 * noise * unit


@pytest.mark.parametrize("length", [2**23, 2**24, 2**25])
def test_prompts_with_inexact_counts_are_not_certified(length):
    prompts = PromptDistribution.from_table(FactTable.random(4, 4, 4), length=length)
    model = Transformer.draw(Shape(8, 2, 4, 8), prompts.vocabulary, key=jr.key(0))
    certificate = certify(model, prompts)
    assert certificate.certified_accuracy == 0
    assert (certificate.margins < 0).all()


def test_rejects_prompts_of_another_vocabulary():
    """The numbers of tokens are equal, but some subjects of the model are noise in the prompts."""
    prompts = [
        PromptDistribution.from_table(FactTable.random(subjects, 4, 2), noise=24 - subjects)
        for subjects in (16, 10)
    ]
    assert prompts[0].vocabulary.eos == prompts[1].vocabulary.eos
    model = Transformer.draw(Shape(8, 2, 4, 8), prompts[0].vocabulary, key=jr.key(0))
    with pytest.raises(FactmemError, match="same vocabulary"):
        certify(model, prompts[1])


def test_nan_weights_are_not_certified():
    model = random_model(0, EXPERIMENT_CONVENTION, 6, 1.0)
    broken = eqx.tree_at(lambda m: m.weights.mlp_out, model, jnp.nan * model.weights.mlp_out)
    assert certify(broken, PROMPTS).certified_accuracy == 0


def test_attention_construction_is_certified():
    prompts = PromptDistribution.from_table(FactTable.random(16, 4, 4))
    phi = Embeddings.draw(512, prompts.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    model = attention_construction(prompts, phi, 256, key=jr.key(1), block_size=4).model
    certificate = certify(model, prompts)
    assert certificate.certified_accuracy == 1.0
    recalled = recall(model, prompts, key=jr.key(2))
    assert 0.9 * recalled.min_margin < certificate.min_certified_margin < recalled.min_margin


def test_rejects_activations_with_unbounded_slope():
    vocabulary = PROMPTS.vocabulary
    sigma = HermitePolynomial((0.1, 0.1, 1.0))
    model = Transformer.draw(Shape(5, 1, 2, 3), vocabulary, THEORY_CONVENTION, sigma, key=jr.key(0))
    with pytest.raises(FactmemError, match="needs ReLU, got HermitePolynomial"):
        certify(model, PROMPTS)


# ---- the terms of the bound ----------------------------------------------------------------------

UNIT = 2.0**-24
NEURONS = {
    convention: Transformer.draw(Shape(4, 1, 1, 5), PROMPTS.vocabulary, convention, key=jr.key(0))
    for convention in (THEORY_CONVENTION, EXPERIMENT_CONVENTION)
}


corners = [np.array(signs) for signs in product((-1.0, 1.0), repeat=4)]


def random_ball(seed, shape, error):
    rng = np.random.default_rng(seed)
    return _Ball.around(rng.normal(size=shape), error * rng.random(size=shape))


@given(st.integers(0, 10**6))
def test_errors_of_products_and_sums_match_their_formulas(seed):
    left, right = (
        random_ball(seed, (2, 4), 0.1),
        np.random.default_rng(seed).normal(size=(4, 3)),
    )
    result = _product(left, _Matrix.of(right))
    for f in range(2):
        for j in range(3):
            input_error = sum(left.error[f, i] * abs(right[i, j]) for i in range(4))
            magnitude = sum(
                (abs(left.center[f, i]) + left.error[f, i]) * abs(right[i, j]) for i in range(4)
            )
            expected = input_error + 4 * UNIT * magnitude
            # An entry cannot deviate by more than the norm of its row.
            assert result.error[f, j] == pytest.approx(min(expected, result.radius[f]), rel=1e-5)
            assert result.error[f, j] >= min(expected, result.radius[f])
    np.testing.assert_allclose(result.center, left.center @ right)
    total = _sum(left, random_ball(seed + 1, (2, 4), 0.2))
    other = random_ball(seed + 1, (2, 4), 0.2)
    expected = left.error + other.error
    expected = expected + UNIT * (np.abs(left.center + other.center) + expected)
    assert (total.error >= expected).all()
    np.testing.assert_allclose(total.error, expected, rtol=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([THEORY_CONVENTION, EXPERIMENT_CONVENTION]))
def test_mlp_bound_contains_all_corners_of_its_input(seed, convention):
    """The error may switch neurons on or off, and passes through the skip connection."""
    rng = np.random.default_rng(seed)
    mlp_in, mlp_out = rng.normal(size=(2, 5, 4)).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32) if convention.mlp_bias else None
    x = random_ball(seed, (3, 4), 0.5)
    parts = _Matrix.of(mlp_in.T.astype(float)), bias, _Matrix.of(mlp_out.astype(float))
    result = _add_mlp(parts, x)
    shift = 0.0 if bias is None else bias[None, :]
    for signs in corners:
        moved = x.center + signs * x.error
        outputs = moved + np.maximum(moved @ mlp_in.T.astype(float) + shift, 0) @ mlp_out.astype(
            float
        )
        assert (np.abs(outputs - result.center) <= result.error).all()
        assert (np.linalg.norm(outputs - result.center, axis=1) <= result.radius).all()


@given(st.integers(0, 10**6), st.sampled_from([THEORY_CONVENTION, EXPERIMENT_CONVENTION]))
def test_linearized_bound_contains_all_corners_and_is_tight_for_small_errors(seed, convention):
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(size=size) for size in ((4, 3), (3, 5), (5, 3))]
    output, mlp_in, mlp_out = map(_Matrix.of, matrices)
    bias = rng.normal(size=5) if convention.mlp_bias else None
    for size, exact in ((0.3, False), (1e-4, True)):
        attended = random_ball(seed, (3, 4), size)
        error = _linearized_error(attended, output, (mlp_in, bias, mlp_out))

        def outputs(attended):
            x = attended @ matrices[0]
            pre = x @ matrices[1] + (0.0 if bias is None else bias[None, :])
            return x + np.maximum(pre, 0) @ matrices[2], pre

        center, pre = outputs(attended.center)
        moves = [outputs(attended.center + signs * attended.error)[0] - center for signs in corners]
        largest = np.max(np.abs(moves), axis=0)
        assert (largest <= error).all()
        if exact:  # no neuron changes its state: the corners attain the bound, but for rounding
            certain = (np.abs(pre) > 0.05).all(axis=1)
            np.testing.assert_allclose(error[certain], largest[certain], rtol=0.1, atol=2e-5)


@given(st.integers(0, 10**6))
def test_margin_bounds_are_minima_over_the_corners_of_the_output(seed):
    outputs = random_ball(seed, (3, 4), 0.3)
    answers = np.random.default_rng(seed + 1).normal(size=(5, 4))
    targets = np.array([0, 4, 2])
    tables = _Answers.of(answers)
    bounds = _margins_by_entry(outputs, tables, targets, np.inf)
    by_norm, exact = _margins_by_norm(outputs, tables, targets)
    assert (by_norm <= bounds).all()
    signs_only = _margins_by_entry(outputs, tables, targets, 0.0)
    assert (signs_only <= bounds + 1e-12).all()
    np.testing.assert_array_equal(signs_only > 0, bounds > 0)
    for fact, target in enumerate(targets):
        differences = answers[target] - np.delete(answers, target, axis=0)
        worst = min(
            (differences @ (outputs.center[fact] + signs * outputs.error[fact])).min()
            for signs in corners
        )
        assert bounds[fact] <= worst
        assert bounds[fact] == pytest.approx(worst, abs=1e-4)
        assert exact[fact] == pytest.approx((differences @ outputs.center[fact]).min())


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_scores_and_values_match_their_products(seed):
    model = random_model(seed, EXPERIMENT_CONVENTION, 0, 50.0)
    phi = np.asarray(model.embeddings.tokens, float)
    query, key = np.asarray(model.weights.query, float), np.asarray(model.weights.key, float)
    query_error = 5 * UNIT * np.abs(query) @ np.abs(phi[-1])
    magnitude = np.abs(query @ phi[-1]) + query_error
    errors = np.zeros((len(phi), 3))
    for head in range(3):
        absolute = np.abs(key[head]).T
        direction = key[head].T @ (query[head] @ phi[-1])
        error = absolute @ query_error[head] + 2 * UNIT * absolute @ magnitude[head]
        size = np.abs(phi) @ (np.abs(direction) + error)
        errors[:, head] = (np.abs(phi) @ error + 5 * UNIT * size) * model.score_scale
    scores = _scores(model)
    assert (np.abs(np.asarray(model.scores(), float) - scores.center) <= scores.error).all()
    assert (scores.error >= errors).all()
    np.testing.assert_allclose(scores.error, errors, atol=3 * UNIT * np.abs(scores.center).max())
    phi, weights = np.abs(phi), model.weights
    values = _values(model)
    sizes = np.einsum("zd,hkd->zhk", phi, np.abs(weights.value))
    assert (np.abs(np.asarray(model.values(), float) - values.center) <= values.error).all()
    assert (values.error >= 5 * UNIT * sizes * 0.99).all()


def test_score_errors_increase_leaks():
    vocabulary = PROMPTS.vocabulary
    scores = np.random.default_rng(0).normal(size=(vocabulary.prompt_tokens, 2)) * 20
    noise, known = slice(vocabulary.first_noise, vocabulary.eos), PROMPTS.known_tokens()

    def leaks(error):
        interval = _Interval(scores, np.full_like(scores, error))
        log_noise = _log_noise_weight(scores[noise] + error, 3, "any")
        return _attention_shares(interval, known, log_noise)[2]

    exact, uncertain = leaks(0.0), leaks(0.5)
    small = exact < 1e-6
    np.testing.assert_allclose(uncertain[small], np.e * exact[small], rtol=1e-3)


@given(st.integers(0, 10**6), st.sampled_from([(3, 5), (5, 3), (4, 4)]))
def test_spectral_norm_is_an_upper_bound(seed, shape):
    matrix = np.random.default_rng(seed).normal(size=shape)
    norm = np.linalg.svd(matrix, compute_uv=False)[0]
    assert norm <= _spectral_norm(matrix) <= norm * (1 + 1e-5)
    assert _spectral_norm(1e-200 * matrix) == pytest.approx(1e-200 * norm, rel=1e-5)


def test_spectral_norm_of_zeros_and_infinities():
    assert _spectral_norm(np.zeros((3, 2))) == 0.0
    assert _spectral_norm(np.array([[np.inf, 0.0]])) == np.inf


def test_bound_is_attained_for_leaked_attention():
    """Noise has the smallest value and the token that is read the largest."""
    gap = float(np.log(2 * (1 - 0.3) / 0.3))  # two noise tokens together get 30%
    scores = [gap, gap, -60, 0, 0, -60]
    model, prompts = handmade(scores, [1, 1, 0, -1, -1, 0], 1.0, [1, -1])
    certificate = certify(model, prompts)
    assert certificate.attention_leaks[0] == pytest.approx(0.3, rel=1e-4)
    assert certificate.margins[0] == pytest.approx(2 * (0.7 - 0.3), rel=1e-4)
    batch = prompts.fill_noise(jnp.arange(1), jnp.asarray(prompts.vocabulary.first_noise))
    margin = margins_of(model, batch.content, model.targets(batch.answers))[0]
    assert certificate.margins[0] <= float(margin)


def test_softmax_roundings_are_included():
    model, prompts = handmade(*SEPARATED, 1.0, [1, -1])
    attended, _ = _attend(_Bounds(model, prompts, "any"), prompts.known_tokens())
    assert (attended.error >= 16 * UNIT * np.abs(attended.center)).all()
    assert (attended.error <= 40 * UNIT).all()
