"""`factmem capacity`: finds the largest number of facts that a shape stores."""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App, Parameter

from factmem._core.errors import FactmemError
from factmem.cli.options import (
    RunOptions,
    ShapeOptions,
    check_array_size,
    check_length,
    check_positive,
    check_seed,
)
from factmem.cli.progress import progress
from factmem.cli.render import TIME_LABELS, CommandResult, OutputOptions, render_table

if TYPE_CHECKING:
    from factmem.experiments import Bracket, Capacity, CapacityProblem, SeedCapacity
    from factmem.experiments.capacity import Progress

__all__ = ["capacity"]

_MAX_SEEDS = 1000
_MAX_DIM = 2**14
_BRACKETS_SHOWN = 3

capacity = App(name="capacity", help="Find the largest number of facts that a model stores.")


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """The search for the capacity."""

    criterion: float | None = None
    """Accuracy at which facts count as stored (default: 1, or 0.99 for trained models)."""
    search: Literal["fast", "paper"] = "fast"
    """fast: start at an estimate and widen the range. paper: the authors' bisection of a wide
    range."""
    seeds: int = 1
    """Number of seeds; each has its own search, and the lower median is reported."""
    seed: int = 0
    """The first seed."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_positive(seeds=self.seeds)
        if self.seeds > _MAX_SEEDS:
            raise FactmemError(f"--seeds must be at most {_MAX_SEEDS}, got {self.seeds}")
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)
        if self.criterion is not None:
            from factmem.experiments.capacity_problem import check_criterion

            check_criterion(self.criterion)

    def criterion_for(self, *, trained: bool) -> float:
        """Return the criterion: the one that was given, or the default."""
        return (0.99 if trained else 1.0) if self.criterion is None else self.criterion


@capacity.command
def linear(
    *,
    dim: int,
    method: Literal["optimal", "trained"] = "optimal",
    search: SearchOptions = SearchOptions(),
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Find how many associations a d × d matrix stores.

    Args:
        dim: d, the dimension of keys and values.
        method: optimal: the optimal linear memory, with a proof that more is impossible. trained:
            trained as in the paper.
    """
    _check(search, run, dim=dim)
    from factmem.experiments import LinearCapacityProblem

    criterion = search.criterion_for(trained=method == "trained")
    return _find(LinearCapacityProblem(dim, method, criterion), "N", search, run, output)


@capacity.command
def mlp(
    *,
    dim: int,
    width: int,
    method: Literal["fitted", "trained"] = "fitted",
    outputs: int | None = None,
    search: SearchOptions = SearchOptions(),
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Find how many associations an MLP memory stores.

    Args:
        dim: d, the dimension of keys and values.
        width: m, the number of neurons.
        method: fitted: weights fitted by L-BFGS. trained: trained as in the paper.
        outputs: M, the number of possible values (default: the number of associations).
    """
    _check(search, run, dim=dim, width=width)
    check_array_size(width, dim)
    from factmem.experiments import MLPCapacityProblem

    criterion = search.criterion_for(trained=method == "trained")
    problem = MLPCapacityProblem(dim, width, method, outputs, criterion)
    return _find(problem, "N", search, run, output)


@capacity.command
def transformer(
    *,
    shape: ShapeOptions,
    answers: int | None = None,
    protocol: Literal["paper", "best", "compiled"] = "paper",
    scaling: Literal["s=r", "s=r2", "d=s=r"] = "s=r",
    noise: int | None = None,
    length: int = 32,
    no_early_stopping: bool = False,
    search: SearchOptions = SearchOptions(),
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Find how many facts a transformer stores.

    Args:
        answers: D, the number of answers per relation (default: 8; with --scaling d=s=r the number
            of subjects).
        protocol: paper and best: training protocols. compiled: compiled weights with a certificate.
        scaling: How the table grows: S = R, S = R² or D = S = R. The search varies S.
        noise: Number of different noise tokens (default: S + R).
        length: T, the number of tokens in a prompt.
        no_early_stopping: Train every run to the end. By default, the paper protocol with S = R
            stops runs whose accuracy is far below the criterion.
    """
    _check(search, run, dim=shape.dim, answers=answers, noise=noise)
    shape.check()
    check_length(length)
    if scaling == "d=s=r" and answers is not None:
        raise FactmemError("--scaling d=s=r cannot be combined with --answers")
    from factmem.experiments import TransformerCapacityProblem

    problem = TransformerCapacityProblem(
        shape.shape(),
        8 if answers is None and scaling != "d=s=r" else answers,
        protocol,
        scaling,
        search.criterion_for(trained=protocol != "compiled"),
        noise,
        length,
        no_early_stopping,
    )
    return _find(problem, "S", search, run, output)


def _check(search: SearchOptions, run: RunOptions, *, dim: int, **sizes: int | None) -> None:
    """Check options before anything is loaded."""
    check_positive(dim=dim, **sizes)
    if dim > _MAX_DIM:
        raise FactmemError(f"--dim must be at most {_MAX_DIM}, got {dim}")
    search.check()
    run.check()


def _find(
    problem: "CapacityProblem",
    symbol: str,
    search: SearchOptions,
    run: RunOptions,
    output: OutputOptions,
) -> CommandResult:
    from factmem.experiments import Store, find_capacity

    start = time.monotonic()
    with (
        Store(run.store_path) as store,
        run.make_workers() as workers,
        progress(output, "capacity", total=1, unit="probe") as report,
    ):
        result = find_capacity(
            problem,
            range(search.seed, search.seed + search.seeds),
            store,
            workers,
            search=search.search,
            fresh=run.fresh,
            report=lambda state: report(state.done, **_progress_values(state, symbol)),
        )
    data = _data(result, search, run.store_path, time.monotonic() - start)
    title = f"capacity of {problem.parameters:,} parameters"
    return CommandResult(
        data,
        lambda: render_table(title, _labels(symbol), data, _notes(result, symbol, data)),
        output,
    )


def _progress_values(state: "Progress", symbol: str) -> dict[str, Any]:
    brackets = [_format_bracket(bracket, symbol) for bracket in state.brackets[:_BRACKETS_SHOWN]]
    more = ["…"] if len(state.brackets) > _BRACKETS_SHOWN else []
    return {
        "running": state.running,
        "left": state.remaining,
        "bracket": "; ".join([*brackets, *more]),
    }


def _format_bracket(bracket: "Bracket", symbol: str) -> str:
    if bracket.lower is None and bracket.upper is None:
        return f"{symbol} = ?"
    lower = "" if bracket.lower is None else f"{bracket.lower} ≤ "
    upper = "" if bracket.upper is None else f" < {bracket.upper}"
    return f"{lower}{symbol}{upper}"


def _data(result: "Capacity", search: SearchOptions, store: str, seconds: float) -> dict[str, Any]:
    problem, median = result.problem, result.median
    records = [record for seed in result.seeds for record in seed.probes.values()]
    settings = asdict(problem)  # pyright: ignore[reportArgumentType]
    return {
        **settings.pop("shape", {}),
        **settings,
        "search": search.search,
        "embeddings": "given",
        "parameters": problem.parameters,
        "facts": result.facts,
        "facts_per_parameter": result.facts / problem.parameters,
        "lower": median.bracket.lower,
        "upper": median.bracket.upper,
        **_margins(median),
        "seeds": [_seed_data(seed, problem) for seed in result.seeds],
        "probes": len(records),
        "probes_read": sum(record.from_store for record in records),
        "probes_run": sum(not record.from_store for record in records),
        "store": store,
        "seconds": seconds,
    }


def _margins(seed: "SeedCapacity") -> dict[str, Any]:
    metrics = {} if seed.largest is None else seed.largest.metrics or {}
    return {name: metrics.get(name) for name in ("accuracy", "min_margin", "min_relative_margin")}


def _seed_data(seed: "SeedCapacity", problem: "CapacityProblem") -> dict[str, Any]:
    lower = seed.bracket.lower
    return {
        "seed": seed.seed,
        "lower": lower,
        "upper": seed.bracket.upper,
        "undecided": seed.bracket.undecided,
        "facts": 0 if lower is None else problem.facts(lower),
        "status": seed.status.label,
        **_margins(seed),
        "probes": [
            {
                "size": size,
                "run": record.identity[:12],
                "verdict": problem.verdict(record).value,
                "from_store": record.from_store,
                "seconds": record.seconds,
                "error": record.error,
            }
            for size, record in seed.probes.items()
        ],
    }


def _notes(result: "Capacity", symbol: str, data: dict[str, Any]) -> list[str]:
    notes = []
    for seed in result.seeds:
        bracket, parts = seed.bracket, []
        if bracket.lower is not None:
            parts.append(f"the largest stored {symbol} is {bracket.lower:,}")
        if bracket.upper is not None:
            verdict = "undecided" if bracket.undecided else "not stored"
            parts.append(f"{symbol} = {bracket.upper:,} is {verdict}")
        note = f"Seed {seed.seed}: {'; '.join(parts)}."
        notes.append(note if seed.status.label == "bracketed" else f"{note} {seed.status.sentence}")
    probes = [probe for seed in data["seeds"] for probe in seed["probes"]]
    failed = [probe for probe in probes if probe["error"] is not None]
    notes += [f"Run {probe['run']} failed: {probe['error']}" for probe in failed]
    return [*notes, f"The runs are stored in {data['store']}; factmem runs lists them."]


def _labels(symbol: str) -> dict[str, str]:
    return {
        "facts": "facts stored (lower median)",
        "parameters": "parameters",
        "facts_per_parameter": "facts per parameter",
        "lower": f"largest stored {symbol}",
        "upper": f"smallest {symbol} not stored",
        "criterion": "criterion (accuracy)",
        "accuracy": "accuracy",
        "min_relative_margin": "smallest relative margin",
        "probes": "probes",
        "probes_read": "probes read from the store",
        **TIME_LABELS,
    }
