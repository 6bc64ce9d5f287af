"""Fitted MLPs: complete where the width suffices, gentle where it does not."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import logsumexp

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import Outcome
from factmem.memories import (
    Associations,
    BilinearMemory,
    Fitted,
    LinearMemory,
    MLPMemory,
    fitted,
    fitted_bilinear,
    fitted_features,
    fitted_relu,
    rounded,
)

PAIRS = Associations.draw(jr.key(0), 100, 16, target="permutation")
ENOUGH = {fitted_features: 48, fitted_relu: 20, fitted_bilinear: 12}


@pytest.mark.parametrize("fit", ENOUGH)
def test_enough_neurons_recall_everything_with_weights_of_16_bits(fit):
    found = fit(jr.key(1), PAIRS, ENOUGH[fit])
    assert found.complete
    assert found.memory.score(PAIRS).accuracy == 1
    rough = rounded(found.memory, 16)
    assert rough.score(PAIRS).accuracy == 1
    # Every margin is at least 10⁻⁴ of the outputs' root mean square.
    outputs = np.asarray(rough.outputs(PAIRS.keys), float)
    size = np.sqrt((outputs**2).sum(axis=1).mean())
    assert np.asarray(rough.margins(PAIRS)).min() >= 1e-4 * size * (1 - 1e-3)


def test_the_readout_of_random_features_brings_every_margin_to_one():
    found = fitted_features(jr.key(1), PAIRS, ENOUGH[fitted_features])
    assert found.outcome is Outcome.FLAT
    assert found.memory.score(PAIRS).min_margin == pytest.approx(1, abs=0.02)


def test_the_fit_has_no_scale():
    """Weights end at root mean square 1, whatever the loss made of them on the way."""
    memory = fitted_bilinear(jr.key(1), PAIRS, ENOUGH[fitted_bilinear]).memory
    assert isinstance(memory, BilinearMemory)
    for weights in (memory.left, memory.right, memory.out):
        assert np.sqrt(np.mean(np.asarray(weights) ** 2)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("fit", [fitted_relu, fitted_bilinear])
def test_the_convex_solution_is_a_start_as_well(fit):
    found = fit(jr.key(1), PAIRS, ENOUGH[fit], start="convex")
    assert found.complete
    assert found.memory.score(PAIRS).accuracy == 1


def test_the_bilinear_memory_needs_the_fewest_numbers():
    """Fewer than a linear memory may have, 256 at d = 16, which stores some 60."""
    found = fitted_bilinear(jr.key(1), Associations.draw(jr.key(0), 60, 16), 5)
    assert found.complete
    assert found.memory.parameters == 3 * 5 * 16 < 16**2


def test_past_the_limit_most_keys_are_kept_all_the_same():
    """A squared loss would collapse: the 5 neurons of a memory of 100 keys keep a third with it."""
    found = fitted_bilinear(jr.key(1), PAIRS, 5)
    assert not found.complete
    assert found.outcome is not Outcome.ENOUGH
    assert 0.75 < found.memory.score(PAIRS).accuracy < 1


def test_progress_counts_all_stages():
    reports = []
    found = fitted_bilinear(
        jr.key(1), PAIRS, 5, iterations=25, report=lambda steps, loss: reports.append(steps)
    )
    assert reports == sorted(reports)
    assert reports[-1] == found.iterations == 8 * 25


def test_features_stay_random_and_only_the_readout_is_fitted():
    found = fitted_features(jr.key(1), PAIRS, 48)
    assert isinstance(found.memory, MLPMemory)
    np.testing.assert_array_equal(found.memory.into, jr.normal(jr.key(1), (48, 16)))


def test_memories_are_those_of_the_formulas():
    key = np.asarray(PAIRS.keys[0], float)
    bilinear = fitted_bilinear(jr.key(1), PAIRS, 12).memory
    assert isinstance(bilinear, BilinearMemory)
    left, right, out = (np.asarray(a, float) for a in (bilinear.left, bilinear.right, bilinear.out))
    expected = sum((left[i] @ key) * (right[i] @ key) * out[i] for i in range(12))
    np.testing.assert_allclose(bilinear(PAIRS.keys[0]), expected, rtol=1e-3, atol=1e-3)
    relu = fitted_relu(jr.key(1), PAIRS, 20).memory
    assert isinstance(relu, MLPMemory)
    into, out = np.asarray(relu.into, float), np.asarray(relu.out, float)
    expected = sum(max(0.0, into[i] @ key) * out[i] for i in range(20))
    np.testing.assert_allclose(relu(PAIRS.keys[0]), expected, rtol=1e-3, atol=1e-3)


def test_shared_answers_are_stored():
    pairs = Associations.draw(jr.key(0), 120, 16, outputs=8)
    assert fitted_relu(jr.key(1), pairs, 24).memory.score(pairs).accuracy == 1


def test_a_single_answer_is_no_difficulty():
    pairs = Associations.draw(jr.key(0), 5, 3, outputs=1)
    assert fitted_relu(jr.key(1), pairs, 2).memory.score(pairs).accuracy == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, 21])
@pytest.mark.parametrize("seed", range(5))
def test_1024_associations_at_d_64_in_less_than_4100_numbers(seed, width):
    first, second = jr.split(jr.key(seed))
    pairs = Associations.draw(first, 1024, 64, target="permutation")
    memory = fitted_bilinear(second, pairs, width).memory
    assert memory.parameters == 3 * 64 * width
    assert memory.score(pairs).accuracy == 1
    assert rounded(memory, 16).score(pairs).accuracy == 1


@pytest.mark.parametrize("fit", ENOUGH)
def test_no_neurons_are_refused(fit):
    with pytest.raises(FactmemError, match="at least one neuron"):
        fit(jr.key(0), PAIRS, 0)


def test_the_loss_of_a_stage_is_that_of_the_definition():
    random = np.random.default_rng(0)
    memory = BilinearMemory(*(jnp.asarray(random.normal(size=(4, 16)), jnp.float32) for _ in "abc"))
    beta, c = 30.0, 0.03
    keys, values = np.asarray(PAIRS.keys, float), np.asarray(PAIRS.values, float)
    left, right, out = (np.asarray(w, float) for w in (memory.left, memory.right, memory.out))
    outputs = ((keys @ left.T) * (keys @ right.T)) @ out
    outputs = outputs / np.sqrt(np.mean(np.sum(outputs**2, axis=1)))
    total = 0.0
    for x, right_answer in enumerate(np.asarray(PAIRS.target)):
        scores = beta * values @ outputs[x]
        gaps = np.delete(scores - scores[right_answer], right_answer)
        slack = np.logaddexp(0, 1 + logsumexp(gaps))
        total += np.log(1 + c * slack**2) / c
    found = fitted._stage_loss(memory, (PAIRS, jnp.asarray(beta)))
    np.testing.assert_allclose(found, total, rtol=1e-4)


@pytest.mark.parametrize(("gap", "suffices"), [(2e-4, True), (0.5e-4, False), (-1.0, False)])
def test_a_fit_suffices_when_margins_are_a_ten_thousandth_of_the_outputs(gap, suffices):
    pairs = Associations(jnp.eye(2)[:1], jnp.array([[gap, 0.0], [0.0, 0.0]]), jnp.array([0]))
    for size in (1e-3, 1.0, 1e3):
        assert fitted._suffices(LinearMemory(size * jnp.eye(2)), pairs) is suffices


def test_the_convex_start_has_the_best_readout_of_its_own_features(monkeypatch):
    monkeypatch.setattr(
        fitted, "_all_fitted", lambda memory, *rest: Fitted(memory, False, 0, Outcome.FLAT)
    )
    memory = fitted_bilinear(jr.key(1), PAIRS, 60, start="convex", iterations=2000).memory
    # All margins of a convex fit with enough features are at 1; of other features they are not.
    assert memory.score(PAIRS).min_margin == pytest.approx(1, abs=0.05)


def test_an_unknown_start_is_refused():
    with pytest.raises((FactmemError, TypeError), match="convex"):
        fitted_relu(jr.key(0), PAIRS, 4, start="conve")
