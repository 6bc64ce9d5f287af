"""Fitted MLP memories below and above their capacity."""

from functools import cache

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import logsumexp

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import FitStatus
from factmem.memories import (
    Associations,
    BilinearMemory,
    FitResult,
    LinearMemory,
    MLPMemory,
    fitted,
    fitted_bilinear,
    fitted_features,
    fitted_relu,
    rounded,
)

PAIRS = Associations.draw(100, 16, target="permutation", key=jr.key(0))
WIDTHS = {fitted_features: 48, fitted_relu: 20, fitted_bilinear: 12}


@cache
def fit_pairs(fit):
    """Fit PAIRS with a sufficient width, once for all tests."""
    return fit(PAIRS, WIDTHS[fit], key=jr.key(1))


@pytest.mark.parametrize("fit", WIDTHS)
def test_recalls_all_associations_with_16_bit_weights(fit):
    result = fit_pairs(fit)
    assert result.complete
    assert result.model.score(PAIRS).accuracy == 1
    quantized = rounded(result.model, 16)
    assert quantized.score(PAIRS).accuracy == 1
    # Every margin is at least 10⁻⁴ of the root mean square output.
    outputs = np.asarray(quantized.outputs(PAIRS.keys), float)
    size = np.sqrt((outputs**2).sum(axis=1).mean())
    assert np.asarray(quantized.margins(PAIRS)).min() >= 1e-4 * size * (1 - 1e-3)


def test_readout_of_random_features_has_margin_one():
    result = fit_pairs(fitted_features)
    assert result.status is FitStatus.CONVERGED
    assert result.model.score(PAIRS).min_margin == pytest.approx(1, abs=0.02)


def test_weights_are_normalized():
    """Weights have root mean square 1 at the end of a fit."""
    memory = fit_pairs(fitted_bilinear).model
    assert isinstance(memory, BilinearMemory)
    for weights in (memory.left, memory.right, memory.out):
        assert np.sqrt(np.mean(np.asarray(weights) ** 2)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("fit", [fitted_relu, fitted_bilinear])
def test_convex_start(fit):
    result = fit(PAIRS, WIDTHS[fit], start="convex", key=jr.key(1))
    assert result.complete
    assert result.model.score(PAIRS).accuracy == 1


def test_bilinear_memory_needs_fewer_parameters_than_a_matrix():
    """A linear memory has 256 parameters at d = 16 and stores about 60 associations."""
    result = fitted_bilinear(Associations.draw(60, 16, key=jr.key(0)), 5, key=jr.key(1))
    assert result.complete
    assert result.model.parameters == 3 * 5 * 16 < 16**2


def test_most_keys_are_recalled_above_the_capacity():
    """With a squared loss, 5 neurons recall only a third of 100 keys."""
    result = fitted_bilinear(PAIRS, 5, key=jr.key(1))
    assert not result.complete
    assert result.status is not FitStatus.CONDITION_MET
    assert 0.75 < result.model.score(PAIRS).accuracy < 1


def test_progress_counts_the_steps_of_all_stages():
    reports = []
    result = fitted_bilinear(
        PAIRS, 5, iterations=25, report=lambda steps, loss: reports.append(steps), key=jr.key(1)
    )
    assert reports == sorted(reports)
    assert reports[-1] == result.iterations == 8 * 25


def test_features_are_not_fitted():
    result = fit_pairs(fitted_features)
    assert isinstance(result.model, MLPMemory)
    np.testing.assert_array_equal(result.model.into, jr.normal(jr.key(1), (48, 16)))


def test_outputs_match_the_formulas():
    key = np.asarray(PAIRS.keys[0], float)
    bilinear = fit_pairs(fitted_bilinear).model
    assert isinstance(bilinear, BilinearMemory)
    left, right, out = (np.asarray(a, float) for a in (bilinear.left, bilinear.right, bilinear.out))
    expected = sum((left[i] @ key) * (right[i] @ key) * out[i] for i in range(12))
    np.testing.assert_allclose(bilinear(PAIRS.keys[0]), expected, rtol=1e-3, atol=1e-3)
    relu = fit_pairs(fitted_relu).model
    assert isinstance(relu, MLPMemory)
    into, out = np.asarray(relu.into, float), np.asarray(relu.out, float)
    expected = sum(max(0.0, into[i] @ key) * out[i] for i in range(20))
    np.testing.assert_allclose(relu(PAIRS.keys[0]), expected, rtol=1e-3, atol=1e-3)


def test_shared_answers_are_stored():
    pairs = Associations.draw(120, 16, outputs=8, key=jr.key(0))
    assert fitted_relu(pairs, 24, key=jr.key(1)).model.score(pairs).accuracy == 1


def test_a_single_value_is_recalled():
    pairs = Associations.draw(5, 3, outputs=1, key=jr.key(0))
    assert fitted_relu(pairs, 2, key=jr.key(1)).model.score(pairs).accuracy == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, 21])
@pytest.mark.parametrize("seed", range(5))
def test_1024_associations_at_d_64_in_fewer_than_4100_parameters(seed, width):
    first, second = jr.split(jr.key(seed))
    pairs = Associations.draw(1024, 64, target="permutation", key=first)
    memory = fitted_bilinear(pairs, width, key=second).model
    assert memory.parameters == 3 * 64 * width
    assert memory.score(pairs).accuracy == 1
    assert rounded(memory, 16).score(pairs).accuracy == 1


@pytest.mark.parametrize("fit", WIDTHS)
def test_zero_width_is_rejected(fit):
    with pytest.raises(FactmemError, match="width must be at least 1"):
        fit(PAIRS, 0, key=jr.key(0))


def test_stage_loss_matches_its_definition():
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
    loss = fitted._stage_loss(memory, (PAIRS, jnp.asarray(beta)))
    np.testing.assert_allclose(loss, total, rtol=1e-4)


@pytest.mark.parametrize(("gap", "complete"), [(2e-4, True), (0.5e-4, False), (-1.0, False)])
def test_complete_if_relative_margins_are_at_least_one_in_10000(gap, complete):
    pairs = Associations(jnp.eye(2)[:1], jnp.array([[gap, 0.0], [0.0, 0.0]]), jnp.array([0]))
    for size in (1e-3, 1.0, 1e3):
        assert fitted._is_complete(LinearMemory(size * jnp.eye(2)), pairs) is complete


def test_convex_start_has_the_optimal_readout(monkeypatch):
    def start_only(memory, *_):
        return FitResult(model=memory, status=FitStatus.CONVERGED, complete=False, iterations=0)

    monkeypatch.setattr(fitted, "_fit_all_weights", start_only)
    memory = fitted_bilinear(PAIRS, 60, start="convex", iterations=2000, key=jr.key(1)).model
    # The margins of a convex fit with enough features are 1; those of other features are not.
    assert memory.score(PAIRS).min_margin == pytest.approx(1, abs=0.05)


def test_unknown_start_is_rejected():
    with pytest.raises((FactmemError, TypeError), match="convex"):
        fitted_relu(PAIRS, 4, start="conve", key=jr.key(0))


def test_metrics_are_json_data():
    result = fit_pairs(fitted_features)
    assert result.metrics == {
        "complete": True,
        "iterations": result.iterations,
        "status": "converged",
    }
