"""The program `factmem`: its commands, and the only place that turns errors into exit codes."""

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnknownCommandError

from factmem._core.errors import ArgumentError, FactmemError, printable
from factmem.cli.options import flag
from factmem.cli.render import STDOUT, CommandResult, emit, named_stdout

__all__ = ["app", "main"]

_COMMANDS = (
    *("facts", "memory", "construct", "train", "capacity", "flow"),
    *("bounds", "claims", "figure", "reproduce", "runs"),
)
"""Each is the function or the app of this name in the module of this name."""

_PRINTED = {"--help", "-h", "--version"}

BAD_INPUT = 2
INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141


def _show_default(value: Any) -> str | None:
    """Return the default in help texts; that a flag is off by default needs no mention."""
    return None if value is None or value is False or value == () else str(value)


app = App(
    name="factmem",
    help="How many facts a transformer can store, where it stores them and when it learns them.",
    # Unlike plain text, markdown joins the lines of a docstring's paragraph.
    help_format="markdown",
    version=lambda: version("factmem"),
    default_parameter=Parameter(negative=(), show_default=_show_default),
    # Errors are raised and results returned to `main`: no command prints or exits by itself.
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
for _name in _COMMANDS:
    # By import path: a command imports only its own module, and lists of names in help texts are
    # made only where they are shown.
    app.command(f"factmem.cli.{_name}:{_name}", name=_name)


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    0: done. 1: a requirement or a claim does not hold. 2: bad input, one line on stderr.
    130: interrupted; finished runs are stored. 70: an error in factmem itself, with its traceback.
    """
    try:
        if not arguments or arguments[0] in ("--help", "-h"):
            app.resolved_commands()  # the list of commands shows the docstring of each
        # The parser itself prints the help and the version.
        prints = not arguments or not _PRINTED.isdisjoint(arguments)
        with named_stdout() if prints else nullcontext():
            result = app(list(arguments))
        return emit(result) if isinstance(result, CommandResult) else 0
    except CycloptsError as error:
        return _fail(_parser_message(error, arguments))
    except ArgumentError as error:
        return _fail(_argument_message(error, arguments))
    except FactmemError as error:
        return _fail(str(error))
    except (BrokenPipeError, SystemExit):
        # The reader (`| head`) left; rich raises SystemExit then, when it prints the help.
        _discard_stdout()
        return BROKEN_PIPE
    except OSError as error:
        if error.filename == STDOUT:
            _discard_stdout()
        file = f": '{error.filename}'" if error.filename else ""
        return _fail(f"{error.strerror or error}{file}")
    except MemoryError:
        return _fail("not enough memory for this size")
    except KeyboardInterrupt:
        sys.stderr.write("factmem: interrupted; finished runs and checkpoints are kept\n")
        return INTERRUPTED
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error):  # the out-of-memory error of XLA
            return _fail("not enough memory for this size")
        traceback.print_exc()
        sys.stderr.write("factmem: internal error; please report it with this traceback\n")
        return INTERNAL_ERROR


def _fail(message: str) -> int:
    sys.stderr.write(f"factmem: error: {printable(message, 1000)}\n")
    return BAD_INPUT


def _discard_stdout() -> None:
    """Redirect stdout to nowhere, so that Python does not fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _argument_message(error: ArgumentError, arguments: Sequence[str]) -> str:
    """Name the flag of the argument if the command has one."""
    _, apps, _ = app.parse_commands(list(arguments))
    flags = {
        name for argument in apps[-1].assemble_argument_collection() for name in argument.names
    }
    name = flag(error.argument)
    return f"{name} {error.problem}" if name in flags else str(error)


def _parser_message(error: CycloptsError, arguments: Sequence[str]) -> str:
    if isinstance(error, UnknownCommandError):
        return _unknown_command(error, arguments)
    help_command = " ".join(("factmem", *(error.command_chain or ()), "--help"))
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        message = _missing_argument(error)
    else:
        message = str(error).removesuffix(".")
    return f"{message} (see {help_command})"


def _missing_argument(error: MissingArgumentError) -> str:
    assert error.argument is not None
    given = error.keyword or next((t.keyword for t in error.argument.tokens if t.keyword), None)
    if given is not None:
        return f"{given} requires a value"
    _, did_you_mean, suggestion = str(error).partition(" Did you mean ")
    return f"{error.argument.name} is required{did_you_mean and f'. Did you mean {suggestion}'}"


def _unknown_command(error: UnknownCommandError, arguments: Sequence[str]) -> str:
    """Explain a flag or a wrong word where a command must stand."""
    chain = tuple(error.command_chain or ())
    word = (error.unused_tokens or [""])[0]
    if not chain and word.startswith("-"):
        return f"unknown flag {word}; put flags after the command: factmem COMMAND … {word}"
    program = " ".join(("factmem", *chain))
    group = app[chain[0]] if chain else app
    commands = ", ".join(name for name in group if not name.startswith("-"))
    problem = (
        f"{program} requires a command" if word.startswith("-") else f"unknown command '{word}'"
    )
    return f"{problem}; choose from {commands} (see {program} --help)"
