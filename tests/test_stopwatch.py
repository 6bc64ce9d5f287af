"""Compile time and run time are told apart."""

import time

import jax
import jax.numpy as jnp

from factmem.stopwatch import Stopwatch


def test_compiling_is_counted_apart_from_running():
    def work(x):
        for _ in range(60):
            x = jnp.sin(x) @ x
        return x

    compiled = jax.jit(work)
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


def test_a_stopped_watch_hears_nothing_more():
    with Stopwatch() as watch:
        pass
    jax.jit(lambda x: x * 3 + 1)(jnp.ones(7)).block_until_ready()
    assert watch.compile_seconds == 0
