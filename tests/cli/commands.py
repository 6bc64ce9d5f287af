"""Running commands in tests. Independent of capsys, so that fixtures of any scope can use them."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

from factmem.cli import main

__all__ = ["PROGRAM", "rejected", "run_json", "run_process", "run_text"]

PROGRAM = (sys.executable, "-m", "factmem")


def run_json(*arguments: object, code: int = 0) -> dict:
    """Run a command with `--json` and return its output: one line, with nothing on stderr."""
    out, err = _run([*arguments, "--json"], code)
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def run_text(*arguments: object, code: int = 0) -> str:
    """Run a command and return what a person sees, on one line."""
    out, _ = _run(arguments, code)
    return " ".join(out.split())


def rejected(*arguments: object) -> str:
    """Run a command that must fail by the error contract, and return its message."""
    out, err = _run(arguments, 2)
    assert out == ""
    assert err.startswith("factmem: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    return err


def run_process(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, **options)


def _run(arguments, code: int) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        returned = main([str(argument) for argument in arguments])
    assert returned == code, err.getvalue()
    return out.getvalue(), err.getvalue()
