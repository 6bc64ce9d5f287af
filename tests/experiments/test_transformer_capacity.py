"""Capacity problems of transformers, and their measurements."""

import json
import math
from dataclasses import asdict, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.cli import main
from factmem.experiments import (
    Compile,
    PaperSearch,
    PromptSpec,
    TableSpec,
    Train,
    TransformerCapacityProblem,
    TransformerSpec,
    execute,
)
from factmem.experiments.transformer_capacity import measure_transformer
from factmem.training import BEST, PAPER, QUICK
from factmem.transformer import Shape

SHAPE = Shape(12, 3, 4, 10)
SHORT = replace(PAPER, learning_rates=(0.01,), steps=60, evaluations=60, batch_size=64)
SIZE_OPTIONS = {
    "dim": 12,
    "heads": 3,
    "head_dim": 4,
    "width": 10,
    "length": 8,
    "subjects": 6,
    "relations": 5,
    "answers": 3,
    "noise": 11,
}


def problem(shape=SHAPE, **options):
    return TransformerCapacityProblem(shape, **{"answers": 3, "length": 8, **options})


def measured(protocol=None, *, padding=None, shape=SHAPE, criterion=0.99):
    """Train a small transformer, or compile it without a protocol."""
    padding = None if padding is None else tuple(padding.items())
    return _measured(protocol, padding, shape, criterion)


@cache
def _measured(protocol, padding, shape, criterion):
    padding = None if padding is None else dict(padding)
    method = Compile() if protocol is None else Train(protocol=protocol, padding=padding)
    name = "compiled" if protocol is None else "paper"
    return measure_transformer(
        **small_spec(method, shape).config(), protocol=name, criterion=criterion
    )


def small_spec(method, shape=SHAPE):
    return TransformerSpec(
        table=TableSpec.random(6, 5, 3),
        shape=shape,
        method=method,
        prompts=PromptSpec(noise=11, length=8),
    )


def run_command(capsys, *arguments):
    options = [
        part
        for name, size in SIZE_OPTIONS.items()
        for part in (f"--{name.replace('_', '-')}", str(size))
    ]
    assert main([*arguments, *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_measurement_is_the_training_of_the_train_command(capsys):
    metrics = measured(SHORT)
    same = run_command(capsys, "train", "--steps", "60", "--batch-size", "64")
    for name in ("best_accuracy", "learning_rate", "steps", "status", "facts", "parameters"):
        assert metrics[name] == same[name], name
    assert metrics["stored"] == same["success"]


def test_only_a_stored_table_is_tested_on_all_facts():
    metrics = measured(replace(SHORT, criterion=0.2))
    assert metrics["stored"] is True
    assert metrics["best_accuracy"] > 0.2
    assert 0 <= metrics["worst_case_accuracy"] <= metrics["accuracy"] <= 1
    assert "min_relative_margin" in metrics
    assert "accuracy" not in measured(replace(SHORT, steps=1, evaluations=1))


@pytest.mark.parametrize("model_padding", [{}, {"heads": 5, "width": 17}])
def test_padding_changes_no_measurement(model_padding):
    padding = {"subjects": 8, "relations": 8, "noise": 16, "answers": 20, "facts": 60}
    plain, padded = measured(SHORT), measured(SHORT, padding={**padding, **model_padding})
    assert padded.keys() == plain.keys()
    for name, value in plain.items():
        expected = value if name == "status" else pytest.approx(value, rel=1e-3)
        assert padded[name] == expected, name


@pytest.mark.parametrize("scaling", ["s=r", "s=r2", "d=s=r"])
def test_most_sizes_of_a_quick_search_share_one_padding(scaling):
    answers = None if scaling == "d=s=r" else 8
    quick = TransformerCapacityProblem(
        Shape(16, 8, 2, 16), answers, protocol="quick", scaling=scaling
    )
    guess = quick.search("fast").guess
    paddings = [quick.task(size, 0).config["padding"] for size in range(1, 6 * guess)]
    assert len({tuple(padding.values()) for padding in paddings[: int(1.3 * guess)]}) == 1
    assert len({tuple(padding.values()) for padding in paddings}) < 7
    for size, padding in enumerate(paddings, 1):
        subjects, relations, answers = quick.table_sizes(size)
        needed = {
            "subjects": subjects,
            "relations": relations,
            "noise": subjects + relations,
            "answers": relations * answers,
            "facts": subjects * relations,
        }
        assert list(padding) == list(needed)
        assert all(padding[name] >= needed[name] for name in needed)


def test_only_quick_training_is_padded():
    assert problem(protocol="quick").task(5, 0).config["padding"] is not None
    for protocol in ("paper", "best"):
        assert problem(protocol=protocol).task(5, 0).config["padding"] is None
    assert "padding" not in problem(protocol="compiled").task(5, 0).config


def test_a_compiled_measurement_is_that_of_the_construct_command(capsys):
    metrics = measured(criterion=1.0)
    same = run_command(capsys, "construct", "compiled")
    for name in ("certified_accuracy", "min_certified_margin", "iterations", "min_margin"):
        assert metrics[name] == same[name], name
    assert metrics["stored"] is True


def test_a_shape_that_the_compiler_rejects_stores_nothing():
    metrics = measured(criterion=1.0, shape=Shape(2, 1, 2, 0))
    assert metrics["stored"] is False
    assert metrics["status"] == "impossible"
    assert "no output decodes to answer" in metrics["reason"]
    assert (metrics["facts"], metrics["parameters"]) == (30, 16)


def test_an_error_of_training_is_not_a_verdict(monkeypatch):
    def fail(self):
        raise FactmemError("no training")

    monkeypatch.setattr(TransformerSpec, "run", fail)
    with pytest.raises(FactmemError, match="no training"):
        execute(problem().task(5, 0))


@pytest.mark.parametrize(
    ("scaling", "answers", "sizes"),
    [("s=r", 3, (10, 10, 3)), ("s=r2", 3, (10, 3, 3)), ("d=s=r", None, (10, 10, 10))],
)
def test_scalings(scaling, answers, sizes):
    scaled = problem(scaling=scaling, answers=answers)
    assert scaled.table_sizes(10) == sizes
    assert scaled.facts(10) == sizes[0] * sizes[1]
    config = scaled.task(10, 5).config
    assert (config["subjects"], config["relations"], config["answers"]) == sizes
    assert config["noise"] == sizes[0] + sizes[1]
    assert config["seed"] == 5


@given(st.floats(0.0, 1e6), st.sampled_from(["s=r", "s=r2"]))
def test_the_guess_has_the_closest_number_of_facts(facts, scaling):
    scaled = problem(scaling=scaling)

    def distance(size):
        return abs(math.log(scaled.facts(size) / max(facts, 1)))

    size = scaled.size_of(facts)
    neighbors = range(max(1, size - 2), size + 3)
    # 6 facts are as far from 4 as from 9, up to rounding.
    assert all(distance(size) <= distance(other) + 1e-12 for other in neighbors)


def test_guesses_for_the_measured_shape():
    def guess(answers=8, **options):
        shape = Shape(32, 8, 4, 32)
        return TransformerCapacityProblem(shape, answers, **options).search("fast").guess

    # Facts per parameter: 0.11, 0.21 and 0.15 of 6144.
    assert (guess(), guess(protocol="best"), guess(protocol="compiled")) == (26, 36, 30)
    assert guess(scaling="s=r2") == 80
    # Twice the bits per answer give half as many facts.
    assert guess(answers=64) == 18


def test_the_configuration_has_all_numbers_of_a_protocol():
    for name, protocol in (("paper", PAPER), ("best", BEST), ("quick", QUICK)):
        config = problem(protocol=name, no_early_stopping=True).task(5, 0).config
        numbers = {**asdict(protocol), "early_stopping": ()}
        del numbers["hard_noise"]  # only where there is any
        assert config["training"] == numbers
        assert (config["protocol"], config["method"]) == (name, "trained")
    config = problem(protocol="compiled").task(5, 0).config
    assert "training" not in config
    assert (config["protocol"], config["method"]) == ("compiled", "compiled")


def test_training_stops_early_only_in_the_setting_that_was_compared():
    def early_stopping(shape=SHAPE, **options):
        return problem(shape, **options).task(5, 0).config["training"]["early_stopping"]

    compared = {"answers": 8, "length": 32}
    assert early_stopping(**compared) == ((0.25, 0.75), (0.5, 0.93))
    for other in (
        {"answers": 4},
        {"length": 16},
        {"noise": 10},
        {"no_early_stopping": True},
        {"protocol": "best"},
        {"criterion": 1.0},
        {"scaling": "s=r2"},
        {"shape": replace(SHAPE, width=0)},
    ):
        assert early_stopping(**{**compared, **other}) == ()
    full = problem(**compared, no_early_stopping=True)
    assert problem(**compared).task(5, 0).identity != full.task(5, 0).identity


def test_training_stops_early():
    metrics = measured(replace(SHORT, early_stopping=((0.25, 0.99), (0.5, 0.999))))
    assert metrics["stored"] is False
    assert metrics["total_steps"] == 15
    assert metrics["status"] == "stopped_early"


def test_a_criterion_of_one_means_all_test_prompts():
    training = problem(criterion=1.0).task(5, 0).config["training"]
    # Above this on 1024 prompts means 1024 of them.
    assert 1023 / 1024 < training["criterion"] < 1
    assert problem(criterion=0.9).task(5, 0).config["training"]["criterion"] == 0.9


def test_parameters_are_counted_as_in_the_paper():
    assert problem().parameters == 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert problem(replace(SHAPE, width=0)).parameters == 4 * 3 * 12 * 4


def test_the_range_of_the_paper():
    assert problem().search("paper") == PaperSearch(8, 512)


def test_attention_without_an_mlp_can_be_measured():
    metrics = measured(SHORT, shape=replace(SHAPE, width=0))
    assert metrics["parameters"] == 4 * 3 * 12 * 4


def test_a_task_is_executed_from_its_configuration():
    task = problem(protocol="compiled", criterion=1.0).task_of(small_spec(Compile()))
    metrics = execute(task).metrics
    assert metrics["stored"] is True
    assert metrics == measured(criterion=1.0)


def test_a_task_of_a_changed_spec():
    original = problem(protocol="paper")
    spec = original.spec(5, 0)
    assert original.task_of(spec).identity == original.task(5, 0).identity
    protocol = replace(SHORT, hard_noise=0.25)
    changed = replace(spec, method=Train(protocol=protocol, padding=original.padding(7)))
    config = original.task_of(changed).config
    assert config["training"] == {**asdict(SHORT), "hard_noise": 0.25}
    assert config["padding"] == original.padding(7)
    assert (config["protocol"], config["criterion"]) == ("paper", 0.99)


@pytest.mark.parametrize(
    "make",
    [
        lambda: problem(Shape(0, 3, 4, 10)),
        lambda: problem(Shape(12, 0, 4, 10)),
        lambda: problem(Shape(12, 3, 0, 10)),
        lambda: problem(Shape(12, 3, 4, -1)),
        lambda: problem(answers=None),
        lambda: problem(answers=0),
        lambda: problem(scaling="d=s=r"),
        lambda: problem(criterion=0.0),
        lambda: problem(criterion=1.1),
    ],
)
def test_rejects_values_out_of_range(make):
    with pytest.raises(FactmemError):
        make()
