"""Every `--help`, compared with a snapshot at 80 columns.

To update the snapshots after a change of a help text, run
`FACTMEM_UPDATE_SNAPSHOTS=1 pytest tests/cli/test_help.py` and look at the difference.
"""

import os
from pathlib import Path

import pytest
from tests.cli.test_app import leaf_commands

from factmem.cli import main
from factmem.cli.app import app

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = [(), ("capacity",), *leaf_commands(app)]


def snapshot(command: tuple[str, ...]) -> Path:
    return SNAPSHOTS / f"{'-'.join(('factmem', *command))}.txt"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words) or "factmem")
def test_help_is_as_in_its_snapshot(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert main([*command, "--help"]) == 0
    text = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    if os.environ.get("FACTMEM_UPDATE_SNAPSHOTS"):
        snapshot(command).write_text(text, encoding="utf-8")
    assert text == snapshot(command).read_text(encoding="utf-8")


def test_there_is_no_other_snapshot():
    assert set(SNAPSHOTS.iterdir()) == {snapshot(command) for command in COMMANDS}
