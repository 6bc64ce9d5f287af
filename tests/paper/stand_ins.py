"""Stand-ins for measurements that cost nothing, and simple plots."""

from dataclasses import dataclass
from functools import cache

from factmem._core.canonical_json import to_json_data
from factmem.experiments import (
    CapacityProblem,
    Experiment,
    PaperSearch,
    Record,
    Task,
    decodable,
    transformer_capacity,
)
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Plot

SCATTER = (1.0, 1.02, 0.97)
"""Factors of the capacity of seeds 0, 1 and 2."""


def store_by_law(*, dim, size, exponent, scatter, seed):
    return {
        "stored": size <= scatter[seed] * dim ** (2 * exponent) / 2,
        "min_relative_margin": 0.125,
    }


LAW = Experiment("power law", 1, store_by_law)


@dataclass(frozen=True)
class PowerLawProblem(CapacityProblem):
    """A model of d² parameters that stores parameters^exponent / 2 facts."""

    dim: int
    exponent: float = 1.0
    scatter: tuple[float, ...] = SCATTER
    criterion: float = 0.99

    @property
    def parameters(self):
        return self.dim**2

    @property
    def expected_facts_per_parameter(self):
        return self.parameters ** (self.exponent - 1) / 2

    @property
    def ratio(self):
        return 1.02

    @property
    def paper_search(self):
        return PaperSearch(1, self.dim**2)

    def facts(self, size):
        return size

    @cache  # noqa: B019
    def task(self, size, seed):
        config = {"dim": self.dim, "exponent": self.exponent, "scatter": list(self.scatter)}
        return Task(LAW, {**config, "size": size, "seed": seed})


def make_record(task):
    """Execute a task. This skips the library versions that `execute` looks up."""
    experiment = task.experiment
    return Record(
        task.identity,
        experiment.name,
        experiment.version,
        to_json_data(task.config),
        task.seed,
        to_json_data(experiment.function(**task.config)),
        error=None,
        seconds=0.5,
        versions={},
        threads=1,
        host="host",
        finished="now",
    )


def run_all(measurement):
    """Execute all tasks of a measurement in this process, and return their records."""
    known = {}
    while needed := measurement.pending(known).needed:
        known |= {task.identity: make_record(task) for task in needed}
    return known


def draw(figure):
    """Measure and plot a figure."""
    return figure.draw(run_all(figure.measurement))


def trained_capacity(parameters, exponent=1.0):
    """Return the facts that quick training stores at d = 16, scaled by a power law."""
    return 200 * (parameters / 1536) ** exponent


def train_by_law(monkeypatch, exponent=1.0, limited=()):
    """Let transformers store `trained_capacity`; at the d in `limited`, embeddings limit them."""

    def store(*, dim, heads, head_dim, width, subjects, relations, seed, **_):
        parameters = 4 * heads * dim * head_dim + 2 * width * dim
        limit = (1 + seed / 50) * trained_capacity(parameters, exponent)
        return {"stored": subjects * relations <= limit}

    def decode(*, dim, **_):
        return {
            "decodable_facts_fraction": 0.75 if dim in limited else 1.0,
            "decodable_answers_fraction": 1.0,
        }

    monkeypatch.setattr(transformer_capacity, "EXPERIMENT", Experiment("law", 1, store))
    monkeypatch.setattr(decodable, "EXPERIMENT", Experiment("decodable", 1, decode))


def column(plot, name):
    index = plot.data.header.index(name)
    return [row[index] for row in plot.data.rows]


def simple_plot(*lines, name="2", **fields):
    lines = lines or (Line("a", (1.0, 2.0), (3.0, 4.0)),)
    chart = Chart(Axis("x"), Axis("y"), lines)
    defaults = {"title": "A title", "caption": "A caption.", "data": DataTable.of(["x"], [[1]])}
    return Plot(name, panels=fields.pop("panels", (chart,)), **(defaults | fields))
