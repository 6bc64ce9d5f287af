"""Split prompts and tokens: the same loss and gradients as attention over positions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from tests.transformer.test_attention import (
    BATCH,
    EOS,
    HEAD_DIM,
    HEADS,
    OUTPUTS,
    PROMPTS,
    TOKENS,
    assert_agree,
    attend_densely,
    brute_force,
    loss,
    patterns,
    random_shapes,
    score_table,
    seeds,
    spreads,
    st,
)

from factmem.facts import FactTable, PromptDistribution, Vocabulary
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Shape,
    Transformer,
    attend,
    attend_split,
    choose_prompt_form,
    cross_entropy,
    dense_logits,
    mix_by_attention,
    sample_prompts,
)
from factmem.transformer.split_attention import (
    _forward,
    _per_prompt_gradient,
    _shared_shift_gradient,
    _Tables,
)

FIRST_NOISE = PROMPTS.vocabulary.first_noise
DIM = 5


def by_split(split, scores, values, tolerance=None):
    """Attention from tables of all tokens, as `attend`."""
    own, shared = split
    scores, values = jnp.asarray(scores), jnp.asarray(values)
    tables = (scores[FIRST_NOISE:], values[FIRST_NOISE:], scores[own], values[own])
    return attend_split(shared, *tables, tolerance=tolerance)


def by_token(tokens, scores, embedded):
    """Attention to one vector per token, the same in all heads."""
    return mix_by_attention(tokens, jnp.asarray(scores)[tokens], jnp.asarray(embedded)[tokens])


def densely(tokens, scores, embedded):
    values = jnp.broadcast_to(embedded[:, None, :], (*scores.shape, embedded.shape[1]))
    return attend_densely(tokens, scores, values)


def value_and_gradients(attention):
    @jax.jit
    def compute(prompts, scores, values, *rest):
        of = lambda s, v: loss(attention(prompts, s, v), *rest)  # noqa: E731
        return jax.value_and_grad(of, argnums=(0, 1))(scores, values)

    return compute


split_gradients, token_gradients = map(value_and_gradients, (by_split, by_token))
dense_gradients, dense_token_gradients = map(value_and_gradients, (attend_densely, densely))


def sample(form, seed, batch=BATCH):
    return PROMPTS.sample_batch(batch, form=form, key=jr.key(seed)).content


def compare(form, dtype, tolerance, seed, pattern, spread, shape, exponent):
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-1, 1, size=(TOKENS, 1, 1))
    values = (sizes * rng.normal(size=(TOKENS, HEADS, HEAD_DIM))).astype(dtype)
    values = values if form == "split" else values[:, 0]
    readout = rng.normal(size=(HEADS * HEAD_DIM, OUTPUTS)).astype(dtype)
    scale = np.asarray(10.0**exponent, dtype)
    rest = (readout, rng.integers(OUTPUTS, size=BATCH), scale)
    scores = score_table(pattern, spread, shape).astype(dtype)
    prompts, tokens = sample(form, seed), sample("tokens", seed)
    functions = {
        "split": (split_gradients, dense_gradients),
        "tokens": (token_gradients, dense_token_gradients),
    }
    compute, reference = functions[form]
    actual, actual_gradients = compute(prompts, scores, values, *rest)
    expected, expected_gradients = reference(tokens, scores, values, *rest)
    assert actual.dtype == dtype
    assert_agree(actual, expected, tolerance)
    for pair in zip(actual_gradients, expected_gradients, strict=True):
        assert_agree(*pair, tolerance)


@pytest.mark.parametrize("form", ["split", "tokens"])
@given(seeds, patterns, spreads, random_shapes, st.integers(-25, 3))
def test_agrees_with_positions_in_float32(form, seed, pattern, spread, shape, exponent):
    compare(form, np.float32, 1e-5, seed, pattern, spread, shape, exponent)


@pytest.mark.parametrize("form", ["split", "tokens"])
@given(seeds, patterns, spreads, random_shapes, st.integers(-200, 3))
def test_agrees_with_positions_in_float64(form, seed, pattern, spread, shape, exponent):
    with jax.enable_x64(True):
        compare(form, np.float64, 1e-10, seed, pattern, spread, shape, exponent)


@pytest.mark.parametrize("spread", [0, 1, 30, 100, 200, 1000])
def test_attention_is_softmax_over_the_token_sequence(spread):
    rng = np.random.default_rng(spread)
    scores = (spread * rng.uniform(size=(TOKENS, 2))).astype(np.float32)
    embedded = rng.normal(size=(TOKENS, HEAD_DIM)).astype(np.float32)
    values = np.repeat(embedded[:, None], 2, axis=1)
    counts, split, tokens = (sample(form, 1, 8) for form in ("counts", "split", "tokens"))
    expected = brute_force(np.asarray(counts), scores.astype(float), values.astype(float))
    assert np.abs(jax.jit(by_split)(split, scores, values) - expected).max() < 2e-6
    assert np.abs(jax.jit(by_token)(tokens, scores, embedded) - expected).max() < 2e-6


@pytest.mark.usefixtures("float64")
def test_gradients_match_finite_differences():
    rng = np.random.default_rng(0)
    counts, split, tokens = (sample(form, 0, 8) for form in ("counts", "split", "tokens"))
    scores, embedded = 4 * rng.uniform(size=(TOKENS, 2)), rng.normal(size=(TOKENS, HEAD_DIM))
    weight = rng.normal(size=(8, 2, HEAD_DIM))
    spread_out = lambda e: np.repeat(e[:, None], 2, axis=1)  # noqa: E731

    def total(s, e):
        return float((brute_force(np.asarray(counts), s, spread_out(e)) * weight).sum())

    def in_split(s, e):
        values = jnp.broadcast_to(e[:, None], (TOKENS, 2, HEAD_DIM))
        return jnp.sum(by_split(split, s, values) * weight)

    in_tokens = lambda s, e: jnp.sum(by_token(tokens, s, e) * weight)  # noqa: E731
    step = 1e-6
    for function in (in_split, in_tokens):
        gradients = jax.jit(jax.grad(function, argnums=(0, 1)))(scores, embedded)
        for which, index in [(0, (0, 0)), (0, (7, 1)), (0, (EOS, 0)), (0, (20, 1)), (1, (EOS, 2))]:
            moved = [np.zeros_like(scores), np.zeros_like(embedded)]
            moved[which][index] = step
            above = total(scores + moved[0], embedded + moved[1])
            below = total(scores - moved[0], embedded - moved[1])
            slope = (above - below) / (2 * step)
            assert float(gradients[which][index]) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("form", ["split", "tokens"])
@pytest.mark.parametrize("strong", ["subjects", "noise"])
def test_gradient_is_accurate_when_attention_is_concentrated(form, strong):
    # A plain float32 softmax returns noise of 1e-9 instead of the gradient.
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=(TOKENS, 1)).astype(np.float32)
    scores[:6] += 60 if strong == "subjects" else 0
    scores[FIRST_NOISE : FIRST_NOISE + 6] += 60 if strong == "noise" else 0
    scores[EOS] += 30
    prompts, attention = sample(form, 0), by_split if form == "split" else by_token
    values = rng.normal(size=(TOKENS, HEAD_DIM)).astype(np.float32)
    values = values[:, None] if form == "split" else values
    gradient = jax.jit(jax.grad(lambda s, v: jnp.sum(attention(prompts, s, v))))
    actual = gradient(scores, values)
    with jax.enable_x64(True):
        exact = np.asarray(gradient(scores.astype(np.float64), values.astype(np.float64)))
    if strong == "subjects":
        assert 0 < np.abs(exact).max() < 1e-8
    assert np.abs(np.asarray(actual) - exact).max() < 1e-5 * np.abs(exact).max()


def test_gradient_is_zero_if_the_strongest_token_fills_the_prompt():
    tokens = jnp.array([[3, 1, 1, 1, 1, 2]])
    scores = np.zeros((4, 1), np.float32)
    scores[1] = 200
    embedded = np.random.default_rng(0).normal(size=(4, DIM)).astype(np.float32)
    gradient = jax.grad(lambda s: jnp.sum(by_token(tokens, s, embedded)))(scores)
    assert not np.any(gradient)


@pytest.mark.parametrize("spread", [5, 60, 300])
def test_both_split_forms_agree_and_the_tolerance_selects_one(spread):
    rng = np.random.default_rng(spread)
    split = sample("split", 0)
    scores = (spread * rng.uniform(size=(TOKENS, HEADS))).astype(np.float32)
    values = rng.normal(size=(TOKENS, HEADS, HEAD_DIM)).astype(np.float32)
    gradient = jax.jit(
        jax.grad(lambda s, tolerance: jnp.sum(by_split(split, s, values, tolerance) ** 2)),
        static_argnums=1,
    )
    per_prompt, shared_shift = gradient(scores, 0.0), gradient(scores, np.inf)
    assert_agree(shared_shift, per_prompt, 1e-4)
    if spread < 100:
        assert not np.array_equal(per_prompt, shared_shift)


@jax.jit
def shared_gradient(counts, tables, gradient):
    _, saved = _forward(0.0, counts, tables)
    gradients, estimate = _shared_shift_gradient(saved, gradient)
    return gradients.scores, gradients.own_scores, estimate


def test_estimated_rounding_error_bounds_the_actual_one():
    rng = np.random.default_rng(0)
    own, shared = sample("split", 0)
    beyond = 0
    for trial in range(60):
        scores = rng.uniform(size=(TOKENS, 2)).astype(np.float32)
        first = (0, FIRST_NOISE)[trial % 2]
        scores[first : first + rng.integers(1, 9)] += trial / 2
        scores[EOS] += trial / 4
        values = rng.normal(size=(TOKENS, 2, HEAD_DIM)).astype(np.float32)
        tables = _Tables(scores[FIRST_NOISE:], values[FIRST_NOISE:], scores[own], values[own])
        gradient = rng.normal(size=(BATCH, 2, HEAD_DIM)).astype(np.float32)
        *actual, estimate = shared_gradient(shared, _Tables(*map(jnp.asarray, tables)), gradient)
        with jax.enable_x64(True):
            wide = _Tables(*(jnp.asarray(table, jnp.float64) for table in tables))
            exact = jax.jit(_per_prompt_gradient)(shared, wide, gradient.astype(np.float64))
            exact = [np.asarray(exact.scores), np.asarray(exact.own_scores)]
        pairs = list(zip(actual, exact, strict=True))
        error = max(np.abs(a - e).max() for a, e in pairs) / max(np.abs(e).max() for e in exact)
        assert error < 1.5 * float(estimate)
        beyond += error > 1e-5
    assert beyond >= 10


def test_nan_scores_give_nan():
    scores, embedded = np.full((TOKENS, 1), np.nan, np.float32), np.ones((TOKENS, 1), np.float32)
    assert np.isnan(by_split(sample("split", 0), scores, embedded[:, None])).all()
    assert np.isnan(by_token(sample("tokens", 0), scores, embedded)).all()


@pytest.mark.parametrize("convention", [EXPERIMENT_CONVENTION, THEORY_CONVENTION], ids=str)
def test_transformers_compute_the_same_from_every_form(convention):
    model = Transformer.draw(
        Shape(16, 4, 4, 10), PROMPTS.vocabulary, convention=convention, key=jr.key(0)
    )
    key = jr.key(1)
    batches = {
        form: sample_prompts(PROMPTS, 32, form, stratified=True, key=key)
        for form in ("counts", "split", "tokens")
    }
    tokens = PROMPTS.sample_batch(32, form="tokens", stratified=True, key=key).content
    expected = jax.vmap(dense_logits, (None, 0))(model, tokens)
    gradients = {}
    for form, batch in batches.items():
        assert np.abs(jax.jit(Transformer.logits)(model, batch.content) - expected).max() < 1e-5
        # Embeddings are not trained, but differentiated by those who want to.
        gradients[form] = jax.jit(jax.grad(cross_entropy))(model, batch.content, batch.answers)
    for form in ("split", "tokens"):
        for one, other in zip(
            jax.tree.leaves(gradients[form]), jax.tree.leaves(gradients["counts"]), strict=True
        ):
            assert_agree(one, other, 3e-5)


def test_split_prompts_and_tokens_need_no_array_of_the_vocabulary():
    prompts = PromptDistribution.from_table(FactTable.random(20_000, 2, 2), noise=8, length=6)
    model = Transformer.draw(Shape(8, 2, 4, 0), prompts.vocabulary, key=jr.key(0))

    def gradient(weights, batch):
        def loss_of(weights):
            trained = eqx.tree_at(lambda m: m.weights, model, weights)
            return cross_entropy(trained, batch.content, batch.answers)

        return jax.grad(loss_of)(weights)

    temporary_bytes = {}
    for form in ("counts", "split", "tokens"):
        batch = sample_prompts(prompts, 4, form, key=jr.key(1))
        program = jax.jit(gradient).lower(model.weights, batch).compile()
        temporary_bytes[form] = program.memory_analysis().temp_size_in_bytes
    table_bytes = 4 * prompts.vocabulary.prompt_tokens
    assert temporary_bytes["counts"] > table_bytes
    assert max(temporary_bytes["split"], temporary_bytes["tokens"]) < table_bytes / 2


@pytest.mark.parametrize(
    ("subjects", "noise", "length", "dim", "expected"),
    [
        (120, 240, 32, 128, "counts"),
        (900, 64, 32, 64, "counts"),
        (25_799, 64, 32, 64, "split"),
        (1_500, 1_500, 32, 64, "split"),
        (1_500, 1_500, 32, 32, "tokens"),
        (1_500, 1_500, 8, 64, "tokens"),
        (5_000, 5_000, 32, 128, "tokens"),
    ],
)
def test_form_depends_on_the_vocabulary(subjects, noise, length, dim, expected):
    vocabulary = Vocabulary(subjects, 41, noise, 100)
    assert choose_prompt_form(vocabulary, length, dim) == expected


@given(st.sampled_from([100, 1_000, 10_000]), st.sampled_from([8, 32]))
def test_more_subjects_never_return_to_counts(noise, length):
    order = [
        choose_prompt_form(Vocabulary(subjects, 8, noise, 9), length, 32)
        for subjects in (10, 100, 1_000, 10_000, 100_000)
    ]
    assert order == sorted(order, key=lambda form: form != "counts")
    assert order[-1] != "counts"


def test_counts_of_small_vocabularies_are_those_of_attend():
    model = Transformer.draw(Shape(16, 4, 4, 10), PROMPTS.vocabulary, key=jr.key(0))
    counts = sample("counts", 0)
    attended = attend(counts, model.scores(), model.values())
    expected = jnp.einsum("bhk,hkd->bd", attended, model.weights.output, precision="highest")
    assert np.array_equal(model.attention(counts), expected)
