"""Gradient flow of the population loss, in float64 and with adaptive steps.

d/dt W_OV(a, z) = W_KQ(z) · E[C(z) (1{a = a*} − p̂(a))]
d/dt W_KQ(z)    = Σ_a W_OV(a, z) · E[C(z) (1{a = a*} − p̂(a))]
"""

from dataclasses import dataclass
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Bool, Float, Int

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.dynamics.curves import CONVERGED, Curves
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.questions import Questions, Seen

__all__ = ["LEAST_SCALE", "Flow", "gradient_flow"]

LEAST_SCALE = 1e-150
"""Below this the squares of weights are not numbers of float64 any more."""

_TOLERANCE = 1e-13
_MOST_STEPS = 2**17
"""Of the solver, in one stretch."""
_FINE = 1024
"""Times at which a flow is looked at besides those that are asked for: so many in equal steps, and
as many in equal factors from a tenth of the fastest escape on."""
_STRETCH = 128
"""Times that are recorded between two reports."""
_PATIENCE = 16.0
"""A flow that should end by itself is given up after so many times the slowest escape."""


@dataclass(frozen=True)
class Flow(Curves):
    """A gradient flow, at many times: those that were asked for, and a fine grid."""

    start: LinearAttention
    end: LinearAttention
    kq: Float[np.ndarray, "points tokens"]
    """W_KQ(z)."""
    largest_ov: Float[np.ndarray, "points tokens"]
    """max_a |W_OV(a, z)|."""
    invariant: Float[np.ndarray, "points tokens"]
    """W_KQ(z)² − Σ_a W_OV(a, z)²."""
    solver_steps: int

    @property
    def invariant_drift(self) -> float:
        """The largest change of any token's invariant, relative to its largest W_KQ(z)²."""
        change = np.abs(self.invariant - self.start.invariant[None, :]).max(axis=0)
        return float((change / (self.kq**2).max(axis=0)).max())


class _Record(NamedTuple):
    seen: Seen
    kq: Float[Array, " tokens"]
    largest_ov: Float[Array, " tokens"]
    invariant: Float[Array, " tokens"]


def gradient_flow(
    start: LinearAttention,
    questions: Questions,
    *,
    until: float | None = None,
    times: Float[np.ndarray, " times"] | None = None,
    report: Report | None = None,
) -> Flow:
    """Follows the gradient from a start.

    Args:
        start: weights; equal on noise if the questions are a `Population`.
        questions: what the loss averages over.
        until: the time at which it ends; if left out, when the loss has come down to `CONVERGED`,
            or is not going to.
        times: further times at which to look, as parts of the whole: from 0 to 1.
        report: called with the points recorded.

    Raises:
        FactmemError: a start from which the flow cannot leave in float64, a time that is no time,
            or a solver that needs too many steps.
    """
    _check_start(start, questions)
    if until is not None and not 0 < until < np.inf:
        raise FactmemError(f"a flow ends at a time above 0, not at {until}")
    with jax.enable_x64(True):
        model = jax.tree.map(jnp.asarray, start)
        rates = np.linalg.norm(jax.jit(Questions.errors)(questions, 0.0 * model.products), axis=1)
        _check_rates(rates)
        if until is None:
            until = _end(model, questions, rates, report)
        early = min(0.1 / float(rates.max()) / until, 1.0)
        parts = [np.linspace(0.0, 1.0, _FINE + 1), np.geomspace(early, 1.0, _FINE)]
        parts += [] if times is None else [times]
        wanted = until * np.unique(np.concatenate(parts))
        return _recorded(start, model, questions, wanted, report)


def _check_start(start: LinearAttention, questions: Questions) -> None:
    expected = (questions.tokens, questions.given_relation.shape[1])
    if start.ov.shape != expected:
        raise FactmemError(f"weights for {start.ov.shape} instead of {expected} tokens and answers")
    largest = max(np.abs(start.ov).max(), np.abs(start.kq).max())
    if not np.isfinite(largest):
        raise FactmemError("a flow starts from finite weights")
    if largest < LEAST_SCALE:
        raise FactmemError(
            f"from weights of {largest:g} float64 cannot leave zero, for their squares vanish: "
            f"start from at least {LEAST_SCALE:g}"
        )


def _check_rates(rates: Float[np.ndarray, " tokens"]) -> None:
    if rates.max() < 1e-12:
        raise FactmemError(
            "no token alone says anything about the answer (or there is but one answer), "
            "so gradient flow stays where it starts"
        )


# ---- when it ends --------------------------------------------------------------------------------


def _end(
    model: LinearAttention,
    questions: Questions,
    rates: Float[np.ndarray, " tokens"],
    report: Report | None,
) -> float:
    """The time at which the loss comes down to `CONVERGED`, or at which it is given up."""
    scale = _scale(model)
    slowest = rates[rates > 1e-3 * rates.max()].min()
    patience = _PATIENCE * (1.0 + max(0.0, -np.log(float(scale)))) / slowest
    time = 0.0
    while time < patience:
        # Each stretch is a part of what is behind, so that there are few, however long it takes.
        stop = min(patience, time + max(4.0 / rates.max(), 0.25 * time))
        ends = np.append(time, np.full(_STRETCH, stop))
        stretch = _stretch(model, questions, jnp.asarray(ends), scale, jnp.asarray(CONVERGED))
        _check_solved(stretch, time, stop)
        model, time = stretch.model, float(stretch.time)
        if report is not None:
            report(0, time=time, loss=float(_loss(model, questions)))
        if stretch.ended:
            break
    return time


# ---- what is seen on the way ---------------------------------------------------------------------


def _recorded(
    start: LinearAttention,
    model: LinearAttention,
    questions: Questions,
    times: Float[np.ndarray, " points"],
    report: Report | None,
) -> Flow:
    records, steps, scale = [], 0, _scale(model)
    for first in range(0, len(times) - 1, _STRETCH):
        within = times[first : first + _STRETCH + 1]
        # The same length for all, so that one program serves: the last time again and again.
        padded = np.pad(within, (0, _STRETCH + 1 - len(within)), mode="edge")
        stretch = _stretch(model, questions, jnp.asarray(padded), scale, jnp.asarray(-1.0))
        _check_solved(stretch, float(within[0]), float(within[-1]))
        model = stretch.model
        records.append(_rows(stretch.record, 0 if first == 0 else 1, len(within)))
        steps += int(stretch.steps)
        if report is not None:
            loss = float(records[-1].seen.loss[-1])
            report(first + len(within), time=float(within[-1]), loss=loss)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *records)
    end = jax.tree.map(np.asarray, model)
    return Flow(times, whole.seen, start, end, *whole[1:], solver_steps=steps)


def _rows(record: _Record, first: int, end: int) -> _Record:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[first:end], record)


# ---- the equation --------------------------------------------------------------------------------


def _velocity(t: object, y: LinearAttention, questions: Questions) -> LinearAttention:
    errors = questions.errors(y.products)
    return LinearAttention(y.kq[:, None] * errors, jnp.sum(y.ov * errors, axis=1))


@eqx.filter_jit
def _loss(model: LinearAttention, questions: Questions) -> Float[Array, ""]:
    return questions.see(questions.log_probabilities(model.products)).loss


def _scale(start: LinearAttention) -> Float[Array, ""]:
    """How large weights are where a flow starts: those that stay small are followed too."""
    return jnp.maximum(jnp.max(jnp.abs(start.ov)), jnp.max(jnp.abs(start.kq)))


class _Stretch(NamedTuple):
    record: _Record
    """At every time up to the end."""
    model: LinearAttention
    """At the end."""
    time: Float[Array, ""]
    ended: Bool[Array, ""]
    """Whether the loss came down to the floor."""
    solved: Bool[Array, ""]
    steps: Int[Array, ""]


@eqx.filter_jit
def _stretch(
    model: LinearAttention,
    questions: Questions,
    times: Float[Array, " times"],
    scale: Float[Array, ""],
    floor: Float[Array, ""],
) -> _Stretch:
    """What is seen from the first to the last time, or until the loss comes down to the floor."""

    def look(t: Array, y: LinearAttention, args: Questions) -> _Record:
        seen = args.see(args.log_probabilities(y.products))
        largest = jnp.max(jnp.abs(y.ov), axis=1)
        return _Record(seen, jnp.asarray(y.kq), largest, jnp.asarray(y.invariant))

    def above(t: Array, y: LinearAttention, *_: object, **__: object) -> Array:
        return _loss(y, questions) - floor

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_velocity),
        diffrax.Dopri8(),
        times[0],
        times[-1],
        None,
        model,
        questions,
        stepsize_controller=diffrax.PIDController(
            rtol=_TOLERANCE, atol=_TOLERANCE * scale, norm=optimistix.max_norm
        ),
        saveat=diffrax.SaveAt(
            subs=[diffrax.SubSaveAt(ts=times, fn=look), diffrax.SubSaveAt(t1=True)]
        ),
        event=diffrax.Event(above, optimistix.Newton(rtol=1e-9, atol=1e-9)),
        adjoint=diffrax.ForwardMode(),
        max_steps=_MOST_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    assert solution.ts is not None
    record, end = solution.ys
    ended = solution.result == diffrax.RESULTS.event_occurred
    solved = ended | (solution.result == diffrax.RESULTS.successful)
    last = jax.tree.map(lambda leaf: leaf[-1], end)
    steps = solution.stats["num_steps"]
    return _Stretch(record, last, solution.ts[1][-1], ended, solved, steps)


def _check_solved(stretch: _Stretch, start: float, stop: float) -> None:
    if not stretch.solved:
        raise FactmemError(
            f"the solver gave up between the times {start:g} and {stop:g}: end earlier, or start "
            f"from smaller weights"
        )
