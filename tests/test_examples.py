"""The examples run to their end, as `make reproduce` runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parent.parent.joinpath("examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_tells_something(path):
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
