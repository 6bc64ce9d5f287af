"""Memories trained by the paper's protocol: Adam by hand, stacks, outcomes."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.memories import Associations, LinearMemory
from factmem.training import (
    LINEAR_PROTOCOL,
    MLP_PROTOCOL,
    MemoryProtocol,
    TrainingOutcome,
    linear_start,
    memories,
    mlp_start,
    train_memories,
)

PAIRS = Associations.draw(jr.key(0), 12, 8, outputs=15, target="permutation")


def test_the_protocols_are_those_of_the_figures():
    assert (LINEAR_PROTOCOL.learning_rate, LINEAR_PROTOCOL.steps) == (1000, 2**12)
    assert (MLP_PROTOCOL.learning_rate, MLP_PROTOCOL.steps) == (3e-2, 2**15)
    for protocol in (LINEAR_PROTOCOL, MLP_PROTOCOL):
        assert (protocol.checks, protocol.criterion) == (128, 0.99)


def adam_by_hand(matrix, rate, steps):
    """Full-batch cross-entropy and Adam (β = 0.9, 0.999, ε = 1e-8), in float64 numpy."""
    keys, values = np.asarray(PAIRS.keys, float), np.asarray(PAIRS.values, float)
    onehot = np.eye(15)[np.asarray(PAIRS.target)]
    first = second = np.zeros_like(matrix)
    for step in range(1, steps + 1):
        logits = keys @ matrix.T @ values.T
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        slope = values.T @ (chances - onehot).T @ keys / len(keys)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        mean, spread = first / (1 - 0.9**step), second / (1 - 0.999**step)
        matrix = matrix - rate * mean / (np.sqrt(spread) + 1e-8)
    return matrix


def test_a_few_steps_are_those_of_adam_on_the_mean_cross_entropy():
    start = linear_start(jr.key(1), 8)
    protocol = MemoryProtocol(learning_rate=0.05, steps=5, checks=1, criterion=1.0)
    (run,) = train_memories([start], [PAIRS], protocol)
    expected = adam_by_hand(np.asarray(start.matrix, float), 0.05, 5)
    np.testing.assert_allclose(run.memory.matrix, expected, rtol=1e-3, atol=1e-4)
    assert run.steps == 5


def test_the_loss_is_the_mean_cross_entropy_in_nats():
    (run,) = train_memories(
        [LinearMemory(jnp.zeros((8, 8)))], [PAIRS], MemoryProtocol(1e-30, steps=1, checks=1)
    )
    assert run.loss == pytest.approx(np.log(15))


def test_a_linear_memory_learns_and_ends_at_the_first_success():
    reports = []
    (run,) = train_memories(
        [linear_start(jr.key(1), 8)],
        [PAIRS],
        LINEAR_PROTOCOL,
        lambda steps, accuracy: reports.append((steps, accuracy)),
    )
    assert run.outcome is TrainingOutcome.REACHED
    assert run.accuracy == run.best_accuracy == run.memory.score(PAIRS).accuracy == 1
    assert run.steps == reports[-1][0] < LINEAR_PROTOCOL.steps
    assert run.steps % 32 == 0


def test_an_mlp_learns_shared_answers():
    pairs = Associations.draw(jr.key(0), 64, 8, outputs=4)
    (run,) = train_memories([mlp_start(jr.key(1), 8, 32)], [pairs], MLP_PROTOCOL)
    assert run.outcome is TrainingOutcome.REACHED
    assert run.memory.score(pairs).accuracy >= 0.99


def test_too_many_facts_use_all_steps():
    pairs = Associations.draw(jr.key(0), 60, 4)
    protocol = MemoryProtocol(learning_rate=1000.0, steps=64, checks=2)
    (run,) = train_memories([linear_start(jr.key(1), 4)], [pairs], protocol)
    assert run.outcome is TrainingOutcome.STEPS
    assert run.steps == 64
    assert run.accuracy <= run.best_accuracy < 0.99


def test_runs_of_a_stack_do_not_disturb_each_other():
    """One diverges at once, one succeeds soon, one late: each as if alone."""
    protocol = MemoryProtocol(learning_rate=0.01, steps=1024, checks=32, criterion=1.0)
    easy = LinearMemory(1e3 * jnp.linalg.lstsq(PAIRS.keys, PAIRS.answers)[0].T)
    slow = LinearMemory(-jnp.matmul(PAIRS.answers.T, PAIRS.keys))
    starts = [easy, LinearMemory(jnp.full((8, 8), jnp.nan)), slow]
    stack = train_memories(starts, [PAIRS] * 3, protocol)
    for run, start in zip(stack, starts, strict=True):
        (alone,) = train_memories([start], [PAIRS], protocol)
        assert (run.outcome, run.steps) == (alone.outcome, alone.steps)
        np.testing.assert_allclose(
            run.memory.matrix, alone.memory.matrix, rtol=1e-2, atol=1e-2, equal_nan=True
        )
    assert stack[1].outcome is TrainingOutcome.DIVERGED
    assert stack[1].accuracy == 0
    assert [run.outcome for run in stack[::2]] == [TrainingOutcome.REACHED] * 2
    assert len({run.steps for run in stack}) == 3


def test_best_accuracy_is_the_largest_of_all_checks(monkeypatch):
    found = iter([0.5, 0.8, 0.3])
    monkeypatch.setattr(
        memories, "_measure", lambda stack, data: (jnp.zeros(1), jnp.array([next(found)]))
    )
    protocol = MemoryProtocol(learning_rate=1e-3, steps=3, checks=3)
    (run,) = train_memories([linear_start(jr.key(1), 8)], [PAIRS], protocol)
    assert run.best_accuracy == pytest.approx(0.8)
    assert run.accuracy == pytest.approx(0.3)


def test_the_worst_run_of_a_stack_is_reported(monkeypatch):
    monkeypatch.setattr(
        memories, "_measure", lambda stack, data: (jnp.zeros(2), jnp.array([0.5, 0.25]))
    )
    reports = []
    train_memories(
        [linear_start(jr.key(seed), 8) for seed in range(2)],
        [PAIRS, PAIRS],
        MemoryProtocol(learning_rate=1e-3, steps=2, checks=2),
        lambda steps, accuracy: reports.append((steps, accuracy)),
    )
    assert reports == [(1, 0.25), (2, 0.25)]


def test_an_accuracy_at_the_criterion_is_a_success(monkeypatch):
    monkeypatch.setattr(memories, "_measure", lambda stack, data: (jnp.zeros(1), jnp.array([0.5])))
    protocol = MemoryProtocol(learning_rate=1e-3, steps=3, checks=3, criterion=0.5)
    (run,) = train_memories([linear_start(jr.key(1), 8)], [PAIRS], protocol)
    assert (run.outcome, run.steps) == (TrainingOutcome.REACHED, 1)


def test_a_learning_rate_is_data_and_never_compiled_in():
    before = memories._train._cache_size()
    for rate in (0.1, 0.2, 0.4):
        protocol = MemoryProtocol(learning_rate=rate, steps=7, checks=1)
        train_memories([linear_start(jr.key(1), 8)], [PAIRS], protocol)
    assert memories._train._cache_size() == before + 1


def test_logits_may_be_huge():
    """log(softmax) would be log 0; log-softmax is finite."""
    (run,) = train_memories(
        [LinearMemory(1e6 * linear_start(jr.key(1), 8).matrix)],
        [PAIRS],
        MemoryProtocol(learning_rate=1000.0, steps=1, checks=1),
    )
    assert np.isfinite(run.loss)
    assert run.loss > 1e4


def test_starts_have_the_variance_of_the_authors():
    assert np.asarray(linear_start(jr.key(0), 200).matrix).std() == pytest.approx(
        200**-0.5, rel=0.02
    )
    mlp = mlp_start(jr.key(0), 50, 800)
    assert np.asarray(mlp.into).std() == pytest.approx(50**-0.5, rel=0.02)
    assert np.asarray(mlp.out).std() == pytest.approx(800**-0.5, rel=0.02)
    assert (mlp.bias == 0).all()
    assert mlp.parameters == 2 * 50 * 800 + 800


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0, "steps": 128}, "positive"),
        ({"learning_rate": float("nan"), "steps": 128}, "positive"),
        ({"learning_rate": 1.0, "steps": 100}, "equal distances"),
        ({"learning_rate": 1.0, "steps": 0}, "equal distances"),
        ({"learning_rate": 1.0, "steps": 128, "criterion": 1.5}, "up to 1"),
    ],
)
def test_impossible_protocols_are_refused(options, message):
    with pytest.raises(FactmemError, match=message):
        MemoryProtocol(**options)


def test_runs_of_different_shapes_are_refused():
    other = Associations.draw(jr.key(0), 11, 8)
    starts = [linear_start(jr.key(s), 8) for s in range(2)]
    with pytest.raises(FactmemError, match="same shape"):
        train_memories(starts, [PAIRS, other], LINEAR_PROTOCOL)
    with pytest.raises(FactmemError, match="for each memory"):
        train_memories(starts, [PAIRS], LINEAR_PROTOCOL)
    with pytest.raises(FactmemError, match="at least one"):
        train_memories([], [], LINEAR_PROTOCOL)


def test_no_dimensions_are_refused():
    with pytest.raises(FactmemError, match="at least one dimension"):
        linear_start(jr.key(0), 0)


def test_no_neurons_are_refused():
    with pytest.raises(FactmemError, match="at least one neuron"):
        mlp_start(jr.key(0), 4, 0)


def test_scores_of_a_large_stack_are_not_all_in_memory():
    facts, runs = 4096, 2
    many = Associations(jnp.zeros((facts, 4)), jnp.zeros((facts, 4)), jnp.zeros(facts, jnp.int32))
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf] * runs), many)
    start = jax.tree.map(lambda leaf: jnp.stack([leaf] * runs), linear_start(jr.key(0), 4))
    state = jax.vmap(memories._ADAM.init)(start)
    lowered = memories._train.lower(start, state, stack, jnp.ones(()), 2)
    used = lowered.compile().memory_analysis()
    assert used.temp_size_in_bytes < runs * facts * facts * 4 / 2
