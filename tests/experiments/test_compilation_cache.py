"""Workers let go of what they compiled once they have grown too large."""

import jax
import jax.numpy as jnp
import psutil
import pytest

from factmem.experiments import Experiment, Task, execute
from factmem.experiments import compilation_cache as memory
from factmem.experiments.compilation_cache import Memory, resident


@pytest.fixture
def compiled():
    """A function with one compiled program."""

    @jax.jit
    def double(x):
        return 2 * x

    double(jnp.ones(3))
    assert double._cache_size() == 1
    return double


def test_what_is_taken_is_what_the_system_says():
    before = resident()
    kept = bytearray(64 * 2**20)
    kept[::4096] = b"x" * len(kept[::4096])  # touched, so that it is really there
    assert 48 * 2**20 < resident() - before < 128 * 2**20
    assert resident() < psutil.virtual_memory().total


def test_a_small_process_keeps_its_programs(compiled):
    limited = Memory(most=2**50)
    assert not limited.trim()
    assert compiled._cache_size() == 1
    assert limited.most == 2**50


def test_a_large_one_forgets_them_and_works_on(compiled):
    limited = Memory(most=1)
    assert limited.trim()
    assert compiled._cache_size() == 0
    assert compiled(jnp.ones(3)).tolist() == [2, 2, 2]


def test_what_it_needs_besides_does_not_make_it_forget_again_and_again(compiled, monkeypatch):
    taken = iter([10_000, 8_000, 11_999, 12_001, 500])
    monkeypatch.setattr(memory, "resident", lambda: next(taken))
    limited = Memory(most=9_000)
    assert limited.trim()
    assert limited.most == 12_000
    assert not limited.trim()
    assert limited.trim()
    assert limited.most == 12_000


def one(*, seed):
    return {"seed": seed}


def test_serving_measures_and_lets_go_and_performing_does_not(monkeypatch):
    from importlib import import_module

    module, asked = import_module("factmem.experiments.execute"), []
    monkeypatch.setattr(module._MEMORY, "trim", lambda: asked.append("let go"))
    task = Task(Experiment("one", 1, one), {"seed": 3})
    assert execute(task).metrics == {"seed": 3}
    assert asked == []
    assert module.execute_in_worker(task).metrics == {"seed": 3}
    assert asked == ["let go"]
