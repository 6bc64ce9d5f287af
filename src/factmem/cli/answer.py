"""What a command found: JSON for programs, text for people. Commands return it; nobody prints."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from factmem._core.canonical_json import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Answer", "Output", "emit"]


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """The flags that every command has."""

    json: Annotated[bool, Parameter(negative=())] = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    Args:
        data: the JSON object.
        show: makes what a person sees.
        output: the command's own `Output`.
        holds: False when what was asked for was tried and does not hold: exit code 1.
    """

    data: Mapping[str, Any]
    show: "Callable[[], RenderableType]"
    output: Output
    holds: bool = True


def emit(answer: Answer) -> int:
    """Prints an answer in the form that was asked for, and gives the exit code."""
    if answer.output.json:
        text = json.dumps(plain(answer.data), allow_nan=False) + "\n"
    else:
        text = _rendered(answer.show())
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0 if answer.holds else 1


def _rendered(shown: "RenderableType") -> str:
    from rich.console import Console

    # Captured, for rich would exit with a code of its own when the reader of a pipe leaves.
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()
