"""SGD: its steps, its limit of small rates, and divergence."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests.dynamics import small_problem
from tests.dynamics.exact_flows import exact_flow

from factmem._core.errors import FactmemError
from factmem.dynamics import (
    LinearAttention,
    PromptSample,
    SGDStatus,
    SoftmaxHead,
    find_stages,
    sgd,
)
from factmem.facts import FactTable, PromptDistribution

PROMPTS = PromptDistribution.from_table(
    small_problem.TABLE, noise=small_problem.N, length=small_problem.T
)
TEST_PROMPTS = PromptSample.draw(
    small_problem.make_population(), PROMPTS, prompts_per_fact=8, key=jr.key(0)
)
START = LinearAttention.random(small_problem.TOKENS, small_problem.ANSWERS, 0.5, 0)


def train(start=START, seed=3, rate=0.25, steps=1, batch_size=6, **options):
    key = jr.key(seed)
    return sgd(
        start,
        PROMPTS,
        TEST_PROMPTS,
        key=key,
        learning_rate=rate,
        steps=steps,
        batch_size=batch_size,
        **options,
    )


def reference_step(ov_before, kq_before, key):
    """Do one step with rate 0.25 and the 6 prompts of a key, prompt by prompt."""
    batch = PROMPTS.sample_batch(6, form="counts", key=key)
    ov, kq = ov_before.copy(), kq_before.copy()
    for counts, answer in zip(np.asarray(batch.content), batch.answers, strict=True):
        tokens = np.repeat(np.arange(small_problem.TOKENS), counts)
        error = -small_problem.predict(ov_before, kq_before, tokens)
        error[answer] += 1
        for z in tokens:
            ov[z] += 0.25 / 6 * kq_before[z] * error
            kq[z] += 0.25 / 6 * ov_before[z] @ error
    return ov, kq


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_subtract_rate_times_the_mean_gradient(steps):
    """Every step has its own prompts, whichever steps are recorded."""
    result = train(steps=steps)
    ov, kq = START.ov, START.kq
    for number in range(steps):
        ov, kq = reference_step(ov, kq, jr.fold_in(jr.key(3), number))
    assert np.allclose(result.model.ov, ov, atol=1e-5)
    assert np.allclose(result.model.kq, kq, atol=1e-5)
    assert result.times.tolist() == [0, 0.25, 0.5, 0.75][: steps + 1]


def test_times_are_steps_times_rate_and_losses_are_on_the_test_prompts():
    result = train(seed=1, rate=0.5, steps=2000, times=np.array([0.0004, 0.3337]))
    steps = result.times / 0.5
    assert np.allclose(steps, np.rint(steps))
    assert {0, 1, 667, 2000} <= set(np.rint(steps))
    assert len(steps) == len(set(steps)) <= 515
    assert result.steps == 2000
    assert result.status is SGDStatus.STEP_LIMIT
    counts = jnp.asarray(TEST_PROMPTS.counts)
    log_probabilities = np.asarray(jax.nn.log_softmax(result.model.logits(counts), axis=1))
    losses = -np.take_along_axis(log_probabilities, TEST_PROMPTS.answer_ids[:, None], 1)[:, 0]
    assert result.loss[-1] == pytest.approx(TEST_PROMPTS.probabilities @ losses, abs=1e-5)
    assert result.metrics == {"steps": 2000, "loss": float(result.loss[-1])}


def test_prompts_depend_on_the_key():
    weights = [train(seed=seed).model.kq for seed in (0, 0, 1)]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


def test_sgd_follows_the_flow():
    """With larger initial weights than the paper's, so that it converges early."""
    table = FactTable.structured(8, 2, 4)
    flow, population = exact_flow(table, length=8, scale=1e-2, until=200.0)
    prompts = PromptDistribution.from_table(table, length=8)
    _, test_key, training_key = jr.split(jr.key(0), 3)
    test_prompts = PromptSample.draw(population, prompts, prompts_per_fact=64, key=test_key)
    start = LinearAttention.equal(prompts.vocabulary.prompt_tokens, table.answers, 1e-2)
    result = sgd(
        start,
        prompts,
        test_prompts,
        key=training_key,
        learning_rate=0.1,
        steps=2000,
        batch_size=256,
    )
    difference = np.abs(result.loss - flow.loss[flow.nearest(result.times)])
    assert difference.max() < 0.1
    assert result.loss[-1] < 0.1
    stages, exact = (find_stages(curves, population) for curves in (result, flow))
    assert stages.init_end == pytest.approx(exact.init_end, rel=0.05)
    assert stages.hallucination_end == pytest.approx(exact.hallucination_end, rel=0.05)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rejects_rates_that_are_not_positive(rate):
    with pytest.raises(FactmemError, match="learning_rate must be positive and finite, got"):
        train(rate=rate, steps=10)


@pytest.mark.parametrize("rate", [300.0, 1e30])
def test_reports_divergence(rate):
    start = LinearAttention.equal(small_problem.TOKENS, small_problem.ANSWERS, 0.5)
    with pytest.raises(FactmemError, match=r"diverged before step \d+; use a smaller one"):
        train(start, seed=0, rate=rate, steps=100)


def test_reports_divergence_of_finite_losses():
    """A softmax head does not overflow: its loss fluctuates by hundreds of nats."""
    start = SoftmaxHead.equal(small_problem.TOKENS, small_problem.ANSWERS, 6, 0.1, key=jr.key(0))
    with pytest.raises(FactmemError, match="diverged"):
        train(start, seed=0, rate=1e4, steps=100)
