"""The table of claims: the statement, the verdict, its evidence and the method of each."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from factmem.paper.checking import CheckedClaim
from factmem.paper.claim import Check, Verdict

__all__ = ["claims_context"]


def claims_context(claims: Sequence[CheckedClaim]) -> dict[str, Any]:
    """Return the variables of the template `claims.html`."""
    return {
        "summary": _summary(claims),
        "groups": sorted(Counter(map(_group, claims)).items()),
        "rows": [_row(checked) for checked in claims],
    }


def _row(checked: CheckedClaim) -> dict[str, Any]:
    finding = checked.finding
    within = "" if finding.max_deviation is None else f" {100 * finding.max_deviation:.2g}%"
    return {
        "claim": checked.claim,
        "group": _group(checked),
        "rating": _rating(checked),
        "verdict": finding.verdict.sentence + within + _expectation(checked),
        "checks": [(_check_text(check), check.holds) for check in finding.checks],
        "note": finding.note,
        "source": _source(checked),
    }


def _check_text(check: Check) -> str:
    measured = f"{check.measured:.4g}" if math.isfinite(check.measured) else "not a number"
    return f"{check.quantity}: {measured} ({check.expected})"


def _expectation(checked: CheckedClaim) -> str:
    """Return what was expected of a claim that is known to be wrong."""
    if not checked.claim.refuted:
        return ""
    return ", as expected: it is a misreading" if checked.as_expected else ", unexpectedly"


def _group(checked: CheckedClaim) -> str:
    """Return the name under which the verdict is counted and filtered."""
    as_expected = checked.claim.refuted and checked.as_expected
    return checked.finding.verdict.sentence + (", as expected" if as_expected else "")


def _rating(checked: CheckedClaim) -> str:
    if checked.finding.verdict is Verdict.NOT_CHECKABLE:
        return "unknown"
    return "good" if checked.as_expected else "bad"


def _source(checked: CheckedClaim) -> str:
    seeds, runs = len(checked.seeds), checked.runs
    read = f" ({checked.runs_read} from the run store)" if checked.runs_read else ""
    return (
        f"{checked.scale.capitalize()} measurement: {seeds} seed{'s' * (seeds != 1)}, "
        f"{runs} run{'s' * (runs != 1)}{read}, {checked.seconds:.3g} s on one core."
    )


def _summary(claims: Sequence[CheckedClaim]) -> str:
    unexpected = [checked.claim.id for checked in claims if not checked.as_expected]
    summary = f"{len(claims) - len(unexpected)} of {len(claims)} claims are as expected."
    return f"{summary} Not as expected: {', '.join(unexpected)}." if unexpected else summary
