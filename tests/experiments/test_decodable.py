"""Limits set by embeddings, measured at the tables that searches could not store."""

import jax.random as jr
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from tests.experiments.inline_workers import InlineWorkers

import factmem.training
from factmem.experiments import (
    Bracket,
    Capacity,
    CapacitySearches,
    CapacityWithLimits,
    Experiment,
    LimitedCapacitySearches,
    SearchStatus,
    SeedCapacity,
    Store,
    TransformerCapacityProblem,
    decodable,
    measure,
    transformer_capacity,
)
from factmem.experiments.decodable import measure_decodable
from factmem.experiments.transformer_capacity import measure_transformer
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import Shape, Transformer

SIZES = {"subjects": 6, "relations": 5, "answers": 4, "noise": 3}


def decodable_shares(outputs, table):
    """Return the shares of facts and of answers at corners of the convex hull."""
    corners = np.zeros(len(outputs), bool)
    corners[ConvexHull(np.asarray(outputs, float)).vertices] = True
    return {
        "decodable_facts_fraction": float(
            np.mean([corners[answer] for answer in table.answer_of.ravel()])
        ),
        "decodable_answers_fraction": float(np.mean(corners)),
    }


@pytest.mark.parametrize("seed", [0, 1, 64])
def test_the_embeddings_are_those_of_a_transformer_drawn_with_the_seed(seed):
    table = FactTable.random(6, 5, 4, seed=seed)
    vocabulary = PromptDistribution.from_table(table, noise=3).vocabulary
    key = jr.split(jr.key(seed), 3)[0]
    model = Transformer.draw(Shape(3, 2, 1, 4), vocabulary, key=key)
    expected = decodable_shares(model.embeddings.outputs, table)
    metrics = measure_decodable(dim=3, seed=seed, **SIZES)
    assert metrics == pytest.approx(expected)
    assert 0 < metrics["decodable_facts_fraction"] < 1, (
        "in three dimensions some answers are not decodable"
    )


class TrainingStarted(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("protocol", ["quick", "paper"])
def test_embeddings_and_table_are_those_of_the_training(monkeypatch, protocol):
    starts = []

    def start_training(start, prompts, protocol):
        starts.append((start.embeddings.outputs, prompts.table))
        raise TrainingStarted

    monkeypatch.setattr(factmem.training, "runs_for_learning_rates", start_training)
    problem = TransformerCapacityProblem(Shape(3, 2, 1, 4), protocol=protocol)
    task = problem.task(7, 5)
    with pytest.raises(TrainingStarted):
        measure_transformer(**task.config)
    ((outputs, table),) = starts
    limit = LimitedCapacitySearches(CapacitySearches([problem], [5]))._limit_task(0, 5, 7)
    expected = decodable_shares(outputs, table)
    assert limit.experiment.function(**limit.config) == pytest.approx(expected)


def test_in_many_dimensions_every_answer_is_decodable():
    assert set(measure_decodable(dim=40, seed=0, **SIZES).values()) == {1.0}


# ---- searches and then limits -------------------------------------------------------------------


def store_by_dim(*, dim, subjects, seed, **_):
    return {"stored": subjects <= dim + seed}


def decode_half_at_dim_8(*, dim, subjects, seed, **_):
    return {"decodable_facts_fraction": 0.5 if dim == 8 else 1.0}


@pytest.fixture
def searches(monkeypatch):
    stored = Experiment("transformer", 1, store_by_dim)
    limits = Experiment("decodable answers", 1, decode_half_at_dim_8)
    monkeypatch.setattr(transformer_capacity, "EXPERIMENT", stored)
    monkeypatch.setattr(decodable, "EXPERIMENT", limits)
    problems = [
        TransformerCapacityProblem(Shape(dim, 2, 4, dim), protocol="quick") for dim in (16, 8)
    ]
    return LimitedCapacitySearches(CapacitySearches(problems, [0, 1, 2]))


def test_limits_are_measured_when_a_shape_is_finished(searches, tmp_path):
    workers, remaining = InlineWorkers(2), []
    with Store(tmp_path / "runs.sqlite") as store:
        result = measure(
            searches, store, workers, report=lambda progress: remaining.append(progress.remaining)
        )
    is_training = ["training" in config for config in workers.submitted if config["dim"] == 16]
    assert is_training == sorted(is_training, reverse=True), "first training runs, then limits"
    last_limit = max(
        index
        for index, config in enumerate(workers.submitted)
        if config["dim"] == 16 and "training" not in config
    )
    after = workers.submitted[last_limit + 1 :]
    assert any("training" in config for config in after), "the next shape is not finished yet"
    limits = [config for config in workers.submitted if "training" not in config]
    assert sorted((c["dim"], c["seed"], c["subjects"]) for c in limits) == [
        (dim, seed, dim + seed + 1) for dim in (8, 16) for seed in (0, 1, 2)
    ], "at the smallest size that is not stored"
    assert all(count > 0 for count in remaining[:-1])
    assert remaining[-1] == 0
    assert [capacity.problem.dim for capacity in result.capacities] == [16, 8]
    assert result.decodable_fraction == {
        (index, seed): (1.0, 0.5)[index] for index in (0, 1) for seed in (0, 1, 2)
    }
    assert not result.limited(0)
    assert result.limited(1)


def test_remaining_tasks_are_counted_down_to_zero(searches, tmp_path):
    assert searches.remaining({}) > searches.searches.remaining({})
    with Store(tmp_path / "runs.sqlite") as store:
        measure(searches, store, InlineWorkers())
        records = {record.identity: record for record in store.records()}
    assert searches.remaining(records) == 0
    trained = {i: record for i, record in records.items() if record.experiment == "transformer"}
    assert searches.remaining(trained) == 6
    assert len(searches.pending(trained).needed) == 6


def test_a_failed_measurement_limits_nothing(searches, monkeypatch, tmp_path):
    def fail(**_):
        raise ZeroDivisionError

    monkeypatch.setattr(decodable, "EXPERIMENT", Experiment("fail", 1, fail))
    with Store(tmp_path / "runs.sqlite") as store:
        result = measure(searches, store, InlineWorkers())
    assert set(result.decodable_fraction.values()) == {1.0}
    assert not result.limited(1)


@pytest.mark.parametrize(
    ("shares", "limited"),
    [
        ((1.0, 1.0, 1.0), False),
        ((0.9, 1.0, 1.0), False),
        ((0.9, 0.9, 1.0), True),
        ((0.9, 0.9, 0.9), True),
        ((0.995, 0.99, 0.99), False),
        ((0.9, 0.9), True),
        ((0.9, 1.0), False),
        ((0.5, None, None), False),
        ((None, None, None), False),
    ],
)
def test_a_shape_is_limited_if_most_of_its_seeds_are(shares, limited):
    seeds = tuple(
        SeedCapacity(seed, Bracket(3, 4), SearchStatus.BRACKETED, {}) for seed in range(len(shares))
    )
    capacity = Capacity(TransformerCapacityProblem(Shape(8, 2, 4, 8)), seeds)
    known = {(0, seed): share for seed, share in enumerate(shares) if share is not None}
    assert CapacityWithLimits([capacity], known).limited(0) is limited
