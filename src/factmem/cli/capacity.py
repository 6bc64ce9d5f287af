"""`factmem capacity`: the largest number of facts that a shape stores."""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from factmem._core.errors import FactmemError
from factmem.cli.answer import Answer, Output
from factmem.cli.checks import (
    check_length,
    check_numbers,
    check_positive,
    check_seed,
    check_width,
)
from factmem.cli.kept import store_path
from factmem.cli.progress import progress
from factmem.cli.shown import shown
from factmem.cli.working import check_workers, workers_of

if TYPE_CHECKING:
    from factmem.experiments import Bracket, Capacity, CapacityProblem, SeedCapacity
    from factmem.experiments.capacity import Progress

__all__ = ["capacity"]

_MOST_SEEDS = 1000
_LARGEST_DIM = 2**14

capacity = App(name="capacity", help="Find the largest number of facts that a shape stores.")


@Parameter(name="*")
@dataclass(frozen=True)
class Searching:
    """How the search is done."""

    criterion: float | None = None
    """The accuracy that counts as stored (default: 1, and 0.99 where something is trained)."""
    search: Literal["fast", "paper"] = "fast"
    """fast: from a good guess outwards. paper: the authors' bisection of a wide range."""
    seeds: int = 1
    """How many seeds are searched for, each by itself; the median counts."""
    seed: int = 0
    """The first of them."""
    store: str | None = None
    """File of results: what is there is not done again (default: $FACTMEM_STORE, or yours)."""
    fresh: Annotated[bool, Parameter(negative=())] = False
    """Ignore stored results, and replace them."""
    workers: int | None = None
    """Processes on this machine (default: one for each core)."""
    cluster: str | None = None
    """Use the workers of a dask scheduler instead, such as tcp://host:8786."""


@capacity.command
def linear(
    *,
    dim: int,
    method: Literal["maximal", "trained"] = "maximal",
    searching: Searching = Searching(),
    output: Output = Output(),
) -> Answer:
    """Find how many associations a d × d matrix stores.

    Args:
        dim: d.
        method: maximal is the best there is, with a proof either way; trained is the paper's.
    """
    _check(searching, dim=dim)
    from factmem.experiments import LinearCapacityProblem

    criterion = _criterion(searching, method == "trained")
    return _answer(LinearCapacityProblem(dim, method, criterion), "N", searching, output)


@capacity.command
def mlp(
    *,
    dim: int,
    width: int,
    method: Literal["fitted", "trained"] = "fitted",
    outputs: int | None = None,
    searching: Searching = Searching(),
    output: Output = Output(),
) -> Answer:
    """Find how many associations an MLP memory stores.

    Args:
        dim: d.
        width: m, its neurons.
        method: fitted by L-BFGS, or trained as in the paper.
        outputs: M, the values to decode over (default: as many as there are associations).
    """
    _check(searching, dim=dim, width=width)
    check_numbers(width, dim)
    from factmem.experiments import MLPCapacityProblem

    criterion = _criterion(searching, method == "trained")
    return _answer(
        MLPCapacityProblem(dim, width, method, outputs, criterion), "N", searching, output
    )


@capacity.command
def transformer(
    *,
    dim: int,
    heads: int,
    head_dim: int,
    width: int,
    answers: int | None = None,
    protocol: Literal["paper", "best", "compiled"] = "paper",
    scaling: Literal["s=r", "s=r2", "d=s=r"] = "s=r",
    noise: int | None = None,
    length: int = 32,
    patient: Annotated[bool, Parameter(negative=())] = False,
    searching: Searching = Searching(),
    output: Output = Output(),
) -> Answer:
    """Find how many facts a transformer stores.

    Args:
        dim: d, the dimension of embeddings.
        heads: H.
        head_dim: d_h, the dimension of a head.
        width: m, the neurons of the MLP; 0 is attention alone.
        answers: D, the answers of each relation (default: 8; with d=s=r as many as subjects).
        protocol: paper and best train it, compiled writes the weights, with a certificate.
        scaling: S = R, S = R² or D = S = R; S is what is searched for.
        noise: how many different noise tokens there are (default: S + R).
        length: T, the tokens in a prompt.
        patient: train to the end even what is hopeless (paper ends it early where S = R).
    """
    _check(searching, dim=dim, heads=heads, head_dim=head_dim, answers=answers, noise=noise)
    check_width(width)
    check_numbers(max(width, heads * head_dim), dim)
    check_length(length)
    if scaling == "d=s=r" and answers is not None:
        raise FactmemError("--scaling d=s=r has its own --answers: give one of them")
    from factmem.experiments import TransformerCapacityProblem

    problem = TransformerCapacityProblem(
        dim,
        heads,
        head_dim,
        width,
        8 if answers is None and scaling != "d=s=r" else answers,
        protocol,
        scaling,
        _criterion(searching, protocol != "compiled"),
        noise,
        length,
        patient,
    )
    return _answer(problem, "S", searching, output)


def _check(searching: Searching, **sizes: int | None) -> None:
    """What can be said before anything is loaded."""
    check_positive(**sizes, seeds=searching.seeds)
    if (sizes["dim"] or 1) > _LARGEST_DIM:
        raise FactmemError(f"--dim is at most {_LARGEST_DIM}, not {sizes['dim']}")
    if searching.seeds > _MOST_SEEDS:
        raise FactmemError(f"--seeds is at most {_MOST_SEEDS}, not {searching.seeds}")
    check_seed(searching.seed)
    check_seed(searching.seed + searching.seeds - 1)
    if searching.criterion is not None:
        from factmem.experiments.capacity_problem import check_criterion

        check_criterion(searching.criterion)
    check_workers(searching.workers, searching.cluster)
    store_path(searching.store)


def _criterion(searching: Searching, trained: bool) -> float:
    return (0.99 if trained else 1.0) if searching.criterion is None else searching.criterion


def _answer(
    problem: "CapacityProblem", symbol: str, searching: Searching, output: Output
) -> Answer:
    from factmem.experiments import Store, find_capacity

    start = time.monotonic()
    with (
        Store(store_path(searching.store)) as store,
        workers_of(searching.workers, searching.cluster) as workers,
        progress(output, "capacity", total=1, unit="probe") as report,
    ):
        found = find_capacity(
            problem,
            range(searching.seed, searching.seed + searching.seeds),
            store,
            workers,
            search=searching.search,
            fresh=searching.fresh,
            report=lambda progress: report(progress.done, **_figures(progress, symbol)),
        )
        where = str(store.path)
    data = _data(found, searching, where, time.monotonic() - start)
    title = f"capacity of {problem.parameters:,} parameters"
    return Answer(data, lambda: shown(title, _labels(symbol), data, _notes(data)), output)


def _figures(progress: "Progress", symbol: str) -> dict[str, Any]:
    brackets = [_told(bracket, symbol) for bracket in progress.brackets[:3]]
    more = [] if len(progress.brackets) <= 3 else ["…"]
    return {
        "running": progress.running,
        "left": progress.left,
        "bracket": "; ".join([*brackets, *more]),
    }


def _told(bracket: "Bracket", symbol: str) -> str:
    if bracket.lower is None and bracket.upper is None:
        return f"{symbol} = ?"
    lower = "" if bracket.lower is None else f"{bracket.lower} ≤ "
    upper = "" if bracket.upper is None else f" < {bracket.upper}"
    return f"{lower}{symbol}{upper}"


def _data(found: "Capacity", searching: Searching, store: str, seconds: float) -> dict[str, Any]:
    problem, median = found.problem, found.median
    records = [record for seed in found.seeds for record in seed.probes.values()]
    return {
        **asdict(problem),  # pyright: ignore[reportArgumentType]
        "search": searching.search,
        "embeddings": "given",
        "parameters": problem.parameters,
        "facts": found.facts,
        "facts_per_parameter": found.facts / problem.parameters,
        "lower": median.bracket.lower,
        "upper": median.bracket.upper,
        **_margins(median),
        "seeds": [_seed(seed, problem) for seed in found.seeds],
        "probes": len(records),
        "probes_read": sum(record.from_store for record in records),
        "probes_run": sum(not record.from_store for record in records),
        "store": store,
        "seconds": seconds,
    }


def _margins(seed: "SeedCapacity") -> dict[str, Any]:
    metrics = {} if seed.largest is None else seed.largest.metrics or {}
    return {name: metrics.get(name) for name in ("accuracy", "min_margin", "relative_margin")}


def _seed(seed: "SeedCapacity", problem: "CapacityProblem") -> dict[str, Any]:
    lower = seed.bracket.lower
    return {
        "seed": seed.seed,
        "lower": lower,
        "upper": seed.bracket.upper,
        "undecided": seed.bracket.undecided,
        "facts": 0 if lower is None else problem.facts(lower),
        "outcome": seed.outcome.value,
        **_margins(seed),
        "probes": [
            {
                "size": size,
                "run": record.identity[:12],
                "verdict": problem.verdict(record).value,
                "source": "read" if record.from_store else "run",
                "seconds": record.seconds,
                "error": record.error,
            }
            for size, record in seed.probes.items()
        ],
    }


def _notes(data: dict[str, Any]) -> list[str]:
    seeds = data["seeds"]
    notes = [
        f"Seed {seed['seed']}: stored {_or_none(seed['lower'])}, not stored "
        f"{_or_none(seed['upper'])}{' (undecided)' if seed['undecided'] else ''}. {seed['outcome']}"
        for seed in seeds
    ]
    failed = [probe for seed in seeds for probe in seed["probes"] if probe["error"] is not None]
    notes += [f"Run {probe['run']} failed: {probe['error']}" for probe in failed]
    return [*notes, f"IndependentTasks are kept in {data['store']}; factmem runs lists them."]


def _or_none(size: int | None) -> str:
    return "nothing known" if size is None else f"{size:,}"


def _labels(symbol: str) -> dict[str, str]:
    return {
        "facts": "facts stored, median seed",
        "parameters": "parameters",
        "facts_per_parameter": "facts per parameter",
        "lower": f"largest {symbol} that is stored",
        "upper": f"smallest {symbol} that is not",
        "criterion": "stored means an accuracy of",
        "accuracy": "accuracy over all facts",
        "relative_margin": "smallest relative margin",
        "probes": "probes",
        "probes_read": "of them read from the store",
        "seconds": "seconds",
    }
