"""The error contract of every command: one line on stderr, exit code 2, nothing on stdout."""

import errno
import importlib.abc
import os
import sys

import pytest
from cyclopts import App
from tests.cli.commands import rejected, run_json, run_text

import factmem.cli
from factmem._core.errors import ArgumentError, FactmemError, StoreError
from factmem.cli import main
from factmem.cli.app import app
from factmem.cli.render import CommandResult, OutputOptions


def leaf_commands(node: App, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return every command without subcommands, as the words that call it."""
    commands = []
    for name in node:
        if not name.startswith("-"):
            inner = leaf_commands(node[name], (*path, name))
            commands += inner or [(*path, name)]
    return commands


# The arguments that a command requires, so that only what a test adds is wrong.
SIZES = ("--subjects", "2", "--relations", "2", "--answers", "2", "--dim", "8", "--head-dim", "4")
REQUIRED = {
    "facts": ("x",),
    "memory": ("hebbian", "--dim", "4", "--facts", "4"),
    "construct": ("attention", *SIZES),
    "train": (*SIZES, "--heads", "2", "--width", "4"),
    "capacity linear": ("--dim", "4"),
    "capacity mlp": ("--dim", "4", "--width", "4"),
    "capacity transformer": (*SIZES[6:], "--heads", "2", "--width", "4"),
    "flow": SIZES[:6],
    "bounds": SIZES[:6],
    "claims": (),
    "figure": ("2",),
    "reproduce": (),
    "runs": (),
}


def complete(command, *more):
    return [*command, *REQUIRED[" ".join(command)], *more]


@pytest.mark.parametrize("command", leaf_commands(app), ids=" ".join)
class TestEveryCommand:
    def test_rejects_an_unknown_flag(self, command):
        assert "--no-such-flag" in rejected(*complete(command, "--no-such-flag"))

    def test_rejects_a_flag_with_control_characters(self, command):
        rejected(*complete(command, "--no\n\x1b[31m"))

    def test_rejects_a_flag_before_the_command(self, command):
        assert "put flags after the command" in rejected("--json", *complete(command))

    def test_rejects_a_wrong_type(self, command):
        assert "maybe" in rejected(*complete(command, "--json=maybe"))

    def test_rejects_a_flag_given_twice(self, command):
        rejected(*complete(command, "--json", "--json"))

    def test_help_is_not_an_error(self, command):
        assert "--json" in run_text(*command, "--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "unknown command 'no-such-command'; choose from facts, memory"),
        (["no\nsuch\x1bcommand"], "no\\nsuch\\x1bcommand"),
        (["facts"], "TABLE is required (see factmem facts --help)"),
        (["facts", "a.csv", "b.csv"], "b.csv"),
        (["--no-such-flag"], "unknown flag --no-such-flag"),
        (["--json"], "unknown flag --json; put flags after the command"),
        (["memory", "hebbian", "--facts", "4"], "--dim is required (see factmem memory --help)"),
        (["memory", "hebbian", "--facts", "4", "--dim"], "--dim requires a value"),
        (["memory", "hebbian", "--facts", "4", "--dm", "4"], "Did you mean --dim instead of --dm"),
        (["capacity", "linear"], "--dim is required (see factmem capacity linear --help)"),
        (
            ["capacity", "--dim", "16"],
            "factmem capacity requires a command; choose from linear, mlp, transformer",
        ),
        (["capacity", "cubic"], "unknown command 'cubic'; choose from linear, mlp, transformer"),
        (["figure"], "NAME is required"),
    ],
)
def test_parser_errors_say_what_is_wrong(arguments, message):
    assert message in rejected(*arguments)


@pytest.fixture
def command():
    """Register commands that do what a test says, beside the real ones."""

    def register(action):
        @app.command
        def optional_command(*, number: int = 0, output: OutputOptions = OutputOptions()):
            return action(number, output)

        @app.command
        def required_command(*, number: int, output: OutputOptions = OutputOptions()):
            return action(number, output)

    yield register
    del app["optional-command"]
    del app["required-command"]


def raising(error):
    def action(number, output):
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FactmemError("one\nsentence"), "one\\nsentence"),
        (ArgumentError("number", "must be odd"), "error: --number must be odd\n"),
        (ArgumentError("check_every", "must be odd"), "error: check_every must be odd\n"),
        (StoreError("'runs.sqlite' is full"), "error: 'runs.sqlite' is full"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "m.safetensors"), "device: 'm.safet"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "f\x1b"), "denied: 'f\\x1b'"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), "not enough memory"),
    ],
)
def test_errors_of_commands_are_one_line(command, error, message):
    command(raising(error))
    assert message in rejected("optional-command")


def test_rejects_what_is_not_a_number(command):
    command(lambda number, output: None)
    assert "--number" in rejected("optional-command", "--number", "many")
    assert "--number requires a value" in rejected("optional-command", "--number")
    assert "--number is required" in rejected("required-command")


def test_long_messages_are_cut():
    assert len(rejected("facts", "x" * 100_000)) < 1100


def test_interruption_is_exit_code_130(command, capsys):
    command(raising(KeyboardInterrupt()))
    assert main(["optional-command"]) == 130
    assert capsys.readouterr().out == ""


def test_an_internal_error_shows_its_traceback(command, capsys):
    command(raising(ZeroDivisionError("deep inside")))
    assert main(["optional-command"]) == 70
    assert "deep inside" in capsys.readouterr().err


def test_a_result_that_does_not_pass_is_exit_code_1(command):
    command(lambda n, output: CommandResult({"number": n}, lambda: "no", output, passed=False))
    assert run_json("optional-command", "--number", "3", code=1) == {"number": 3}


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_list_of_commands_describes_each(arguments):
    text = run_text(*arguments)
    assert "facts Describe a table of facts" in text
    assert "capacity Find the largest number of facts" in text


def test_early_interruption_is_exit_code_130(monkeypatch):
    class Interrupt(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "factmem.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "factmem.cli.app")
    monkeypatch.delattr(factmem.cli, "app")
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    assert main(["facts", "x"]) == 130
