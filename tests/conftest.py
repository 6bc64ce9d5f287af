"""Settings of all tests: warnings are errors, ranks are never promoted, shapes are checked."""

import atexit
import os
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings

from factmem.experiments.compilation_cache import CompilationCacheTrimmer

# Tests that a shell starts in the background ignore Ctrl-C, and so do their child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")

# Most programs of tests run for milliseconds, so optimizing them takes longer than it saves. The
# environment variable is for child processes. `make test` also runs the tests of memories,
# transformers and training with the optimizations that users have.
OPTIMIZED = os.environ.get("FACTMEM_TEST_OPTIMIZED") == "1"
if not OPTIMIZED:
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"

# All processes of one test run share what they compile: compiling a small program takes 40 ms, and
# reading it 2 ms. The directory is new for every run, so that no run depends on an earlier one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="factmem-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Compiling the first example takes long and says nothing about the code: no deadlines.
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=60, derandomize=True, **quiet)
settings.register_profile("thorough", max_examples=1000, **quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_MAX_BYTES = 3 * 2**28
"""Compiled programs are dropped between test files when a process is larger than this."""
_peaks: list[int] = []


@pytest.fixture
def float64():
    """Enable 64-bit numbers inside a test; arrays must not leave it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Drop compiled programs after a test file if the process has become large."""
    yield
    CompilationCacheTrimmer(_MAX_BYTES).trim()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    # One more than cores, because some tests wait for child processes.
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_collection_modifyitems(items):
    # A file runs on one worker. These files take longest: at the end, the other worker would wait.
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak_bytes"] = _peak_bytes()
    else:
        _peaks.append(_peak_bytes())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    _peaks.append(getattr(node, "workeroutput", {}).get("peak_bytes", 0))


def pytest_terminal_summary(terminalreporter):
    if _peaks:
        mode = "on" if OPTIMIZED else "off"
        terminalreporter.write_line(
            f"XLA optimizations {mode}; peak memory of a test process: {max(_peaks) / 2**30:.2f} GB"
        )
