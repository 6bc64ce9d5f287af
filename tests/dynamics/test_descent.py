"""Descent takes the steps that it says, follows the flow, and says so when it diverges."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests.dynamics import small

from factmem._core.errors import FactmemError
from factmem.dynamics import (
    LinearAttention,
    Population,
    PromptSample,
    SoftmaxHead,
    descend,
    find_stages,
)
from factmem.experiments import FlowSpec
from factmem.facts import FactTable, PromptDistribution

ASKED = PromptDistribution.of(small.TABLE, noise=small.N, length=small.T)
TESTED = PromptSample.draw(
    jr.key(0), Population.of(small.TABLE, noise=small.N, length=small.T), ASKED, 8
)


def test_a_step_is_rate_times_the_mean_gradient_over_a_batch():
    start = LinearAttention.random(small.TOKENS, small.ANSWERS, 0.5, 0)
    key = jr.key(3)
    after = descend(start, ASKED, TESTED, key, rate=0.25, steps=1, batch=6).end
    ov, kq = stepped(start.ov, start.kq, jr.fold_in(key, 0))
    assert np.allclose(after.ov, ov, atol=1e-5)
    assert np.allclose(after.kq, kq, atol=1e-5)


def test_every_step_has_its_own_prompts_wherever_losses_are_measured():
    start = LinearAttention.random(small.TOKENS, small.ANSWERS, 0.5, 0)
    key = jr.key(3)
    after = descend(start, ASKED, TESTED, key, rate=0.25, steps=3, batch=6)
    ov, kq = start.ov, start.kq
    for number in range(3):
        ov, kq = stepped(ov, kq, jr.fold_in(key, number))
    assert np.allclose(after.end.ov, ov, atol=1e-5)
    assert np.allclose(after.end.kq, kq, atol=1e-5)
    assert after.times.tolist() == [0, 0.25, 0.5, 0.75]


def stepped(ov_before, kq_before, key):
    """One step of rate 0.25 with the 6 prompts of a key, prompt by prompt."""
    prompts = ASKED.sample(key, 6, form="counts")
    ov, kq = ov_before.copy(), kq_before.copy()
    for counts, answer in zip(np.asarray(prompts.content), prompts.answers, strict=True):
        tokens = np.repeat(np.arange(small.TOKENS), counts)
        off = -small.predicted(ov_before, kq_before, tokens)
        off[answer] += 1
        for z in tokens:
            ov[z] += 0.25 / 6 * kq_before[z] * off
            kq[z] += 0.25 / 6 * ov_before[z] @ off
    return ov, kq


def test_times_are_steps_times_rate_and_losses_those_of_the_fixed_prompts():
    start = LinearAttention.random(small.TOKENS, small.ANSWERS, 0.5, 0)
    asked = np.array([0.0004, 0.3337])
    found = descend(start, ASKED, TESTED, jr.key(1), rate=0.5, steps=2000, batch=6, times=asked)
    steps = found.times / 0.5
    assert np.allclose(steps, np.rint(steps))
    assert {0, 1, 667, 2000} <= set(np.rint(steps))
    assert len(steps) == len(set(steps)) <= 515
    assert found.steps == 2000
    counts = jnp.asarray(TESTED.counts)
    log_probabilities = jax.nn.log_softmax(found.end.logits(counts), axis=1)
    own = -np.take_along_axis(np.asarray(log_probabilities), TESTED.answers[:, None], 1)[:, 0]
    assert found.loss[-1] == pytest.approx(TESTED.chances @ own, abs=1e-5)


def test_other_keys_draw_other_prompts():
    start = LinearAttention.random(small.TOKENS, small.ANSWERS, 0.5, 0)
    steps = {"rate": 0.25, "steps": 1, "batch": 6}
    ends = [descend(start, ASKED, TESTED, jr.key(seed), **steps).end.kq for seed in (0, 0, 1)]
    assert (ends[0] == ends[1]).all()
    assert (ends[0] != ends[2]).any()


def test_descent_follows_the_flow():
    """From larger weights than the paper's, so that it is over soon."""
    experiment = FlowSpec(FactTable.structured(8, 2, 4), length=8, scale=1e-2)
    descent = experiment.descent(rate=0.1, steps=2000, batch=256)
    flow = experiment.flow(until=200.0)
    gap = np.abs(descent.loss - flow.loss[flow.nearest(descent.times)])
    assert gap.max() < 0.1
    assert descent.loss[-1] < 0.1
    ours, exact = (find_stages(c, experiment.population) for c in (descent, flow))
    assert ours.init_end == pytest.approx(exact.init_end, rel=0.05)
    assert ours.hallucination_end == pytest.approx(exact.hallucination_end, rel=0.05)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate):
    start = LinearAttention.equal(small.TOKENS, small.ANSWERS, 0.1)
    with pytest.raises(FactmemError, match="a rate is a number above 0"):
        descend(start, ASKED, TESTED, jr.key(0), rate=rate, steps=10)


@pytest.mark.parametrize("rate", [300.0, 1e30])
def test_steps_that_diverge_are_reported(rate):
    start = LinearAttention.equal(small.TOKENS, small.ANSWERS, 0.5)
    with pytest.raises(FactmemError, match=r"training diverges before step \d+: take a smaller"):
        descend(start, ASKED, TESTED, jr.key(0), rate=rate, steps=100, batch=6)


def test_a_loss_that_is_finite_and_growing_diverges_too():
    """Softmax heads do not overflow: their losses go up and down by hundreds of nats."""
    start = SoftmaxHead.start(jr.key(0), small.TOKENS, small.ANSWERS, 6, 0.1)
    with pytest.raises(FactmemError, match="training diverges"):
        descend(start, ASKED, TESTED, jr.key(0), rate=1e4, steps=100, batch=6)
