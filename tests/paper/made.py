"""Measurements that cost nothing, and plots of every kind, for tests of figures."""

from dataclasses import dataclass
from functools import cache

from factmem._core.canonical_json import plain
from factmem.experiments import (
    CapacityProblem,
    Experiment,
    PaperSearch,
    Record,
    Task,
)
from factmem.experiments import (
    decodable as limits,
)
from factmem.experiments import (
    transformer_capacity as transformers,
)
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Plot

SCATTER = (1.0, 1.02, 0.97)


def by_law(*, dim, size, exponent, scatter, seed):
    """Whether params^exponent / 2 facts, times what the seed's luck is, are as many."""
    return {"stored": size <= scatter[seed] * dim ** (2 * exponent) / 2, "relative_margin": 0.125}


LAW = Experiment("by law", 1, by_law)


@dataclass(frozen=True)
class Asked(CapacityProblem):
    """Stores params^exponent / 2 facts, params = d²."""

    dim: int
    exponent: float = 1.0
    scatter: tuple[float, ...] = SCATTER
    criterion: float = 0.99

    @property
    def parameters(self):
        return self.dim**2

    @property
    def density(self):
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


def record(task):
    """As `execute` makes one, without asking for the versions of all libraries."""
    measure = task.experiment
    metrics = plain(measure.function(**task.config))
    told = (measure.name, measure.version, plain(task.config), task.seed, metrics, None)
    return Record(task.identity, *told, 0.5, {}, 1, "here", "now")


def known_of(measured):
    """All runs of a measurement, made in this process and kept nowhere."""
    known = {}
    while needed := measured.pending(known).needed:
        known |= {task.identity: record(task) for task in needed}
    return known


def drawn(figure):
    """The plot of a figure."""
    return figure.drawn(known_of(figure.measured))


def trained_facts(parameters, exponent=1.0):
    """As many as are to be expected of quick training with d = 16, and growing by the law."""
    return 200 * (parameters / 1536) ** exponent


def trained_by_law(monkeypatch, exponent=1.0, limited=()):
    """Transformers store `trained_facts`; at these d embeddings are the limit."""

    def stores(*, dim, heads, head_dim, width, subjects, relations, seed, **_):
        parameters = 4 * heads * dim * head_dim + 2 * width * dim
        limit = (1 + seed / 50) * trained_facts(parameters, exponent)
        return {"stored": subjects * relations <= limit}

    def possible(*, dim, **_):
        return {"facts": 0.75 if dim in limited else 1.0, "answers": 1.0}

    monkeypatch.setattr(transformers, "MEASURE", Experiment("law", 1, stores))
    monkeypatch.setattr(limits, "MEASURE", Experiment("possible", 1, possible))


def column(plot, name):
    place = plot.data.header.index(name)
    return [row[place] for row in plot.data.rows]


def simple_plot(*lines, name="2", **given):
    lines = lines or (Line("a", (1.0, 2.0), (3.0, 4.0)),)
    chart = Chart(Axis("x"), Axis("y"), lines)
    said = {"title": "A title", "caption": "A caption.", "data": DataTable.of(["x"], [[1]])}
    return Plot(name, panels=given.pop("panels", (chart,)), **(said | given))
