"""Figures that plot capacity against model size.

Each has lines of models of growing size, whose capacities are searched for with several seeds; a
law of the paper, whose exponent is fitted; and the authors' dashed line.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from factmem._core.errors import FactmemError
from factmem._core.power_law import PowerLaw
from factmem.experiments.capacity import Capacity, CapacitySearches, SeedCapacity
from factmem.experiments.capacity_problem import CapacityProblem
from factmem.experiments.decodable import CapacityWithLimits, LimitedCapacitySearches
from factmem.experiments.measurement import Measurement, MeasurementGroup
from factmem.experiments.task import Task
from factmem.paper.claim import fit_brackets
from factmem.paper.figure import PaperFigure, progress_note
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Plot, Slope

__all__ = ["CapacityLaw", "CapacityLine", "capacity_figure"]

_REFERENCE_MARGIN = 1.5
"""The authors' line extends beyond the measured sizes by this factor."""
_MAX_DRAWN_FITS = 4
"""With more lines than this, fits are summarized in the caption and not drawn."""
_MIN_POINTS = 6
"""A line that does not test the law needs as many points to have its slope reported."""
_ALL_LINES = "all lines, sizes that embeddings do not limit"

Size = Callable[[Any], float]
"""The size of a capacity problem, such as d²."""
LineResults = Mapping[str, CapacityWithLimits]
"""The capacities of each line, in order of size."""


@dataclass(frozen=True)
class CapacityLaw:
    """A law of the paper about the number of stored facts.

    Args:
        formula: such as `N ln N ∝ (d²)^slope`.
        value: the left side as a function of the number of facts, such as N ln N.
        inverse: the number of facts as a function of that value.
        expected: the range that the 95% interval of the exponent should meet.
    """

    formula: str
    value: Callable[[float], float]
    inverse: Callable[[float], float]
    expected: tuple[float, float] = (0.85, 1.15)


@dataclass(frozen=True)
class CapacityLine:
    """A line of models of growing size.

    Args:
        name: for the legend.
        problems: one for each size.
        seeds: each seed has its own search at every size.
        counts: whether the line tests the paper's law. Compiled or fitted models are shown for
            comparison only.
        with_limits: whether to measure, for tables that were not stored, if the embeddings allow
            any model to store them.
        group: lines of one group share a color.
    """

    name: str
    problems: Sequence[CapacityProblem]
    seeds: Sequence[int]
    counts: bool = True
    with_limits: bool = False
    group: str = ""

    @property
    def measurement(self) -> Measurement:
        """The capacity searches of all sizes."""
        searches = CapacitySearches(self.problems, self.seeds)
        return LimitedCapacitySearches(searches) if self.with_limits else searches


def capacity_figure(
    name: str,
    title: str,
    *,
    description: str,
    lines: Sequence[CapacityLine],
    axes: tuple[Axis, Axis],
    size: Size,
    law: CapacityLaw,
    reference: Line,
    setup: str,
    explanation: str,
) -> PaperFigure:
    """Build a figure of capacity against size.

    Args:
        name, title, description: as in `PaperFigure`.
        lines: the models.
        axes: the axes of size and of facts.
        size: the size of a problem, plotted along the x axis.
        law: the paper's law.
        reference: the authors' dashed line.
        setup: what was run, in sentences, for the caption.
        explanation: why the law may fail here; part of the caption if it does.
    """

    def plot(results: Mapping[str, Any]) -> Plot:
        sorted_results = {line.name: _sort_by_size(results[line.name], size) for line in lines}
        done = sum(len(result.capacities) for result in sorted_results.values())
        total = sum(len(line.problems) for line in lines)
        if not done:
            raise FactmemError(f"figure {name}: none of its searches is finished")
        fits = {line.name: _fit_line(line, sorted_results[line.name], size, law) for line in lines}
        slopes = [fit.slope for line_fits in fits.values() for fit in line_fits]
        if sum(line.counts for line in lines) > _MAX_DRAWN_FITS:
            slopes.append(_fit_all_lines(lines, sorted_results, size, law))
        plot_lines = []
        for line in lines:
            plot_lines.append(_measured_line(line, sorted_results[line.name].capacities, size))
            # Of two fits, draw the one that tests the law. Many fits would hide the points.
            if line.counts and len(lines) <= _MAX_DRAWN_FITS:
                plot_lines += [fit.line(law) for fit in fits[line.name][-1:] if fit.law is not None]
        return Plot(
            name,
            title,
            (Chart(*axes, (*plot_lines, _clip_reference(reference, sorted_results, size))),),
            _caption(setup, slopes, explanation, sorted_results)
            + progress_note(done, total, "shapes"),
            _data(sorted_results, size),
            tuple(slopes),
            columns=1,
        )

    # Small sizes first on all lines, so that an interrupted figure has the left part of each.
    parts = {line.name: line.measurement for line in lines}
    measurement = MeasurementGroup(parts, order=_task_dim)
    return PaperFigure(name, title, description, measurement, plot, allows_partial=True)


def _task_dim(task: Task) -> int:
    return task.config["dim"]


def _clip_reference(reference: Line, results: LineResults, size: Size) -> Line:
    """Return the part of the authors' line near the measured sizes."""
    sizes = [size(each.problem) for line in results.values() for each in line.capacities]
    low = max(min(sizes) / _REFERENCE_MARGIN, reference.x[0])
    high = min(max(sizes) * _REFERENCE_MARGIN, reference.x[-1])
    if low >= high:
        return reference
    x = np.geomspace(low, high, 24)
    y = np.exp(np.interp(np.log(x), np.log(reference.x), np.log(reference.y)))
    return replace(reference, x=tuple(x.tolist()), y=tuple(y.tolist()))


def _sort_by_size(
    result: CapacityWithLimits | Sequence[Capacity], size: Size
) -> CapacityWithLimits:
    """Sort a line's capacities by size; they are searched in another order."""
    limited = result if isinstance(result, CapacityWithLimits) else CapacityWithLimits(result, {})
    capacities = limited.capacities
    order = sorted(range(len(capacities)), key=lambda index: size(capacities[index].problem))
    possible = {
        (order.index(index), seed): share
        for (index, seed), share in limited.decodable_fraction.items()
    }
    return CapacityWithLimits([capacities[index] for index in order], possible)


def _ends(problem: CapacityProblem, seed: SeedCapacity) -> tuple[float, float] | None:
    """Return the facts stored and the fewest not stored; None if either is unknown."""
    lower, upper = seed.bracket.lower, seed.bracket.upper
    if lower is None or upper is None:
        return None
    return float(problem.facts(lower)), float(problem.facts(upper))


def _stored(capacity: Capacity) -> list[float]:
    """Return the facts that each seed stores, sorted; 0 where nothing is known to be stored."""
    brackets = [_ends(capacity.problem, seed) for seed in capacity.seeds]
    return sorted(0.0 if ends is None else ends[0] for ends in brackets)


def _measured_line(line: CapacityLine, capacities: Sequence[Capacity], size: Size) -> Line:
    """Return medians with the range over seeds, without sizes at which a seed stores nothing."""
    nonzero = [capacity for capacity in capacities if _stored(capacity)[0] > 0]
    stored = [_stored(capacity) for capacity in nonzero]
    return Line(
        line.name,
        tuple(size(capacity.problem) for capacity in nonzero),
        tuple(statistics.median(facts) for facts in stored),
        tuple(facts[0] for facts in stored),
        tuple(facts[-1] for facts in stored),
        hover_texts=tuple(_hover_text(line.name, capacity) for capacity in nonzero),
        group=line.group,
    )


def _hover_text(name: str, capacity: Capacity) -> str:
    stored = _stored(capacity)
    problem: Any = capacity.problem
    seeds = f"{len(stored)} seed{'s' * (len(stored) != 1)}"
    span = f", {stored[0]:,.0f} to {stored[-1]:,.0f}" if stored[0] < stored[-1] else ""
    return (
        f"{name}, d = {problem.dim}: {statistics.median(stored):,.0f} stored "
        f"(median of {seeds}{span}), {problem.parameters:,} parameters"
    )


@dataclass(frozen=True)
class _Fit:
    """A slope, and the fitted law over the sizes of the fit."""

    slope: Slope
    law: PowerLaw | None
    sizes: tuple[float, ...]

    def line(self, law: CapacityLaw) -> Line:
        """Return the fit as a line; it is slightly curved if the law is about N ln N."""
        assert self.law is not None
        sizes = np.geomspace(min(self.sizes), max(self.sizes), 24)
        facts = tuple(law.inverse(value) for value in self.law.at(sizes).tolist())
        name = f"fit, slope {self.slope.slope:.2f} ({self.slope.low:.2f} to {self.slope.high:.2f})"
        return Line(name, tuple(sizes.tolist()), facts, kind="fit")


def _fit_line(
    line: CapacityLine, result: CapacityWithLimits, size: Size, law: CapacityLaw
) -> list[_Fit]:
    """Fit all sizes and, if embeddings limit some, also the sizes that they do not limit."""
    capacities = result.capacities
    unlimited = [each for index, each in enumerate(capacities) if not result.limited(index)]
    if not line.counts and len(capacities) * len(line.seeds) < _MIN_POINTS:
        return []
    fits = [_fit(line.name, capacities, size, law, line.counts)]
    if len(unlimited) < len(capacities):
        name = f"{line.name}, sizes that embeddings do not limit"
        fits.append(_fit(name, unlimited, size, law, line.counts))
    return fits


def _fit_all_lines(
    lines: Sequence[CapacityLine], results: LineResults, size: Size, law: CapacityLaw
) -> Slope:
    """Fit one exponent to all lines, at sizes that embeddings do not limit."""
    unlimited = [
        capacity
        for line in lines
        if line.counts
        for index, capacity in enumerate(results[line.name].capacities)
        if not results[line.name].limited(index)
    ]
    return _fit(_ALL_LINES, unlimited, size, law, True).slope


def _fit(
    name: str, capacities: Sequence[Capacity], size: Size, law: CapacityLaw, counts: bool
) -> _Fit:
    """Fit the exponent to all seeds and sizes; it is None if no line can be fitted."""
    sizes = [size(capacity.problem) for capacity in capacities for _ in capacity.seeds]
    ends = [_ends(capacity.problem, seed) for capacity in capacities for seed in capacity.seeds]
    values = [None if each is None else (law.value(each[0]), law.value(each[1])) for each in ends]
    if len(set(sizes)) > 1:
        fit = fit_brackets(sizes, values)
        if math.isfinite(fit.half_width):
            interval = (fit.exponent, fit.low, fit.high)
            slope = Slope(name, law.formula, *interval, law.expected, counts)
            return _Fit(slope, fit, tuple(sizes))
    slope = Slope(name, law.formula, None, None, None, law.expected, counts)
    return _Fit(slope, None, tuple(sizes))


def _caption(setup: str, slopes: Sequence[Slope], explanation: str, results: LineResults) -> str:
    parts = [setup, "Points are medians over seeds, bars their range.", *_describe_slopes(slopes)]
    failing = [s.name for s in slopes if s.counts and s.conclusive and not s.holds]
    if failing:
        parts.append(f"The law does not hold here for: {'; '.join(failing)}.")
    if limits := _describe_limits(results):
        parts.append(
            "The embeddings alone set a limit, because no vector decodes to an answer within the "
            "convex hull of others: in the smallest table that is not stored, "
            f"{'; '.join(limits)} of the facts have an answer that any vector decodes to."
        )
    elif failing:
        parts.append(explanation)
    empty = [
        f"{name} at d = {_dim(capacity)}"
        for name, line in results.items()
        for capacity in line.capacities
        if _stored(capacity)[0] <= 0
    ]
    if empty:
        parts.append(f"Not shown, because a seed stores nothing: {'; '.join(empty)}.")
    return " ".join(part for part in parts if part)


def _describe_slopes(slopes: Sequence[Slope]) -> list[str]:
    """Describe each slope or, with many lines, summarize them."""
    if not slopes or slopes[-1].name != _ALL_LINES:
        return [slope.description for slope in slopes]
    *by_line, combined = slopes
    conclusive = sorted(
        s.slope for s in by_line if s.counts and s.conclusive and s.slope is not None
    )
    holding = sum(slope.holds for slope in by_line if slope.counts)
    if not conclusive:
        return [combined.description]
    return [
        combined.description,
        f"{len(conclusive)} lines have a conclusive interval, with slopes of {conclusive[0]:.2f} "
        f"to {conclusive[-1]:.2f}, median {statistics.median(conclusive):.2f}; {holding} of them "
        "hold.",
    ]


def _describe_limits(results: LineResults) -> list[str]:
    """Return, for each d at which embeddings are the limit, the share of facts that they allow."""
    shares: dict[int, list[float]] = {}
    for line in results.values():
        for index, capacity in enumerate(line.capacities):
            if line.limited(index):
                possible = [
                    share for key, share in line.decodable_fraction.items() if key[0] == index
                ]
                shares.setdefault(_dim(capacity), []).extend(possible)
    return [
        f"at d = {dim} {_span([100 * share for share in values])}%"
        for dim, values in shares.items()
    ]


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _dim(capacity: Capacity) -> int:
    problem: Any = capacity.problem
    return problem.dim


_COLUMNS = (
    *("line", "dim", "heads", "head_dim", "width", "size", "parameters", "criterion", "seed"),
    *("largest_stored", "smallest_not_stored", "facts", "facts_not_stored"),
    *("min_relative_margin", "possible", "probes", "seconds"),
)


def _data(results: LineResults, size: Size) -> DataTable:
    """Return a row for each seed of each size.

    `possible` is the share of facts of the smallest table that is not stored which some model
    could get right, if that was measured.
    """
    rows = [
        _row(name, capacity, seed, size, line.decodable_fraction.get((index, seed.seed)))
        for name, line in results.items()
        for index, capacity in enumerate(line.capacities)
        for seed in capacity.seeds
    ]
    return DataTable.of(_COLUMNS, rows)


def _row(
    name: str, capacity: Capacity, seed: SeedCapacity, size: Size, possible: float | None
) -> list[Any]:
    problem: Any = capacity.problem
    shape = getattr(problem, "shape", problem)  # a memory has at most a width
    sizes = [getattr(shape, name, None) for name in ("heads", "head_dim", "width")]
    ends = (seed.bracket.lower, seed.bracket.upper)
    facts = [None if end is None else problem.facts(end) for end in ends]
    largest = None if seed.largest is None else seed.largest.metrics or {}
    margin = None if largest is None else largest.get("min_relative_margin")
    seconds = round(sum(record.seconds for record in seed.probes.values()), 2)
    return [
        *(name, problem.dim, *sizes, size(problem), problem.parameters, problem.criterion),
        *(seed.seed, *ends, *facts, margin, possible, len(seed.probes), seconds),
    ]
