"""Checking claims: all that they need is measured at once, on all workers, and then judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from factmem.experiments.measurement import Measurement, Progress, complete_records, measure
from factmem.experiments.scheduler import Records, PendingTasks
from factmem.experiments.store import Store
from factmem.experiments.workers import Workers
from factmem.paper.claim import Claim, Finding, MeasurementError, Verdict

__all__ = ["Checked", "Checks", "check_claims"]


@dataclass(frozen=True)
class Checked:
    """A claim, and what was found.

    Args:
        claim: which.
        finding: the verdict, and what it rests on.
        at_length: whether the slow measurement was taken, not the quick one.
        seeds: of all runs that it rests on.
        runs: how many runs it rests on.
        read: how many of them the store had.
        seconds: that all of them took, on one core each, whenever that was.
    """

    claim: Claim
    finding: Finding
    at_length: bool
    seeds: tuple[int, ...]
    runs: int
    read: int
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether it holds; or, where it is known to be wrong, whether it fails."""
        if self.claim.refuted:
            return self.finding.verdict is Verdict.FAILS
        return self.finding.verdict in (Verdict.HOLDS, Verdict.WITHIN)


def check_claims(
    claims: Sequence[Claim],
    store: Store,
    workers: Workers,
    *,
    at_length: bool = False,
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> list[Checked]:
    """Measures what claims need, and judges.

    Args:
        claims: which.
        store: slow measurements that it has whole are taken from it; those that are made are kept.
        workers: who measures.
        at_length: whether slow measurements are made where the store lacks them.
        fresh: whether the store is ignored.
        report: told how far it is.
    """
    checks = Checks(claims, store, at_length=at_length, fresh=fresh)
    return measure(checks, store, workers, fresh=fresh, report=report)


class Checks:
    """Claims as one measurement, whose result is what was found of each; see `check_claims`."""

    def __init__(
        self, claims: Sequence[Claim], store: Store, *, at_length: bool = False, fresh: bool = False
    ) -> None:
        self.claims = claims
        self._chosen = [_chosen(claim, store, at_length, fresh) for claim in claims]

    def pending(self, known: Records) -> PendingTasks:
        """What any claim lacks."""
        return PendingTasks.of_all([measurement.pending(known) for measurement, _ in self._chosen])

    def remaining(self, known: Records) -> int:
        """About how many runs are still to be made."""
        return sum(measurement.remaining(known) for measurement, _ in self._chosen)

    def result(self, known: Records) -> list[Checked]:
        """Every claim, judged."""
        return [
            _judged(claim, measurement, slow, known)
            for claim, (measurement, slow) in zip(self.claims, self._chosen, strict=True)
        ]


def _chosen(claim: Claim, store: Store, at_length: bool, fresh: bool) -> tuple[Measurement, bool]:
    """The measurement to take, and whether it is the slow one."""
    slow = claim.at_length
    if slow is not None and (at_length or (not fresh and complete_records(slow, store) is not None)):
        return slow, True
    return claim.measured, False


def _judged(claim: Claim, measurement: Measurement, slow: bool, known: Records) -> Checked:
    seen = _Seen(known)
    result = measurement.result(seen)
    records = [known[identity] for identity in seen.asked if identity in known]
    failed = [record for record in records if record.error is not None]
    if failed:
        finding = Finding(Verdict.NOT_CHECKABLE, (), note=f"{failed[0].measure}: {failed[0].error}")
    else:
        finding = _finding(claim, result)
    return Checked(
        claim,
        finding,
        slow,
        tuple(sorted({record.seed for record in records if record.seed is not None})),
        len(records),
        sum(record.from_store for record in records),
        sum(record.seconds for record in records),
    )


def _finding(claim: Claim, result: Any) -> Finding:
    """What the claim's judge says. What it cannot judge does not hold."""
    try:
        return claim.judge(result)
    except MeasurementError as error:
        return Finding(Verdict.NOT_CHECKABLE, (), note=str(error))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        told = f"what was measured cannot be judged: {type(error).__name__}: {error}"
        return Finding(Verdict.FAILS, (), note=told)


class _Seen(dict[str, Any]):
    """What is known, and which of it was looked at."""

    def __init__(self, known: Records) -> None:
        super().__init__(known)
        self.asked: dict[str, None] = {}

    def __getitem__(self, identity: str) -> Any:
        self.asked[identity] = None
        return super().__getitem__(identity)

    def get(self, identity: str, default: Any = None) -> Any:
        self.asked[identity] = None
        return super().get(identity, default)
