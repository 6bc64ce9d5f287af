"""The program `factmem`: its commands, and the one place that turns errors into exit codes."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError, UnknownCommandError

from factmem._core.errors import FactmemError, visible
from factmem.cli.answer import Answer, emit
from factmem.cli.bounds import bounds
from factmem.cli.capacity import capacity
from factmem.cli.claims import claims
from factmem.cli.construct import construct
from factmem.cli.facts import facts
from factmem.cli.figure import figure
from factmem.cli.flow import flow
from factmem.cli.memory import memory
from factmem.cli.reproduce import reproduce
from factmem.cli.runs import runs
from factmem.cli.train import train

__all__ = ["app", "main"]

BAD_INPUT = 2
OUR_FAULT = 70
INTERRUPTED = 130
READER_GONE = 141

app = App(
    name="factmem",
    help="How many facts a transformer can hold, where it holds them and when it learns them.",
    help_format="plaintext",
    version=lambda: version("factmem"),
    # Errors are raised, and results returned, to `main`: no command prints or exits by itself.
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
app.command(facts)
app.command(memory)
app.command(construct)
app.command(train)
app.command(capacity)
app.command(flow)
app.command(bounds)
app.command(claims)
app.command(figure)
app.command(reproduce)
app.command(runs)


def main(arguments: Sequence[str]) -> int:
    """IndependentTasks one command line and gives its exit code.

    0: done. 1: it ran, and what was asked does not hold. 2: bad input, one line on stderr.
    130: interrupted; what was finished is kept. 70: a fault of factmem itself, with its traceback.
    """
    try:
        result = app(list(arguments))
        return emit(result) if isinstance(result, Answer) else 0
    except CycloptsError as error:
        return _refuse(_parser_message(error, arguments))
    except FactmemError as error:
        return _refuse(str(error))
    except (BrokenPipeError, SystemExit):
        # The reader (`| head`) left; SystemExit is how rich says so when it prints the help.
        # Give Python nothing more to flush into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except OSError as error:
        name = f": '{error.filename}'" if error.filename else ""
        return _refuse(f"{error.strerror or error}{name}")
    except MemoryError:
        return _refuse("not enough memory for this size")
    except KeyboardInterrupt:
        sys.stderr.write("factmem: interrupted; what was finished is kept\n")
        return INTERRUPTED
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error):  # XLA's own way to say so
            return _refuse("not enough memory for this size")
        traceback.print_exc()
        sys.stderr.write("factmem: this is a fault of factmem itself; please report it\n")
        return OUR_FAULT


def _refuse(message: str) -> int:
    sys.stderr.write(f"factmem: error: {visible(message, 1000)}\n")
    return BAD_INPUT


def _parser_message(error: CycloptsError, arguments: Sequence[str]) -> str:
    first = arguments[0] if arguments else ""
    if isinstance(error, UnknownCommandError) and first.startswith("-"):
        return f"no flag {first} here; flags stand after their command: factmem COMMAND … {first}"
    return f"{error} (factmem --help lists commands and flags)"
