"""The repair is the smallest change of the last matrix that gives all facts their margins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from factmem.transformer.compiler import repair as repair_module
from factmem.transformer.compiler.fit import Schedule, fit_weights
from factmem.transformer.compiler.hardest_answers import hardest_answers
from factmem.transformer.compiler.known_inputs import FitData, initial_weights
from factmem.transformer.compiler.repair import Moments, repair
from factmem.transformer.shape import Shape

FACTS, TOKENS, DIM, ANSWERS, HEADS = 24, 11, 5, 6, 3


def problem(seed, width=12, facts=FACTS):
    """Return data and random weights; the answers are those of these weights, but for some."""
    rng = np.random.default_rng(seed)
    subjects, relations = np.divmod(np.arange(facts), 4)
    known = np.stack([subjects, 6 + relations, np.full(facts, TOKENS - 1)], axis=1)
    data = FitData(
        tokens=rng.normal(size=(TOKENS, DIM)).astype(np.float32),
        known=known.astype(np.int32),
        outputs=rng.normal(size=(ANSWERS, DIM)).astype(np.float32),
        target=np.zeros(facts, np.int32),
        noise=rng.normal(size=(2, DIM)).astype(np.float32),
        noise_gap=np.asarray(1.0, np.float32),
    )
    shape = Shape(DIM, HEADS, 4, width)
    key = rng.normal(size=(HEADS, DIM))
    drawn = initial_weights(data, key, shape, bias=True, rng=rng)
    weights = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), drawn)
    _, outputs = features_and_outputs(weights, data)
    target = np.argmax(outputs @ data.outputs.T, axis=1)
    target[:2] = (target[:2] + 1) % ANSWERS
    return data._replace(target=target.astype(np.int32)), weights


def features_and_outputs(weights, data):
    """Compute the input of the last matrix and the output, fact by fact and head by head."""
    w = jax.tree.map(lambda leaf: np.asarray(leaf, float), weights)
    features, outputs = [], []
    for known in np.asarray(data.known):
        tokens = np.asarray(data.tokens, float)[known]
        shares = np.exp(tokens @ w.key.T)
        mixtures = (shares / shares.sum(axis=0)).T @ tokens
        values = np.concatenate([v @ mix for v, mix in zip(w.value, mixtures, strict=True)])
        x = values @ w.output.reshape(-1, DIM)
        hidden = np.maximum(w.mlp_in @ x + w.mlp_bias, 0)
        features.append(hidden if len(hidden) else values)
        outputs.append(x + hidden @ w.mlp_out)
    return np.array(features), np.array(outputs)


def margins_of(weights, data):
    """Return the margin of every pair of a fact and a wrong answer."""
    _, outputs = features_and_outputs(weights, data)
    logits = outputs @ np.asarray(data.outputs, float).T
    rows = np.arange(len(logits))
    margins = logits[rows, data.target][:, None] - logits
    margins[rows, data.target] = np.inf
    return margins


def last_matrix(weights):
    matrix = weights.mlp_out if len(weights.mlp_out) else weights.output
    return np.asarray(matrix, float).reshape(-1, DIM)


def run(data, weights, required, seed=0, **options):
    device_data = jax.tree.map(jnp.asarray, data)
    margins = margins_of(weights, data).min(axis=1)
    rng = np.random.default_rng(seed)
    moments = Moments(weights, device_data)
    return repair(weights, device_data, moments, margins, required, rng=rng, **options)


@pytest.mark.parametrize("width", [12, 0])
def test_change_is_that_of_a_general_solver(width, monkeypatch):
    """The reference minimizes the sum of squared changes of outputs over all constraints."""
    monkeypatch.setattr(repair_module, "_AIM", 1.001)
    data, weights = problem(3, width)
    margins = margins_of(weights, data)
    required = np.where(np.arange(FACTS) < 2, 0.3, np.minimum(0.1, 0.5 * margins.min(axis=1)))
    result = run(data, weights, required)
    assert result.short == 0
    features, _ = features_and_outputs(weights, data)
    directions = np.asarray(data.outputs, float)[data.target][:, None] - data.outputs[None]
    wrong = np.arange(ANSWERS)[None, :] != data.target[:, None]
    missing = (required[:, None] - margins)[wrong]
    moments = features.T @ features
    moments += 1e-4 * np.trace(moments) / len(moments) * np.eye(len(moments))
    # In coordinates in which the objective is the squared norm.
    factor = np.linalg.inv(np.linalg.cholesky(moments)).T
    jacobian = np.einsum("fu,fyd->fyud", features @ factor, directions)[wrong]
    jacobian = jacobian.reshape(len(missing), -1)
    reference = minimize(
        lambda z: (z @ z, 2 * z),
        np.zeros(jacobian.shape[1]),
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda z: jacobian @ z - missing,
            "jac": lambda z: jacobian,
        },
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert reference.success
    expected = factor @ reference.x.reshape(-1, DIM)
    change = last_matrix(result.weights) - last_matrix(weights)
    assert np.abs(change).max() > 0.01
    np.testing.assert_allclose(change, expected, atol=5e-3 * np.abs(expected).max())


@given(st.integers(0, 10**6), st.sampled_from([12, 0]))
def test_all_facts_get_their_margins_or_fewer_are_short(seed, width):
    data, weights = problem(seed % 200, width)
    before = margins_of(weights, data).min(axis=1)
    required = np.where(before < 0, 0.2, 0.5 * before)
    result = run(data, weights, required, seed)
    after = margins_of(result.weights, data).min(axis=1)
    short = int(np.sum(after < required - 1e-4))
    assert short <= result.short <= int(np.sum(before < required))
    for name in ("key", "value", "mlp_in", "mlp_bias", "output" if width else "mlp_out"):
        assert jnp.array_equal(getattr(weights, name), getattr(result.weights, name))


def test_repairs_two_wrong_facts_and_keeps_the_others():
    repaired = 0
    for seed in range(10):
        data, weights = problem(seed, width=40)
        before = margins_of(weights, data).min(axis=1)
        assert (before[:2] < 0).all()
        result = run(data, weights, np.where(before < 0, 0.1, 0.1 * before))
        repaired += result.short == 0 and (margins_of(result.weights, data) > 0).all()
    assert repaired >= 8


def test_nothing_changes_if_all_facts_have_their_margins():
    data, weights = problem(0)
    result = run(data, weights, margins_of(weights, data).min(axis=1) - 0.1)
    assert result.short == 0
    assert jnp.array_equal(result.weights.mlp_out, weights.mlp_out)


def test_contradictions_and_too_many_pairs_leave_the_weights(monkeypatch):
    data, weights = problem(0)
    data.known[1] = data.known[0]  # one prompt with two answers
    data.target[:2] = 0, 1
    result = run(data, weights, np.full(FACTS, 0.1))
    assert result.short > 0
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(result.weights))
    for limit in ("_MAX_PAIRS", "_PAIRS_PER_PARAMETER", "_MAX_UNITS"):
        with monkeypatch.context() as patch:
            patch.setattr(repair_module, limit, 1 / 60)
            result = run(data, weights, np.full(FACTS, 100.0))
        assert result.short == FACTS
        assert jnp.array_equal(result.weights.mlp_out, weights.mlp_out)


def test_facts_without_active_neurons_cannot_be_repaired():
    data, weights = problem(0)
    idle = weights._replace(mlp_in=0 * weights.mlp_in, mlp_bias=-jnp.ones(12))
    required = np.full(FACTS, 0.1)
    result = run(data, idle, required)  # for no fact
    assert result.short == int(np.sum(margins_of(idle, data).min(axis=1) < required))
    assert jnp.array_equal(result.weights.mlp_out, idle.mlp_out)
    # One neuron, active for fact 5 alone: only this one can be mended.
    _, x = features_and_outputs(idle._replace(mlp_out=0 * idle.mlp_out), data)
    direction = np.linalg.solve(x[[5, 0, 1, 2, 3]], [1.0, -1, -1, -1, -1])
    active = x @ direction > 0
    one = weights._replace(
        mlp_in=jnp.asarray(direction[None], jnp.float32),
        mlp_bias=jnp.zeros(1),
        mlp_out=jnp.zeros((1, DIM)),
    )
    margins = margins_of(one, data).min(axis=1)
    required = np.where(np.isin(np.arange(FACTS), [0, 5]), margins + 0.1, -np.inf)
    result = run(data, one, required)
    assert active[5]
    assert not active[0]
    assert result.short == 1
    assert margins_of(result.weights, data)[5].min() > required[5] - 1e-4


def test_weights_that_are_not_finite_are_left_alone():
    data, weights = problem(0)
    for number in (np.nan, np.inf):
        broken = weights._replace(mlp_in=weights.mlp_in.at[0, 0].set(number))
        assert Moments(broken, jax.tree.map(jnp.asarray, data)).factor is None


def test_second_moments_do_not_depend_on_blocks(monkeypatch):
    data, weights = problem(0)
    features, _ = features_and_outputs(weights, data)
    for entries in (2**23, 7 * 15):
        monkeypatch.setattr(repair_module, "_BLOCK_ENTRIES", entries)
        moments = repair_module._second_moments(weights, data)
        np.testing.assert_allclose(moments, features.T @ features, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("very_few", [0.0, 0.2])
def test_fit_repairs_the_last_facts(very_few):
    """One round of one step leaves some facts; only with a repair are all certified."""
    data, weights = problem(1, width=40)

    def margins(balanced):
        on_device = jax.tree.map(jnp.float32, balanced)
        return hardest_answers(on_device, data, rng=np.random.default_rng(0))[1] - 0.01

    schedule = Schedule(FACTS, 1, rate=1e-9, max_rounds=1, very_few=very_few)
    reports = []
    fit = fit_weights(
        weights, data, margins, schedule, seed=0, report=lambda n, **v: reports.append(v)
    )
    left = int(np.sum(margins_of(fit.weights, data) < 0))
    repaired = [values["repair"] for values in reports if "repair" in values]
    assert (left == 0, bool(repaired)) == (very_few > 0, very_few > 0)
