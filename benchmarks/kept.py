"""Probes that benchmarks keep on disk, so that a script started again does what is missing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"


class MissingError(Exception):
    """A probe that would have to be run, where only kept ones are wanted."""


class Kept:
    """Probes on disk, one JSON object a line."""

    def __init__(self, path: Path, complete: bool = False) -> None:
        self.path = path
        self.complete = complete
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {}
        for line in lines:
            try:
                probe = json.loads(line)
            except json.JSONDecodeError:  # interrupted while this line was written
                continue
            self.found[json.dumps(probe["what"], sort_keys=True)] = probe["result"]

    def get(self, what: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        key = json.dumps(what, sort_keys=True)
        if key not in self.found:
            if self.complete:
                raise MissingError
            self.found[key] = measure()
            with self.path.open("a") as file:
                file.write("\n" if self.path.stat().st_size else "")
                file.write(json.dumps({"what": what, "result": self.found[key]}))
        return self.found[key]
