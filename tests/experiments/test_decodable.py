"""What embeddings alone allow: asked for once searches are over, of the tables they failed at."""

import jax.random as jr
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from tests.experiments.test_scheduler import Here

import factmem.training
from factmem.experiments import (
    Bracket,
    Capacity,
    CapacityWithLimits,
    LimitedCapacitySearches,
    Experiment,
    Outcome,
    CapacitySearches,
    SeedCapacity,
    Store,
    TransformerCapacityProblem,
    measure,
)
from factmem.experiments import (
    decodable as limits,
)
from factmem.experiments import (
    transformer_capacity as transformers,
)
from factmem.experiments.decodable import measure_decodable
from factmem.experiments.transformer_capacity import measure_transformer
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import Shape, Transformer

SIZES = {"subjects": 6, "relations": 5, "answers": 4, "noise": 3}


def shares(outputs, table):
    """Of facts and of answers that are corners of the hull."""
    corners = np.zeros(len(outputs), bool)
    corners[ConvexHull(np.asarray(outputs, float)).vertices] = True
    return {
        "facts": float(np.mean([corners[a] for a in table.answer_of.ravel()])),
        "answers": float(np.mean(corners)),
    }


@pytest.mark.parametrize("seed", [0, 1, 64])
def test_the_embeddings_are_those_of_a_transformer_drawn_with_the_seed(seed):
    table = FactTable.random(6, 5, 4, seed=seed)
    vocabulary = PromptDistribution.of(table, noise=3).vocabulary
    key = jr.split(jr.key(seed), 3)[0]
    model = Transformer.draw(key, Shape(3, 2, 1, 4), vocabulary)
    expected = shares(model.embeddings.outputs, table)
    found = measure_decodable(dim=3, seed=seed, **SIZES)
    assert found == pytest.approx(expected)
    assert 0 < found["facts"] < 1, "in three dimensions some are lost"


class Begun(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("protocol", ["quick", "paper"])
def test_they_are_the_embeddings_and_the_table_that_are_trained_on(monkeypatch, protocol):
    seen = []

    def begin(start, asked, protocol):
        seen.append((start.embeddings.outputs, asked.table))
        raise Begun

    monkeypatch.setattr(factmem.training, "runs_for_learning_rates", begin)
    problem = TransformerCapacityProblem(3, 2, 1, 4, protocol=protocol)
    task = problem.task(7, 5)
    with pytest.raises(Begun):
        measure_transformer(**task.config)
    ((outputs, table),) = seen
    limit = LimitedCapacitySearches(CapacitySearches([problem], [5]))._task(0, 5, 7)
    assert limit.experiment.function(**limit.config) == pytest.approx(shares(outputs, table))


def test_with_many_dimensions_nothing_is_lost():
    found = measure_decodable(dim=40, seed=0, **SIZES)
    assert found == {"facts": 1.0, "answers": 1.0}


# ---- searches and then limits --------------------------------------------------------------------


def stored(*, dim, subjects, seed, **_):
    return {"stored": subjects <= dim + seed}


def possible(*, dim, subjects, seed, **_):
    return {"facts": 0.5 if dim == 8 else 1.0, "answers": 1.0}


@pytest.fixture
def searches(monkeypatch):
    monkeypatch.setattr(transformers, "MEASURE", Experiment("transformer", 1, stored))
    monkeypatch.setattr(limits, "MEASURE", Experiment("decodable answers", 1, possible))
    questions = [TransformerCapacityProblem(dim, 2, 4, dim, protocol="quick") for dim in (16, 8)]
    return LimitedCapacitySearches(CapacitySearches(questions, [0, 1, 2]))


def test_limits_are_asked_for_once_a_shape_is_over(searches, tmp_path):
    workers, lefts = Here(2), []
    with Store(tmp_path / "runs.sqlite") as store:
        found = measure(searches, store, workers, report=lambda now: lefts.append(now.left))
    of_first = ["training" in each for each in workers.submitted if each["dim"] == 16]
    assert of_first == sorted(of_first, reverse=True), "first its trainings, then its limits"
    last_limit = max(n for n, each in enumerate(workers.submitted)
                     if each["dim"] == 16 and "training" not in each)  # fmt: skip
    after = workers.submitted[last_limit + 1 :]
    assert any("training" in each for each in after), "the next shape is not over by then"
    asked = [config for config in workers.submitted if "training" not in config]
    assert sorted((c["dim"], c["seed"], c["subjects"]) for c in asked) == [
        (dim, seed, dim + seed + 1) for dim in (8, 16) for seed in (0, 1, 2)
    ], "at the smallest size that is not stored"
    assert all(left > 0 for left in lefts[:-1])
    assert lefts[-1] == 0
    assert [capacity.problem.dim for capacity in found.capacities] == [16, 8]
    assert found.possible == {(p, s): (1.0, 0.5)[p] for p in (0, 1) for s in (0, 1, 2)}
    assert not found.limited(0)
    assert found.limited(1)


def test_what_is_left_is_counted_and_comes_to_nothing(searches, tmp_path):
    assert searches.remaining({}) > searches.searches.remaining({})
    with Store(tmp_path / "runs.sqlite") as store:
        measure(searches, store, Here())
        records = {record.identity: record for record in store.records()}
    assert searches.left(records) == 0
    trained = {i: r for i, r in records.items() if r.measure == "transformer"}
    assert searches.left(trained) == 6
    assert len(searches.pending(trained).needed) == 6


def test_what_failed_limits_nothing(searches, monkeypatch, tmp_path):
    def fails(**_):
        raise ZeroDivisionError

    monkeypatch.setattr(limits, "MEASURE", Experiment("fails", 1, fails))
    with Store(tmp_path / "runs.sqlite") as store:
        found = measure(searches, store, Here())
    assert set(found.possible.values()) == {1.0}
    assert not found.limited(1)


@pytest.mark.parametrize(
    ("possible", "limited"),
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
def test_a_shape_is_limited_when_most_of_its_seeds_are(possible, limited):
    seeds = tuple(
        SeedCapacity(seed, Bracket(3, 4), Outcome.FOUND, {}) for seed in range(len(possible))
    )
    capacity = Capacity(TransformerCapacityProblem(8, 2, 4, 8), seeds)
    shares = {(0, seed): share for seed, share in enumerate(possible) if share is not None}
    assert CapacityWithLimits([capacity], shares).limited(0) is limited
