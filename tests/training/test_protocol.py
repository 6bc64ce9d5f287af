"""Protocols and their limits."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.training import BEST, PAPER, QUICK, Protocol


def test_paper_protocol_matches_the_paper():
    assert PAPER.learning_rates == (1e-3, 3e-3, 1e-2)
    assert (PAPER.steps, PAPER.batch_size, PAPER.evaluations, PAPER.test_prompts) == (
        2**14,
        1024,
        128,
        1024,
    )
    assert (PAPER.optimizer, PAPER.schedule, PAPER.criterion) == ("adam", "constant", 0.99)
    assert (PAPER.momentum, PAPER.beta2) == (0.9, 0.999)


def test_best_protocol_draws_no_more_prompts_than_the_paper():
    def total_prompts(protocol):
        return len(protocol.learning_rates) * protocol.steps * protocol.batch_size

    assert total_prompts(BEST) <= total_prompts(PAPER)
    assert (BEST.criterion, BEST.test_prompts, BEST.evaluations) == (0.99, 1024, 128)


@given(st.integers(1, 10_000), st.data())
def test_checks_are_evenly_spaced(steps, data):
    evaluations = data.draw(st.integers(1, min(steps, 300)))
    protocol = Protocol((0.1,), steps=steps, evaluations=evaluations)
    steps_at = [protocol.steps_at(evaluation) for evaluation in range(evaluations + 1)]
    assert (steps_at[0], steps_at[-1]) == (0, steps)
    differences = {later - earlier for earlier, later in pairwise(steps_at)}
    assert differences <= {steps // evaluations, steps // evaluations + 1}
    assert min(differences) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": ()}, "at least one learning rate"),
        ({"learning_rates": (0.1, 0.0)}, "positive and finite, got 0.0"),
        ({"learning_rates": (float("nan"),)}, "positive and finite, got nan"),
        ({"learning_rates": (float("inf"),)}, "positive and finite, got inf"),
        ({"steps": 0}, "got 128 evaluations and 0 steps"),
        ({"steps": 100}, "got 128 evaluations and 100 steps"),
        ({"steps": 2**30 + 1}, "steps must be at most 1073741824, got 1073741825"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"test_prompts": 0}, "test_prompts must be at least 1, got 0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and less than 1, got 1.0"),
        ({"beta2": -0.1}, "beta2 must be at least 0 and less than 1, got -0.1"),
        ({"criterion": 1.1}, "criterion must be above 0 and at most 1, got 1.1"),
        ({"early_stopping": ((0.0, 0.5),)}, "early_stopping must hold pairs"),
        ({"early_stopping": ((0.5, 1.0),)}, "early_stopping must hold pairs"),
        ({"early_stopping": ((0.5, 0.5), (1.0, 0.5))}, "early_stopping must hold pairs"),
    ],
)
def test_rejects_invalid_protocols(options, message):
    with pytest.raises(FactmemError, match=message):
        Protocol(**({"learning_rates": (0.1,)} | options))


def test_best_protocol_is_the_measured_one():
    """The measurements in docs/training.md hold for these numbers only."""
    numbers = (0.05,), 2**15, 1024, True, "muon", "cosine", 0.95, 0.99, 128, 1024, 0.99
    assert Protocol(*numbers) == BEST


def test_quick_protocol_is_the_best_one_with_a_sixteenth_of_its_prompts():
    assert replace(QUICK, steps=BEST.steps, batch_size=BEST.batch_size, early_stopping=()) == BEST
    assert 16 * QUICK.steps * QUICK.batch_size == BEST.steps * BEST.batch_size


def test_step_config_holds_the_static_settings():
    protocol = Protocol((0.1,), batch_size=7, stratified=True, optimizer="muon", schedule="cosine")
    assert protocol.step_config == ("muon", "cosine", 7, True)


def test_paper_and_best_end_no_run_early():
    assert PAPER.early_stopping == BEST.early_stopping == ()
    assert not PAPER.stops_early(2**14, 0.0)


def test_stops_early():
    protocol = Protocol(
        (0.1,), steps=200, evaluations=100, early_stopping=((0.25, 0.5), (0.5, 0.9))
    )
    assert not protocol.stops_early(49, 0.0)
    assert protocol.stops_early(50, 0.49)
    assert not protocol.stops_early(50, 0.5)
    assert not protocol.stops_early(99, 0.6)
    assert protocol.stops_early(100, 0.89)
    assert not protocol.stops_early(200, 0.9)
