"""Checking claims: all measurements run together on all workers, then each claim is judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from factmem.experiments.measurement import (
    Measurement,
    Progress,
    complete_records,
    measure,
    unique_tasks,
)
from factmem.experiments.scheduler import PendingTasks, Records
from factmem.experiments.store import Store
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers
from factmem.paper.claim import Claim, Finding, MeasurementError, Verdict
from factmem.paper.figure import Scale

__all__ = ["CheckedClaim", "ClaimGroup", "check_claims"]


@dataclass(frozen=True)
class CheckedClaim:
    """A claim with its finding.

    Args:
        claim: the claim.
        finding: the verdict and its evidence.
        scale: `paper` if the slower measurement was used.
        seeds: seeds of all runs that the finding rests on.
        runs: number of those runs.
        runs_read: how many of them were read from the store.
        seconds: total duration of those runs, on one core each, whenever they were made.
    """

    claim: Claim
    finding: Finding
    scale: Scale
    seeds: tuple[int, ...]
    runs: int
    runs_read: int
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the claim holds or, if it is known to be wrong, fails."""
        if self.claim.refuted:
            return self.finding.verdict is Verdict.FAILS
        return self.finding.verdict in (Verdict.HOLDS, Verdict.HOLDS_WITHIN)


def check_claims(
    claims: Sequence[Claim],
    store: Store,
    workers: Workers,
    *,
    scale: Scale = "quick",
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> list[CheckedClaim]:
    """Measure what claims need, and judge them.

    Args:
        claims: the claims.
        store: the run store. A paper-scale measurement that it has completely is used in place of
            the quick one; new runs are written to it.
        workers: the processes that execute tasks.
        scale: `paper` makes the slower measurements of the claims that have one.
        fresh: ignore stored results and replace them.
        report: called every second and after every run.
    """
    group = ClaimGroup(claims, store, scale=scale, fresh=fresh)
    return measure(group, store, workers, fresh=fresh, report=report)


class ClaimGroup:
    """Several claims as one measurement, whose result is a list of `CheckedClaim`."""

    def __init__(
        self, claims: Sequence[Claim], store: Store, *, scale: Scale = "quick", fresh: bool = False
    ) -> None:
        self.claims = claims
        self.scales: list[Scale] = [_choose_scale(claim, store, scale, fresh) for claim in claims]

    @property
    def measurements(self) -> list[Measurement]:
        """The measurement of each claim."""
        return [
            _measurement(claim, scale)
            for claim, scale in zip(self.claims, self.scales, strict=True)
        ]

    def pending(self, known: Records) -> PendingTasks:
        """Return the pending tasks of all claims."""
        return PendingTasks.interleave([part.pending(known) for part in self.measurements])

    def result(self, known: Records) -> list[CheckedClaim]:
        """Judge every claim, in order."""
        return [
            _check(claim, scale, known)
            for claim, scale in zip(self.claims, self.scales, strict=True)
        ]

    def used_tasks(self, known: Records) -> Sequence[Task]:
        """Return the tasks of all claims, each once."""
        return unique_tasks(self.measurements, known)

    def remaining(self, known: Records) -> int:
        """Estimate the remaining tasks; a task shared by several claims counts for each."""
        return sum(part.remaining(known) for part in self.measurements)


def _choose_scale(claim: Claim, store: Store, scale: Scale, fresh: bool) -> Scale:
    """Return `paper` if the slower measurement is requested or completely stored."""
    slow = claim.paper_measurement
    if slow is None:
        return "quick"
    stored = not fresh and complete_records(slow, store) is not None
    return "paper" if scale == "paper" or stored else "quick"


def _measurement(claim: Claim, scale: Scale) -> Measurement:
    if scale == "quick":
        return claim.measurement
    assert claim.paper_measurement is not None
    return claim.paper_measurement


def _check(claim: Claim, scale: Scale, known: Records) -> CheckedClaim:
    measurement = _measurement(claim, scale)
    identities = [task.identity for task in unique_tasks([measurement], known)]
    records = [known[identity] for identity in identities if identity in known]
    errors = [
        f"{record.experiment}: {record.error}" for record in records if record.error is not None
    ]
    if errors:
        finding = Finding(Verdict.NOT_CHECKABLE, (), note=errors[0])
    else:
        finding = _judge(claim, measurement.result(known))
    return CheckedClaim(
        claim,
        finding,
        scale,
        tuple(sorted({record.seed for record in records if record.seed is not None})),
        len(records),
        sum(record.from_store for record in records),
        sum(record.seconds for record in records),
    )


def _judge(claim: Claim, result: Any) -> Finding:
    """Apply the claim's judge. A claim whose result cannot be judged fails."""
    try:
        return claim.judge(result)
    except MeasurementError as error:
        return Finding(Verdict.NOT_CHECKABLE, (), note=str(error))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        note = f"the result cannot be judged: {type(error).__name__}: {error}"
        return Finding(Verdict.FAILS, (), note=note)
