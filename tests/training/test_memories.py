"""Training of memories: a reference Adam in numpy, stacks, statuses."""

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
    TrainingStatus,
    init_linear_memory,
    init_mlp_memory,
    memories,
    train_memories,
)

PAIRS = Associations.draw(12, 8, outputs=15, target="permutation", key=jr.key(0))


def test_protocols_match_the_paper():
    assert (LINEAR_PROTOCOL.learning_rate, LINEAR_PROTOCOL.steps) == (1000, 2**12)
    assert (MLP_PROTOCOL.learning_rate, MLP_PROTOCOL.steps) == (3e-2, 2**15)
    for protocol in (LINEAR_PROTOCOL, MLP_PROTOCOL):
        assert (protocol.evaluations, protocol.criterion) == (128, 0.99)


def numpy_adam(matrix, rate, steps):
    """Full-batch cross-entropy and Adam (β = 0.9, 0.999, ε = 1e-8), in float64 numpy."""
    keys, values = np.asarray(PAIRS.keys, float), np.asarray(PAIRS.values, float)
    onehot = np.eye(15)[np.asarray(PAIRS.target)]
    first = second = np.zeros_like(matrix)
    for step in range(1, steps + 1):
        logits = keys @ matrix.T @ values.T
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        gradient = values.T @ (probabilities - onehot).T @ keys / len(keys)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        mean, spread = first / (1 - 0.9**step), second / (1 - 0.999**step)
        matrix = matrix - rate * mean / (np.sqrt(spread) + 1e-8)
    return matrix


def test_steps_match_adam_in_numpy():
    start = init_linear_memory(8, key=jr.key(1))
    protocol = MemoryProtocol(learning_rate=0.05, steps=5, evaluations=1, criterion=1.0)
    (run,) = train_memories([start], [PAIRS], protocol)
    expected = numpy_adam(np.asarray(start.matrix, float), 0.05, 5)
    np.testing.assert_allclose(run.model.matrix, expected, rtol=1e-3, atol=1e-4)
    assert run.steps == 5


def test_loss_is_the_mean_cross_entropy_in_nats():
    (run,) = train_memories(
        [LinearMemory(jnp.zeros((8, 8)))], [PAIRS], MemoryProtocol(1e-30, steps=1, evaluations=1)
    )
    assert run.loss == pytest.approx(np.log(15))


def test_linear_memory_ends_at_its_first_success():
    reports = []
    (run,) = train_memories(
        [init_linear_memory(8, key=jr.key(1))],
        [PAIRS],
        LINEAR_PROTOCOL,
        report=lambda steps, accuracy: reports.append((steps, accuracy)),
    )
    assert run.status is TrainingStatus.CRITERION_REACHED
    assert run.accuracy == run.best_accuracy == run.model.score(PAIRS).accuracy == 1
    assert run.steps == reports[-1][0] < LINEAR_PROTOCOL.steps
    assert run.steps % 32 == 0


def test_mlp_learns_shared_answers():
    pairs = Associations.draw(64, 8, outputs=4, key=jr.key(0))
    (run,) = train_memories([init_mlp_memory(8, 32, key=jr.key(1))], [pairs], MLP_PROTOCOL)
    assert run.status is TrainingStatus.CRITERION_REACHED
    assert run.model.score(pairs).accuracy >= 0.99


def test_too_many_facts_reach_the_step_limit():
    pairs = Associations.draw(60, 4, key=jr.key(0))
    protocol = MemoryProtocol(learning_rate=1000.0, steps=64, evaluations=2)
    (run,) = train_memories([init_linear_memory(4, key=jr.key(1))], [pairs], protocol)
    assert run.status is TrainingStatus.STEP_LIMIT
    assert run.steps == 64
    assert run.accuracy <= run.best_accuracy < 0.99


def test_runs_of_a_stack_are_independent():
    """One diverges at once, one succeeds early, one late."""
    protocol = MemoryProtocol(learning_rate=0.01, steps=1024, evaluations=32, criterion=1.0)
    easy = LinearMemory(1e3 * jnp.linalg.lstsq(PAIRS.keys, PAIRS.answers)[0].T)
    slow = LinearMemory(-jnp.matmul(PAIRS.answers.T, PAIRS.keys))
    starts = [easy, LinearMemory(jnp.full((8, 8), jnp.nan)), slow]
    stack = train_memories(starts, [PAIRS] * 3, protocol)
    for run, start in zip(stack, starts, strict=True):
        (alone,) = train_memories([start], [PAIRS], protocol)
        assert (run.status, run.steps) == (alone.status, alone.steps)
        np.testing.assert_allclose(
            run.model.matrix, alone.model.matrix, rtol=1e-2, atol=1e-2, equal_nan=True
        )
    assert stack[1].status is TrainingStatus.DIVERGED
    assert stack[1].accuracy == 0
    assert [run.status for run in stack[::2]] == [TrainingStatus.CRITERION_REACHED] * 2
    assert len({run.steps for run in stack}) == 3


def test_best_accuracy_is_the_maximum_over_checks(monkeypatch):
    accuracies = iter([0.5, 0.8, 0.3])
    monkeypatch.setattr(
        memories, "_evaluate", lambda stack, data: (jnp.zeros(1), jnp.array([next(accuracies)]))
    )
    protocol = MemoryProtocol(learning_rate=1e-3, steps=3, evaluations=3)
    (run,) = train_memories([init_linear_memory(8, key=jr.key(1))], [PAIRS], protocol)
    assert run.best_accuracy == pytest.approx(0.8)
    assert run.accuracy == pytest.approx(0.3)


def test_reports_the_smallest_accuracy(monkeypatch):
    monkeypatch.setattr(
        memories, "_evaluate", lambda stack, data: (jnp.zeros(2), jnp.array([0.5, 0.25]))
    )
    reports = []
    train_memories(
        [init_linear_memory(8, key=jr.key(seed)) for seed in range(2)],
        [PAIRS, PAIRS],
        MemoryProtocol(learning_rate=1e-3, steps=2, evaluations=2),
        report=lambda steps, accuracy: reports.append((steps, accuracy)),
    )
    assert reports == [(1, 0.25), (2, 0.25)]


def test_accuracy_at_the_criterion_is_success(monkeypatch):
    monkeypatch.setattr(memories, "_evaluate", lambda stack, data: (jnp.zeros(1), jnp.array([0.5])))
    protocol = MemoryProtocol(learning_rate=1e-3, steps=3, evaluations=3, criterion=0.5)
    (run,) = train_memories([init_linear_memory(8, key=jr.key(1))], [PAIRS], protocol)
    assert (run.status, run.steps) == (TrainingStatus.CRITERION_REACHED, 1)


def test_learning_rate_is_not_compiled_in():
    before = memories._train._cache_size()
    for rate in (0.1, 0.2, 0.4):
        protocol = MemoryProtocol(learning_rate=rate, steps=7, evaluations=1)
        train_memories([init_linear_memory(8, key=jr.key(1))], [PAIRS], protocol)
    assert memories._train._cache_size() == before + 1


def test_loss_of_huge_logits_is_finite():
    """The log of a softmax would be log 0; log-softmax is finite."""
    (run,) = train_memories(
        [LinearMemory(1e6 * init_linear_memory(8, key=jr.key(1)).matrix)],
        [PAIRS],
        MemoryProtocol(learning_rate=1000.0, steps=1, evaluations=1),
    )
    assert np.isfinite(run.loss)
    assert run.loss > 1e4


def test_initial_weights_have_the_authors_variance():
    assert np.asarray(init_linear_memory(200, key=jr.key(0)).matrix).std() == pytest.approx(
        200**-0.5, rel=0.02
    )
    mlp = init_mlp_memory(50, 800, key=jr.key(0))
    assert np.asarray(mlp.into).std() == pytest.approx(50**-0.5, rel=0.02)
    assert np.asarray(mlp.out).std() == pytest.approx(800**-0.5, rel=0.02)
    assert (mlp.bias == 0).all()
    assert mlp.parameters == 2 * 50 * 800 + 800


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0, "steps": 128}, "positive"),
        ({"learning_rate": float("nan"), "steps": 128}, "positive"),
        ({"learning_rate": 1.0, "steps": 100}, "positive multiple of evaluations"),
        ({"learning_rate": 1.0, "steps": 0}, "positive multiple of evaluations"),
        ({"learning_rate": 1.0, "steps": 128, "criterion": 1.5}, "at most 1"),
    ],
)
def test_rejects_invalid_protocols(options, message):
    with pytest.raises(FactmemError, match=message):
        MemoryProtocol(**options)


def test_rejects_runs_of_different_shapes():
    other = Associations.draw(11, 8, key=jr.key(0))
    starts = [init_linear_memory(8, key=jr.key(s)) for s in range(2)]
    with pytest.raises(FactmemError, match="same shape"):
        train_memories(starts, [PAIRS, other], LINEAR_PROTOCOL)
    with pytest.raises(FactmemError, match="for each memory"):
        train_memories(starts, [PAIRS], LINEAR_PROTOCOL)
    with pytest.raises(FactmemError, match="at least one"):
        train_memories([], [], LINEAR_PROTOCOL)


def test_rejects_dim_0():
    with pytest.raises(FactmemError, match="dim must be at least 1, got 0"):
        init_linear_memory(0, key=jr.key(0))


def test_rejects_width_0():
    with pytest.raises(FactmemError, match="width must be at least 1"):
        init_mlp_memory(4, 0, key=jr.key(0))


def test_scores_of_a_large_stack_are_computed_in_blocks():
    facts, runs = 4096, 2
    associations = Associations(
        jnp.zeros((facts, 4)), jnp.zeros((facts, 4)), jnp.zeros(facts, jnp.int32)
    )
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf] * runs), associations)
    start = jax.tree.map(
        lambda leaf: jnp.stack([leaf] * runs), init_linear_memory(4, key=jr.key(0))
    )
    state = jax.vmap(memories._ADAM.init)(start)
    lowered = memories._train.lower(start, state, stack, jnp.ones(()), 2)
    used = lowered.compile().memory_analysis()
    assert used.temp_size_in_bytes < runs * facts * facts * 4 / 2
