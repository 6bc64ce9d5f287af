"""`factmem runs`: what is in the store."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from factmem._core.errors import FactmemError, visible
from factmem.cli.answer import Answer, Output
from factmem.cli.kept import store_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.experiments import Record

__all__ = ["runs"]


def runs(
    identity: str | None = None,
    /,
    *,
    measure: str | None = None,
    seed: int | None = None,
    where: tuple[str, ...] = (),
    failed: Annotated[bool, Parameter(negative=())] = False,
    last: int | None = None,
    store: str | None = None,
    output: Output = Output(),
) -> Answer:
    """List the runs that are kept, or show the one whose ID starts as given.

    Args:
        identity: the ID of a run, or how it starts.
        measure: only runs of this measure, such as transformer.
        seed: only runs of this seed.
        where: only runs whose configuration has this, such as dim=32; may be given several times.
        failed: only runs that failed.
        last: only so many, the latest.
        store: the file (default: $FACTMEM_STORE, or yours).
    """
    conditions = [_condition(text) for text in where]
    wanted = dict(conditions)
    if len(wanted) < len(conditions):
        raise FactmemError("--where is given once for each entry of a configuration")
    if last is not None and last < 1:
        raise FactmemError(f"--last is at least 1, not {last}")
    filters = (measure, seed, last) != (None, None, None) or bool(where) or failed
    if identity is not None and filters:
        raise FactmemError("one run is shown by its ID, many by what they have: give one of them")
    path = store_path(store)
    if store is None and not Path(path).exists():
        return _listed([], path, output)
    from factmem.experiments import Store

    with Store(path, read_only=True) as kept:
        if identity is not None:
            return _one(kept.named(identity), path, output)
        found = kept.records(
            measure=measure, seed=seed, failed=True if failed else None, config=wanted
        )
    return _listed(found if last is None else found[-last:], path, output)


def _condition(text: str) -> tuple[str, Any]:
    """An entry of a configuration: its name and its value, as JSON where it is, else as text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise FactmemError(f"--where is like dim=32, not '{visible(text)}'")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    finite = not isinstance(found, float) or math.isfinite(found)
    return name, found if finite else value


def _data(record: "Record") -> dict[str, Any]:
    entries = asdict(record)
    del entries["kept"]
    return {"id": entries.pop("identity"), **entries}


def _listed(records: "list[Record]", path: str, output: Output) -> Answer:
    data = {"store": path, "runs": [_data(record) for record in records]}
    return Answer(data, lambda: _table(records, path), output)


def _one(record: "Record", path: str, output: Output) -> Answer:
    data = {"store": path, "runs": [_data(record)]}
    return Answer(data, lambda: _details(record), output)


def _table(records: "list[Record]", path: str) -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if not records:
        return Text(f"No such runs in {path}.")
    title = Text(f"{len(records)} runs in {path}")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("ID", "measure", "seed", "configuration", "found", "seconds"):
        table.add_column(name, no_wrap=name != "configuration")
    for record in records:
        table.add_row(
            *(
                Text(visible(text, 160))
                for text in (
                    record.identity[:12],
                    record.experiment,
                    "" if record.seed is None else str(record.seed),
                    _short(record.config),
                    _found(record),
                    f"{record.seconds:.1f}",
                )
            )
        )
    return table


def _short(config: Any) -> str:
    """The plain entries of a configuration, without what is nested or missing."""
    return ", ".join(
        f"{name} {value}"
        for name, value in config.items()
        if name != "seed" and isinstance(value, str | int | float)
    )


def _found(record: "Record") -> str:
    if record.metrics is None:
        return f"failed: {record.error}"
    stored = record.metrics.get("stored")
    told = {True: "stored", False: "not stored", None: "undecided"}
    return told[stored] if "stored" in record.metrics else _short(record.metrics)


def _details(record: "Record") -> "RenderableType":
    from rich.text import Text

    lines = []
    for name, value in _data(record).items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [
                f"    {visible(str(key))}: {visible(json.dumps(entry, ensure_ascii=False), 200)}"
                for key, entry in value.items()
            ]
        elif value is not None:
            lines.append(f"{name}: {visible(str(value), 500)}")
    return Text("\n".join(lines))
