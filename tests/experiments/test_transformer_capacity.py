"""Transformers: what is asked, and that a measurement is what the commands do."""

import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.cli import main
from factmem.experiments import PaperSearch, TransformerCapacityProblem, execute
from factmem.experiments.transformer_capacity import measure_transformer
from factmem.facts import Vocabulary
from factmem.training import BEST, PAPER, QUICK, step_flops
from factmem.transformer import Shape

SMALL = {"dim": 12, "heads": 3, "head_dim": 4, "width": 10, "length": 8}
SIZES = {"subjects": 6, "relations": 5, "answers": 3, "noise": 11}


def problem(**more):
    return TransformerCapacityProblem(**{**SMALL, "answers": 3, **more})


def short(**more):
    return {
        **asdict(PAPER),
        "learning_rates": [0.01],
        "steps": 60,
        "checks": 60,
        "batch": 64,
        **more,
    }


def measured(training=None, **more):
    protocol = "compiled" if training is None else "paper"
    config = {**SMALL, **SIZES, "protocol": protocol, "training": training, "seed": 0}
    return measure_transformer(**{**config, "criterion": 0.99, **more})


def asked(capsys, *arguments):
    sizes = [part for k, v in {**SMALL, **SIZES}.items() for part in (_flag(k), str(v))]
    assert main([arguments[0], *arguments[1:], *sizes, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _flag(name):
    return f"--{name.replace('_', '-')}"


def test_a_measurement_is_the_training_that_the_command_does(capsys):
    found = measured(short())
    same = asked(capsys, "train", "--steps", "60", "--batch", "64")
    for key in ("best_accuracy", "learning_rate", "steps", "outcome", "facts", "parameters"):
        assert found[key] == same[key], key
    assert found["stored"] == same["success"]


def test_what_is_stored_is_asked_for_in_full(capsys):
    easy = short(criterion=0.2)
    found = measured(easy)
    assert found["stored"] is True
    assert found["best_accuracy"] > 0.2
    assert 0 <= found["accuracy_in_worst_noise"] <= found["accuracy"] <= 1
    assert "relative_margin" in found
    assert "accuracy" not in measured(short(steps=1, checks=1))


@pytest.mark.parametrize("more", [{}, {"heads": 5, "width": 17}])
def test_room_for_more_changes_no_measurement(more):
    room = {"subjects": 8, "relations": 8, "noise": 16, "answers": 20, "facts": 60, **more}
    plain, roomy = measured(short()), measured(short(), room=room)
    assert roomy.keys() == plain.keys()
    for key, value in plain.items():
        assert roomy[key] == (pytest.approx(value, rel=1e-3) if key != "outcome" else value), key


@pytest.mark.parametrize("scaling", ["s=r", "s=r2", "d=s=r"])
def test_most_sizes_of_a_quick_search_are_compiled_for_at_once(scaling):
    answers = None if scaling == "d=s=r" else 8
    quick = TransformerCapacityProblem(16, 8, 2, 16, answers, protocol="quick", scaling=scaling)
    guess = quick.search("fast").guess
    rooms = [quick.task(size, 0).config["room"] for size in range(1, 6 * guess)]
    assert len({tuple(room.values()) for room in rooms[: int(1.3 * guess)]}) == 1
    assert len({tuple(room.values()) for room in rooms}) < 7
    for size, room in enumerate(rooms, 1):
        subjects, relations, own = quick.sizes(size)
        needed = [subjects, relations, subjects + relations, relations * own, subjects * relations]
        assert list(room) == ["subjects", "relations", "noise", "answers", "facts"]
        assert all(most >= least for most, least in zip(room.values(), needed, strict=True))


def test_only_quick_training_has_room():
    for protocol in ("paper", "best", "compiled"):
        assert "room" not in problem(protocol=protocol).task(5, 0).config


def test_the_cost_counts_every_run_and_step():
    found = measured(short(learning_rates=[0.001, 0.003], criterion=0.999))
    assert found["run_steps"] == 120
    per_step = step_flops(Shape(12, 3, 4, 10), Vocabulary(6, 5, 11, 15), 64)
    assert found["flops"] == 120 * per_step


def test_a_compiled_measurement_is_what_the_command_constructs(capsys):
    found = measured(criterion=1.0)
    same = asked(capsys, "construct", "compiled")
    for key in ("certified_accuracy", "min_certified_margin", "iterations", "min_margin"):
        assert found[key] == same[key], key
    assert found["stored"] is True


def test_what_the_compiler_refuses_is_not_stored():
    found = measured(criterion=1.0, dim=2, head_dim=2, heads=1, width=0)
    assert found["stored"] is False
    assert "no head can ignore the noise" in found["outcome"]


@pytest.mark.parametrize(
    ("scaling", "answers", "sizes"),
    [("s=r", 3, (10, 10, 3)), ("s=r2", 3, (10, 3, 3)), ("d=s=r", None, (10, 10, 10))],
)
def test_scalings(scaling, answers, sizes):
    asked = problem(scaling=scaling, answers=answers)
    assert asked.sizes(10) == sizes
    assert asked.facts(10) == sizes[0] * sizes[1]
    config = asked.task(10, 5).config
    assert (config["subjects"], config["relations"], config["answers"]) == sizes
    assert config["noise"] == sizes[0] + sizes[1]
    assert config["seed"] == 5


@given(st.floats(0.0, 1e6), st.sampled_from(["s=r", "s=r2"]))
def test_the_guess_is_the_size_with_the_nearest_facts(facts, scaling):
    asked = problem(scaling=scaling)

    def far(size):
        return abs(math.log(asked.facts(size) / max(facts, 1)))

    size = asked.size_of(facts)
    assert all(far(size) <= far(other) for other in range(max(1, size - 2), size + 3))


def test_guesses_for_the_shape_that_was_measured():
    def guess(**more):
        return TransformerCapacityProblem(32, 8, 4, 32, 8, **more).search("fast").guess

    # Facts per parameter: 0.11, 0.21 and 0.15 of 6144.
    assert (guess(), guess(protocol="best"), guess(protocol="compiled")) == (26, 36, 30)
    assert guess(scaling="s=r2") == 80
    # Answers of twice as many bits: half as many facts.
    assert TransformerCapacityProblem(32, 8, 4, 32, 64).search("fast").guess == 18


def test_all_numbers_of_a_protocol_are_part_of_the_configuration():
    for name, protocol in (("paper", PAPER), ("best", BEST), ("quick", QUICK)):
        training = problem(protocol=name, patient=True).task(5, 0).config["training"]
        assert training == {**asdict(protocol), "hopeless": ()}
    assert problem(protocol="compiled").task(5, 0).config["training"] is None


def test_hopeless_training_is_ended_only_where_that_was_compared():
    def hopeless(**more):
        return problem(**more).task(5, 0).config["training"]["hopeless"]

    compared = {"answers": 8, "length": 32}
    assert hopeless(**compared) == ((0.25, 0.75), (0.5, 0.93))
    for other in (
        {"answers": 4},
        {"length": 16},
        {"noise": 10},
        {"patient": True},
        {"protocol": "best"},
        {"criterion": 1.0},
        {"scaling": "s=r2"},
        {"width": 0},
    ):
        assert hopeless(**{**compared, **other}) == ()
    patient = problem(**compared, patient=True)
    assert problem(**compared).task(5, 0).identity != patient.task(5, 0).identity


def test_a_hopeless_training_ends_early():
    found = measured(short(hopeless=[[0.25, 0.99], [0.5, 0.999]]))
    assert found["stored"] is False
    assert found["run_steps"] == 15
    assert found["outcome"] == "It was so far from the criterion that it was ended early."


def test_all_prompts_must_be_right_where_all_are_asked_for():
    training = problem(criterion=1.0).task(5, 0).config["training"]
    # Above this on 1024 prompts means 1024 of them.
    assert 1023 / 1024 < training["criterion"] < 1
    assert problem(criterion=0.9).task(5, 0).config["training"]["criterion"] == 0.9


def test_parameters_are_counted_as_the_paper_counts():
    assert problem().parameters == 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert problem(width=0).parameters == 4 * 3 * 12 * 4


def test_the_authors_range():
    assert problem().search("paper") == PaperSearch(8, 512)


def test_attention_alone_can_be_measured():
    found = measured(short(), width=0)
    assert found["parameters"] == 4 * 3 * 12 * 4


def test_a_task_can_be_performed_from_its_configuration():
    task = problem(protocol="compiled", criterion=1.0).task(3, 0)
    assert execute(task).metrics["stored"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"dim": 0},
        {"heads": 0},
        {"head_dim": 0},
        {"width": -1},
        {"answers": None},
        {"answers": 0},
        {"scaling": "d=s=r"},
        {"criterion": 0.0},
        {"criterion": 1.1},
    ],
)
def test_what_is_no_question(wrong):
    with pytest.raises(FactmemError):
        problem(**wrong)
