"""The best linear memory, near and far from the limit."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.lbfgs import Outcome
from factmem.memories import Associations, Verdict, hebbian, maximal


@pytest.mark.parametrize("seed", range(3))
def test_d_32_stores_185_and_cannot_store_205(seed):
    few, many = (Associations.draw(facts, 32, key=jr.key(seed)) for facts in (185, 205))
    best = maximal(few)
    assert best.verdict is Verdict.FEASIBLE
    assert best.infeasibility is None
    assert best.proved_margin > 0
    assert (np.asarray(best.memory.margins(few)) > 0).all()
    assert hebbian(few).score(few).accuracy < 1
    impossible = maximal(many)
    assert impossible.verdict is Verdict.INFEASIBLE
    assert impossible.infeasibility.residual < impossible.infeasibility.threshold
    assert impossible.memory.score(many).accuracy < 1


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "stored", "not_stored"), [(64, 500, 620)])
def test_the_same_at_d_64(dim, stored, not_stored):
    assert maximal(Associations.draw(stored, dim, key=jr.key(0))).verdict is Verdict.FEASIBLE
    assert maximal(Associations.draw(not_stored, dim, key=jr.key(0))).verdict is Verdict.INFEASIBLE


def test_two_answers_are_a_perceptron_which_stores_2d():
    """Cover: N points in general position in d dimensions, almost surely separable below 2d."""
    dim = 24
    verdicts = {}
    for facts in (dim, 3 * dim):
        verdicts[facts] = [
            maximal(Associations.draw(facts, dim, outputs=2, key=jr.key(seed))).verdict
            for seed in range(4)
        ]
    assert set(verdicts[dim]) == {Verdict.FEASIBLE}
    assert set(verdicts[3 * dim]) == {Verdict.INFEASIBLE}


def test_a_single_answer_is_always_right():
    best = maximal(Associations.draw(5, 3, outputs=1, key=jr.key(0)))
    assert best.verdict is Verdict.FEASIBLE
    assert best.proved_margin == np.inf


def test_values_that_coincide_cannot_be_told_apart():
    pairs = Associations.draw(4, 3, key=jr.key(0))
    values = pairs.values.at[1].set(pairs.values[0])
    best = maximal(Associations(pairs.keys, values, pairs.target))
    assert best.verdict is not Verdict.FEASIBLE
    assert best.proved_margin <= 0


def test_it_begins_with_the_hebbian_memory():
    """Where that has margins of at least 1 already, nothing moves."""
    pairs = Associations(jnp.eye(3), jnp.eye(3), jnp.array([2, 0, 1]))
    best = maximal(pairs)
    assert best.minimum.iterations == 0
    np.testing.assert_allclose(best.memory.matrix, hebbian(pairs).matrix, atol=1e-6)


def test_too_few_iterations_leave_it_undecided():
    best = maximal(Associations.draw(60, 8, key=jr.key(0)), iterations=3)
    assert best.verdict is Verdict.UNDECIDED
    assert best.minimum.outcome is Outcome.ITERATIONS
