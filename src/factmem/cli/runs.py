"""`factmem runs`: lists stored runs."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factmem._core.errors import FactmemError, printable
from factmem.cli.options import store_path
from factmem.cli.render import CommandResult, OutputOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.experiments import Record

__all__ = ["runs"]

_ID_LENGTH = 12


def runs(
    identity: str | None = None,
    /,
    *,
    experiment: str | None = None,
    seed: int | None = None,
    where: tuple[str, ...] = (),
    failed: bool = False,
    last: int | None = None,
    store: str | None = None,
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """List stored runs, or show one run.

    Args:
        identity: ID of the run to show, or the beginning of an ID.
        experiment: Only runs of this experiment, such as transformer.
        seed: Only runs with this seed.
        where: Only runs with this entry in their configuration, such as dim=32; may be repeated.
        failed: Only failed runs.
        last: Only this many of the latest runs.
        store: File with the runs (default: $FACTMEM_STORE, or a file in your data directory).
    """
    conditions = [_parse_condition(text) for text in where]
    config = dict(conditions)
    if len(config) < len(conditions):
        raise FactmemError("--where can be given only once per entry of the configuration")
    if last is not None and last < 1:
        raise FactmemError(f"--last must be at least 1, got {last}")
    filters = (experiment, seed, last) != (None, None, None) or bool(where) or failed
    if identity is not None and filters:
        raise FactmemError("an ID cannot be combined with filters")
    path = store_path(store)
    if store is None and not Path(path).exists():
        return _list_result([], path, output)
    from factmem.experiments import Store

    with Store(path, read_only=True) as opened:
        if identity is not None:
            return _single_result(opened.named(identity), path, output)
        records = opened.records(
            experiment=experiment, seed=seed, failed=True if failed else None, config=config
        )
    return _list_result(records if last is None else records[-last:], path, output)


def _parse_condition(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; the value is read as JSON if possible, else as text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise FactmemError(f"--where must be like dim=32, got '{printable(text)}'")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    finite = not isinstance(parsed, float) or math.isfinite(parsed)
    return name, parsed if finite else value


def _data(record: "Record") -> dict[str, Any]:
    entries = asdict(record)
    del entries["from_store"]
    return {"id": entries.pop("identity"), **entries}


def _list_result(records: "list[Record]", path: str, output: OutputOptions) -> CommandResult:
    data = {"store": path, "runs": [_data(record) for record in records]}
    return CommandResult(data, lambda: _render_list(records, path), output)


def _single_result(record: "Record", path: str, output: OutputOptions) -> CommandResult:
    data = {"store": path, "runs": [_data(record)]}
    return CommandResult(data, lambda: _render_record(record), output)


def _render_list(records: "list[Record]", path: str) -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not records:
        return Text(f"No matching runs in {path}.")
    title = Text(f"{len(records)} run{'s' * (len(records) != 1)} in {path}")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("ID", no_wrap=True)
    table.add_column("experiment", max_width=12)
    table.add_column("seed", no_wrap=True)
    table.add_column("configuration", ratio=3)
    table.add_column("result", ratio=1)
    table.add_column("time (s)", justify="right", no_wrap=True)
    for record in records:
        cells = (
            record.identity[:_ID_LENGTH],
            record.experiment,
            "" if record.seed is None else str(record.seed),
            _format_entries(record.config),
            _format_result(record),
            f"{record.seconds:.1f}",
        )
        table.add_row(*(Text(printable(text, 160)) for text in cells))
    return Group(table, *_render_errors(records))


def _render_errors(records: "list[Record]") -> "list[RenderableType]":
    """Return one line per failed run: in a column, errors would leave no room for the others."""
    from rich.text import Text

    failed = [record for record in records if record.error is not None]
    return [
        Text(
            f"{record.identity[:_ID_LENGTH]} failed: {printable(record.error or '', 400)}",
            no_wrap=True,
            overflow="ellipsis",
        )
        for record in failed
    ]


def _format_entries(entries: Any) -> str:
    """Format the entries that are numbers or text."""
    return ", ".join(
        f"{name} {value}"
        for name, value in entries.items()
        if name != "seed" and isinstance(value, str | int | float)
    )


def _format_result(record: "Record") -> str:
    if record.metrics is None:
        return "failed"
    if "stored" not in record.metrics:
        return _format_entries(record.metrics)
    return {True: "stored", False: "not stored", None: "undecided"}[record.metrics["stored"]]


def _render_record(record: "Record") -> "RenderableType":
    from rich.text import Text

    lines = []
    for name, value in _data(record).items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            for key, entry in value.items():
                text = printable(json.dumps(entry, ensure_ascii=False), 200)
                lines.append(f"    {printable(str(key))}: {text}")
        elif value is not None:
            lines.append(f"{name}: {printable(str(value), 500)}")
    return Text("\n".join(lines))
