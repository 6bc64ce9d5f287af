"""The optimal linear memory below and above the capacity."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.lbfgs import FitStatus
from factmem.memories import Associations, Feasibility, hebbian, optimal_linear_memory


@pytest.mark.parametrize("seed", range(3))
def test_d_32_stores_185_but_not_205(seed):
    few, many = (Associations.draw(facts, 32, key=jr.key(seed)) for facts in (185, 205))
    best = optimal_linear_memory(few)
    assert best.feasibility is Feasibility.FEASIBLE
    assert best.infeasibility is None
    assert best.proved_margin > 0
    assert (np.asarray(best.model.margins(few)) > 0).all()
    assert hebbian(few).score(few).accuracy < 1
    above = optimal_linear_memory(many)
    assert above.feasibility is Feasibility.INFEASIBLE
    assert above.infeasibility.residual < above.infeasibility.threshold
    assert above.model.score(many).accuracy < 1


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "stored", "not_stored"), [(64, 500, 620)])
def test_capacity_at_d_64(dim, stored, not_stored):
    assert (
        optimal_linear_memory(Associations.draw(stored, dim, key=jr.key(0))).feasibility
        is Feasibility.FEASIBLE
    )
    assert (
        optimal_linear_memory(Associations.draw(not_stored, dim, key=jr.key(0))).feasibility
        is Feasibility.INFEASIBLE
    )


def test_two_values_are_a_perceptron_with_capacity_2d():
    """Cover: below 2d, points in general position are separable with high probability."""
    dim = 24
    results = {}
    for facts in (dim, 3 * dim):
        results[facts] = [
            optimal_linear_memory(
                Associations.draw(facts, dim, outputs=2, key=jr.key(seed))
            ).feasibility
            for seed in range(4)
        ]
    assert set(results[dim]) == {Feasibility.FEASIBLE}
    assert set(results[3 * dim]) == {Feasibility.INFEASIBLE}


def test_a_single_value_is_feasible():
    best = optimal_linear_memory(Associations.draw(5, 3, outputs=1, key=jr.key(0)))
    assert best.feasibility is Feasibility.FEASIBLE
    assert best.proved_margin == np.inf


def test_equal_values_are_not_feasible():
    pairs = Associations.draw(4, 3, key=jr.key(0))
    values = pairs.values.at[1].set(pairs.values[0])
    best = optimal_linear_memory(Associations(pairs.keys, values, pairs.target))
    assert best.feasibility is not Feasibility.FEASIBLE
    assert best.proved_margin <= 0


def test_starts_at_the_hebbian_memory():
    """It makes no step if all margins are at least 1."""
    pairs = Associations(jnp.eye(3), jnp.eye(3), jnp.array([2, 0, 1]))
    best = optimal_linear_memory(pairs)
    assert best.minimum.iterations == 0
    np.testing.assert_allclose(best.model.matrix, hebbian(pairs).matrix, atol=1e-6)


def test_too_few_iterations_are_undecided():
    best = optimal_linear_memory(Associations.draw(60, 8, key=jr.key(0)), iterations=3)
    assert best.feasibility is Feasibility.UNDECIDED
    assert best.status is best.minimum.status is FitStatus.ITERATION_LIMIT


def test_metrics_are_json_data():
    feasible = optimal_linear_memory(Associations.draw(8, 8, key=jr.key(0)))
    assert feasible.metrics == {
        "verdict": "feasible",
        "feasible": True,
        "proved_margin": feasible.proved_margin,
        "certificate_residual": None,
        "certificate_threshold": None,
        "iterations": feasible.minimum.iterations,
        "status": feasible.status.label,
    }
    assert feasible.metrics["status"] == "feasible"
    infeasible = optimal_linear_memory(Associations.draw(60, 8, key=jr.key(0))).metrics
    assert infeasible["status"] == "infeasible"
    assert (infeasible["verdict"], infeasible["feasible"]) == ("infeasible", False)
    assert infeasible["certificate_residual"] < infeasible["certificate_threshold"]


def test_an_infeasible_memory_is_the_minimizer_of_the_squared_hinge():
    """Its margins are those of the stationary point of the written-out loss."""
    pairs = Associations.draw(60, 8, key=jr.key(0))
    best = optimal_linear_memory(pairs)
    keys, values = (np.asarray(vectors, float) for vectors in (pairs.keys, pairs.values))
    scores = keys @ np.asarray(best.model.matrix, float).T @ values.T
    slack = np.maximum(0, 1 - np.diag(scores)[:, None] + scores)
    np.fill_diagonal(slack, 0)
    pull = slack.sum(axis=1)[:, None] * values - slack @ values
    assert np.abs(pull.T @ keys).max() < 1e-4 * slack.sum()
