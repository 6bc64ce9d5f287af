"""Compile time and run time."""

import time

import jax
import jax.numpy as jnp

from factmem._core.timing import Stopwatch


def test_compile_time_is_measured_separately():
    def function(x):
        for _ in range(60):
            x = jnp.sin(x) @ x
        return x

    compiled = jax.jit(function)
    with Stopwatch() as first:
        compiled(jnp.eye(3)).block_until_ready()
    with Stopwatch() as second:
        compiled(jnp.eye(3)).block_until_ready()
    assert first.compile_seconds > 0
    assert second.compile_seconds == 0


def test_run_time_is_measured():
    with Stopwatch() as watch:
        time.sleep(0.05)
    assert watch.seconds >= 0.05


def test_run_time_excludes_compilation(monkeypatch):
    times = iter([10.0, 15.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    with Stopwatch() as watch:
        watch._on_event("/jax/core/compile/backend_compile_duration", 2.0)
        watch._on_event("/jax/core/compile/jaxpr_to_mlir_module_duration", 0.5)
        watch._on_event("/some/other/event", 1.0)
    assert (watch.seconds, watch.compile_seconds) == (2.5, 2.5)


def test_a_stopped_watch_ignores_later_compilations():
    with Stopwatch() as watch:
        pass
    jax.jit(lambda x: x * 3 + 1)(jnp.ones(7)).block_until_ready()
    assert watch.compile_seconds == 0
