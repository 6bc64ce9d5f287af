"""The number of steps in one compiled call."""

from hypothesis import given
from hypothesis import strategies as st

from factmem.training.transformers import _ChunkSizer


@given(st.integers(0, 500), st.floats(1e-5, 10), st.floats(0, 30))
def test_chunks_take_less_than_a_second_after_the_first(steps, step_seconds, compile_seconds):
    clock = [0.0]
    durations = []
    for number, chunk in enumerate(_ChunkSizer(clock=lambda: clock[0]).chunks(steps)):
        clock[0] += chunk * step_seconds + (compile_seconds if number == 0 else 0)
        durations.append((chunk, chunk * step_seconds))
    assert sum(chunk for chunk, _ in durations) == steps
    assert all(seconds < 1 or chunk == 1 for chunk, seconds in durations)


def test_chunks_grow_to_what_fits():
    clock, chunks = [0.0], []
    for chunk in _ChunkSizer(clock=lambda: clock[0]).chunks(3000):
        clock[0] += chunk * 1e-3
        chunks.append(chunk)
    assert chunks[:5] == [1, 8, 64, 400, 400]
