"""Attention over counts equals attention over positions: same loss and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import attend, attend_by_position
from factmem.transformer.attention import (
    _forward,
    _per_prompt_gradient,
    _shared_shift_gradient,
    _shared_shift_weights,
)

BATCH, HEADS, HEAD_DIM, OUTPUTS = 64, 4, 3, 7
# Nine noise tokens for seven positions: most prompts repeat some.
PROMPTS = PromptDistribution.from_table(FactTable.random(12, 6, 4), noise=9, length=10)
TOKENS = PROMPTS.vocabulary.prompt_tokens
EOS = PROMPTS.vocabulary.eos

jitted_attend = jax.jit(attend)


def attend_densely(tokens, scores, values):
    """Attention by position, on gathered tables [batch, T, heads] of scores and values."""
    over_heads = jax.vmap(attend_by_position, in_axes=(1, 1))
    return jax.vmap(lambda prompt: over_heads(scores[prompt], values[prompt]))(tokens)


def loss(attended, readout, labels, scale):
    logits = attended.reshape(attended.shape[0], -1) @ readout
    losses = jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(BATCH), labels]
    return scale * jnp.mean(losses)


@jax.jit
def by_counts(counts, scores, values, *rest):
    of = lambda s, v: loss(attend(counts, s, v), *rest)  # noqa: E731
    return jax.value_and_grad(of, argnums=(0, 1))(scores, values)


@jax.jit
def by_position(tokens, scores, values, *rest):
    of = lambda s, v: loss(attend_densely(tokens, s, v), *rest)  # noqa: E731
    return jax.value_and_grad(of, argnums=(0, 1))(scores, values)


def assert_agree(actual, expected, tolerance):
    """Assert equality up to a fraction of the largest entry, or up to the smallest floats."""
    info = np.finfo(np.asarray(expected).dtype)
    assert np.isfinite(actual).all()
    largest = float(np.abs(expected).max())
    worst = float(np.abs(np.asarray(actual) - np.asarray(expected)).max())
    assert worst <= tolerance * largest + float(info.tiny) / float(info.eps)


def score_table(pattern, spread, shape):
    """Scale a [tokens, heads] table of numbers in [0, 1] to scores of a given spread."""
    scores = shape.copy()
    if pattern == "idle":  # EOS above everything
        scores = np.minimum(spread, 3) * shape
        scores[EOS] = spread
    elif pattern == "denoiser":  # some tokens above EOS, EOS above all others
        scores = np.minimum(spread, 3) * shape
        scores[:6] += spread
        scores[EOS] = spread / 2
    elif pattern == "two levels":
        scores = spread * np.round(shape)
    else:
        scores = spread * shape
    return scores


def compare(dtype, tolerance, seed, pattern, spread, shape, exponent=0):
    """Compare both forms on one table; the loss is scaled by 10^exponent."""
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-1, 1, size=(TOKENS, 1, 1))
    values = (sizes * rng.normal(size=(TOKENS, HEADS, HEAD_DIM))).astype(dtype)
    readout = rng.normal(size=(HEADS * HEAD_DIM, OUTPUTS)).astype(dtype)
    scale = np.asarray(10.0**exponent, dtype)
    labels = rng.integers(OUTPUTS, size=BATCH)
    scores = score_table(pattern, spread, shape).astype(dtype)
    tokens = PROMPTS.sample_batch(BATCH, form="tokens", key=jr.key(seed)).content
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(seed)).content
    actual, actual_gradients = by_counts(counts, scores, values, readout, labels, scale)
    expected, expected_gradients = by_position(tokens, scores, values, readout, labels, scale)
    assert actual.dtype == dtype
    assert_agree(actual, expected, tolerance)
    for pair in zip(actual_gradients, expected_gradients, strict=True):
        assert_agree(*pair, tolerance)
    event(f"score gradient about 2^{np.frexp(np.abs(expected_gradients[0]).max())[1] // 20 * 20}")


patterns = st.sampled_from(["any", "idle", "denoiser", "two levels"])
spreads = st.one_of(st.floats(0, 1000), st.floats(0, 30))
seeds = st.integers(0, 10_000)
random_shapes = seeds.map(lambda seed: np.random.RandomState(seed).uniform(size=(TOKENS, HEADS)))
hypothesis_shapes = arrays(np.float64, (TOKENS, HEADS), elements=st.floats(0, 1))


@given(seeds, patterns, spreads, random_shapes, st.integers(-25, 3))
def test_counts_and_positions_agree_in_float32(seed, pattern, spread, shape, exponent):
    compare(np.float32, 1e-5, seed, pattern, spread, shape, exponent)


@given(seeds, patterns, spreads, random_shapes, st.integers(-200, 3))
def test_counts_and_positions_agree_in_float64(seed, pattern, spread, shape, exponent):
    with jax.enable_x64(True):
        compare(np.float64, 1e-10, seed, pattern, spread, shape, exponent)


@given(seeds, spreads, hypothesis_shapes)
def test_counts_and_positions_agree_on_tables_with_many_equal_scores(seed, spread, shape):
    compare(np.float32, 1e-5, seed, "any", spread, shape)


def brute_force(counts, scores, values):
    """Softmax over the token sequence, one prompt and head at a time, in float64."""
    attended = np.zeros((len(counts), scores.shape[1], values.shape[2]))
    for b, row in enumerate(counts):
        prompt = [z for z, times in enumerate(row) for _ in range(times)]
        for h in range(scores.shape[1]):
            weights = np.array([np.exp(scores[z, h] - scores[prompt, h].max()) for z in prompt])
            attended[b, h] = weights @ values[prompt, h] / weights.sum()
    return attended


@pytest.mark.parametrize("spread", [0, 1, 30, 100, 200, 1000])
def test_attention_is_softmax_over_the_token_sequence(spread):
    rng = np.random.default_rng(spread)
    counts = np.asarray(PROMPTS.sample_batch(8, form="counts", key=jr.key(spread)).content)
    scores = (spread * rng.uniform(size=(TOKENS, 2))).astype(np.float32)
    values = rng.normal(size=(TOKENS, 2, HEAD_DIM)).astype(np.float32)
    expected = brute_force(counts, scores.astype(float), values.astype(float))
    actual = jitted_attend(counts, scores, values)
    assert np.abs(actual - expected).max() < 2e-6


def test_gradients_match_finite_differences(float64):
    rng = np.random.default_rng(0)
    counts = np.asarray(PROMPTS.sample_batch(8, form="counts", key=jr.key(0)).content)
    scores = 4 * rng.uniform(size=(TOKENS, 2))
    values = rng.normal(size=(TOKENS, 2, HEAD_DIM))
    weight = rng.normal(size=(8, 2, HEAD_DIM))

    def total(s, v):
        return float((brute_force(counts, s, v) * weight).sum())

    weighted = lambda s, v: jnp.sum(attend(jnp.asarray(counts), s, v) * weight)  # noqa: E731
    gradients = jax.jit(jax.grad(weighted, argnums=(0, 1)))(scores, values)
    score_gradient, value_gradient = map(np.asarray, gradients)
    step = 1e-6
    for index in [(0, 0), (7, 1), (EOS, 0), (20, 1)]:
        moved = np.zeros_like(scores)
        moved[index] = step
        slope = (total(scores + moved, values) - total(scores - moved, values)) / (2 * step)
        assert float(score_gradient[index]) == pytest.approx(slope, rel=1e-6, abs=1e-8)
    for index in [(0, 0, 1), (EOS, 1, 2), (20, 0, 0)]:
        moved = np.zeros_like(values)
        moved[index] = step
        slope = (total(scores, values + moved) - total(scores, values - moved)) / (2 * step)
        assert float(value_gradient[index]) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@partial(jax.jit, static_argnums=0)
def gradient_of_squares(tolerance, counts, scores, values):
    total = lambda s: jnp.sum(attend(counts, s, values, tolerance=tolerance) ** 2)  # noqa: E731
    return jax.grad(total)(scores)


@pytest.mark.parametrize("spread", [5, 60, 300])
def test_both_forms_agree_and_the_tolerance_selects_one(spread):
    rng = np.random.default_rng(spread)
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    scores = (spread * rng.uniform(size=(TOKENS, HEADS))).astype(np.float32)
    values = rng.normal(size=(TOKENS, HEADS, HEAD_DIM)).astype(np.float32)
    per_prompt, shared_shift = (
        gradient_of_squares(tolerance, counts, scores, values) for tolerance in (0.0, np.inf)
    )
    assert_agree(shared_shift, per_prompt, 1e-4)
    if spread < 100:
        assert not np.array_equal(per_prompt, shared_shift)


def test_gradient_is_accurate_when_attention_is_concentrated():
    # 1 − p is 1e-13 here: a plain float32 softmax returns noise of 1e-9 instead of the gradient.
    rng = np.random.default_rng(0)
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    scores = rng.uniform(size=(TOKENS, 1)).astype(np.float32)
    scores[:6] += 60
    scores[EOS] += 30
    values = rng.normal(size=(TOKENS, 1, HEAD_DIM)).astype(np.float32)
    gradient = jax.jit(jax.grad(lambda s, v: jnp.sum(attend(counts, s, v))))
    actual = gradient(scores, values)
    with jax.enable_x64(True):
        exact = np.asarray(gradient(scores.astype(np.float64), values.astype(np.float64)))
    assert 0 < np.abs(exact).max() < 1e-8
    assert np.abs(np.asarray(actual) - exact).max() < 1e-5 * np.abs(exact).max()


def test_accurate_for_prompts_far_below_the_maximum_score():
    # One subject is 100 to 130 nats above the rest, around the limit of the shared-shift form.
    rng = np.random.default_rng(0)
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    values = rng.normal(size=(TOKENS, 1, HEAD_DIM)).astype(np.float32)
    for gap in range(100, 130, 2):
        scores = (rng.uniform(-3, 0, size=(TOKENS, 1)) - gap).astype(np.float32)
        scores[0] = 0
        expected = brute_force(np.asarray(counts), scores.astype(float), values.astype(float))
        actual = jitted_attend(counts, scores, values)
        assert np.abs(actual - expected).max() < 3e-6


@pytest.mark.parametrize("size", [1e-30, 1e3, 1e18, 1e25])
def test_accurate_for_values_of_any_size(size):
    rng = np.random.default_rng(0)
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    scores = (40 * rng.uniform(size=(TOKENS, 1))).astype(np.float32)
    values = (size * rng.normal(size=(TOKENS, 1, HEAD_DIM))).astype(np.float32)
    values[EOS] /= size
    expected = brute_force(np.asarray(counts), scores.astype(float), values.astype(float))
    actual = jitted_attend(counts, scores, values)
    assert np.abs(actual - expected).max() < 3e-6 * np.abs(expected).max()


@jax.jit
def shared_gradient(counts, scores, values, gradient):
    _, saved = _forward(0.0, counts, scores, values)
    score_gradient, _, estimate = _shared_shift_gradient(saved, gradient)
    return score_gradient, estimate


def test_estimated_rounding_error_bounds_the_actual_one():
    # Only `_shared_shift_gradient`, on tables where its error grows from 1e-7 to far beyond 1e-5.
    rng = np.random.default_rng(0)
    counts = np.asarray(PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content)
    beyond = 0
    for trial in range(60):
        scores = rng.uniform(size=(TOKENS, 2)).astype(np.float32)
        scores[: rng.integers(1, 12)] += trial / 2
        scores[EOS] += trial / 4
        values = rng.normal(size=(TOKENS, 2, HEAD_DIM)).astype(np.float32)
        gradient = rng.normal(size=(BATCH, 2, HEAD_DIM)).astype(np.float32)
        actual, estimate = shared_gradient(counts, scores, values, gradient)
        with jax.enable_x64(True):
            wide = [array.astype(np.float64) for array in (scores, values, gradient)]
            exact = np.asarray(jax.jit(_per_prompt_gradient)(counts, *wide)[0])
        error = np.abs(np.asarray(actual) - exact).max() / np.abs(exact).max()
        assert error < 1.5 * float(estimate)
        beyond += error > 1e-5
    assert beyond >= 10


def test_weights_are_accurate_far_below_the_maximum_score():
    scores = np.linspace(-70, 30, 1001, dtype=np.float32)[:, None]
    weights = np.asarray(_shared_shift_weights(jnp.asarray(scores)), np.float64)
    logs = np.log(weights) - np.log(weights[-1])
    exact = scores.astype(np.float64) - 30
    assert np.abs(logs - exact).max() < 4e-7


def test_vmap_over_runs_matches_single_runs():
    rng = np.random.default_rng(0)
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    run_spreads = np.array([1.0, 50.0, 800.0])
    scores = rng.uniform(size=(3, TOKENS, HEADS)) * run_spreads[:, None, None]
    scores = scores.astype(np.float32)
    values = rng.normal(size=(3, TOKENS, HEADS, HEAD_DIM)).astype(np.float32)
    gradient = jax.grad(lambda s, v: jnp.sum(attend(counts, s, v) ** 2), argnums=(0, 1))
    stacked = map(np.asarray, jax.jit(jax.vmap(gradient))(scores, values))
    singles = [jax.jit(gradient)(*run) for run in zip(scores, values, strict=True)]
    for actual, expected in zip(stacked, zip(*singles, strict=True), strict=True):
        for run in range(3):
            assert_agree(actual[run], expected[run], 1e-5)


def test_nan_scores_give_nan():
    counts = PROMPTS.sample_batch(BATCH, form="counts", key=jr.key(0)).content
    values = np.ones((TOKENS, 1, 1), np.float32)
    attended = jitted_attend(counts, np.full((TOKENS, 1), np.nan, np.float32), values)
    assert np.isnan(attended).all()
