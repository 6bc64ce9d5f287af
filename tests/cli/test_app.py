"""The error contract holds for every command: one line, exit code 2, nothing on stdout."""

import errno
import importlib.abc
import os
import subprocess
import sys

import pytest
from cyclopts import App

import factmem.cli
from factmem._core.errors import FactmemError
from factmem.cli import main
from factmem.cli.answer import Answer, Output
from factmem.cli.app import app


def leaves(node: App, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command that does something, as the words that call it."""
    found = []
    for name in node:
        if not name.startswith("-"):
            inner = leaves(node[name], (*path, name))
            found += inner or [(*path, name)]
    return found


# What a command must be given, so that only what the test adds is wrong.
SIZES = ("--subjects", "2", "--relations", "2", "--answers", "2", "--dim", "8", "--head-dim", "4")
NEEDED = {
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


def call(command, *more):
    return [*command, *NEEDED[" ".join(command)], *more]


def refused(capsys, arguments) -> str:
    """The message of a command line that must be refused by the contract."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("factmem: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    return err


@pytest.mark.parametrize("command", leaves(app), ids=" ".join)
class TestEveryCommand:
    def test_an_unknown_flag(self, capsys, command):
        assert "--no-such-flag" in refused(capsys, call(command, "--no-such-flag"))

    def test_an_unknown_flag_that_holds_control_characters(self, capsys, command):
        refused(capsys, call(command, "--no\n\x1b[31m"))

    def test_a_misplaced_flag(self, capsys, command):
        assert "flags stand after their command" in refused(capsys, ["--json", *call(command)])

    def test_a_wrong_type(self, capsys, command):
        assert "maybe" in refused(capsys, call(command, "--json=maybe"))

    def test_a_flag_given_twice(self, capsys, command):
        refused(capsys, call(command, "--json", "--json"))

    def test_help_is_not_an_error(self, capsys, command):
        assert main([*command, "--help"]) == 0
        out, err = capsys.readouterr()
        assert "--json" in out
        assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "no-such-command"),
        (["no\nsuch\x1bcommand"], "no\\nsuch\\x1bcommand"),
        (["facts"], "TABLE"),
        (["facts", "a.csv", "b.csv"], "b.csv"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--json"], "--json"),
    ],
)
def test_what_the_parser_refuses(capsys, arguments, message):
    assert message in refused(capsys, arguments)


@pytest.fixture
def command():
    """Registers a command that does as the test says, beside the real ones."""

    def register(act):
        @app.command
        def trial_command(*, number: int = 0, output: Output = Output()):
            return act(number, output)

        @app.command
        def needy_command(*, number: int, output: Output = Output()):
            return act(number, output)

    yield register
    del app["trial-command"]
    del app["needy-command"]


def raising(error):
    def act(number, output):
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FactmemError("one\nsentence"), "one\\nsentence"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "f\x1b"), "denied: 'f\\x1b'"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_what_a_command_refuses(capsys, command, error, message):
    command(raising(error))
    assert message in refused(capsys, ["trial-command"])


def test_a_number_that_is_none(capsys, command):
    command(lambda number, output: None)
    assert "--number" in refused(capsys, ["trial-command", "--number", "many"])
    assert "--number" in refused(capsys, ["trial-command", "--number"])
    assert "--number" in refused(capsys, ["needy-command"])


def test_memory_that_a_device_lacks(capsys, command):
    command(raising(RuntimeError("RESOURCE_EXHAUSTED: out of memory")))
    assert "not enough memory" in refused(capsys, ["trial-command"])


def test_an_endless_message_is_cut(capsys):
    assert len(refused(capsys, ["facts", "x" * 100_000])) < 1100


def test_interruption_is_exit_code_130(capsys, command):
    command(raising(KeyboardInterrupt()))
    assert main(["trial-command"]) == 130
    assert capsys.readouterr().out == ""


def test_a_fault_of_ours_shows_its_traceback_and_is_no_verdict(capsys, command):
    command(raising(ZeroDivisionError("deep inside")))
    assert main(["trial-command"]) == 70
    assert "deep inside" in capsys.readouterr().err


def test_what_does_not_hold_is_exit_code_1(capsys, command):
    command(lambda number, output: Answer({"number": number}, lambda: "no", output, holds=False))
    assert main(["trial-command", "--number", "3", "--json"]) == 1
    assert capsys.readouterr().out == '{"number": 3}\n'


def test_no_command_shows_the_help(capsys):
    assert main([]) == 0
    assert "facts" in capsys.readouterr().out


def factmem_process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", "from factmem.cli import run; run()", *arguments],
        capture_output=True,
        text=True,
        **options,
    )


def test_the_program_exits_with_its_code():
    assert factmem_process("--version").returncode == 0
    ran = factmem_process("facts")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("subject,relation,answer\n日本,capital,東京\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = factmem_process("facts", str(path), env=environment)
    assert ran.returncode == 0
    assert "\\u65e5" in ran.stdout


@pytest.mark.parametrize("arguments", [["facts", "t.csv"], ["--help"], ["facts", "--help"]])
def test_a_reader_that_leaves_early_is_no_error(tmp_path, arguments):
    (tmp_path / "t.csv").write_text("subject,relation,answer\ns,r,a\n")
    code = "from factmem.cli import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 141)


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0)])
def test_closed_streams_are_no_fault(tmp_path, closed, code):
    (tmp_path / "t.csv").write_text("subject,relation,answer\ns,r,a\n")
    call = f'"{sys.executable}" -c "from factmem.cli import run; run()" facts t.csv {closed}'
    assert subprocess.run(call, shell=True, cwd=tmp_path).returncode == code


def test_an_early_interruption_is_exit_code_130(monkeypatch):
    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "factmem.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "factmem.cli.app")
    monkeypatch.delattr(factmem.cli, "app")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["facts", "x"]) == 130
