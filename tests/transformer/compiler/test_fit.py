"""The compiler's fit: known inputs, losses, steps, hardest answers, batches, checkpoints."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import FitStatus
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    CompileStatus,
    Embeddings,
    Shape,
    compile_facts,
    recall,
)
from factmem.transformer.compiler import fit as fit_module
from factmem.transformer.compiler import hardest_answers as hardest_answers_module
from factmem.transformer.compiler.confusion import ConfusedPairs, separation_penalty
from factmem.transformer.compiler.fit import (
    Schedule,
    _Batches,
    _next_round,
    _Records,
    _strongest_noise,
    fit_weights,
)
from factmem.transformer.compiler.hardest_answers import hardest_answers
from factmem.transformer.compiler.known_inputs import (
    FitData,
    FittedWeights,
    initial_weights,
    model_outputs,
)
from factmem.transformer.compiler.steps import (
    RoundNumbers,
    State,
    loss_of_batch,
    orthogonalize,
    take_steps,
)

RECORDS = _Records(0, 0, 40, 1e-2, True, 1000, 1000, 0, 1)


def random_data(seed, facts=30, tokens=9, dim=5, answers=12):
    rng = np.random.default_rng(seed)
    return FitData(
        tokens=rng.normal(size=(tokens, dim)).astype(np.float32),
        known=rng.integers(tokens, size=(facts, 3)).astype(np.int32),
        outputs=rng.normal(size=(answers, dim)).astype(np.float32),
        target=rng.integers(answers, size=facts).astype(np.int32),
        noise=rng.normal(size=(4, dim)).astype(np.float32),
        noise_gap=np.asarray(1.5, np.float32),
    )


def random_weights(data, seed=0, width=4, heads=3):
    rng = np.random.default_rng(seed)
    shape = Shape(data.tokens.shape[1], heads, 2, width)
    key = rng.normal(size=(heads, shape.dim))
    weights = initial_weights(data, key, shape, bias=True, rng=rng)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), weights)


def outputs_by_hand(weights, data):
    """Compute F_TF fact by fact and head by head."""
    w = jax.tree.map(lambda leaf: np.asarray(leaf, float), weights)
    rows = []
    for known in data.known:
        x = np.zeros(data.tokens.shape[1])
        for head in range(len(w.key)):
            shares = np.exp(data.tokens[known].astype(float) @ w.key[head])
            mixture = shares / shares.sum() @ data.tokens[known].astype(float)
            x += w.output[head].T @ (w.value[head] @ mixture)
        rows.append(x + np.maximum(w.mlp_in @ x + w.mlp_bias, 0) @ w.mlp_out)
    return np.array(rows)


@pytest.mark.parametrize("tokens", [9, 200])
def test_outputs_are_those_of_the_known_mixtures(tokens):
    """With few tokens the values of all are computed, with many those of the facts' tokens."""
    data = random_data(0, tokens=tokens)
    weights = random_weights(data)
    actual = jax.jit(model_outputs)(weights, data)
    np.testing.assert_allclose(actual, outputs_by_hand(weights, data), rtol=1e-4, atol=1e-4)


@given(st.integers(0, 10**6), st.sampled_from([2, 12, 40]))
def test_hardest_answers_and_margins_match_all_logits(seed, answers):
    data = random_data(seed % 50, answers=answers)
    weights = random_weights(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardest_answers_module, "_BLOCK_ENTRIES", 7 * answers)
        hard, margins = hardest_answers(weights, data, rng=np.random.default_rng(seed))
    logits = outputs_by_hand(weights, data) @ data.outputs.T.astype(float)
    rows = np.arange(len(logits))
    right = logits[rows, data.target].copy()
    logits[rows, data.target] = -np.inf
    np.testing.assert_allclose(margins, right - logits.max(axis=1), rtol=1e-3, atol=1e-3)
    assert hard.shape == (len(logits), min(16, answers))
    best = logits.max(axis=1)
    found = np.where(np.asarray(hard) == data.target[:, None], -np.inf, logits[rows[:, None], hard])
    np.testing.assert_allclose(found.max(axis=1), best)


def test_loss_is_the_cross_entropy_over_distinct_answers_with_a_margin():
    data = random_data(3)
    weights = random_weights(data)
    drawn = jnp.asarray([0, 3, 5, 7], jnp.int32)
    hard = jnp.asarray(np.random.default_rng(0).integers(12, size=(30, 2)), jnp.int32)
    required = jnp.linspace(0, 1, 30)
    known = data.known.reshape(15, 2, 3).copy()
    known[:, 1, [0, 2]] = known[:, 0, [0, 2]]  # only relations differ
    pairs = ConfusedPairs.of(known)
    actual = jax.jit(loss_of_batch)(weights, data, pairs, drawn, hard, required, jnp.asarray(0.7))
    logits = 0.7 * outputs_by_hand(weights, data) @ data.outputs.T.astype(float)
    losses = []
    for fact, target in enumerate(data.target):
        others = [y for y in [*drawn.tolist(), *hard[fact].tolist()] if y != target]
        right = logits[fact, target] - 0.7 * float(required[fact])
        losses.append(-right + np.log(np.exp(right) + np.exp(logits[fact, others]).sum()))
    scores = data.noise.astype(float) @ np.asarray(weights.key, float).T
    penalty = 0.02 * np.sum(np.maximum(0, scores + 1.5) ** 2) / 3
    separation = 0.02 * float(separation_penalty(weights.key, data.tokens, pairs)) / 3
    assert min(penalty, separation) > 0.01
    penalty += separation
    assert float(actual) == pytest.approx(np.mean(losses) + penalty, rel=1e-4)


def test_keys_move_until_noise_scores_below_eos():
    data, sampled = random_data(0), 12
    state = State.start(random_weights(data))
    facts = jnp.tile(jnp.arange(30, dtype=jnp.int32), (1000, 1))
    required, hard = jnp.zeros(30), jnp.zeros((30, 1), jnp.int32)

    def violation(key):
        return float(np.max(data.noise @ np.asarray(key).T) + 1.5)

    for key_rate, holds in ((0.0, False), (0.1, True)):
        numbers = jax.tree.map(jnp.float32, RoundNumbers(1000, 1e-2, key_rate, 0.1))
        device_data = jax.tree.map(jnp.asarray, data)
        moved, _ = take_steps(
            state,
            device_data,
            ConfusedPairs.none(),
            facts,
            hard,
            required,
            numbers,
            jr.key(0),
            sampled,
        )
        assert violation(state.weights.key) > 1.5  # some noise scores above EOS
        assert (violation(moved.weights.key) < 1.0) == holds
        assert bool(jnp.array_equal(moved.weights.key, state.weights.key)) != holds


def test_strongest_noise_has_the_tokens_with_the_highest_scores(monkeypatch):
    monkeypatch.setattr(fit_module, "_MAX_NOISE", 3)
    rng = np.random.default_rng(0)
    noise, key = rng.normal(size=(10, 4)), rng.normal(size=(2, 4))
    strongest = _strongest_noise(jnp.asarray(noise, jnp.float32), jnp.asarray(key, jnp.float32))
    expected = np.sort(np.argsort((noise @ key.T).max(axis=1))[-3:])
    np.testing.assert_allclose(strongest, noise[expected], rtol=1e-6)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 1, 5), (2, 9, 4)])
def test_orthogonalized_matrices_have_nearly_equal_singular_values(shape):
    matrices = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    result = np.asarray(jax.jit(orthogonalize)(matrices), float)
    large, small = max(shape[-2:]), min(shape[-2:])
    values = np.linalg.svd(result, compute_uv=False) / np.sqrt(large / small)
    assert ((values > 0.5) & (values < 1.3)).all()
    # The same singular vectors: the product with the original is symmetric and positive.
    product = np.swapaxes(result, -1, -2) @ matrices
    np.testing.assert_allclose(product, np.swapaxes(product, -1, -2), atol=1e-3)
    assert (np.linalg.eigvalsh(product) > -1e-3).all()


@pytest.mark.parametrize("size", [0.0, 1e-25, 1e-20, 1e-15, 1e15])
def test_orthogonalized_matrices_do_not_depend_on_the_scale(size):
    matrix = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    result = jax.jit(orthogonalize)(np.float32(size) * matrix)
    expected = jax.jit(orthogonalize)(matrix) if size else np.zeros((6, 4))
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_batches_are_shuffled_epochs():
    batches = _Batches(10, np.empty(0, int), Schedule(4, 1), 7, RECORDS)
    facts = np.concatenate([batches[step] for step in range(5)])
    for epoch in (facts[:10], facts[10:]):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(10))
    assert (facts[:10] != facts[10:]).any()
    again = _Batches(10, np.empty(0, int), Schedule(4, 1), 7, RECORDS)
    np.testing.assert_array_equal(again[3], batches[3])  # whatever came before


def test_half_of_a_batch_are_weak_facts():
    batches = _Batches(10, np.array([2, 5]), Schedule(4, 1), 7, RECORDS)
    drawn = np.stack([batches[step] for step in range(5)])
    np.testing.assert_array_equal(np.sort(drawn[:, :2].ravel()), np.arange(10))
    assert set(drawn[:, 2:].ravel()) <= {2, 5}


def fit(data, schedule, **options):
    weights = random_weights(data)

    def margins(balanced: FittedWeights):
        return hardest_answers(
            jax.tree.map(jnp.float32, balanced), data, rng=np.random.default_rng(0)
        )[1]

    return fit_weights(weights, data, margins, schedule, seed=1, **options)


class Interruption(Exception):  # noqa: N818
    """Raised inside a fit."""


def test_interrupted_fit_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_module, "_STEP_FLOPS", 1)  # one step a call
    data, schedule = random_data(0), Schedule(8, 4, max_rounds=2, finish_epochs=3)
    whole = fit(data, schedule)
    for steps in (3, 9, 20):
        path = tmp_path / f"{steps}.safetensors"

        def interrupt(step, limit=steps, **values):
            if step == limit:
                raise Interruption

        with pytest.raises(Interruption):
            fit(data, schedule, report=interrupt, checkpoint=path)
        seen = []
        resumed = fit(data, schedule, report=lambda n, s=seen, **v: s.append(n), checkpoint=path)
        assert 1 < seen[0] <= steps or steps < 4
        for left, right in zip(resumed.weights, whole.weights, strict=True):
            np.testing.assert_array_equal(left, right)
        assert resumed.steps == whole.steps
    with pytest.raises(FactmemError, match="belongs to another"):
        fit(random_data(1), schedule, checkpoint=path)


def compile_table(sizes, shape, monkeypatch, seed=0):
    for module in ("compiler", "fit"):
        monkeypatch.setattr(f"factmem.transformer.compiler.{module}.MAX_FULL_BATCH_FACTS", 0)
    prompts = PromptDistribution.from_table(FactTable.random(*sizes, seed=seed))
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(shape.dim, prompts.vocabulary, EXPERIMENT_CONVENTION, key=embedding_key)
    return prompts, compile_facts(prompts, phi, shape, key=key)


def test_compiles_by_minibatches(monkeypatch):
    prompts, result = compile_table((12, 12, 4), Shape(24, 24, 1, 40), monkeypatch)
    assert result.status is CompileStatus.CERTIFIED
    assert result.fit_status is FitStatus.CONDITION_MET
    recalled = recall(result.model, prompts, key=jr.key(1), prompts_per_fact=10)
    assert recalled.accuracy == 1.0
    assert recalled.min_margin >= result.certificate.min_certified_margin > 0


def test_too_small_a_shape_ends_uncertified(monkeypatch):
    monkeypatch.setattr(
        Schedule, "default", staticmethod(lambda facts, load: Schedule(64, 3, max_rounds=2))
    )
    _, result = compile_table((12, 12, 4), Shape(16, 4, 1, 1), monkeypatch)
    assert result.status is CompileStatus.NOT_CERTIFIED
    assert result.fit_status is FitStatus.ITERATION_LIMIT
    assert 0 < result.certificate.certified_accuracy < 1


@pytest.mark.parametrize(
    ("facts", "load", "batch_size"),
    [(3, 0.1, 3), (900, 0.7, 900), (3600, 0.6, 64), (27430, 0.9, 512)],
)
def test_default_schedule(facts, load, batch_size):
    schedule = Schedule.default(facts, load)
    assert schedule.batch_size == batch_size
    assert Schedule.default(facts, 2 * load).epochs >= schedule.epochs
    if facts > 2000:
        assert schedule.epochs * facts >= 3000 * batch_size
        assert Schedule.default(facts, 0.3).epochs == 40


@pytest.mark.parametrize(
    ("records", "count", "wrong", "epochs", "rate", "finishes"),
    [
        # Few facts are left: a finish. It mended most of them: another, more gently.
        (RECORDS, 50, 40, 15, 0.3e-2, 1),
        (RECORDS._replace(finishes=1, open_facts=50), 20, 10, 15, 0.18e-2, 2),
        # It mended less than half, or many are left: a full round.
        (RECORDS._replace(finishes=1, open_facts=50), 30, 20, 60, 1e-2, 0),
        (RECORDS, 200, 150, 60, 1e-2, 0),
        # Only noise and rounding errors are in the way: half a round.
        (RECORDS, 200, 50, 20, 1e-2, 0),
    ],
)
def test_next_round(records, count, wrong, epochs, rate, finishes):
    plan = _next_round(records, 7, count, wrong, 1000, Schedule(10, 40))
    assert (plan.round, plan.steps_before, plan.epochs) == (records.round + 1, 7, epochs)
    assert plan.rate == pytest.approx(rate)
    assert plan.finishes == finishes
    assert plan.trains_keys == (finishes == 0)
    assert plan.full_rounds == records.full_rounds + (finishes == 0)
    assert (plan.open_facts, plan.fewest) == (count, min(records.fewest, count))
