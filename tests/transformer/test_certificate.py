"""No prompt breaks a certificate, and a certificate is not vacuous."""

from itertools import combinations_with_replacement, product

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution
from factmem.facts.prompts import count_tokens
from factmem.memories.activations import HermitePolynomial
from factmem.memories.decoding import smallest_margins
from factmem.transformer import (
    EXPERIMENTS,
    THEORY,
    Embeddings,
    Shape,
    Transformer,
    Weights,
    attention_construction,
    certify,
    recall,
)
from factmem.transformer.certificate import (
    _attended,
    _Bounded,
    _product,
    _read,
    _scores,
    _smallest_margins,
    _sum,
    _through_mlp,
    _values,
)

TABLE = FactTable.random(3, 2, 2, seed=2)
ASKED = PromptDistribution.of(TABLE, noise=3, length=6)


def every_prompt():
    """All multisets of noise for all facts: facts × 10 prompts."""
    names = ASKED.vocabulary
    prompts, facts = [], []
    for fact, known in enumerate(ASKED.known_tokens()):
        for noise in combinations_with_replacement(range(names.first_noise, names.eos), 3):
            prompts.append([*known[:2], *noise, known[2]])
            facts.append(fact)
    return count_tokens(jnp.asarray(prompts), names.prompt_tokens), np.array(facts)


COUNTS, FACTS = every_prompt()


@eqx.filter_jit
def margins_of(model, counts, targets):
    return smallest_margins(model(counts), model.embeddings.outputs, targets).margin


@eqx.filter_jit
def outputs_of(model, counts):
    return model(counts)


def smallest_of_all(model):
    targets = model.targets(ASKED.fact_answers[FACTS])
    margins = np.asarray(margins_of(model, COUNTS, targets), float)
    return np.array([margins[fact == FACTS].min() for fact in range(ASKED.facts)])


def drawn(seed, convention, width, sharpness):
    model = Transformer.draw(jr.key(seed), Shape(5, 3, 2, width), ASKED.vocabulary, convention)
    return eqx.tree_at(lambda m: m.weights.key, model, sharpness * model.weights.key)


@given(
    st.integers(0, 10**6),
    st.sampled_from([THEORY, EXPERIMENTS]),
    st.sampled_from([0, 6]),
    st.sampled_from([0.1, 1.0, 10.0, 100.0, 3000.0]),
)
def test_no_prompt_is_below_its_certificate(seed, convention, width, sharpness):
    model = drawn(seed, convention, width, sharpness)
    certificate = certify(model, ASKED)
    assert (certificate.margins <= smallest_of_all(model)).all()
    assert ((certificate.leaks >= 0) & (certificate.leaks <= 1 + 1e-5)).all()


@given(st.integers(0, 10**6), st.sampled_from([0, 6]))
def test_where_heads_have_settled_little_is_lost(seed, width):
    model = drawn(seed, EXPERIMENTS, width, 1e5)
    certificate = certify(model, ASKED)
    settled = certificate.leaks < 1e-9
    lost = smallest_of_all(model) - certificate.margins
    scale = np.abs(np.asarray(outputs_of(model, COUNTS))).max()
    assert (lost[settled] <= 1e-4 * max(scale, 1.0)).all()


@given(st.integers(0, 10**6))
def test_what_is_read_and_what_leaks(seed):
    rng = np.random.default_rng(seed)
    names = ASKED.vocabulary
    scores = rng.normal(size=(names.prompt_tokens, 2)) * 3
    bounded = _Bounded(scores, np.zeros_like(scores))
    known = ASKED.known_tokens()
    read, leaks = _read(bounded, known, slice(names.first_noise, names.eos), 3)
    for fact, tokens in enumerate(known):
        for head in range(2):
            best = max(tokens, key=lambda z, h=head: scores[z, h])
            assert read[fact, head] == best
            worst = max(scores[names.first_noise : names.eos, head])
            others = [scores[z, head] for z in tokens if z != best] + [worst] * 3
            weights = np.exp(np.array(others) - scores[best, head])
            assert leaks[fact, head] == pytest.approx(weights.sum() / (1 + weights.sum()), rel=1e-4)


def test_margins_within_rounding_are_not_certified():
    """Two answers that differ by one unit in the last place: right in exact arithmetic only."""
    model = drawn(0, EXPERIMENTS, 0, 1e5)
    target = int(ASKED.fact_answers[0])
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
    assert certify(model, ASKED).margins[0] < exact
    assert certify(model, ASKED).margins[0] < 0


def by_hand(scores, values, output, answers, query=1.0, key=1.0, eos=1.0, length=5, noise=2):
    """Two facts (0 and 1) in one head of d = 4: scores, values and logits each have their axis."""
    asked = PromptDistribution.of(FactTable(np.array([[0], [1]])), noise=noise, length=length)
    names = asked.vocabulary
    tokens = np.zeros((names.prompt_tokens, 4), np.float32)
    tokens[:, 1], tokens[:, 2] = scores, values
    tokens[-1, 0] = eos
    table = np.zeros((2, 4), np.float32)
    table[:, 0] = answers

    def row(place, size):
        return jnp.zeros((1, 1, 4)).at[0, 0, place].set(size)

    nothing = jnp.zeros((0, 4))
    weights = Weights(
        row(0, query), row(1, key), row(2, 1.0), row(0, output), nothing, jnp.zeros(0), nothing
    )
    embeddings = Embeddings(jnp.asarray(tokens), jnp.asarray(table))
    return Transformer(weights, embeddings, Shape(4, 1, 1), names), asked


FIRM = ([60, 60, 0, 0, 0, 0], [1, -1, 0, 0, 0, 0])
FAR = ([-100, 0, -140, -140, -140, -140], [1e-12, -1e-12, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        ((*FIRM, 1e20, [1e20, -1e20]), {}),  # logits overflow
        ((FIRM[0], [1e20, -1e20, 0, 0, 0, 0], 1e20, [1e-30, -1e-30]), {}),  # the stream does
        (
            (np.array(FIRM[0]) * 100, [1, -1, 0.5, -3, -3, -3], 1.0, [1, -1]),
            {"query": 1e-25, "key": 1e38, "eos": 1e-15},
        ),  # queries are flushed to zero
        ((*FAR, 1e12, [1, -1]), {}),  # weights times values are flushed to zero
    ],
)
def test_what_overflows_or_vanishes_is_not_certified(numbers, options):
    model, asked = by_hand(*numbers, **options)
    certificate = certify(model, asked)
    prompts = asked.fill(jnp.arange(2), jnp.asarray(asked.vocabulary.first_noise))
    margins = margins_of(model, prompts.content, model.targets(prompts.answers))
    real = np.where(np.isnan(margins), -np.inf, margins)
    assert (certificate.margins <= real).all()
    assert (certificate.margins <= 0).any()


def test_the_plain_case_by_hand_is_certified():
    model, asked = by_hand(*FIRM, 1.0, [1, -1])
    np.testing.assert_allclose(certify(model, asked).margins, 2.0, rtol=1e-5)


def test_very_long_prompts_leave_numbers():
    model, asked = by_hand([-900, -900, 0, 900, 900, 0], FIRM[1], 1.0, [1, -1], length=2**20)
    certificate = certify(model, asked)
    assert np.isfinite(certificate.margins).all()
    assert certificate.certified_accuracy == 0


def test_many_small_weights_round_together():
    """1,000 noise tokens, each just below half a unit in the last place of the sum of weights."""
    unit, noise = 2.0**-24, 1000
    scores = np.full(noise + 4, -60.0)
    scores[0], scores[1], scores[3:-1] = 0.0, 1.1003794758650358, -16.643167
    values = np.ones(noise + 4)
    values[3:-1] = 0.99
    model, asked = by_hand(scores, values, 1.0, [1, -1], length=noise + 3, noise=noise)
    everything = np.ones((1, noise + 4), int)
    everything[0, 1] = 0
    (read,) = np.asarray(outputs_of(model, jnp.asarray(everything)))[:, 0]
    certificate = certify(model, asked)
    # A margin is twice what is written, here the value that the head reads.
    assert certificate.margins[0] / 2 <= read
    assert certificate.margins[0] / 2 <= 1.0 - 1.9 * noise * unit


def test_weights_that_are_not_numbers_prove_nothing():
    model = drawn(0, EXPERIMENTS, 6, 1.0)
    broken = eqx.tree_at(lambda m: m.weights.mlp_out, model, jnp.nan * model.weights.mlp_out)
    assert certify(broken, ASKED).certified_accuracy == 0


def test_theorem_3_is_certified():
    asked = PromptDistribution.of(FactTable.random(16, 4, 4))
    phi = Embeddings.draw(jr.key(0), 512, asked.vocabulary, THEORY)
    model = attention_construction(jr.key(1), asked, phi, 256, block=4).model
    certificate = certify(model, asked)
    assert certificate.certified_accuracy == 1.0
    found = recall(model, asked, jr.key(2))
    assert 0.9 * found.min_margin < certificate.min_certified_margin < found.min_margin


def test_activations_without_a_bounded_slope_are_refused():
    names = ASKED.vocabulary
    sigma = HermitePolynomial((0.1, 0.1, 1.0))
    model = Transformer.draw(jr.key(0), Shape(5, 1, 2, 3), names, THEORY, sigma)
    with pytest.raises(FactmemError, match="needs ReLU"):
        certify(model, ASKED)


# ---- every term of the bound ---------------------------------------------------------------------

UNIT = 2.0**-24
NEURONS = {
    convention: Transformer.draw(jr.key(0), Shape(4, 1, 1, 5), ASKED.vocabulary, convention)
    for convention in (THEORY, EXPERIMENTS)
}
corners = [np.array(signs) for signs in product((-1.0, 1.0), repeat=4)]


def bounded(seed, shape, error):
    rng = np.random.default_rng(seed)
    return _Bounded(rng.normal(size=shape), error * rng.random(size=shape))


@given(st.integers(0, 10**6))
def test_products_and_sums_by_their_formulas(seed):
    left, right = bounded(seed, (2, 4), 0.1), np.random.default_rng(seed).normal(size=(4, 3))
    found = _product(left, right)
    for f in range(2):
        for j in range(3):
            moved = sum(left.error[f, i] * abs(right[i, j]) for i in range(4))
            size = sum(
                (abs(left.center[f, i]) + left.error[f, i]) * abs(right[i, j]) for i in range(4)
            )
            expected = moved + 4 * UNIT * size
            assert found.error[f, j] == pytest.approx(expected, rel=1e-5)
            assert found.error[f, j] >= expected
    np.testing.assert_allclose(found.center, left.center @ right)
    total = _sum(left, bounded(seed + 1, (2, 4), 0.2))
    other = bounded(seed + 1, (2, 4), 0.2)
    expected = left.error + other.error
    expected = expected + UNIT * (np.abs(left.center + other.center) + expected)
    assert (total.error >= expected).all()
    np.testing.assert_allclose(total.error, expected, rtol=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([THEORY, EXPERIMENTS]))
def test_no_corner_of_the_stream_leaves_the_bound(seed, convention):
    """Every neuron may be switched on or off by the error, and the skip carries it too."""
    rng = np.random.default_rng(seed)
    into, out = rng.normal(size=(2, 5, 4)).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32) if convention.mlp_bias else None
    x = bounded(seed, (3, 4), 0.5)
    model = NEURONS[convention]
    model = eqx.tree_at(
        lambda m: (m.weights.mlp_in, m.weights.mlp_out), model, tuple(map(jnp.asarray, (into, out)))
    )
    if bias is not None:
        model = eqx.tree_at(lambda m: m.weights.mlp_bias, model, jnp.asarray(bias))
    found = _through_mlp(model, x)
    shift = 0.0 if bias is None else bias[None, :]
    for signs in corners:
        moved = x.center + signs * x.error
        outputs = moved + np.maximum(moved @ into.T.astype(float) + shift, 0) @ out.astype(float)
        assert (np.abs(outputs - found.center) <= found.error).all()


@given(st.integers(0, 10**6))
def test_margins_are_the_smallest_over_the_corners_of_the_output(seed):
    outputs = bounded(seed, (3, 4), 0.3)
    answers = np.random.default_rng(seed + 1).normal(size=(5, 4))
    targets = np.array([0, 4, 2])
    found = _smallest_margins(outputs, answers, targets)
    for fact, target in enumerate(targets):
        apart = answers[target] - np.delete(answers, target, axis=0)
        worst = min(
            (apart @ (outputs.center[fact] + signs * outputs.error[fact])).min()
            for signs in corners
        )
        assert found[fact] <= worst
        assert found[fact] == pytest.approx(worst, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_scores_and_values_have_the_errors_of_their_products(seed):
    model = drawn(seed, EXPERIMENTS, 0, 50.0)
    phi = np.asarray(model.embeddings.tokens, float)
    query, key = np.asarray(model.weights.query, float), np.asarray(model.weights.key, float)
    rounded_query = 5 * UNIT * np.abs(query) @ np.abs(phi[-1])
    read = np.abs(query @ phi[-1]) + rounded_query
    errors = np.zeros((len(phi), 3))
    for head in range(3):
        strength = np.abs(key[head]).T
        direction = key[head].T @ (query[head] @ phi[-1])
        error = strength @ rounded_query[head] + 2 * UNIT * strength @ read[head]
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


def test_uncertain_scores_leak_more():
    names = ASKED.vocabulary
    scores = np.random.default_rng(0).normal(size=(names.prompt_tokens, 2)) * 20
    noise = slice(names.first_noise, names.eos)
    arguments = (ASKED.known_tokens(), noise, 3)
    _, sharp = _read(_Bounded(scores, np.zeros_like(scores)), *arguments)
    _, unsure = _read(_Bounded(scores, np.full_like(scores, 0.5)), *arguments)
    small = sharp < 1e-6
    np.testing.assert_allclose(unsure[small], np.e * sharp[small], rtol=1e-3)


def test_strayed_attention_counts_in_full():
    """Noise has the smallest value, the token that is read the largest: the bound is reached."""
    gap = float(np.log(2 * (1 - 0.3) / 0.3))  # two noise tokens together get 30 %
    scores = [gap, gap, -60, 0, 0, -60]
    model, asked = by_hand(scores, [1, 1, 0, -1, -1, 0], 1.0, [1, -1])
    certificate = certify(model, asked)
    assert certificate.leaks[0] == pytest.approx(0.3, rel=1e-4)
    assert certificate.margins[0] == pytest.approx(2 * (0.7 - 0.3), rel=1e-4)
    prompts = asked.fill(jnp.arange(1), jnp.asarray(asked.vocabulary.first_noise))
    margin = margins_of(model, prompts.content, model.targets(prompts.answers))[0]
    assert certificate.margins[0] <= float(margin)


def test_the_softmax_itself_is_rounded():
    model, asked = by_hand(*FIRM, 1.0, [1, -1])
    attended, _ = _attended(model, asked)
    assert (attended.error >= 16 * UNIT * np.abs(attended.center)).all()
    assert (attended.error <= 40 * UNIT).all()
