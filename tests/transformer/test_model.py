"""The transformer follows the paper's equations, in both conventions and both forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution, Vocabulary
from factmem.memories.activations import HermitePolynomial, Relu
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Convention,
    Embeddings,
    Shape,
    Transformer,
    accuracy,
    cross_entropy,
    dense_logits,
    draw_weights,
)

SHAPE = Shape(dim=12, heads=3, head_dim=4, width=10)
TABLE = FactTable.random(8, 4, 3)
PROMPTS = PromptDistribution.from_table(TABLE, noise=6, length=9)
SIGMA = HermitePolynomial((0.1, 0.2, 1.0))
CONVENTIONS = [THEORY_CONVENTION, EXPERIMENT_CONVENTION]


def model_of(seed, convention=EXPERIMENT_CONVENTION, shape=SHAPE, activation=Relu()):
    return Transformer.draw(shape, PROMPTS.vocabulary, convention, activation, key=jr.key(seed))


def reference_logits(model, prompt):
    """Logits of one prompt in numpy float64, with explicit sums."""
    w = {k: None if v is None else np.asarray(v, float) for k, v in vars(model.weights).items()}
    phi = np.asarray(model.embeddings.tokens, float)
    scale = model.shape.head_dim**-0.5 if model.convention.scaled_scores else 1.0
    x = phi[prompt]
    z = np.zeros(model.shape.dim)
    for h in range(model.shape.heads):
        scores = [x_t @ w["key"][h].T @ w["query"][h] @ x[-1] * scale for x_t in x]
        p = np.exp(scores - np.max(scores))
        p /= p.sum()
        z += w["output"][h].T @ sum(
            p_t * (w["value"][h] @ x_t) for p_t, x_t in zip(p, x, strict=True)
        )
    if model.shape.width:
        hidden = w["mlp_in"] @ z + (0 if w["mlp_bias"] is None else w["mlp_bias"])
        hidden = (
            np.maximum(hidden, 0)
            if isinstance(model.activation, Relu)
            else 0.1 + 0.2 * hidden + (hidden**2 - 1) / 2**0.5
        )
        z = z + w["mlp_out"].T @ hidden
    outputs = phi if model.embeddings.answers is None else np.asarray(model.embeddings.answers)
    return outputs @ z


@eqx.filter_jit
def logits_of_both_forms(model, counts, tokens):
    return model.logits(counts), jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("activation", [Relu(), SIGMA])
@pytest.mark.parametrize("width", [0, 10])
def test_logits_follow_the_equations(convention, activation, width):
    shape = Shape(12, 3, 4, width)
    model = model_of(1, convention, shape, activation)
    if model.weights.mlp_bias is not None:  # it is 0 initially, which would hide a wrong bias
        model = eqx.tree_at(lambda m: m.weights.mlp_bias, model, jnp.linspace(-1, 1, width))
    tokens = PROMPTS.sample_batch(6, form="tokens", key=jr.key(2)).content
    counts = PROMPTS.sample_batch(6, form="counts", key=jr.key(2)).content
    expected = np.stack([reference_logits(model, prompt) for prompt in np.asarray(tokens)])
    logits, dense = logits_of_both_forms(model, counts, tokens)
    assert np.abs(logits - expected).max() < 2e-5
    assert np.abs(dense - expected).max() < 2e-5


def test_conventions_decode_over_vocabulary_or_answers():
    vocabulary = PROMPTS.vocabulary
    counts = PROMPTS.sample_batch(5, form="counts", key=jr.key(0)).content
    theory, experiments = model_of(0, THEORY_CONVENTION), model_of(0, EXPERIMENT_CONVENTION)
    assert theory.logits(counts).shape == (5, vocabulary.size)
    assert experiments.logits(counts).shape == (5, vocabulary.answers)
    assert theory.targets(jnp.array([0, 2])).tolist() == [
        vocabulary.first_answer,
        vocabulary.first_answer + 2,
    ]
    assert experiments.targets(jnp.array([0, 2])).tolist() == [0, 2]
    assert theory.embeddings.answers is None
    assert theory.weights.mlp_bias is None
    assert jnp.allclose(jnp.linalg.norm(theory.embeddings.tokens, axis=1), 1)
    assert (theory.score_scale, experiments.score_scale) == (1.0, 0.5)


def loss_by_position(weights, model, tokens, answers):
    model = eqx.tree_at(lambda m: m.weights, model, weights)
    logits = jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, model.targets(answers))
    return jnp.mean(losses)


def loss_by_counts(weights, model, counts, answers):
    return cross_entropy(eqx.tree_at(lambda m: m.weights, model, weights), counts, answers)


gradient_by_position = jax.jit(jax.value_and_grad(loss_by_position))
gradient_by_counts = jax.jit(jax.value_and_grad(loss_by_counts))


@given(
    seed=st.integers(0, 10_000),
    convention=st.sampled_from(CONVENTIONS),
    spread=st.one_of(st.floats(0, 1000), st.floats(0, 30)),
)
def test_weight_gradients_match_the_dense_form(seed, convention, spread):
    model = model_of(seed, convention)
    initial_spread = float(jnp.max(jnp.ptp(model.scores(), axis=0)))
    query = model.weights.query * (spread / initial_spread)
    model = eqx.tree_at(lambda m: m.weights.query, model, query)
    batch = PROMPTS.sample_batch(128, form="counts", key=jr.key(seed))
    tokens = PROMPTS.sample_batch(128, form="tokens", key=jr.key(seed)).content
    result = gradient_by_counts(model.weights, model, batch.content, batch.answers)
    expected = gradient_by_position(model.weights, model, tokens, batch.answers)
    tolerance = 1e-5 * (1 + spread / 10)
    for actual, dense in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(actual).all()
        assert np.abs(actual - dense).max() <= tolerance * np.abs(dense).max() + 1e-30


def test_parameters_and_stored_numbers():
    assert Shape(32, 8, 4, 32).parameters == 4 * 8 * 32 * 4 + 2 * 32 * 32
    vocabulary = PROMPTS.vocabulary
    weights = 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert SHAPE.parameters == weights
    assert model_of(0, THEORY_CONVENTION).total_parameters == weights + vocabulary.size * 12
    assert (
        model_of(0, EXPERIMENT_CONVENTION).total_parameters == weights + 10 + vocabulary.size * 12
    )


def test_W_OV_and_W_KQ_are_products_of_the_factors():
    model = model_of(3)
    for h in range(3):
        W = model.weights
        assert np.allclose(model.W_OV[h], W.output[h].T @ W.value[h], atol=1e-6)
        assert np.allclose(model.W_KQ[h], W.key[h].T @ W.query[h], atol=1e-6)
    eos = model.embeddings.tokens[PROMPTS.vocabulary.eos]
    scores = jnp.einsum("zi,hij,j->zh", model.embeddings.tokens, model.W_KQ, eos)
    assert np.allclose(model.scores(), scores * model.score_scale, atol=1e-5)


def test_initial_weights_have_the_variances_of_the_authors_code():
    w = draw_weights(Shape(dim=64, heads=16, head_dim=8, width=256), key=jr.key(0))
    for array, variance in (
        (w.query, 1 / 8),
        (w.key, 1 / 8),
        (w.value, 1 / 8),
        (w.output, 1 / 64),
        (w.mlp_in, 1 / 64),
        (w.mlp_out, 1 / 256),
    ):
        assert float(jnp.var(array)) == pytest.approx(variance, rel=0.05)
        assert abs(float(jnp.mean(array))) < 0.05 * variance**0.5
    assert float(jnp.max(jnp.abs(w.mlp_in))) < 2.3 / 64**0.5
    assert (w.mlp_bias == 0).all()


def test_accuracy_and_loss_of_a_perfect_and_a_silent_model():
    # One head reads the subject, one the relation. On orthogonal embeddings each writes all answers
    # of its token, so that only the correct answer is written twice.
    vocabulary = PROMPTS.vocabulary
    phi = jnp.eye(vocabulary.size)
    table = np.asarray(TABLE.answer_of)
    reads = np.zeros((2, vocabulary.size))
    reads[0, :8] = reads[1, 8:12] = 200.0
    reads[:, vocabulary.eos] = 100.0
    writes = np.zeros((2, vocabulary.size, vocabulary.size))
    for s in range(8):
        for r in range(4):
            writes[0, s, vocabulary.first_answer + table[s, r]] = 50
            writes[1, 8 + r, vocabulary.first_answer + table[s, r]] = 50
    shape = Shape(dim=vocabulary.size, heads=2, head_dim=vocabulary.size)
    model = Transformer.draw(shape, vocabulary, THEORY_CONVENTION, key=jr.key(0))
    zero = jnp.zeros((2, vocabulary.size, vocabulary.size))
    model = eqx.tree_at(
        lambda m: (m.weights.query, m.weights.key, m.weights.value, m.weights.output, m.embeddings),
        model,
        (
            zero.at[:, 0, vocabulary.eos].set(1.0),
            zero.at[:, 0].set(jnp.asarray(reads, jnp.float32)),
            jnp.broadcast_to(phi, zero.shape),
            jnp.asarray(writes, jnp.float32),
            Embeddings(phi, None),
        ),
    )
    batch = PROMPTS.sample(jnp.arange(32), form="counts", key=jr.key(1))
    accuracy_of, loss_of = jax.jit(accuracy), jax.jit(cross_entropy)
    assert accuracy_of(model, batch.content, batch.answers) == 1
    assert loss_of(model, batch.content, batch.answers) < 1e-6
    wrong = (batch.answers + 1) % vocabulary.answers
    assert accuracy_of(model, batch.content, wrong) == 0
    silent = eqx.tree_at(lambda m: m.weights.output, model, zero)
    loss = loss_of(silent, batch.content, batch.answers)
    assert float(loss) == pytest.approx(np.log(vocabulary.size), rel=1e-5)


def test_works_with_strict_dtype_promotion():
    for convention in CONVENTIONS:
        with jax.numpy_dtype_promotion("strict"):
            PROMPTS.sample_batch(8, form="tokens", key=jr.key(0))
            counts = PROMPTS.sample_batch(8, form="counts", key=jr.key(0)).content
            model = model_of(0, convention, activation=SIGMA)
            gradient_by_counts(model.weights, model, counts, jnp.zeros(8, jnp.int32))


@pytest.mark.parametrize(
    "sizes", [(0, 1, 1, 0), (4, 0, 1, 0), (4, 1, 0, 0), (4, 1, 1, -1)], ids=str
)
def test_rejects_sizes_below_the_minimum(sizes):
    with pytest.raises(FactmemError, match="must be at least"):
        Shape(*sizes)


def test_rejects_arrays_of_the_wrong_shape():
    model = model_of(0)
    with pytest.raises(
        FactmemError, match=r"weights\.query must have shape \(3, 5, 12\), got \(3, 4, 12\)"
    ):
        Transformer(model.weights, model.embeddings, Shape(12, 3, 5, 10), PROMPTS.vocabulary)
    with pytest.raises(FactmemError, match=r"mlp_bias must have shape None, got \(10,\)"):
        Transformer(model.weights, model.embeddings, SHAPE, PROMPTS.vocabulary, THEORY_CONVENTION)


def test_rejects_an_unknown_embedding_distribution():
    # Created without __init__, where beartype would reject the value first.
    convention = object.__new__(Convention)
    for name in ("shared_table", "scaled_scores", "mlp_bias"):
        object.__setattr__(convention, name, True)
    object.__setattr__(convention, "embedding", "cube")
    with pytest.raises(FactmemError, match="embedding must be 'sphere' or 'gaussian', got 'cube'"):
        convention.__post_init__()


def test_random_arrays_are_independent():
    # With equal sizes, arrays drawn from the same key would be equal up to a factor.
    vocabulary = Vocabulary(subjects=4, relations=4, noise=7, answers=16)
    model = Transformer.draw(Shape(16, 1, 16, 16), vocabulary, key=jr.key(0))
    assert model.embeddings.tokens.shape == model.embeddings.answers.shape == (16, 16)
    arrays = [a.ravel() for a in jax.tree.leaves(model) if a.size == 256]
    assert len(arrays) == 8
    correlations = np.corrcoef(np.stack(arrays)) - np.eye(8)
    assert np.abs(correlations).max() < 0.3


def test_embeddings_follow_the_distribution_of_the_convention():
    vocabulary = Vocabulary(subjects=100, relations=100, noise=100, answers=300)
    theory = Embeddings.draw(8, vocabulary, THEORY_CONVENTION, key=jr.key(0))
    assert np.linalg.norm(theory.tokens, axis=1) == pytest.approx(1, abs=1e-5)
    experiments = Embeddings.draw(8, vocabulary, EXPERIMENT_CONVENTION, key=jr.key(0))
    for table in (experiments.tokens, experiments.answers):
        lengths = np.linalg.norm(table, axis=1)
        assert np.std(lengths) > 0.1
        assert np.mean(lengths**2) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_draw_embeddings_gives_the_embeddings_of_draw(convention):
    model = model_of(7, convention)
    embeddings = Transformer.draw_embeddings(12, PROMPTS.vocabulary, convention, key=jr.key(7))
    assert eqx.tree_equal(model.embeddings, embeddings)
    assert embeddings.dim == 12


def test_nan_logits_have_accuracy_0():
    model = model_of(0)
    broken = eqx.tree_at(lambda m: m.weights.output, model, model.weights.output * jnp.nan)
    counts = PROMPTS.sample_batch(5, form="counts", key=jr.key(0)).content
    assert accuracy(broken, counts, jnp.zeros(5, jnp.int32)) == 0
