"""The table of claims: what the paper says, what became of it, and what that rests on."""

import html
import math
from collections import Counter

from factmem.paper.checking import Checked
from factmem.paper.claim import Check, Verdict

__all__ = ["claims_table"]


def claims_table(claims: tuple[Checked, ...]) -> str:
    """The table as HTML, with buttons that show only one verdict."""
    rows = "\n".join(map(_row, claims))
    return f"""<section aria-labeledby="claims" class="claims">
<h2 id="claims">The claims of the paper</h2>
<p>{html.escape(_summary(claims))}</p>
{_filters(claims)}
<table role="table" aria-labeledby="claims">
<thead role="rowgroup"><tr role="row">
<th role="columnheader" scope="col">Claim</th>
<th role="columnheader" scope="col">Verdict</th>
<th role="columnheader" scope="col">Evidence</th>
<th role="columnheader" scope="col">How it was checked</th>
</tr></thead>
<tbody role="rowgroup">
{rows}
</tbody>
</table>
</section>"""


def _row(checked: Checked) -> str:
    claim, finding = checked.claim, checked.finding
    checks = "".join(map(_check, finding.checks))
    evidence = f'<ul class="marked">{checks}</ul>' if checks else ""
    note = f"<p>{html.escape(finding.note)}</p>" if finding.note else ""
    within = "" if finding.within is None else f" {100 * finding.within:.2g} %"
    verdict = finding.verdict.value + within + _aside(checked)
    return f"""<tr role="row" data-verdict="{html.escape(_group(checked))}">
<th role="rowheader" scope="row"><code>{html.escape(claim.id)}</code>
<p>{html.escape(claim.claim)}</p><p class="place">{html.escape(claim.place)}</p></th>
<td role="cell" class="verdict {_mood(checked)}">{html.escape(verdict)}</td>
<td role="cell">{evidence}{note}</td>
<td role="cell"><p>{html.escape(claim.method)}</p><p class="place">{_source(checked)}</p></td>
</tr>"""


def _check(check: Check) -> str:
    measured = f"{check.measured:.4g}" if math.isfinite(check.measured) else "no number"
    told = html.escape(f"{check.what}: {measured} ({check.expected})")
    if check.holds:
        return f'<li class="good">{told}</li>'
    return f'<li class="bad"><span class="hidden">Does not hold: </span>{told}</li>'


def _aside(checked: Checked) -> str:
    """What a verdict means for a claim that is known to be a misreading."""
    if not checked.claim.refuted:
        return ""
    return ", as it should: a misreading" if checked.as_expected else ", though it is a misreading"


def _group(checked: Checked) -> str:
    """The words under which a verdict is counted."""
    as_it_should = checked.claim.refuted and checked.as_expected
    return checked.finding.verdict.value + (", as it should" if as_it_should else "")


def _mood(checked: Checked) -> str:
    if checked.finding.verdict is Verdict.NOT_CHECKABLE:
        return "unknown"
    return "good" if checked.as_expected else "bad"


def _source(checked: Checked) -> str:
    scale = "Slow measurement" if checked.at_length else "Quick measurement"
    seeds, runs = len(checked.seeds), checked.runs
    read = f" ({checked.read} kept from before)" if checked.read else ""
    return (
        f"{scale}: {seeds} seed{'s' * (seeds != 1)}, {runs} run{'s' * (runs != 1)}{read}, "
        f"{checked.seconds:.3g} s on one core."
    )


def _summary(claims: tuple[Checked, ...]) -> str:
    expected = sum(checked.as_expected for checked in claims)
    wrong = [checked.claim.id for checked in claims if not checked.as_expected]
    told = f"{expected} of {len(claims)} come out as they should."
    return f"{told} Those that do not: {', '.join(wrong)}." if wrong else told


def _filters(claims: tuple[Checked, ...]) -> str:
    counts = Counter(map(_group, claims))
    if len(counts) < 2:
        return ""
    buttons = "\n".join(
        f'<button type="button" class="filter" aria-pressed="false" '
        f'data-verdict="{html.escape(group)}">{html.escape(group)} ({count})</button>'
        for group, count in sorted(counts.items())
    )
    return f"""<div class="choices" role="group" aria-label="Verdicts shown">
<button type="button" class="filter" aria-pressed="true" data-verdict="">all
({len(claims)})</button>
{buttons}
</div>"""
