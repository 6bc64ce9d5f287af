"""The transformer is the paper's, in both conventions and in both forms."""

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
    EXPERIMENTS,
    THEORY,
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
ASKED = PromptDistribution.of(TABLE, noise=6, length=9)
SIGMA = HermitePolynomial((0.1, 0.2, 1.0))
CONVENTIONS = [THEORY, EXPERIMENTS]


def model_of(seed, convention=EXPERIMENTS, shape=SHAPE, activation=Relu()):
    return Transformer.draw(jr.key(seed), shape, ASKED.vocabulary, convention, activation)


def by_the_equations(model, prompt):
    """One prompt in plain numpy float64, every sum written out."""
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


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("activation", [Relu(), SIGMA])
@pytest.mark.parametrize("width", [0, 10])
def test_logits_follow_the_equations(convention, activation, width):
    shape = Shape(12, 3, 4, width)
    model = model_of(1, convention, shape, activation)
    if model.weights.mlp_bias is not None:  # starts at 0, where a wrong bias would not show
        model = eqx.tree_at(lambda m: m.weights.mlp_bias, model, jnp.linspace(-1, 1, width))
    tokens = ASKED.sample(jr.key(2), 6, form="tokens").content
    counts = ASKED.sample(jr.key(2), 6, form="counts").content
    expected = np.stack([by_the_equations(model, prompt) for prompt in np.asarray(tokens)])
    assert np.abs(model.logits(counts) - expected).max() < 2e-5
    dense = jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)
    assert np.abs(dense - expected).max() < 2e-5


def test_conventions_decode_over_what_the_paper_says():
    names = ASKED.vocabulary
    counts = ASKED.sample(jr.key(0), 5, form="counts").content
    theory, experiments = model_of(0, THEORY), model_of(0, EXPERIMENTS)
    assert theory.logits(counts).shape == (5, names.size)
    assert experiments.logits(counts).shape == (5, names.answers)
    assert theory.targets(jnp.array([0, 2])).tolist() == [
        names.first_answer,
        names.first_answer + 2,
    ]
    assert experiments.targets(jnp.array([0, 2])).tolist() == [0, 2]
    assert theory.embeddings.answers is None
    assert theory.weights.mlp_bias is None
    assert jnp.allclose(jnp.linalg.norm(theory.embeddings.tokens, axis=1), 1)
    assert (theory.score_scale, experiments.score_scale) == (1.0, 0.5)


@jax.jit
def loss_by_position(weights, model, tokens, answers):
    model = eqx.tree_at(lambda m: m.weights, model, weights)
    logits = jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, model.targets(answers))
    return jnp.mean(losses)


@jax.jit
def loss_by_counts(weights, model, counts, answers):
    return cross_entropy(eqx.tree_at(lambda m: m.weights, model, weights), counts, answers)


@given(
    seed=st.integers(0, 10_000),
    convention=st.sampled_from(CONVENTIONS),
    spread=st.one_of(st.floats(0, 1000), st.floats(0, 30)),
)
def test_gradients_of_all_weights_agree_with_the_dense_form(seed, convention, spread):
    model = model_of(seed, convention)
    natural = float(jnp.max(jnp.ptp(model.scores(), axis=0)))
    model = eqx.tree_at(lambda m: m.weights.query, model, model.weights.query * (spread / natural))
    prompts = ASKED.sample(jr.key(seed), 128, form="counts")
    tokens = ASKED.sample(jr.key(seed), 128, form="tokens").content
    found = jax.value_and_grad(loss_by_counts)(
        model.weights, model, prompts.content, prompts.answers
    )
    expected = jax.value_and_grad(loss_by_position)(model.weights, model, tokens, prompts.answers)
    tolerance = 1e-5 * (1 + spread / 10)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(ours).all()
        assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max() + 1e-30


def test_parameters_are_counted_as_in_the_paper_and_in_full():
    assert Shape(32, 8, 4, 32).parameters == 4 * 8 * 32 * 4 + 2 * 32 * 32
    names = ASKED.vocabulary
    weights = 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert SHAPE.parameters == weights
    assert model_of(0, THEORY).stored_numbers == weights + names.size * 12
    assert model_of(0, EXPERIMENTS).stored_numbers == weights + 10 + names.size * 12


def test_factored_matrices_are_the_products_that_their_names_say():
    model = model_of(3)
    for h in range(3):
        W = model.weights
        assert np.allclose(model.W_OV[h], W.output[h].T @ W.value[h], atol=1e-6)
        assert np.allclose(model.W_KQ[h], W.key[h].T @ W.query[h], atol=1e-6)
    eos = model.embeddings.tokens[ASKED.vocabulary.eos]
    scores = jnp.einsum("zi,hij,j->zh", model.embeddings.tokens, model.W_KQ, eos)
    assert np.allclose(model.scores(), scores * model.score_scale, atol=1e-5)


def test_initial_weights_have_the_authors_spreads():
    w = draw_weights(jr.key(0), Shape(dim=64, heads=16, head_dim=8, width=256))
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


def test_accuracy_and_loss_of_a_model_that_knows_everything_and_one_that_knows_nothing():
    # One head that reads the subject and one that reads the relation, on orthogonal embeddings,
    # write every answer of the one and of the other: only the right answer is written twice.
    names = ASKED.vocabulary
    phi = jnp.eye(names.size)
    table = np.asarray(TABLE.answer_of)
    reads = np.zeros((2, names.size))
    reads[0, :8] = reads[1, 8:12] = 200.0
    reads[:, names.eos] = 100.0
    writes = np.zeros((2, names.size, names.size))
    for s in range(8):
        for r in range(4):
            writes[0, s, names.first_answer + table[s, r]] = 50
            writes[1, 8 + r, names.first_answer + table[s, r]] = 50
    shape = Shape(dim=names.size, heads=2, head_dim=names.size)
    model = Transformer.draw(jr.key(0), shape, names, THEORY)
    zero = jnp.zeros((2, names.size, names.size))
    model = eqx.tree_at(
        lambda m: (m.weights.query, m.weights.key, m.weights.value, m.weights.output, m.embeddings),
        model,
        (
            zero.at[:, 0, names.eos].set(1.0),
            zero.at[:, 0].set(jnp.asarray(reads, jnp.float32)),
            jnp.broadcast_to(phi, zero.shape),
            jnp.asarray(writes, jnp.float32),
            Embeddings(phi, None),
        ),
    )
    prompts = ASKED.ask(jr.key(1), jnp.arange(32), form="counts")
    assert accuracy(model, prompts.content, prompts.answers) == 1
    assert cross_entropy(model, prompts.content, prompts.answers) < 1e-6
    wrong = (prompts.answers + 1) % names.answers
    assert accuracy(model, prompts.content, wrong) == 0
    silent = eqx.tree_at(lambda m: m.weights.output, model, zero)
    loss = cross_entropy(silent, prompts.content, prompts.answers)
    assert float(loss) == pytest.approx(np.log(names.size), rel=1e-5)


def test_nothing_is_promoted_silently():
    for convention in CONVENTIONS:
        with jax.numpy_dtype_promotion("strict"):
            ASKED.sample(jr.key(0), 8, form="tokens")
            counts = ASKED.sample(jr.key(0), 8, form="counts").content
            model = model_of(0, convention, activation=SIGMA)
            jax.grad(loss_by_counts)(model.weights, model, counts, jnp.zeros(8, jnp.int32))


@pytest.mark.parametrize(
    "sizes", [(0, 1, 1, 0), (4, 0, 1, 0), (4, 1, 0, 0), (4, 1, 1, -1)], ids=str
)
def test_impossible_shapes_are_refused(sizes):
    with pytest.raises(FactmemError, match="at least"):
        Shape(*sizes)


def test_arrays_of_the_wrong_shape_are_refused():
    model = model_of(0)
    with pytest.raises(FactmemError, match=r"weights\.query has the shape"):
        Transformer(model.weights, model.embeddings, Shape(12, 3, 5, 10), ASKED.vocabulary)
    with pytest.raises(FactmemError, match=r"mlp_bias has the shape \(10,\) instead of None"):
        Transformer(model.weights, model.embeddings, SHAPE, ASKED.vocabulary, THEORY)


def test_a_convention_is_checked():
    # beartype would refuse the word first: go around it, as a file's header does.
    convention = object.__new__(Convention)
    for name in ("shared_table", "scaled_scores", "mlp_bias"):
        object.__setattr__(convention, name, True)
    object.__setattr__(convention, "embedding", "cube")
    with pytest.raises(FactmemError, match="convention"):
        convention.__post_init__()


def test_no_two_random_arrays_are_related():
    # Equal sizes everywhere, so that arrays drawn from one key would be equal up to a factor.
    names = Vocabulary(subjects=4, relations=4, noise=7, answers=16)
    model = Transformer.draw(jr.key(0), Shape(16, 1, 16, 16), names)
    assert model.embeddings.tokens.shape == model.embeddings.answers.shape == (16, 16)
    arrays = [a.ravel() for a in jax.tree.leaves(model) if a.size == 256]
    assert len(arrays) == 8
    correlations = np.corrcoef(np.stack(arrays)) - np.eye(8)
    assert np.abs(correlations).max() < 0.3


def test_embeddings_are_drawn_as_the_convention_says():
    names = Vocabulary(subjects=100, relations=100, noise=100, answers=300)
    theory = Embeddings.draw(jr.key(0), 8, names, THEORY)
    assert np.linalg.norm(theory.tokens, axis=1) == pytest.approx(1, abs=1e-5)
    experiments = Embeddings.draw(jr.key(0), 8, names, EXPERIMENTS)
    for table in (experiments.tokens, experiments.answers):
        lengths = np.linalg.norm(table, axis=1)
        assert np.std(lengths) > 0.1
        assert np.mean(lengths**2) == pytest.approx(1, abs=0.1)


def test_a_model_that_gives_no_numbers_recalls_nothing():
    model = model_of(0)
    broken = eqx.tree_at(lambda m: m.weights.output, model, model.weights.output * jnp.nan)
    counts = ASKED.sample(jr.key(0), 5, form="counts").content
    assert accuracy(broken, counts, jnp.zeros(5, jnp.int32)) == 0
