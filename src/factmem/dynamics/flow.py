"""Gradient flow of the population loss, in float64 and with adaptive steps.

d/dt W_OV(a, z) = W_KQ(z) · E[C(z) (1{a = a*} − p̂(a))]
d/dt W_KQ(z)    = Σ_a W_OV(a, z) · E[C(z) (1{a = a*} − p̂(a))]
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Bool, Float, Int

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem._core.result import Result, Status
from factmem.dynamics.curves import CONVERGED_LOSS, Curves
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.prompt_ensembles import LossStatistics, PromptEnsemble

__all__ = ["MIN_SCALE", "Flow", "FlowStatus", "gradient_flow"]

MIN_SCALE = 1e-150
"""The smallest scale of a start: the squares of smaller weights underflow in float64."""

_TOLERANCE = 1e-13
_MAX_SOLVER_STEPS = 2**17
"""In one segment."""
_GRID_POINTS = 1024
"""Recorded times besides the requested ones: so many equally spaced, and as many logarithmically
spaced from a tenth of the fastest escape time on."""
_SEGMENT_POINTS = 128
"""Times that are recorded between two reports."""
_MAX_ESCAPE_TIMES = 16.0
"""A flow without an end time stops after so many times the slowest escape time."""


class FlowStatus(Status):
    """How a gradient flow ended."""

    CONVERGED = "The loss came down to the convergence threshold."
    END_TIME = "The flow reached the requested end time."
    NOT_CONVERGED = "The loss did not converge within 16 times the slowest escape time."


@dataclass(frozen=True, kw_only=True)
class Flow(Curves, Result[LinearAttention]):
    """A gradient flow, recorded at the requested times and on a fine grid.

    Args:
        model: the weights at the end.
        status: how the flow ended.
        start: the initial weights.
        kq: W_KQ(z) at every time.
        largest_ov: max_a |W_OV(a, z)| at every time.
        invariant: W_KQ(z)² − Σ_a W_OV(a, z)² at every time.
        solver_steps: the number of solver steps.
    """

    status: FlowStatus
    start: LinearAttention
    kq: Float[np.ndarray, "points tokens"]
    largest_ov: Float[np.ndarray, "points tokens"]
    invariant: Float[np.ndarray, "points tokens"]
    solver_steps: int

    @property
    def invariant_drift(self) -> float:
        """The largest change of any token's invariant, relative to its largest W_KQ(z)²."""
        change = np.abs(self.invariant - self.start.invariant[None, :]).max(axis=0)
        return float((change / (self.kq**2).max(axis=0)).max())

    @property
    def metrics(self) -> dict[str, Any]:
        """Final loss in nats, convergence time, drift of the invariant, and solver steps."""
        return {
            "loss": float(self.loss[-1]),
            "converged_at": self.converged_at,
            "invariant_drift": self.invariant_drift,
            "solver_steps": self.solver_steps,
        }


class _Record(NamedTuple):
    """What a flow records at one time; see `Flow`."""

    statistics: LossStatistics
    kq: Float[Array, " tokens"]
    largest_ov: Float[Array, " tokens"]
    invariant: Float[Array, " tokens"]


def gradient_flow(
    start: LinearAttention,
    prompts: PromptEnsemble,
    *,
    until: float | None = None,
    times: Float[np.ndarray, " times"] | None = None,
    report: Report | None = None,
) -> Flow:
    """Follow the negative gradient from a start.

    Args:
        start: initial weights, with one noise token if the prompts are a `PromptPopulation`.
        prompts: the prompts that the loss averages over.
        until: the end time; None ends the flow when the loss is down to `CONVERGED_LOSS`, or when
            it is clear that it will not be.
        times: further times to record, as fractions from 0 to 1 of the total time.
        report: called with the number of recorded points; None while the end is searched for.

    Raises:
        FactmemError: the start cannot leave zero in float64, the end time is not positive, or the
            solver needs too many steps.
    """
    _check_start(start, prompts)
    if until is not None and not 0 < until < np.inf:
        raise FactmemError(f"until must be positive and finite, got {until}")
    with jax.enable_x64(True):
        model = jax.tree.map(jnp.asarray, start)
        errors = jax.jit(PromptEnsemble.errors)(prompts, 0.0 * model.products)
        rates = np.linalg.norm(errors, axis=1)
        _check_rates(rates)
        status = FlowStatus.END_TIME
        if until is None:
            until, status = _find_end(model, prompts, rates, report)
        early = min(0.1 / float(rates.max()) / until, 1.0)
        fractions = [
            np.linspace(0.0, 1.0, _GRID_POINTS + 1),
            np.geomspace(early, 1.0, _GRID_POINTS),
        ]
        fractions += [] if times is None else [times]
        recorded_times = until * np.unique(np.concatenate(fractions))
        return _record_flow(start, model, prompts, recorded_times, status, report)


def _check_start(start: LinearAttention, prompts: PromptEnsemble) -> None:
    expected = (prompts.tokens, prompts.given_relation.shape[1])
    if start.ov.shape != expected:
        raise FactmemError(f"W_OV must have shape {expected}, got {start.ov.shape}")
    largest = max(np.abs(start.ov).max(), np.abs(start.kq).max())
    if not np.isfinite(largest):
        raise FactmemError("the start must be finite, got NaN or infinity")
    if largest < MIN_SCALE:
        raise FactmemError(
            f"the largest weight of the start must be at least {MIN_SCALE:g}, got {largest:g}: "
            "squares of smaller weights underflow in float64"
        )


def _check_rates(rates: Float[np.ndarray, " tokens"]) -> None:
    if rates.max() < 1e-12:
        raise FactmemError(
            "gradient flow does not leave its start: no single token carries information about "
            "the answer, or there is only one answer"
        )


# ---- the end time --------------------------------------------------------------------------------


def _find_end(
    model: LinearAttention,
    prompts: PromptEnsemble,
    rates: Float[np.ndarray, " tokens"],
    report: Report | None,
) -> tuple[float, FlowStatus]:
    """Return when the loss comes down to `CONVERGED_LOSS`, or when the flow stops without."""
    scale = _weight_scale(model)
    slowest = rates[rates > 1e-3 * rates.max()].min()
    max_time = _MAX_ESCAPE_TIMES * (1.0 + max(0.0, -np.log(float(scale)))) / slowest
    time = 0.0
    while time < max_time:
        # The length of a segment grows with time, so there are few segments in a long flow.
        stop = min(max_time, time + max(4.0 / rates.max(), 0.25 * time))
        ends = np.append(time, np.full(_SEGMENT_POINTS, stop))
        segment = _solve_segment(
            model, prompts, jnp.asarray(ends), scale, jnp.asarray(CONVERGED_LOSS)
        )
        _check_solved(segment, time, stop)
        model, time = segment.model, float(segment.time)
        if report is not None:
            report(None, time=time, loss=float(_loss(model, prompts)))
        if segment.converged:
            return time, FlowStatus.CONVERGED
    return time, FlowStatus.NOT_CONVERGED


# ---- recording -----------------------------------------------------------------------------------


def _record_flow(
    start: LinearAttention,
    model: LinearAttention,
    prompts: PromptEnsemble,
    times: Float[np.ndarray, " points"],
    status: FlowStatus,
    report: Report | None,
) -> Flow:
    records, steps, scale = [], 0, _weight_scale(model)
    for first in range(0, len(times) - 1, _SEGMENT_POINTS):
        segment_times = times[first : first + _SEGMENT_POINTS + 1]
        # Padded with the last time to one length for all segments, so it is compiled once.
        padding = (0, _SEGMENT_POINTS + 1 - len(segment_times))
        padded = np.pad(segment_times, padding, mode="edge")
        segment = _solve_segment(model, prompts, jnp.asarray(padded), scale, jnp.asarray(-1.0))
        _check_solved(segment, float(segment_times[0]), float(segment_times[-1]))
        model = segment.model
        records.append(_rows(segment.record, 0 if first == 0 else 1, len(segment_times)))
        steps += int(segment.steps)
        if report is not None:
            loss = float(records[-1].statistics.loss[-1])
            report(first + len(segment_times), time=float(segment_times[-1]), loss=loss)
    record = jax.tree.map(lambda *parts: np.concatenate(parts), *records)
    return Flow(
        times,
        record.statistics,
        model=jax.tree.map(np.asarray, model),
        status=status,
        start=start,
        kq=record.kq,
        largest_ov=record.largest_ov,
        invariant=record.invariant,
        solver_steps=steps,
    )


def _rows(record: _Record, first: int, end: int) -> _Record:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[first:end], record)


# ---- the differential equation -------------------------------------------------------------------


def _velocity(t: object, y: LinearAttention, prompts: PromptEnsemble) -> LinearAttention:
    errors = prompts.errors(y.products)
    return LinearAttention(y.kq[:, None] * errors, jnp.sum(y.ov * errors, axis=1))


@eqx.filter_jit
def _loss(model: LinearAttention, prompts: PromptEnsemble) -> Float[Array, ""]:
    return prompts.statistics(prompts.log_probabilities(model.products)).loss


def _weight_scale(start: LinearAttention) -> Float[Array, ""]:
    """Return the largest initial weight; the absolute tolerance is relative to it."""
    return jnp.maximum(jnp.max(jnp.abs(start.ov)), jnp.max(jnp.abs(start.kq)))


class _Segment(NamedTuple):
    record: _Record
    """At every time up to the end."""
    model: LinearAttention
    """At the end."""
    time: Float[Array, ""]
    converged: Bool[Array, ""]
    """Whether the loss came down to the given level."""
    solved: Bool[Array, ""]
    steps: Int[Array, ""]


@eqx.filter_jit
def _solve_segment(
    model: LinearAttention,
    prompts: PromptEnsemble,
    times: Float[Array, " times"],
    scale: Float[Array, ""],
    stop_loss: Float[Array, ""],
) -> _Segment:
    """Solve from the first to the last time, or until the loss comes down to `stop_loss`."""

    def record_at(t: Array, y: LinearAttention, args: PromptEnsemble) -> _Record:
        statistics = args.statistics(args.log_probabilities(y.products))
        largest_ov = jnp.max(jnp.abs(y.ov), axis=1)
        return _Record(statistics, jnp.asarray(y.kq), largest_ov, jnp.asarray(y.invariant))

    def excess_loss(t: Array, y: LinearAttention, *_: object, **__: object) -> Array:
        return _loss(y, prompts) - stop_loss

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_velocity),
        diffrax.Dopri8(),
        times[0],
        times[-1],
        None,
        model,
        prompts,
        stepsize_controller=diffrax.PIDController(
            rtol=_TOLERANCE, atol=_TOLERANCE * scale, norm=optimistix.max_norm
        ),
        saveat=diffrax.SaveAt(
            subs=[diffrax.SubSaveAt(ts=times, fn=record_at), diffrax.SubSaveAt(t1=True)]
        ),
        event=diffrax.Event(excess_loss, optimistix.Newton(rtol=1e-9, atol=1e-9)),
        adjoint=diffrax.ForwardMode(),
        max_steps=_MAX_SOLVER_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    assert solution.ts is not None
    record, end = solution.ys
    converged = solution.result == diffrax.RESULTS.event_occurred
    solved = converged | (solution.result == diffrax.RESULTS.successful)
    last = jax.tree.map(lambda leaf: leaf[-1], end)
    steps = solution.stats["num_steps"]
    return _Segment(record, last, solution.ts[1][-1], converged, solved, steps)


def _check_solved(segment: _Segment, start: float, stop: float) -> None:
    if not segment.solved:
        raise FactmemError(
            f"the solver reached its step limit between times {start:g} and {stop:g}: use an "
            "earlier end time or smaller initial weights"
        )
