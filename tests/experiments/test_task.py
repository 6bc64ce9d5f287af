"""What makes two measurements the same."""

import numpy as np
import pytest

from factmem.experiments import Experiment, Task, execute


def area(side, unit="m", seed=0):
    return {"area": side**2}


BASE = Task(Experiment("area", 1, area), {"side": 2, "unit": "m", "seed": 3})


def test_the_same_configuration_is_the_same_task():
    again = Task(Experiment("area", 1, lambda side: {}), {"seed": 3.0, "unit": "m", "side": 2})
    assert again.identity == BASE.identity
    assert len(BASE.identity) == 64


@pytest.mark.parametrize(
    "other",
    [
        Task(Experiment("volume", 1, area), BASE.config),
        Task(Experiment("area", 2, area), BASE.config),
        Task(BASE.measure, {**BASE.config, "side": 3}),
        Task(BASE.measure, {**BASE.config, "seed": 4}),
        Task(BASE.measure, {**BASE.config, "more": None}),
        Task(BASE.measure, {"side": 2, "unit": "m"}),
    ],
)
def test_any_difference_is_another_task(other):
    assert other.identity != BASE.identity


def test_numbers_of_numpy_are_numbers():
    task = Task(BASE.measure, {"side": np.float32(2), "unit": "m", "seed": np.int64(3)})
    assert task.identity == BASE.identity
    record = execute(task)
    assert (record.seed, type(record.seed)) == (3, int)
    assert record.config == BASE.config


def test_the_seed_is_part_of_the_configuration():
    assert BASE.seed == 3
    assert Task(BASE.measure, {"side": 2}).seed is None


def test_what_is_compiled_with_room_is_the_same_for_all_that_it_is_for():
    def task(heads, **more):
        return Task(BASE.measure, {"dim": 8, "heads": heads, "width": 4, "seed": 0, **more})

    assert task(2).shape == Task(BASE.measure, {**task(2).config, "seed": 1}).shape
    assert task(2).shape != task(3).shape
    room = {"heads": 4, "answers": 9}
    assert task(2, room=room).shape == task(3, room=room).shape == task(4).shape
    assert task(2, room={"answers": 9}).shape == task(2).shape
