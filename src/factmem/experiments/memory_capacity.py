"""How many associations a linear or an MLP memory stores (Figures 1 and 6)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from factmem._core.errors import FactmemError
from factmem.experiments.capacity_problem import CapacityProblem, check_criterion, check_sizes
from factmem.experiments.search import PaperSearch
from factmem.experiments.task import Experiment, Task

__all__ = ["LinearCapacityProblem", "MLPCapacityProblem", "measure_memory", "solve_n_log_n"]

_BITS = 16
_LINEAR = {"maximal": "maximal", "trained": "trained-linear"}
_MLP = {"fitted": "fitted-relu", "trained": "trained-mlp", "quick": "trained-mlp"}
_LINEAR_LOAD = {"maximal": 0.9, "trained": 0.77}
"""N ln N / d²: as `benchmarks/memories.md` has it for 100 %, and the authors' line for 99 %."""
_MLP_BITS = 2.0
"""Bits per weight of a fitted MLP, and of the authors' two lines, 0.35 N ln N and 1.2 N = m·d."""


@dataclass(frozen=True)
class LinearCapacityProblem(CapacityProblem):
    """How many associations a d × d matrix stores, f*(x) = x.

    Args:
        dim: d.
        method: `maximal` is the best there is, with a proof; `trained` is the paper's training.
        criterion: the accuracy that counts as stored. 1 means all of them, in float32 with
            weights of 16 bits; for `maximal` that no matrix does it is proved, or undecided.
        ratio: how narrow a bracket should be, as upper/lower; the authors' if left out.

    Raises:
        FactmemError: numbers that make no problem.
    """

    dim: int
    method: Literal["maximal", "trained"] = "maximal"
    criterion: float = 1.0
    ratio: float = 1.01  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        check_sizes(dim=self.dim)
        check_criterion(self.criterion)

    @property
    def parameters(self) -> int:
        """d²."""
        return self.dim**2

    @property
    def density(self) -> float:
        """From N ln N ≈ 0.9 d² or 0.77 d²."""
        return solve_n_log_n(_LINEAR_LOAD[self.method] * self.parameters) / self.parameters

    @property
    def paper_search(self) -> PaperSearch:
        """N between d and d²/2."""
        return PaperSearch(self.dim, max(self.dim + 1, self.dim**2 // 2), self.ratio)

    def facts(self, size: int) -> int:
        """N itself."""
        return size

    def task(self, size: int, seed: int) -> Task:
        """The measurement at N = size."""
        return _task(_LINEAR[self.method], self.dim, size, None, None, self.criterion, seed)


@dataclass(frozen=True)
class MLPCapacityProblem(CapacityProblem):
    """How many associations an MLP of m neurons stores.

    Args:
        dim: d.
        width: m.
        method: `fitted` by L-BFGS, all weights, no bias; `trained` as in the paper; or trained so
            in a quarter of the steps (`quick`).
        outputs: M, with f*(x) = ⌊xM/N⌋; as many as there are associations if left out, with
            f*(x) = x.
        criterion: the accuracy that counts as stored. 1 means all of them, in float32 with
            weights of 16 bits.
        ratio: how narrow a bracket should be, as upper/lower; the authors' if left out.

    Raises:
        FactmemError: numbers that make no problem.
    """

    dim: int
    width: int
    method: Literal["fitted", "trained", "quick"] = "fitted"
    outputs: int | None = None
    criterion: float = 1.0
    ratio: float = 1.01  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        check_sizes(dim=self.dim, width=self.width)
        check_criterion(self.criterion)
        if self.outputs is not None and self.outputs < 2:
            raise FactmemError(f"there is something to tell apart: 2 outputs, not {self.outputs}")

    @property
    def parameters(self) -> int:
        """2·m·d, and m biases if trained."""
        return 2 * self.width * self.dim + self.width * (self.method != "fitted")

    @property
    def density(self) -> float:
        """From 2 bits a weight."""
        bits = _MLP_BITS * 2 * self.width * self.dim
        many = solve_n_log_n(bits * math.log(2))
        return (many if self.outputs is None else bits / math.log2(self.outputs)) / self.parameters

    @property
    def paper_search(self) -> PaperSearch:
        """N between d and m·d."""
        return PaperSearch(self.dim, max(self.dim + 1, self.width * self.dim), self.ratio)

    def facts(self, size: int) -> int:
        """N itself."""
        return size

    def task(self, size: int, seed: int) -> Task:
        """The measurement at N = size."""
        sizes = (self.dim, size, self.outputs, self.width)
        return _task(_MLP[self.method], *sizes, self.criterion, seed, quick=self.method == "quick")


def measure_memory(
    *,
    method: str,
    dim: int,
    facts: int,
    outputs: int,
    width: int | None,
    criterion: float,
    protocol: Mapping[str, Any] | None,
    seed: int,
) -> dict[str, Any]:
    """Makes one memory, as `factmem memory` does with the same seed, and tests it.

    Args:
        method: a name in `METHODS`.
        dim, facts, outputs, width: the sizes.
        criterion: the accuracy that counts as stored.
        protocol: how it is trained, if it is.
        seed: of embeddings and method.
    """
    from factmem.experiments.memory_methods import build, drawn
    from factmem.memories import rounded

    pairs, key, _ = drawn(seed, facts, dim, outputs)
    if protocol is not None:
        memory, details = _trained(key, pairs, width, protocol)
    else:
        sizes = {} if width is None else {"width": width}
        built = build(method, key, pairs, None, **sizes)
        memory, details = built.memory, dict(built.details)
    score = memory.score(pairs)
    coarse = rounded(memory, _BITS).score(pairs)
    if criterion == 1:
        stored = coarse.accuracy == score.accuracy == 1
    else:
        stored = details.get("best_accuracy", score.accuracy) >= criterion
    if criterion == 1 and not stored and details.get("verdict") == "undecided":
        stored = None  # another matrix may do it
    return {
        "stored": stored,
        "parameters": score.parameters,
        "facts": facts,
        "outputs": outputs,
        **details,
        "accuracy": score.accuracy,
        "accuracy_16_bits": coarse.accuracy,
        "min_margin": score.min_margin,
        "relative_margin": score.relative_margin,
    }


MEASURE = Experiment("memory", 1, measure_memory)


def _trained(
    key: Any, pairs: Any, width: int | None, protocol: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    from factmem.training import MemoryProtocol, linear_start, mlp_start, train_memories

    start = linear_start(key, pairs.dim) if width is None else mlp_start(key, pairs.dim, width)
    (run,) = train_memories([start], [pairs], MemoryProtocol(**protocol))
    return run.memory, {
        "best_accuracy": run.best_accuracy,
        "steps": run.steps,
        "outcome": run.outcome.value,
    }


def _task(
    method: str,
    dim: int,
    facts: int,
    outputs: int | None,
    width: int | None,
    criterion: float,
    seed: int,
    *,
    quick: bool = False,
) -> Task:
    from factmem.training import LINEAR_PROTOCOL, MLP_PROTOCOL, QUICK_MLP_PROTOCOL

    mlp = QUICK_MLP_PROTOCOL if quick else MLP_PROTOCOL
    protocols = {"trained-linear": LINEAR_PROTOCOL, "trained-mlp": mlp}
    protocol = None
    if method in protocols:
        protocol = {**asdict(protocols[method]), "criterion": criterion}
    config = {
        "method": method,
        "dim": dim,
        "facts": facts,
        "outputs": facts if outputs is None else outputs,
        "width": width,
        "criterion": criterion,
        "protocol": protocol,
        "seed": seed,
    }
    return Task(MEASURE, config)


def solve_n_log_n(product: float) -> float:
    """The N at which N ln N has this value, which is at least 1."""
    from scipy.special import lambertw

    product = max(product, 1.0)
    return float(product / lambertw(product).real)
