"""Workers drop compiled programs when they have grown too large."""

from importlib import import_module

import jax
import jax.numpy as jnp
import psutil
import pytest

from factmem.experiments import Experiment, Task, compilation_cache, execute
from factmem.experiments.compilation_cache import CompilationCacheTrimmer, resident_bytes


@pytest.fixture
def compiled():
    """Return a function with one compiled program."""

    @jax.jit
    def double(x):
        return 2 * x

    double(jnp.ones(3))
    assert double._cache_size() == 1
    return double


def test_resident_bytes_grow_with_touched_memory():
    before = resident_bytes()
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])  # touched, so that it is resident
    assert 48 * 2**20 < resident_bytes() - before < 128 * 2**20
    assert resident_bytes() < psutil.virtual_memory().total


def test_a_small_process_keeps_its_programs(compiled):
    trimmer = CompilationCacheTrimmer(max_bytes=2**50)
    assert not trimmer.trim()
    assert compiled._cache_size() == 1
    assert trimmer.max_bytes == 2**50


def test_a_large_process_drops_its_programs_and_compiles_again(compiled):
    trimmer = CompilationCacheTrimmer(max_bytes=1)
    assert trimmer.trim()
    assert compiled._cache_size() == 0
    assert compiled(jnp.ones(3)).tolist() == [2, 2, 2]


def test_the_limit_grows_with_the_memory_that_remains(monkeypatch):
    sizes = iter([10_000, 8_000, 11_999, 12_001, 500])
    monkeypatch.setattr(compilation_cache, "resident_bytes", lambda: next(sizes))
    # What is dropped was tested above; here it would only make later tests compile again.
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    trimmer = CompilationCacheTrimmer(max_bytes=9_000)
    assert trimmer.trim()
    assert trimmer.max_bytes == 12_000
    assert not trimmer.trim()
    assert trimmer.trim()
    assert trimmer.max_bytes == 12_000


def return_seed(*, seed):
    return {"seed": seed}


def test_only_workers_trim_after_a_task(monkeypatch):
    module, calls = import_module("factmem.experiments.execute"), []
    monkeypatch.setattr(module._TRIMMER, "trim", lambda: calls.append("trim"))
    task = Task(Experiment("seed", 1, return_seed), {"seed": 3})
    assert execute(task).metrics == {"seed": 3}
    assert calls == []
    assert module.execute_in_worker(task).metrics == {"seed": 3}
    assert calls == ["trim"]
