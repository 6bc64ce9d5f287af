"""Options of `factmem flow` and their checks."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.options import (
    check_array_size,
    check_length,
    check_plot_file,
    check_positive,
    check_seed,
    check_table_file,
    check_table_sizes,
    flag,
)

if TYPE_CHECKING:
    from factmem.experiments import FlowSpec, TableSpec
    from factmem.experiments.flow_spec import SGDConfig

__all__ = [
    "CurveOptions",
    "FlowFactOptions",
    "LearningOptions",
    "check_flow_options",
    "flow_spec",
]

_GENERATED_TABLES = ("structured", "random")
_MAX_POINTS = 100_000
_MAX_ZIPF = 4.0
_MAX_SCALE = 10.0
_MAX_BATCH = 2**20
_MAX_INT = 2**31 - 1


@Parameter(name="*")
@dataclass(frozen=True)
class FlowFactOptions:
    """The fact table and its prompts."""

    subjects: int | None = None
    """S, the number of subjects."""
    relations: int | None = None
    """R, the number of relations."""
    answers: int | None = None
    """D, the number of answers per relation."""
    table: str = "structured"
    """structured: answers as equally frequent as possible, as in Figure 5. random: a random table.
    Otherwise the path of a CSV file."""
    noise: int | None = None
    """Number of different noise tokens (default: S + R)."""
    length: int = 32
    """T, the number of tokens in a prompt."""
    zipf: float = 0.0
    """Exponent of the subject distribution: subject k has probability proportional to k^-ZIPF; 0
    is uniform."""
    seed: int = 0
    """Seed of the table, the initial weights, the embeddings and the prompts."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        generated = self.table in _GENERATED_TABLES
        file = None if generated else self.table
        check_table_sizes(self.subjects, self.relations, self.answers, file)
        check_positive(noise=self.noise)
        check_length(self.length)
        check_seed(self.seed)
        if not 0 <= self.zipf <= _MAX_ZIPF:
            raise FactmemError(f"--zipf must be from 0 to {_MAX_ZIPF:g}, got {self.zipf}")
        if (self.noise or 0) > _MAX_INT:
            raise FactmemError(f"--noise must be at most {_MAX_INT}, got {self.noise}")
        if generated:
            facts = (self.subjects or 1) * (self.relations or 1)
            check_array_size(facts, (self.relations or 1) * (self.answers or 1))

    def table_spec(self) -> "TableSpec":
        """Return the spec of the table."""
        from factmem.experiments import TableSpec

        sizes: Any = (self.subjects, self.relations, self.answers)
        if self.table == "structured":
            return TableSpec.structured(*sizes)
        if self.table == "random":
            return TableSpec.random(*sizes)
        check_table_file(self.table, "--table")
        return TableSpec.csv(self.table)


@Parameter(name="*")
@dataclass(frozen=True)
class LearningOptions:
    """The model and its training."""

    attention: Literal["linear", "softmax"] = "linear"
    """linear: with orthonormal embeddings, as in the theorems. softmax: with random unit
    embeddings."""
    method: Literal["flow", "sgd"] | None = None
    """flow: exact gradient flow (default for linear). sgd: stochastic gradient descent with new
    prompts in every step (default for softmax)."""
    init: Literal["equal", "balanced", "random"] = "equal"
    """Initial weights. equal: all the same. balanced: as in the theorems. random: normal."""
    scale: float = 1e-5
    """α, the scale of the initial weights."""
    until: float | None = None
    """End of the flow, in flow time (default: when the loss is 0.01)."""
    learning_rate: float | None = None
    """Learning rate of sgd (default: 0.1 for linear, 16 for softmax)."""
    steps: int | None = None
    """Number of steps of sgd (default: 8192 for linear, 4096 for softmax)."""
    batch_size: int | None = None
    """Batch size of sgd (default: 1024)."""
    dim: int | None = None
    """d, the embedding dimension (default: large enough for linear, four times the vocabulary for
    softmax)."""

    @property
    def resolved_method(self) -> str:
        """The method that was given, or the default."""
        return self.method or {"linear": "flow", "softmax": "sgd"}[self.attention]

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_positive(steps=self.steps, batch_size=self.batch_size, dim=self.dim)
        for name, maximum in (("steps", _MAX_INT), ("batch_size", _MAX_BATCH), ("dim", _MAX_INT)):
            value = getattr(self, name)
            if value is not None and value > maximum:
                raise FactmemError(f"{flag(name)} must be at most {maximum}, got {value}")
        check_array_size(self.dim or 1, self.dim or 1)
        if not 0 < self.scale <= _MAX_SCALE:
            raise FactmemError(
                f"--scale must be above 0 and at most {_MAX_SCALE:g}, got {self.scale}"
            )
        for name in ("learning_rate", "until"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise FactmemError(f"{flag(name)} must be positive and finite, got {value}")
        if self.attention == "softmax" and self.method == "flow":
            raise FactmemError("--attention softmax cannot be combined with --method flow")
        if self.attention == "softmax" and self.init != "equal":
            raise FactmemError(f"--attention softmax cannot be combined with --init {self.init}")
        sgd = self.resolved_method == "sgd"
        for name in ("until",) if sgd else ("learning_rate", "steps", "batch_size"):
            if getattr(self, name) is not None:
                raise FactmemError(f"{flag(name)} requires --method {'flow' if sgd else 'sgd'}")

    def sgd_config(self) -> "SGDConfig | None":
        """Return the settings of sgd, with defaults filled in; None for the flow."""
        if self.resolved_method != "sgd":
            return None
        from factmem.experiments.flow_spec import LINEAR_SGD, SOFTMAX_SGD

        default = {"linear": LINEAR_SGD, "softmax": SOFTMAX_SGD}[self.attention]
        given = {name: getattr(self, name) for name in default._fields}
        return default._replace(
            **{name: value for name, value in given.items() if value is not None}
        )


@Parameter(name="*")
@dataclass(frozen=True)
class CurveOptions:
    """The points of the loss curve, and its plot."""

    points: int = 512
    """Number of times at which the losses are reported."""
    spacing: Literal["equal", "log"] = "equal"
    """Spacing of these times. equal: equal steps from 0. log: equal factors over three decades."""
    plot: str | None = None
    """File for a plot of losses and stages (.png, .pdf or .svg)."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        if not 2 <= self.points <= _MAX_POINTS:
            raise FactmemError(f"--points must be from 2 to {_MAX_POINTS}, got {self.points}")
        if self.plot is not None:
            check_plot_file("--plot", self.plot)


def check_flow_options(
    facts: FlowFactOptions, learning: LearningOptions, curve: CurveOptions
) -> None:
    """Check all options before anything is loaded."""
    facts.check()
    learning.check()
    if learning.resolved_method == "sgd" or learning.init == "random":
        # Prompts are sampled, so the arrays have an entry for every noise token.
        table_facts = (facts.subjects or 1) * (facts.relations or 1)
        largest = max(
            table_facts, learning.batch_size or 1024, learning.dim or 1, facts.answers or 1
        )
        check_array_size(facts.noise or 1, largest)
        check_array_size(facts.length, largest)
    curve.check()


def flow_spec(facts: FlowFactOptions, learning: LearningOptions) -> "FlowSpec":
    """Return the spec that the options describe."""
    from factmem.experiments import FlowSpec, PromptSpec

    if learning.resolved_method == "flow":
        method = "flow"
    else:
        method = "sgd" if learning.attention == "linear" else "softmax-sgd"
    return FlowSpec(
        table=facts.table_spec(),
        prompts=PromptSpec(noise=facts.noise, length=facts.length, subject_power=facts.zipf),
        method=method,
        init=learning.init,
        scale=learning.scale,
        until=learning.until,
        sgd=learning.sgd_config(),
        dim=learning.dim,
        seed=facts.seed,
    )
