"""The identity of a task, and the shape that its programs are compiled for."""

import numpy as np
import pytest

from factmem.experiments import Experiment, Task, execute


def area(side, unit="m", seed=0):
    return {"area": side**2}


BASE = Task(Experiment("area", 1, area), {"side": 2, "unit": "m", "seed": 3})


def test_equal_configurations_have_the_same_identity():
    again = Task(Experiment("area", 1, lambda side: {}), {"seed": 3.0, "unit": "m", "side": 2})
    assert again.identity == BASE.identity
    assert len(BASE.identity) == 64


@pytest.mark.parametrize(
    "other",
    [
        Task(Experiment("volume", 1, area), BASE.config),
        Task(Experiment("area", 2, area), BASE.config),
        Task(BASE.experiment, {**BASE.config, "side": 3}),
        Task(BASE.experiment, {**BASE.config, "seed": 4}),
        Task(BASE.experiment, {**BASE.config, "more": None}),
        Task(BASE.experiment, {"side": 2, "unit": "m"}),
    ],
)
def test_any_difference_changes_the_identity(other):
    assert other.identity != BASE.identity


def test_numpy_numbers_count_as_numbers():
    task = Task(BASE.experiment, {"side": np.float32(2), "unit": "m", "seed": np.int64(3)})
    assert task.identity == BASE.identity
    record = execute(task)
    assert (record.seed, type(record.seed)) == (3, int)
    assert record.config == BASE.config


def test_the_seed_is_read_from_the_configuration():
    assert BASE.seed == 3
    assert Task(BASE.experiment, {"side": 2}).seed is None


def shaped_task(**config):
    sizes = {"method": "trained", "dim": 8, "heads": 2, "head_dim": 4, "width": 4, "seed": 0}
    return Task(BASE.experiment, {**sizes, **config})


@pytest.mark.parametrize(
    "config", [{"seed": 1}, {"subjects": 9}, {"criterion": 0.5}, {"padding": None}]
)
def test_the_compiled_shape_ignores_what_is_not_compiled(config):
    assert shaped_task(**config).compiled_shape == shaped_task().compiled_shape


@pytest.mark.parametrize(
    "config", [{"method": "compiled"}, {"dim": 9}, {"heads": 3}, {"head_dim": 5}, {"width": 5}]
)
def test_the_compiled_shape_depends_on_method_and_sizes(config):
    assert shaped_task(**config).compiled_shape != shaped_task().compiled_shape


def test_the_compiled_shape_depends_on_the_experiment():
    other = Task(Experiment("volume", 1, area), shaped_task().config)
    assert other.compiled_shape != shaped_task().compiled_shape
    newer = Task(Experiment("area", 2, area), shaped_task().config)
    assert newer.compiled_shape == shaped_task().compiled_shape


def test_tasks_that_are_padded_to_the_same_sizes_have_the_same_compiled_shape():
    padding = {"heads": 4, "answers": 9}
    shapes = {
        shaped_task(heads=2, padding=padding).compiled_shape,
        shaped_task(heads=3, padding=padding).compiled_shape,
        shaped_task(heads=4).compiled_shape,
    }
    assert len(shapes) == 1
    without_heads = shaped_task(heads=2, padding={"answers": 9})
    assert without_heads.compiled_shape == shaped_task(heads=2).compiled_shape
