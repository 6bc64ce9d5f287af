"""The compiled part of training: against a dense loop, and runs that do not feel each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.training.optimizers import Settings
from factmem.training.protocol import Recipe
from factmem.training.stack import advance, begin, measure
from factmem.transformer import Shape, Transformer, accuracy, cross_entropy

SMALL, FEW = Shape(12, 3, 4, 10), (6, 5, 3)
PAPER_SHAPE, PAPER_FACTS = Shape(32, 8, 4, 32), (24, 24, 8)
RECIPE = Recipe(batch=64)
KEY = jr.key(7)


def questions(facts=FEW, seed=0, length=8):
    return PromptDistribution.of(FactTable.random(*facts, seed=seed), length=length)


def whole(number):
    return jnp.asarray(number, jnp.int32)


def stack_of(asked, seeds, rates, shape=SMALL, recipe=RECIPE, answers=None, **other):
    models = [Transformer.draw(jr.key(seed), shape, asked.vocabulary) for seed in seeds]
    numbers = {"momentum": 0.9, "memory": 0.999, "horizon": 100.0} | other
    settings = Settings(
        jnp.asarray(rates), *(jnp.full(len(seeds), number) for number in numbers.values())
    )
    answers = [asked.fact_answers] * len(seeds) if answers is None else answers
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return begin(stacked, settings, jnp.stack(answers), recipe)


def after(stack, asked, steps, first=0, alive=None, key=KEY, recipe=RECIPE, **options):
    alive = jnp.ones(stack.answers.shape[0], bool) if alive is None else jnp.asarray(alive)
    return advance(stack, asked, key, whole(first), whole(steps), alive, recipe, **options)


def weights_of(stack, run=0):
    return jax.tree.map(lambda leaf: np.asarray(leaf[run]), stack.models.weights)


def assert_same(first, second):
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- an independent training loop ----------------------------------------------------------------


def dense_loss(weights, tables, tokens, answers):
    """Position by position, with the head dimension first: nothing shared with factmem."""
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
    right = jnp.take_along_axis(logits, answers[:, None], axis=1)[:, 0]
    return jnp.mean(jax.scipy.special.logsumexp(logits, axis=1) - right)


def dense_training(model, asked, rate, steps, batch):
    """The weights after plain optax steps, and the loss of every batch before its step."""
    optimizer = optax.adam(rate)
    weights = {k: v for k, v in vars(model.weights).items() if v is not None}
    tables = (model.embeddings.tokens, model.embeddings.answers)

    @jax.jit
    def step(weights, state, number):
        prompts = asked.sample(jr.fold_in(KEY, number), batch, form="tokens")
        loss, slope = jax.value_and_grad(dense_loss)(
            weights, tables, prompts.content, prompts.answers
        )
        updates, state = optimizer.update(slope, state)
        return optax.apply_updates(weights, updates), state, loss

    state, losses = optimizer.init(weights), []
    for number in range(steps):
        weights, state, loss = step(weights, state, number)
        losses.append(float(loss))
    return weights, losses


SIZES = [
    pytest.param(SMALL, FEW, 8, 64, id="small"),
    pytest.param(PAPER_SHAPE, PAPER_FACTS, 32, 1024, marks=pytest.mark.slow, id="the paper's"),
]


def difference(found, expected):
    return max(
        float(np.max(np.abs(getattr(found, name) - weight))) for name, weight in expected.items()
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("shape", "facts", "length", "batch"), SIZES)
def test_200_steps_of_adam_are_those_of_a_dense_loop_in_float64(shape, facts, length, batch):
    asked, recipe = questions(facts, length=length), Recipe(batch=batch)
    stack = stack_of(asked, [3], [1e-2], shape, recipe)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    expected, _ = dense_training(model, asked, 1e-2, 200, batch)
    found = weights_of(after(stack, asked, 200, recipe=recipe))
    assert difference(weights_of(stack), expected) > 0.1
    assert difference(found, expected) < 1e-8


@pytest.mark.parametrize(("shape", "facts", "length", "batch"), SIZES)
def test_20_and_200_steps_of_adam_in_float32(shape, facts, length, batch):
    asked, recipe = questions(facts, length=length), Recipe(batch=batch)
    stack = stack_of(asked, [3], [1e-2], shape, recipe)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    expected, _ = dense_training(model, asked, 1e-2, 20, batch)
    assert difference(weights_of(after(stack, asked, 20, recipe=recipe)), expected) < 1e-4
    _, losses = dense_training(model, asked, 1e-2, 201, batch)
    later = after(stack, asked, 200, recipe=recipe)
    prompts = asked.sample(jr.fold_in(KEY, 200), batch, form="counts")
    assert losses[200] < 0.8 * losses[0]
    assert float(measure(later, prompts).loss[0]) == pytest.approx(losses[200], rel=1e-2)


# ---- what a piece of training is -----------------------------------------------------------------


def test_pieces_make_a_whole():
    asked = questions()
    stack = stack_of(asked, [0, 1, 2], [1e-2, 3e-3, 1e-3])
    once = after(stack, asked, 12)
    pieces = after(after(after(stack, asked, 5), asked, 1, first=5), asked, 6, first=6)
    assert_same(once, pieces)


def test_batches_depend_on_the_key_and_on_the_number_of_the_step():
    asked = questions()
    stack = stack_of(asked, [0], [1e-2])
    one = weights_of(after(stack, asked, 1))
    assert not np.array_equal(one.output, weights_of(after(stack, asked, 1, first=1)).output)
    assert not np.array_equal(one.output, weights_of(after(stack, asked, 1, key=jr.key(8))).output)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_run_does_not_depend_on_its_neighbors(optimizer):
    """Bit for bit, and even if one of them explodes."""
    asked, recipe = questions(), Recipe(optimizer, "cosine", 64)
    alone = after(stack_of(asked, [1], [1e-2], recipe=recipe), asked, 30, recipe=recipe)
    with_others = stack_of(asked, [0, 1, 2], [1e-3, 1e-2, 1e30], recipe=recipe)
    with_others = after(with_others, asked, 30, recipe=recipe)
    assert not np.isfinite(weights_of(with_others, 2).query).all()
    assert_same(weights_of(alone), weights_of(with_others, 1))


@pytest.mark.parametrize("together", [False, True])
def test_a_run_that_has_ended_stays_as_it_is(together):
    asked = questions()
    stack = stack_of(asked, [0, 1, 2], [1e-2] * 3)
    found = after(stack, asked, 5, alive=[False, True, False], together=together)
    for run in (0, 2):
        assert_same(
            jax.tree.map(lambda leaf, run=run: leaf[run], found),
            jax.tree.map(lambda leaf, run=run: leaf[run], stack),
        )
    assert not np.array_equal(weights_of(found, 1).value, weights_of(stack, 1).value)


def test_all_runs_at_once_are_the_runs_one_by_one():
    asked = questions()
    stack = stack_of(asked, [0, 1, 2], [1e-2, 1e-3, 3e-3])
    for one, other in zip(
        jax.tree.leaves(after(stack, asked, 10)),
        jax.tree.leaves(after(stack, asked, 10, together=True)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_runs_of_different_tables_share_the_questions_and_keep_their_answers():
    asked, other = questions(seed=0), questions(seed=1)
    assert not np.array_equal(asked.fact_answers, other.fact_answers)
    answers = [asked.fact_answers, other.fact_answers, asked.fact_answers]
    both = after(stack_of(asked, [4, 4, 5], [1e-2] * 3, answers=answers), asked, 20)
    for run, table in enumerate((asked, other)):
        alone = after(stack_of(table, [4], [1e-2]), table, 20)
        assert_same(weights_of(alone), weights_of(both, run))


def test_embeddings_are_not_trained():
    asked = questions()
    stack = stack_of(asked, [0], [1e-2])
    assert_same(after(stack, asked, 3).models.embeddings, stack.models.embeddings)


def test_nothing_but_the_recipe_and_the_shape_compiles_anew():
    asked = questions()
    after(stack_of(asked, [0, 1, 2], [1e-2] * 3), asked, 1)
    before = advance._cache_size()
    assert before > 0
    for rate in (1e-4, 0.3, 7.0):
        other = stack_of(asked, [5, 6, 7], [rate] * 3, momentum=rate / 10, horizon=1 / rate)
        alive = [True, False, rate > 1]
        after(other, questions(seed=3), 2, first=9, alive=alive, key=jr.key(int(rate)))
    assert advance._cache_size() == before


def test_a_schedule_reaches_the_weights():
    asked, recipe = questions(), Recipe("adam", "cosine", 64)
    stack = stack_of(asked, [0], [1e-2], recipe=recipe, horizon=4.0)
    there = after(stack, asked, 4, recipe=recipe)
    assert_same(weights_of(there), weights_of(after(there, asked, 3, first=4, recipe=recipe)))
    # At half the horizon the rate is half.
    halfway = weights_of(after(stack, asked, 1, first=2, recipe=recipe))
    constant = weights_of(after(stack_of(asked, [0], [5e-3]), asked, 1, first=2))
    for one, other in zip(jax.tree.leaves(halfway), jax.tree.leaves(constant), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_measuring_is_that_of_the_model():
    asked = questions()
    stack = after(stack_of(asked, [0, 1, 2], [1e-2, 1e30, 1e-2]), asked, 40)
    prompts = asked.sample(jr.key(5), 200, form="counts")
    found = measure(stack, prompts)
    model = jax.tree.map(lambda leaf: leaf[0], stack.models)
    given = (model, prompts.content, prompts.answers)
    assert float(found.loss[0]) == pytest.approx(float(eqx.filter_jit(cross_entropy)(*given)))
    assert float(found.accuracy[0]) == float(eqx.filter_jit(accuracy)(*given))
    assert found.finite.tolist() == [True, False, True]
    assert found.accuracy[1] == 0


def test_weights_that_are_not_finite_are_seen_even_if_no_prompt_feels_them():
    asked = questions()
    stack = stack_of(asked, [0, 1, 2], [1e-2] * 3)
    # A dead neuron hides what it writes.
    hidden = stack.models.weights.mlp_bias.at[1, 0].set(-jnp.inf)
    stack = eqx.tree_at(lambda stack: stack.models.weights.mlp_bias, stack, hidden)
    found = measure(stack, asked.sample(jr.key(5), 200, form="counts"))
    assert np.isfinite(found.loss).all()
    assert found.finite.tolist() == [True, False, True]


def test_a_transformer_without_an_mlp_is_trained():
    asked = questions()
    stack = stack_of(asked, [0], [1e-2], shape=Shape(12, 3, 4, 0))
    prompts = asked.sample(jr.key(5), 200, form="counts")
    before, later = measure(stack, prompts), measure(after(stack, asked, 100), prompts)
    assert float(later.loss[0]) < 0.8 * float(before.loss[0])
