"""How many associations a linear or an MLP memory stores."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from factmem._core.constants import DEFAULT_WEIGHT_BITS
from factmem._core.errors import ArgumentError
from factmem.experiments.capacity_problem import CapacityProblem, check_criterion, check_sizes
from factmem.experiments.memory_spec import MemorySpec
from factmem.experiments.search import PaperSearch
from factmem.experiments.task import Experiment, Task

__all__ = ["LinearCapacityProblem", "MLPCapacityProblem", "measure_memory", "solve_n_log_n"]

_LINEAR_METHODS = {"optimal": "optimal", "trained": "trained-linear"}
_MLP_METHODS = {"fitted": "fitted-relu", "trained": "trained-mlp", "quick": "trained-mlp"}
_LINEAR_LOAD = {"optimal": 0.9, "trained": 0.77}
"""N ln N / d²: at 100% as in `benchmarks/memories.md`, and the authors' line at 99%."""
_MLP_BITS = 2.0
"""Bits per weight of a fitted MLP, and of the authors' lines 0.35 N ln N and 1.2 N = m·d."""


@dataclass(frozen=True)
class LinearCapacityProblem(CapacityProblem):
    """How many associations a d × d matrix stores, with f*(x) = x.

    Args:
        dim: d.
        method: `optimal` is the optimal matrix, with a proof; `trained` is the paper's training.
        criterion: the accuracy that counts as stored. 1 means all associations, in float32 with
            weights of 16 bits. For `optimal`, "not stored" is then proved or undecided.
        ratio: the width of the final bracket, as upper/lower; by default that of the authors.

    Raises:
        FactmemError: a value is out of range.
    """

    dim: int
    method: Literal["optimal", "trained"] = "optimal"
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
    def expected_facts_per_parameter(self) -> float:
        """From N ln N ≈ 0.9 d² or 0.77 d²."""
        return solve_n_log_n(_LINEAR_LOAD[self.method] * self.parameters) / self.parameters

    @property
    def paper_search(self) -> PaperSearch:
        """Bisection of N between d and d²/2."""
        return PaperSearch(self.dim, max(self.dim + 1, self.dim**2 // 2), self.ratio)

    def facts(self, size: int) -> int:
        """Return N."""
        return size

    def spec(self, size: int, seed: int) -> MemorySpec:
        """Return the memory of N = size."""
        spec = MemorySpec(method=_LINEAR_METHODS[self.method], dim=self.dim, facts=size, seed=seed)
        if self.method == "optimal":
            return spec
        from factmem.training import LINEAR_PROTOCOL

        return replace(spec, protocol=replace(LINEAR_PROTOCOL, criterion=self.criterion))

    def task(self, size: int, seed: int) -> Task:
        """Return the measurement at N = size."""
        return _task(self.spec(size, seed), self.criterion)


@dataclass(frozen=True)
class MLPCapacityProblem(CapacityProblem):
    """How many associations an MLP of m neurons stores.

    Args:
        dim: d.
        width: m.
        method: `fitted` by L-BFGS without biases; `trained` as in the paper; or `quick`, trained
            for a quarter of the steps.
        outputs: M, with f*(x) = ⌊xM/N⌋; by default N, with f*(x) = x.
        criterion: the accuracy that counts as stored. 1 means all associations, in float32 with
            weights of 16 bits.
        ratio: the width of the final bracket, as upper/lower; by default that of the authors.

    Raises:
        FactmemError: a value is out of range.
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
            raise ArgumentError("outputs", f"must be at least 2, got {self.outputs}")

    @property
    def parameters(self) -> int:
        """2·m·d, plus m biases if trained."""
        return 2 * self.width * self.dim + self.width * (self.method != "fitted")

    @property
    def expected_facts_per_parameter(self) -> float:
        """From 2 bits per weight."""
        bits = _MLP_BITS * 2 * self.width * self.dim
        if self.outputs is None:
            return solve_n_log_n(bits * math.log(2)) / self.parameters
        return bits / math.log2(self.outputs) / self.parameters

    @property
    def paper_search(self) -> PaperSearch:
        """Bisection of N between d and m·d."""
        return PaperSearch(self.dim, max(self.dim + 1, self.width * self.dim), self.ratio)

    def facts(self, size: int) -> int:
        """Return N."""
        return size

    def spec(self, size: int, seed: int) -> MemorySpec:
        """Return the memory of N = size."""
        spec = MemorySpec(
            method=_MLP_METHODS[self.method],
            dim=self.dim,
            facts=size,
            outputs=self.outputs,
            width=self.width,
            seed=seed,
        )
        if self.method == "fitted":
            return spec
        from factmem.training import MLP_PROTOCOL, QUICK_MLP_PROTOCOL

        protocol = QUICK_MLP_PROTOCOL if self.method == "quick" else MLP_PROTOCOL
        return replace(spec, protocol=replace(protocol, criterion=self.criterion))

    def task(self, size: int, seed: int) -> Task:
        """Return the measurement at N = size."""
        return _task(self.spec(size, seed), self.criterion)


def measure_memory(*, criterion: float, **config: Any) -> dict[str, Any]:
    """Build one memory and decide whether it stores its associations.

    Args:
        criterion: the accuracy that counts as stored.
        config: a `MemorySpec` as JSON data.
    """
    from factmem.memories import rounded

    result = MemorySpec.from_config(config).run()
    pairs, metrics = result.instance.associations, result.metrics
    score = result.model.score(pairs)
    rounded_score = rounded(result.model, DEFAULT_WEIGHT_BITS).score(pairs)
    if criterion == 1:
        stored = rounded_score.accuracy == score.accuracy == 1
    else:
        stored = metrics.get("best_accuracy", score.accuracy) >= criterion
    if criterion == 1 and not stored and metrics.get("verdict") == "undecided":
        stored = None  # another matrix may store them
    return {
        "stored": stored,
        "parameters": score.parameters,
        "facts": pairs.facts,
        "outputs": pairs.outputs,
        **metrics,
        "accuracy": score.accuracy,
        "accuracy_16_bits": rounded_score.accuracy,
        "min_margin": score.min_margin,
        "min_relative_margin": score.min_relative_margin,
    }


EXPERIMENT = Experiment("memory", 3, measure_memory)


def _task(spec: MemorySpec, criterion: float) -> Task:
    return Task(EXPERIMENT, {**spec.config(), "criterion": criterion})


def solve_n_log_n(product: float) -> float:
    """Return the N with N ln N = product; products below 1 count as 1."""
    from scipy.special import lambertw

    product = max(product, 1.0)
    return float(product / lambertw(product).real)
