"""The compiled part of training: a dense reference loop, and the independence of runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.training.hyperparameters import Hyperparameters
from factmem.training.protocol import StepConfig
from factmem.training.stack import advance, evaluate, init_stack, prompt_form
from factmem.transformer import Shape, Transformer, accuracy, cross_entropy, sample_prompts

# Few stack sizes and configs throughout, so that few programs are compiled.
SMALL_SHAPE, SMALL_TABLE = Shape(12, 3, 4, 10), (6, 5, 3)
PAPER_SHAPE, PAPER_TABLE = Shape(32, 8, 4, 32), (24, 24, 8)
CONFIG = StepConfig(batch_size=64)
KEY = jr.key(7)


def make_prompts(table=SMALL_TABLE, seed=0, length=8):
    return PromptDistribution.from_table(FactTable.random(*table, seed=seed), length=length)


PROMPTS = make_prompts()


def make_stack(
    seeds, rates, prompts=PROMPTS, shape=SMALL_SHAPE, config=CONFIG, answers=None, **options
):
    models = [Transformer.draw(shape, prompts.vocabulary, key=jr.key(seed)) for seed in seeds]
    values = {"momentum": 0.9, "beta2": 0.999, "decay_steps": 100.0} | options
    hyperparameters = Hyperparameters(
        jnp.asarray(rates), *(jnp.full(len(seeds), value) for value in values.values())
    )
    answers = [prompts.fact_answers] * len(seeds) if answers is None else answers
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return init_stack(stacked, hyperparameters, jnp.stack(answers), config)


def train(
    stack,
    steps,
    prompts=PROMPTS,
    first=0,
    active=None,
    key=KEY,
    config=CONFIG,
    vectorize=False,
    form=None,
):
    active = jnp.ones(stack.answers.shape[0], bool) if active is None else jnp.asarray(active)
    first_step, steps = (jnp.asarray(number, jnp.int32) for number in (first, steps))
    return advance(stack, prompts, first_step, steps, active, config, vectorize, form, key=key)


def weights_of(stack, run=0):
    return jax.tree.map(lambda leaf: np.asarray(leaf[run]), stack.models.weights)


def evaluation_batch(prompts=PROMPTS):
    return prompts.sample_batch(200, form="counts", key=jr.key(5))


def assert_equal(first, second):
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- an independent training loop ----------------------------------------------------------------


def dense_loss(weights, tables, tokens, answers):
    """Position by position, with the head dimension first; shares no code with factmem."""
    embed, unembed = tables
    x = embed[tokens]
    query = jnp.einsum("bd,hkd->bhk", x[:, -1], weights["query"])
    scores = jnp.einsum("bhk,hkd,btd->bht", query, weights["key"], x)
    attention = jax.nn.softmax(scores / weights["query"].shape[1] ** 0.5, axis=-1)
    values = jnp.einsum("btd,hkd->bthk", x, weights["value"])
    z = jnp.einsum("bht,bthk,hkd->bd", attention, values, weights["output"])
    hidden = z @ weights["mlp_in"].T + weights["mlp_bias"][None, :]
    z = z + jnp.maximum(hidden, 0) @ weights["mlp_out"]
    logits = z @ unembed.T
    correct = jnp.take_along_axis(logits, answers[:, None], axis=1)[:, 0]
    return jnp.mean(jax.scipy.special.logsumexp(logits, axis=1) - correct)


def dense_training(model, prompts, rate, steps, batch):
    """Return the weights before every optax step and after the last, and the batch losses."""
    optimizer = optax.adam(rate)
    weights = {k: v for k, v in vars(model.weights).items() if v is not None}
    tables = (model.embeddings.tokens, model.embeddings.answers)

    @jax.jit
    def step(weights, state, number):
        sampled = prompts.sample_batch(batch, form="tokens", key=jr.fold_in(KEY, number))
        loss, gradient = jax.value_and_grad(dense_loss)(
            weights, tables, sampled.content, sampled.answers
        )
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, loss

    state, history, losses = optimizer.init(weights), [weights], []
    for number in range(steps):
        weights, state, loss = step(weights, state, number)
        history.append(weights)
        losses.append(float(loss))
    return history, losses


SIZES = [
    pytest.param(SMALL_SHAPE, SMALL_TABLE, 8, 64, id="small"),
    pytest.param(PAPER_SHAPE, PAPER_TABLE, 32, 1024, marks=pytest.mark.slow, id="paper"),
]


def max_difference(weights, expected):
    return max(
        float(np.max(np.abs(getattr(weights, name) - weight))) for name, weight in expected.items()
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("shape", "table", "length", "batch"), SIZES)
def test_200_adam_steps_match_dense_training_in_float64(shape, table, length, batch):
    prompts, config = make_prompts(table, length=length), StepConfig(batch_size=batch)
    stack = make_stack([3], [1e-2], prompts, shape, config)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    history, _ = dense_training(model, prompts, 1e-2, 200, batch)
    trained = weights_of(train(stack, 200, prompts, config=config))
    assert max_difference(weights_of(stack), history[200]) > 0.1
    assert max_difference(trained, history[200]) < 1e-8


@pytest.mark.parametrize(("shape", "table", "length", "batch"), SIZES)
def test_20_and_200_adam_steps_match_dense_training_in_float32(shape, table, length, batch):
    prompts, config = make_prompts(table, length=length), StepConfig(batch_size=batch)
    stack = make_stack([3], [1e-2], prompts, shape, config)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    history, losses = dense_training(model, prompts, 1e-2, 201, batch)
    trained = weights_of(train(stack, 20, prompts, config=config))
    assert max_difference(trained, history[20]) < 1e-4
    later = train(stack, 200, prompts, config=config)
    sampled = prompts.sample_batch(batch, form="counts", key=jr.fold_in(KEY, 200))
    assert losses[200] < 0.8 * losses[0]
    assert float(evaluate(later, sampled).loss[0]) == pytest.approx(losses[200], rel=1e-2)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("form", "vectorize"), [("split", True), ("tokens", False)])
def test_100_adam_steps_match_dense_training_in_every_form(form, vectorize):
    stack = make_stack([3, 4], [1e-2, 3e-3])
    trained = train(stack, 100, vectorize=vectorize, form=form)
    for run, rate in enumerate((1e-2, 3e-3)):
        model = jax.tree.map(lambda leaf, run=run: leaf[run], stack.models)
        history, _ = dense_training(model, PROMPTS, rate, 100, CONFIG.batch_size)
        assert max_difference(weights_of(trained, run), history[100]) < 1e-8


def test_small_vocabularies_train_on_counts():
    stack = make_stack([3], [1e-2])
    assert prompt_form(stack, PROMPTS) == "counts"
    assert_equal(train(stack, 3), train(stack, 3, form="counts"))


@pytest.mark.parametrize(("noise", "form"), [(16, "split"), (700, "tokens")])
def test_large_vocabularies_train_on_the_chosen_form(noise, form):
    table = FactTable.random(1100, 2, 4)
    prompts = PromptDistribution.from_table(table, noise=noise, length=8)
    stack = make_stack([3], [1e-2], prompts)
    assert prompt_form(stack, prompts) == form
    chosen, counted = (train(stack, 5, prompts, form=each) for each in (None, "counts"))
    assert_equal(chosen, train(stack, 5, prompts, form=form))
    for one, other in zip(*map(jax.tree.leaves, map(weights_of, (chosen, counted))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    batch = sample_prompts(prompts, 50, form, key=jr.key(0))
    counts = sample_prompts(prompts, 50, "counts", key=jr.key(0))
    for one, other in zip(evaluate(chosen, batch), evaluate(chosen, counts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


# ---- steps and runs ------------------------------------------------------------------------------


def test_chunks_of_steps_equal_one_call():
    stack = make_stack([0, 1, 2], [1e-2, 3e-3, 1e-3])
    chunks = train(train(train(stack, 5), 1, first=5), 6, first=6)
    assert_equal(train(stack, 12), chunks)


def test_batches_depend_on_key_and_step():
    stack = make_stack([0], [1e-2])
    output = weights_of(train(stack, 1)).output
    assert not np.array_equal(output, weights_of(train(stack, 1, first=1)).output)
    assert not np.array_equal(output, weights_of(train(stack, 1, key=jr.key(8))).output)


@pytest.mark.parametrize("config", [CONFIG, StepConfig("muon", "cosine", 64)], ids=["adam", "muon"])
def test_run_is_bitwise_independent_of_other_runs(config):
    """Even if one of the others diverges."""
    alone = train(make_stack([1], [1e-2], config=config), 30, config=config)
    stack = train(make_stack([0, 1, 2], [1e-3, 1e-2, 1e30], config=config), 30, config=config)
    assert not np.isfinite(weights_of(stack, 2).query).all()
    assert_equal(weights_of(alone), weights_of(stack, 1))


@pytest.mark.parametrize("vectorize", [False, True])
def test_inactive_runs_do_not_change(vectorize):
    stack = make_stack([0, 1, 2], [1e-2] * 3)
    trained = train(stack, 5, active=[False, True, False], vectorize=vectorize)
    for run in (0, 2):
        assert_equal(
            jax.tree.map(lambda leaf, run=run: leaf[run], trained),
            jax.tree.map(lambda leaf, run=run: leaf[run], stack),
        )
    assert not np.array_equal(weights_of(trained, 1).value, weights_of(stack, 1).value)


def test_vectorized_runs_match_runs_in_turn():
    stack = make_stack([0, 1, 2], [1e-2, 1e-3, 3e-3])
    for one, other in zip(
        jax.tree.leaves(train(stack, 10)),
        jax.tree.leaves(train(stack, 10, vectorize=True)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_runs_may_have_different_answers():
    other = make_prompts(seed=1)
    assert not np.array_equal(PROMPTS.fact_answers, other.fact_answers)
    answers = [PROMPTS.fact_answers, other.fact_answers, PROMPTS.fact_answers]
    stack = train(make_stack([4, 4, 5], [1e-2] * 3, answers=answers), 20)
    for run, prompts in enumerate((PROMPTS, other)):
        alone = train(make_stack([4], [1e-2], prompts), 20, prompts)
        assert_equal(weights_of(alone), weights_of(stack, run))


def test_embeddings_are_not_trained():
    stack = make_stack([0], [1e-2])
    assert_equal(train(stack, 3).models.embeddings, stack.models.embeddings)


def test_only_shapes_and_config_compile_anew():
    train(make_stack([0, 1, 2], [1e-2] * 3), 1)
    before = advance._cache_size()
    assert before > 0
    for rate in (1e-4, 0.3, 7.0):
        stack = make_stack([5, 6, 7], [rate] * 3, momentum=rate / 10, decay_steps=1 / rate)
        active = [True, False, rate > 1]
        train(stack, 2, make_prompts(seed=3), first=9, active=active, key=jr.key(int(rate)))
    assert advance._cache_size() == before


def test_cosine_schedule_is_applied():
    config = StepConfig("adam", "cosine", 64)
    stack = make_stack([0], [1e-2], config=config, decay_steps=4.0)
    decayed = train(stack, 4, config=config)
    assert_equal(weights_of(decayed), weights_of(train(decayed, 3, first=4, config=config)))
    # Halfway, the rate is half.
    halfway = weights_of(train(stack, 1, first=2, config=config))
    constant = weights_of(train(make_stack([0], [5e-3]), 1, first=2))
    for one, other in zip(jax.tree.leaves(halfway), jax.tree.leaves(constant), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


# ---- evaluation ----------------------------------------------------------------------------------


def test_evaluation_matches_the_model():
    stack = train(make_stack([0, 1, 2], [1e-2, 1e30, 1e-2]), 40)
    batch = evaluation_batch()
    evaluation = evaluate(stack, batch)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    inputs = (model, batch.content, batch.answers)
    assert float(evaluation.loss[0]) == pytest.approx(float(eqx.filter_jit(cross_entropy)(*inputs)))
    assert float(evaluation.accuracy[0]) == float(eqx.filter_jit(accuracy)(*inputs))
    assert evaluation.finite.tolist() == [True, False, True]
    assert evaluation.accuracy[1] == 0


def test_evaluation_detects_infinite_weights_behind_finite_losses():
    stack = make_stack([0, 1, 2], [1e-2] * 3)
    # A dead neuron has no effect on the loss.
    bias = stack.models.weights.mlp_bias.at[1, 0].set(-jnp.inf)
    stack = eqx.tree_at(lambda stack: stack.models.weights.mlp_bias, stack, bias)
    evaluation = evaluate(stack, evaluation_batch())
    assert np.isfinite(evaluation.loss).all()
    assert evaluation.finite.tolist() == [True, False, True]


def test_trains_without_mlp():
    stack = make_stack([0], [1e-2], shape=Shape(12, 3, 4, 0))
    before, after = (evaluate(each, evaluation_batch()) for each in (stack, train(stack, 100)))
    assert float(after.loss[0]) < 0.8 * float(before.loss[0])
