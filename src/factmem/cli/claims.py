"""`factmem claims`: every statement of the paper that a computer can check, with its verdict."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem.cli.answer import Answer, Output
from factmem.cli.checks import check_positive, check_seed
from factmem.cli.kept import store_path
from factmem.cli.progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.paper import Checked, Claim

__all__ = ["claim_data", "claims"]

_MORE_SEEDS = 4
"""Seeds after the first that a claim may use."""


def claims(
    *,
    only: list[str] | None = None,
    scale: Literal["quick", "paper"] = "quick",
    seed: int = 0,
    store: str | None = None,
    fresh: Annotated[bool, Parameter(negative=())] = False,
    workers: int | None = None,
    output: Output = Output(),
) -> Answer:
    """Check every claim of the paper that a computer can check.

    Exit code 1 if one does not come out as it should: a claim of the paper that does not hold, or
    a misreading of it that does.

    Args:
        only: the id of one claim; may be given several times.
        scale: paper makes the slow measurements too; quick takes them where the store has them.
        seed: the first of the three seeds of every measurement.
        store: file of results (default: $FACTMEM_STORE, or yours).
        fresh: ignore stored results, and replace them.
        workers: processes on this machine (default: one for each core).
    """
    check_seed(seed)
    check_seed(seed + _MORE_SEEDS)
    check_positive(workers=workers)
    path = store_path(store)
    from factmem.experiments import LocalWorkers, Store
    from factmem.paper import all_claims, check_claims, claim_named

    names = list(dict.fromkeys(only or ()))
    chosen = [claim_named(name, seed) for name in names] or list(all_claims(seed))
    start = time.monotonic()
    with (
        Store(path) as kept,
        LocalWorkers(workers) as helpers,
        progress(output, "claims", total=_about(chosen), unit="run") as report,
    ):
        found = check_claims(
            chosen,
            kept,
            helpers,
            at_length=scale == "paper",
            fresh=fresh,
            report=lambda now: report(now.done, running=now.running, left=now.left),
        )
    data = {
        "claims": [claim_data(each) for each in found],
        "verdicts": {
            verdict: sum(each.finding.verdict.value == verdict for each in found)
            for verdict in sorted({each.finding.verdict.value for each in found})
        },
        "as_expected": all(each.as_expected for each in found),
        "scale": scale,
        "seed": seed,
        "store": path,
        "seconds": time.monotonic() - start,
    }
    return Answer(data, lambda: _shown(found, data), output, holds=data["as_expected"])


def _about(chosen: "list[Claim]") -> int:
    """How many runs there are at least; searches find out on their way how many they need."""
    return len({t.identity for claim in chosen for t in claim.measured.pending({}).needed})


def claim_data(checked: "Checked") -> dict[str, Any]:
    """What JSON says of a claim."""
    claim, finding = checked.claim, checked.finding
    return {
        "id": claim.id,
        "claim": claim.claim,
        "place": claim.place,
        "method": claim.method,
        "verdict": finding.verdict.value,
        "within": finding.within,
        "evidence": [asdict(check) for check in finding.checks],
        "note": finding.note,
        "refuted": claim.refuted,
        "as_expected": checked.as_expected,
        "seeds": list(checked.seeds),
        "scale": "paper" if checked.at_length else "quick",
        "runs": checked.runs,
        "runs_read": checked.read,
        "run_seconds": checked.seconds,
    }


def _shown(found: "list[Checked]", data: dict[str, Any]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text("claims of the paper"), title_justify="left", show_lines=True)
    table.add_column("claim", ratio=5)
    table.add_column("verdict", ratio=1)
    table.add_column("evidence", ratio=5)
    for each in found:
        claim = Text(each.claim.id, style="bold")
        claim.append(f"\n{each.claim.claim}\n", style="not bold")
        claim.append(f"{each.claim.place}; {_source(each)}", style="dim not bold")
        lines = [_line(check) for check in each.finding.checks]
        lines += [each.finding.note] if each.finding.note else []
        table.add_row(claim, _verdict(each), Text("\n".join(lines)))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in data["verdicts"].items())
    return Group(table, Text(f"{counts}; {data['seconds']:.0f} s."), *_surprises(found))


def _verdict(each: "Checked") -> Any:
    from rich.text import Text

    within = each.finding.within
    told = each.finding.verdict.value + ("" if within is None else f" {100 * within:.2g} %")
    told += ", as it should" if each.claim.refuted and each.as_expected else ""
    return Text(told, style="green" if each.as_expected else "bold red")


def _source(each: "Checked") -> str:
    seeds = f"{len(each.seeds)} seed{'s' * (len(each.seeds) != 1)}"
    scale = "slow measurement" if each.at_length else "quick measurement"
    read = f", {each.read} of {each.runs} runs from the store" if each.read else ""
    return f"{scale}, {seeds}{read}"


def _line(check: Any) -> str:
    mark = "" if check.holds else "✗ "
    return f"{mark}{check.what}: {check.measured:.4g} ({check.expected})"


def _surprises(found: "list[Checked]") -> list[Any]:
    from rich.text import Text

    wrong = [each.claim.id for each in found if not each.as_expected]
    return [Text(f"Not as expected: {', '.join(wrong)}.", style="bold red")] if wrong else []
