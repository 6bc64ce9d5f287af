"""Gradient flow against scipy on equations that are written anew, and what it must never change."""

from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from tests.dynamics import made, small

from factmem._core.errors import FactmemError
from factmem.dynamics import CONVERGED, LinearAttention, Population, gradient_flow
from factmem.experiments import FlowSpec
from factmem.facts import FactTable

FIGURE_5 = FactTable.structured(16, 4, 8)
TOLERANCE = 1e-10  # of the invariant, relative to the largest W_KQ²


@cache
def figure_5(start):
    experiment = FlowSpec(FIGURE_5, start=start)
    return experiment.flow()


def drift(flow):
    """For every token: the largest change of its invariant over its largest W_KQ²."""
    start = flow.start.kq**2 - (flow.start.ov**2).sum(axis=1)
    change = np.abs(flow.invariant - start[None, :]).max(axis=0)
    return change / (flow.kq**2).max(axis=0)


# ---- independent solutions -----------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_the_flow_is_that_of_every_prompt_written_down(power):
    questions = Population.of(small.TABLE, noise=small.N, length=small.T, subject_power=power)
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 0.5, 0)
    flow = gradient_flow(start, questions, until=4.0)
    ov, kq = small.spread(start.ov), small.spread(start.kq)

    def right_side(_, y):
        of_ov, of_kq = small.velocity(y[: ov.size].reshape(ov.shape), y[ov.size :], power)
        return np.concatenate([of_ov.ravel(), of_kq])

    solved = solve_ivp(right_side, (0, 4), np.concatenate([ov.ravel(), kq]), rtol=1e-8, atol=1e-10)
    end = solved.y[:, -1]
    assert np.allclose(small.spread(flow.end.ov), end[: ov.size].reshape(ov.shape), atol=1e-6)
    assert np.allclose(small.spread(flow.end.kq), end[ov.size :], atol=1e-6)
    expected = small.loss(end[: ov.size].reshape(ov.shape), end[ov.size :], power)
    assert flow.loss[-1] == pytest.approx(expected, abs=1e-6)


def test_figure_5_is_the_flow_of_its_six_numbers():
    """By symmetry all subjects are alike, all relations, and answers are right or wrong ones."""
    s, r, d = 16, 4, 8

    def losses_and_slopes(y):
        own, other, kr, fit, misfit, ks = y
        # Logits: the answer; the others of the relation; the subject's elsewhere; all the rest.
        kinds = np.array(
            [
                own * kr + fit * ks,
                own * kr + misfit * ks,
                other * kr + fit * ks,
                other * kr + misfit * ks,
            ]
        )
        many = np.array([1, d - 1, r - 1, (r - 1) * (d - 1)])
        p = np.exp(kinds - kinds.max())
        p /= many @ p
        # Chances that a relation's own or other answer is right and said, over subjects; and so on.
        inside, outside = p[0] + (d - 1) * p[1], p[2] + (d - 1) * p[3]
        of_own, of_other = (1 - inside) / d / r, -outside / d / r
        fits, misfits = p[0] + (r - 1) * p[2], p[1] + (r - 1) * p[3]
        of_fit, of_misfit = (1 - fits) / r / s, -misfits / r / s
        slope = [
            kr * of_own,
            kr * of_other,
            d * own * of_own + (r - 1) * d * other * of_other,
            ks * of_fit,
            ks * of_misfit,
            r * fit * of_fit + r * (d - 1) * misfit * of_misfit,
        ]
        return -np.log(p[0]), -np.log(inside), -np.log(fits), slope

    flow = figure_5("equal")
    solved = solve_ivp(
        lambda _, y: losses_and_slopes(y)[3],
        (0, flow.times[-1]),
        np.full(6, 1e-5),
        rtol=1e-10,
        atol=1e-14,
        t_eval=flow.times,
        method="DOP853",
    )
    expected = np.array([losses_and_slopes(y)[:3] for y in solved.y.T])
    assert np.allclose(flow.loss, expected[:, 0], atol=1e-6)
    assert np.allclose(flow.seen.relation_loss, expected[:, 1], atol=1e-6)
    assert np.allclose(flow.seen.subject_loss, expected[:, 2], atol=1e-6)


# ---- what the paper says -------------------------------------------------------------------------


def test_the_loss_of_figure_5_goes_from_log_32_over_log_8_to_0():
    flow = figure_5("equal")
    assert flow.loss[0] == pytest.approx(np.log(32), abs=1e-8)
    assert flow.loss[flow.nearest(np.array([300.0]))[0]] == pytest.approx(np.log(8), abs=0.02)
    assert flow.loss[-1] == pytest.approx(CONVERGED, abs=1e-6)
    assert (np.diff(flow.loss) <= 1e-12).all()


@pytest.mark.parametrize("start", ["equal", "balanced"])
def test_the_invariant_of_every_token_keeps_its_value(start):
    flow = figure_5(start)
    assert drift(flow).max() < TOLERANCE
    assert flow.invariant_drift == pytest.approx(drift(flow).max(), rel=1e-9)
    if start == "balanced":
        off = np.abs(flow.invariant - 1e-10).max(axis=0)
        assert (off < TOLERANCE * (flow.kq**2).max(axis=0)).all()
        # What it is good for: W_KQ never vanishes, and no answer outweighs it.
        assert (flow.kq >= 1e-5).all()
        assert (flow.largest_ov <= flow.kq).all()


def test_the_drift_of_a_token_is_measured_by_its_own_weights():
    invariant = np.array([[1.0, 1.0], [1.0, 1.5], [1.25, 1.0]])
    start = LinearAttention(np.zeros((2, 2)), np.ones(2))
    flow = made.flow(range(3), [[1, 1], [1, 2], [1, 100]], invariant=invariant, start=start)
    assert flow.invariant_drift == pytest.approx(0.25)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(-4, 0), st.floats(0, 2))
def test_the_invariant_keeps_its_value_from_any_start_on_any_table(seed, exponent, power):
    questions = Population.of(
        FactTable.random(small.S, small.R, small.D, seed=seed),
        noise=small.N,
        length=small.T,
        subject_power=power,
    )
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 10.0**exponent, seed)
    flow = gradient_flow(start, questions)
    assert drift(flow).max() < TOLERANCE
    assert (np.diff(flow.loss) <= 1e-12).all()
    assert flow.loss[-1] <= CONVERGED * (1 + 1e-6)  # Theorem 5


def test_sampled_prompts_keep_the_invariant_of_unequal_noise():
    experiment = FlowSpec(FactTable.structured(4, 2, 2), length=5, start="random", scale=0.1)
    flow = experiment.flow(until=40.0)
    assert flow.kq.shape[1] == 4 + 2 + 6 + 1
    assert len(set(flow.start.kq[6:12])) == 6
    assert drift(flow).max() < TOLERANCE
    assert flow.loss[-1] < flow.loss[0] - 0.5


def test_the_squared_gradient_adds_up_to_what_the_loss_has_lost():
    """∫ ‖∇L‖² dt = L(0) − L(t): a factor anywhere in the equation would break this."""
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 0.5, 1)
    flow = gradient_flow(start, questions, until=4.0)
    squares = []
    for time in np.linspace(0.0, 4.0, 41):
        at = start if time == 0 else gradient_flow(start, questions, until=float(time)).end
        of_ov, of_kq = small.velocity(small.spread(at.ov), small.spread(at.kq))
        squares.append((of_ov**2).sum() + (of_kq**2).sum())
    from scipy.integrate import simpson

    lost = simpson(squares, dx=0.1)
    assert lost == pytest.approx(flow.loss[0] - flow.loss[-1], rel=1e-5)


def test_theorem_5_predictions_become_right_for_every_question():
    """At the end every question's loss is small, not only their mean; and it goes on falling."""
    experiment = FlowSpec(FIGURE_5, start="balanced")
    flow = experiment.flow(until=20_000.0)
    assert flow.loss[-1] < 3e-4
    assert flow.seen.loss_of_subjects[-1].max() < 4e-4


# ---- times and ends ------------------------------------------------------------------------------


def test_times_are_those_asked_for_and_a_fine_grid():
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 0.5, 0)
    flow = gradient_flow(start, questions, until=4.0, times=np.array([0.12345, 1.0]))
    assert 2048 <= len(flow.times) <= 2052
    assert flow.times[0] == 0
    assert flow.times[-1] == 4.0
    assert np.isclose(flow.times, 4 * 0.12345, rtol=1e-14).any()
    assert flow.kq.shape == (len(flow.times), questions.tokens)
    # A point of the grid is what a flow that ends there has at its end.
    place = flow.nearest(np.array([2.0]))[0]
    half = gradient_flow(start, questions, until=2.0)
    assert flow.times[place] == 2.0
    assert flow.loss[place] == pytest.approx(half.loss[-1], abs=1e-10)


def test_what_is_found_does_not_depend_on_how_long_it_goes_on():
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    start = LinearAttention.balanced(questions.tokens, small.ANSWERS, 1e-4)
    short, long = (gradient_flow(start, questions, until=until) for until in (None, 1e6))
    assert long.times[-1] == 1e6
    assert long.converged_at == pytest.approx(short.converged_at, rel=1e-3)
    for level in (0.2, 0.5, 0.9):
        assert long.first_below(level) == pytest.approx(short.first_below(level), rel=1e-3)


def test_a_time_too_far_for_the_solver_is_named():
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 0.5, 0)
    with pytest.raises(FactmemError, match=r"gave up between the times .* end earlier"):
        gradient_flow(start, questions, until=1e300)


def test_a_flow_that_never_converges_is_given_up():
    """Relations that share answers may ask for more than sums of what tokens say."""
    table = FactTable(np.array([[0, 1], [1, 0], [0, 0]]), answer_names=small.TABLE.answer_names)
    questions = Population.of(table, noise=small.N, length=small.T)
    flow = gradient_flow(LinearAttention.equal(questions.tokens, 4, 1e-3), questions)
    assert flow.loss[-1] > 0.1
    assert flow.loss[-1] < flow.loss[0] - 0.1


def test_reports_tell_how_far_it_is():
    told = []
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    start = LinearAttention.random(questions.tokens, small.ANSWERS, 0.5, 0)
    gradient_flow(start, questions, report=lambda points, **figures: told.append((points, figures)))
    assert told[-1][0] == 2048
    assert told[-1][1]["loss"] == pytest.approx(CONVERGED, abs=1e-6)
    assert [points for points, _ in told] == sorted(points for points, _ in told)


def test_float64_is_not_left_on():
    figure_5("equal")
    assert not jax.config.jax_enable_x64


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-200])
def test_weights_from_which_float64_cannot_leave_zero_are_refused(scale):
    questions = Population.of(small.TABLE)
    with pytest.raises(FactmemError, match="float64 cannot leave zero"):
        gradient_flow(LinearAttention.equal(questions.tokens, 4, scale), questions)


def test_the_smallest_scale_that_is_allowed_does_leave_zero():
    questions = Population.of(small.TABLE, noise=small.N, length=small.T)
    flow = gradient_flow(LinearAttention.balanced(questions.tokens, 4, 2e-150), questions)
    assert flow.loss[-1] == pytest.approx(CONVERGED, abs=1e-6)
    assert drift(flow).max() < TOLERANCE


@pytest.mark.parametrize("until", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(until):
    questions = Population.of(small.TABLE)
    with pytest.raises(FactmemError, match="ends at a time above 0"):
        gradient_flow(LinearAttention.equal(questions.tokens, 4, 1e-3), questions, until=until)


def test_weights_for_another_table_are_refused():
    with pytest.raises(FactmemError, match=r"weights for \(3, 4\) instead of \(7, 4\)"):
        gradient_flow(LinearAttention.equal(3, 4, 1e-3), Population.of(small.TABLE))


def test_infinite_weights_are_refused():
    questions = Population.of(small.TABLE)
    with pytest.raises(FactmemError, match="finite"):
        gradient_flow(LinearAttention.equal(questions.tokens, 4, np.inf), questions)


@pytest.mark.parametrize("answers", [[[0, 1], [1, 0]], [[0], [0]]])
def test_a_table_whose_tokens_alone_say_nothing_is_refused(answers):
    questions = Population.of(FactTable(np.array(answers)), noise=2, length=4)
    start = LinearAttention.equal(questions.tokens, questions.given_relation.shape[1], 1e-3)
    with pytest.raises(FactmemError, match="no token alone says anything"):
        gradient_flow(start, questions)
