"""`factmem claims`: checks every claim of the paper that can be checked numerically."""

import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem.cli.options import RunOptions, check_seed
from factmem.cli.progress import progress
from factmem.cli.render import CommandResult, OutputOptions
from factmem.paper.registry import claim_ids

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from factmem.paper import Check, CheckedClaim, Claim, Verdict

__all__ = ["claim_data", "claims"]

_MAX_SEED_OFFSET = 4
"""A claim uses seeds up to this many above the first."""


def claims(
    *,
    only: Annotated[
        list[str] | None,
        Parameter(help=f"ID of a claim; may be repeated. The IDs are {', '.join(claim_ids())}."),
    ] = None,
    scale: Literal["quick", "paper"] = "quick",
    seed: int = 0,
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Check every claim of the paper that can be checked numerically.

    The exit code is 1 if a result is not as expected: a claim of the paper that fails, or a
    known misreading of the paper that holds.

    Args:
        scale: paper also runs the slow measurements; quick uses them only if the store has them.
        seed: The first of the three seeds of every measurement.
    """
    check_seed(seed)
    check_seed(seed + _MAX_SEED_OFFSET)
    run.check()
    from factmem.experiments import Store
    from factmem.paper import all_claims, check_claims, get_claim

    ids = list(dict.fromkeys(only or ()))
    chosen = [get_claim(id, seed) for id in ids] or list(all_claims(seed))
    start = time.monotonic()
    with (
        Store(run.store_path) as store,
        run.make_workers() as workers,
        progress(output, "claims", total=_min_runs(chosen), unit="run") as report,
    ):
        checked = check_claims(
            chosen,
            store,
            workers,
            scale=scale,
            fresh=run.fresh,
            report=lambda state: report(state.done, running=state.running, left=state.remaining),
        )
    verdicts = [claim.finding.verdict.label for claim in checked]
    data = {
        "claims": [claim_data(claim) for claim in checked],
        "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        "as_expected": all(claim.as_expected for claim in checked),
        "scale": scale,
        "seed": seed,
        "store": run.store_path,
        "seconds": time.monotonic() - start,
    }
    return CommandResult(data, lambda: _render(checked, data), output, passed=data["as_expected"])


def _min_runs(chosen: "list[Claim]") -> int:
    """Return a lower bound on the number of runs; searches add more as they proceed."""
    return len({t.identity for claim in chosen for t in claim.measurement.pending({}).needed})


def claim_data(checked: "CheckedClaim") -> dict[str, Any]:
    """Return a checked claim as JSON data."""
    claim, finding = checked.claim, checked.finding
    return {
        "id": claim.id,
        "claim": claim.statement,
        "reference": claim.reference,
        "method": claim.method,
        "verdict": finding.verdict.label,
        "max_deviation": finding.max_deviation,
        "evidence": [asdict(check) for check in finding.checks],
        "note": finding.note,
        "refuted": claim.refuted,
        "as_expected": checked.as_expected,
        "seeds": list(checked.seeds),
        "scale": checked.scale,
        "runs": checked.runs,
        "runs_read": checked.runs_read,
        "run_seconds": checked.seconds,
    }


def _render(checked: "list[CheckedClaim]", data: dict[str, Any]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text("claims of the paper"), title_justify="left", show_lines=True)
    table.add_column("claim", ratio=5)
    table.add_column("verdict", ratio=1)
    table.add_column("evidence", ratio=5)
    for result in checked:
        claim = Text(result.claim.id, style="bold")
        claim.append(f"\n{result.claim.statement}\n", style="not bold")
        claim.append(f"{result.claim.reference}; {_describe_runs(result)}", style="dim not bold")
        lines = [_format_check(check) for check in result.finding.checks]
        lines += [result.finding.note] if result.finding.note else []
        table.add_row(claim, _format_verdict(result), Text("\n".join(lines)))
    verdicts = Counter(_count_label(result.finding.verdict) for result in checked)
    counts = ", ".join(f"{verdict}: {count}" for verdict, count in sorted(verdicts.items()))
    return Group(table, Text(f"{counts}; took {data['seconds']:.0f} s."), *_unexpected(checked))


def _count_label(verdict: "Verdict") -> str:
    """Return a verdict without a number; "holds within" needs an object."""
    return verdict.sentence + " tolerance" * (verdict.label == "holds_within")


def _format_verdict(checked: "CheckedClaim") -> "Text":
    from rich.text import Text

    within = checked.finding.max_deviation
    text = checked.finding.verdict.sentence + ("" if within is None else f" {100 * within:.2g}%")
    text += ", as expected" if checked.claim.refuted and checked.as_expected else ""
    return Text(text, style="green" if checked.as_expected else "bold red")


def _describe_runs(checked: "CheckedClaim") -> str:
    seeds = f"{len(checked.seeds)} seed{'s' * (len(checked.seeds) != 1)}"
    read = checked.runs_read
    stored = f", {read} of {checked.runs} runs from the store" if read else ""
    return f"{checked.scale} measurement, {seeds}{stored}"


def _format_check(check: "Check") -> str:
    mark = "" if check.holds else "✗ "
    return f"{mark}{check.quantity}: {check.measured:.4g} ({check.expected})"


def _unexpected(checked: "list[CheckedClaim]") -> "list[Text]":
    from rich.text import Text

    ids = [result.claim.id for result in checked if not result.as_expected]
    return [Text(f"Not as expected: {', '.join(ids)}.", style="bold red")] if ids else []
