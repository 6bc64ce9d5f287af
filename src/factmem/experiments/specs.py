"""Parts that all experiment specs share: tables, prompts, costs and timed results.

A spec is a frozen description of an experiment. It is the only place where a seed becomes an
instance. Importing this module does not load jax.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_type_hints

from factmem._core.errors import FactmemError, printable
from factmem._core.result import Result, Status

if TYPE_CHECKING:
    from factmem.facts import FactTable, PromptDistribution

__all__ = ["COMPLETED_FRACTION", "Cost", "PromptSpec", "RunResult", "TableSpec", "restore_types"]

TableKind = Literal["random", "structured", "csv"]

COMPLETED_FRACTION = 0.45
"""The average fraction of its steps that a training run takes; many end early."""

ModelT = TypeVar("ModelT")
InstanceT = TypeVar("InstanceT")


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """A table of facts: random, structured, or read from a CSV file.

    Args:
        kind: `random` draws every answer uniformly; in a `structured` table the answers of a
            relation are as equally frequent as possible; `csv` reads a file.
        subjects, relations, answers: S, R and D, unless the table is read from a file.
        path: the CSV file.

    Raises:
        FactmemError: the kind is unknown, sizes are missing or below 1, or a CSV table has sizes.
    """

    kind: TableKind = "random"
    subjects: int | None = None
    relations: int | None = None
    answers: int | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(TableKind):
            kinds = ", ".join(get_args(TableKind))
            raise FactmemError(f"kind must be one of {kinds}, got '{printable(str(self.kind))}'")
        sizes = {name: getattr(self, name) for name in ("subjects", "relations", "answers")}
        if (self.path is not None) != (self.kind == "csv"):
            raise FactmemError("a table has a path if and only if its kind is 'csv'")
        for name, size in sizes.items():
            if self.kind == "csv" and size is not None:
                raise FactmemError(f"a CSV table has its own {name}, got {name} = {size}")
            if self.kind != "csv" and (size is None or size < 1):
                raise FactmemError(f"{name} must be at least 1, got {size}")

    @classmethod
    def random(cls, subjects: int, relations: int, answers: int) -> "TableSpec":
        """Specify a random table."""
        return cls(kind="random", subjects=subjects, relations=relations, answers=answers)

    @classmethod
    def structured(cls, subjects: int, relations: int, answers: int) -> "TableSpec":
        """Specify a table whose answers are as equally frequent as possible."""
        return cls(kind="structured", subjects=subjects, relations=relations, answers=answers)

    @classmethod
    def csv(cls, path: str) -> "TableSpec":
        """Specify a table in a CSV file."""
        return cls(kind="csv", path=path)

    def draw(self, seed: int) -> "FactTable":
        """Return the table; the seed matters only for random tables."""
        from factmem.facts import FactTable, read_csv

        if self.kind == "csv":
            assert self.path is not None
            return read_csv(self.path)
        sizes: Any = (self.subjects, self.relations, self.answers)
        if self.kind == "structured":
            return FactTable.structured(*sizes)
        return FactTable.random(*sizes, seed=seed)

    def config(self) -> dict[str, Any]:
        """Return the table as JSON data. A file is identified by its contents, not by its path."""
        if self.kind == "csv":
            import hashlib

            from factmem.facts import format_csv

            content = format_csv(self.draw(0))
            return {"table": "csv", "sha256": hashlib.sha256(content).hexdigest()}
        sizes = {"subjects": self.subjects, "relations": self.relations, "answers": self.answers}
        return {"table": self.kind, **sizes}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TableSpec":
        """Return the spec that `config` describes.

        Raises:
            FactmemError: the table is a CSV file, of which only a hash is stored.
        """
        if config["table"] == "csv":
            raise FactmemError("a CSV table cannot be restored: only a hash of it is stored")
        names = ("subjects", "relations", "answers")
        return cls(kind=config["table"], **{name: config[name] for name in names})


@dataclass(frozen=True, kw_only=True)
class PromptSpec:
    """How prompts about a table are drawn.

    Args:
        noise: number of distinct noise tokens; S + R by default.
        length: T, the number of tokens in a prompt.
        subject_power: subject s is asked with probability proportional to (s + 1)^−power.
    """

    noise: int | None = None
    length: int = 32
    subject_power: float = 0.0

    def draw(self, table: "FactTable") -> "PromptDistribution":
        """Return the distribution of prompts about a table."""
        from factmem.facts import PromptDistribution

        return PromptDistribution.from_table(
            table, noise=self.noise, length=self.length, subject_power=self.subject_power
        )

    def config(self) -> dict[str, Any]:
        """Return the spec as JSON data."""
        return {"noise": self.noise, "length": self.length, "subject_power": self.subject_power}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "PromptSpec":
        """Return the spec that `config` describes."""
        names = ("noise", "length", "subject_power")
        return cls(**restore_types(cls, {name: config[name] for name in names}))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """An estimate of what a run costs, for time estimates and scheduling.

    Args:
        steps: expected number of steps or iterations.
        flops_per_step: floating-point operations of a step.
        peak_bytes: the largest arrays that are held at once.
        overhead: compile time and time per step besides arithmetic, relative to the training of a
            transformer.
    """

    steps: float
    flops_per_step: float
    peak_bytes: int
    overhead: float = 1.0

    @property
    def flops(self) -> float:
        """Floating-point operations in all."""
        return self.steps * self.flops_per_step


@dataclass(frozen=True, kw_only=True)
class RunResult(Result[ModelT], Generic[ModelT, InstanceT]):
    """The result of running a spec.

    Args:
        model: the memory or the transformer.
        status: how the method ended.
        instance: the instance that the spec drew.
        built: the result of the method, with its own fields.
        seconds: time to build the model, without compilation.
        compile_seconds: time that jax took to trace and compile.
    """

    model: ModelT
    status: Status
    instance: InstanceT
    built: Any
    seconds: float
    compile_seconds: float

    @classmethod
    def from_build(
        cls, instance: InstanceT, build: Callable[[], Any]
    ) -> "RunResult[ModelT, InstanceT]":
        """Run `build` on an instance and time it.

        Args:
            instance: the instance.
            build: builds the model and returns the result of the method.
        """
        import jax

        from factmem._core.timing import Stopwatch

        with Stopwatch() as watch:
            built = build()
            jax.block_until_ready(built.model)
        return cls(
            model=built.model,
            status=built.status,
            instance=instance,
            built=built,
            seconds=watch.seconds,
            compile_seconds=watch.compile_seconds,
        )

    @property
    def metrics(self) -> dict[str, Any]:
        """What the method reports and its status, as JSON data."""
        return {**self.built.metrics, "status": self.status.label}


def restore_types(cls: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the floats and tuples that the fields of a class have.

    JSON has no tuples, and canonical JSON writes 1.0 as 1.
    """
    hints = get_type_hints(cls)
    return {name: _restore_type(value, hints.get(name)) for name, value in config.items()}


def _restore_type(value: Any, hint: Any) -> Any:
    if isinstance(value, list | tuple):
        kinds = get_args(hint)
        return tuple(_restore_type(entry, kinds[0] if kinds else None) for entry in value)
    if isinstance(value, int) and (hint is float or float in get_args(hint)):
        return float(value)
    return value
