"""The result of a command, printed as JSON for programs or as text for people.

Commands return a `CommandResult`; only `emit` writes to stdout.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from factmem._core.canonical_json import to_json_data
from factmem.cli.render import to_text

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["STDOUT", "CommandResult", "OutputOptions", "emit"]

STDOUT = "<stdout>"
"""The file name in errors of writing to stdout."""


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """Options that every command has."""

    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Args:
        data: the JSON object.
        render: returns what a person sees; called only without `--json`.
        output: the output options of the command.
        passed: False if a requirement or a claim does not hold; the exit code is then 1.
    """

    data: Mapping[str, Any]
    render: "Callable[[], RenderableType]"
    output: OutputOptions
    passed: bool = True


def emit(result: CommandResult) -> int:
    """Print a result as JSON or as text, and return the exit code."""
    if result.output.json:
        text = json.dumps(to_json_data(result.data), allow_nan=False) + "\n"
    else:
        text = to_text(result.render())
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Such an error has no file name: without one, nobody knows which disk is full.
        raise OSError(error.errno, error.strerror, STDOUT) from None
    return 0 if result.passed else 1
