"""The program as it is installed: `factmem`, `python -m factmem`, `factmem.__version__`."""

import importlib.metadata
import os
import subprocess

import pytest
from tests.cli.commands import PROGRAM, run_process
from tests.test_package import loaded_after

import factmem

TABLE = "subject,relation,answer\ns,r,a\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path


def test_the_version_is_that_of_the_package():
    assert factmem.__version__ == importlib.metadata.version("factmem")
    assert run_process("--version").stdout == f"{factmem.__version__}\n"


def test_python_m_factmem_exits_with_the_code_of_the_command(table):
    done = run_process("facts", "t.csv", "--json", cwd=table)
    assert (done.returncode, done.stderr) == (0, "")
    failed = run_process("facts")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["memory", "--help"], ["figure", "--help"]])
def test_help_loads_no_heavy_library(arguments):
    loaded = loaded_after(f"from factmem.cli import main; assert main({arguments}) == 0")
    assert not loaded & {"jax", "jaxlib", "equinox", "optax", "scipy", "matplotlib"}


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("subject,relation,answer\n日本,capital,東京\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run_process("facts", str(path), env=environment)
    assert done.returncode == 0
    assert "\\u65e5" in done.stdout


@pytest.mark.parametrize("arguments", [["facts", "t.csv"], ["--help"], ["facts", "--help"]])
def test_a_closed_pipe_is_not_an_error(table, arguments):
    process = subprocess.Popen(
        [*PROGRAM, *arguments], cwd=table, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 141)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_not_an_error(table, closed):
    command = " ".join(f'"{word}"' for word in (*PROGRAM, "facts", "t.csv"))
    assert subprocess.run(f"{command} {closed}", shell=True, cwd=table).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["facts", "t.csv", "--json"], ["facts", "t.csv"], ["facts", "--help"]]
)
def test_a_full_disk_behind_stdout_is_named(table, arguments, unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=table, stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "factmem: error: No space left on device: '<stdout>'\n"
