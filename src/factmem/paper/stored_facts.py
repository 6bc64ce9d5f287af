"""Figures of how much is stored against size: 1, 4 (left), 6, 7, 8 and 9.

Each has lines of growing shapes, whose limits are searched for with several seeds; a law that the
paper states, whose exponent is fitted; and the authors' dashed line.
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
from factmem.paper.claim import fitted_brackets
from factmem.paper.figure import PaperFigure, so_far
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Plot, Slope

__all__ = ["Law", "StoredLine", "stored_facts_figure"]


_BEYOND = 1.5
"""How far the authors' line goes beyond what was measured, as a factor."""
_MOST_FITS = 4
"""Lines, beyond which fits are told and not drawn."""
_ALL = "all lines, sizes that embeddings do not limit"
_FEWEST = 6
"""Points of a line beside the paper's that make a slope worth telling."""


@dataclass(frozen=True)
class Law:
    """What the paper says of the facts that are stored.

    Args:
        told: such as `N ln N ∝ d²`.
        value: of so many facts, such as N ln N.
        facts: that have so much of it.
        expected: the range that an exponent's 95 % interval should meet.
    """

    told: str
    value: Callable[[float], float]
    facts: Callable[[float], float]
    expected: tuple[float, float] = (0.85, 1.15)


@dataclass(frozen=True)
class StoredLine:
    """A line: shapes in order of their size.

    Args:
        name: for the legend.
        problems: one for each size.
        seeds: each has a search of its own at every size.
        counts: whether the paper's law speaks of it. Memories that were compiled or fitted are
            lines beside it.
        limits: whether to ask, where a table was not stored, if its embeddings allow it at all.
        group: of lines that look alike.
    """

    name: str
    problems: Sequence[CapacityProblem]
    seeds: Sequence[int]
    counts: bool = True
    limits: bool = False
    group: str = ""

    @property
    def measured(self) -> Measurement:
        """The searches of all sizes; `capacity.LimitedCapacitySearches` where limits are asked for."""
        searches = CapacitySearches(self.problems, self.seeds)
        return LimitedCapacitySearches(searches) if self.limits else searches


def stored_facts_figure(
    name: str,
    title: str,
    *,
    told: str,
    lines: Sequence[StoredLine],
    axes: tuple[Axis, Axis],
    size: Callable[[Any], float],
    law: Law,
    reference: Line,
    ran: str,
    unless: str,
) -> PaperFigure:
    """A figure of stored facts.

    Args:
        name, title, told: as in `PaperFigure`.
        lines: what is searched for.
        axes: of size and of facts.
        size: of a problem, such as d²; what facts are drawn against.
        law: what the paper says.
        reference: the authors' dashed line.
        ran: what was run, in sentences.
        unless: why the law may not hold here; part of the caption where it does not.
    """

    def plot(results: Mapping[str, Any]) -> Plot:
        found = {line.name: _found(results[line.name], size) for line in lines}
        there = sum(len(each.capacities) for each in found.values())
        whole = sum(len(line.problems) for line in lines)
        if not there:
            raise FactmemError(f"figure {name}: no search of it is over yet")
        fits = {line.name: _fits(line, found[line.name], size, law) for line in lines}
        slopes = [fit.slope for each in fits.values() for fit in each]
        if sum(line.counts for line in lines) > _MOST_FITS:
            slopes.append(_of_all(lines, found, size, law))
        drawn = []
        for line in lines:
            drawn.append(_line(line, found[line.name].capacities, size))
            # Of two fits the one that the law speaks of; of many lines none, for they would hide.
            if line.counts and len(lines) <= _MOST_FITS:
                drawn += [fit.line(law) for fit in fits[line.name][-1:] if fit.law is not None]
        return Plot(
            name,
            title,
            (Chart(*axes, (*drawn, _beside(reference, found, size))),),
            _caption(ran, slopes, unless, found) + so_far(there, whole, "shapes"),
            _data(found, size),
            tuple(slopes),
            columns=1,
        )

    # Small ones first on all lines: what has been interrupted has the left part of each.
    measured = MeasurementGroup({line.name: line.measured for line in lines}, order=_dim_of_task)
    return PaperFigure(name, title, told, measured, plot, by_parts=True)


def _dim_of_task(task: Task) -> int:
    return task.config["dim"]


def _beside(
    reference: Line, found: Mapping[str, CapacityWithLimits], size: Callable[[Any], float]
) -> Line:
    """As much of the authors' line as stands beside what was measured."""
    sizes = [size(each.problem) for line in found.values() for each in line.capacities]
    low = max(min(sizes) / _BEYOND, reference.x[0])
    high = min(max(sizes) * _BEYOND, reference.x[-1])
    if low >= high:
        return reference
    x = np.geomspace(low, high, 24)
    y = np.exp(np.interp(np.log(x), np.log(reference.x), np.log(reference.y)))
    return replace(reference, x=tuple(x.tolist()), y=tuple(y.tolist()))


def _found(
    result: CapacityWithLimits | Sequence[Capacity], size: Callable[[Any], float]
) -> CapacityWithLimits:
    """A line's result in order of size, whatever the order of the search was."""
    limited = result if isinstance(result, CapacityWithLimits) else CapacityWithLimits(result, {})
    capacities = limited.capacities
    order = sorted(range(len(capacities)), key=lambda place: size(capacities[place].problem))
    possible = {
        (order.index(place), seed): share for (place, seed), share in limited.possible.items()
    }
    return CapacityWithLimits([capacities[place] for place in order], possible)


def _ends(problem: CapacityProblem, seed: SeedCapacity) -> tuple[float, float] | None:
    """The facts that are stored and the fewest that are not; None where one is not known."""
    lower, upper = seed.bracket.lower, seed.bracket.upper
    if lower is None or upper is None:
        return None
    return float(problem.facts(lower)), float(problem.facts(upper))


def _stored(capacity: Capacity) -> list[float]:
    """What every seed stores, the smallest first; 0 where nothing is known to be stored."""
    found = [_ends(capacity.problem, seed) for seed in capacity.seeds]
    return sorted(0.0 if ends is None else ends[0] for ends in found)


def _line(line: StoredLine, found: Sequence[Capacity], size: Callable[[Any], float]) -> Line:
    """The median over seeds, with the least and the most. Where nothing is stored is no point."""
    shown = [capacity for capacity in found if _stored(capacity)[0] > 0]
    stored = [_stored(capacity) for capacity in shown]
    return Line(
        line.name,
        tuple(size(capacity.problem) for capacity in shown),
        tuple(statistics.median(each) for each in stored),
        tuple(each[0] for each in stored),
        tuple(each[-1] for each in stored),
        told=tuple(_told(line.name, capacity) for capacity in shown),
        group=line.group,
    )


def _told(name: str, capacity: Capacity) -> str:
    stored = _stored(capacity)
    problem: Any = capacity.problem
    many = f"{len(stored)} seed{'s' * (len(stored) != 1)}"
    span = f", {stored[0]:,.0f} to {stored[-1]:,.0f}" if stored[0] < stored[-1] else ""
    return (
        f"{name}, d = {problem.dim}: {statistics.median(stored):,.0f} stored "
        f"(median of {many}{span}), {problem.parameters:,} parameters"
    )


@dataclass(frozen=True)
class _Fit:
    """A slope, and the law itself over the sizes that it was fitted to."""

    slope: Slope
    law: PowerLaw | None
    sizes: tuple[float, ...]

    def line(self, law: Law) -> Line:
        """For drawing: straight, or a little bent where the law is about N ln N."""
        assert self.law is not None
        ends = min(self.sizes), max(self.sizes)
        sizes = np.geomspace(*ends, 24)
        facts = tuple(law.facts(value) for value in self.law.at(sizes).tolist())
        told = f"fit, slope {self.slope.slope:.2f} ({self.slope.low:.2f} to {self.slope.high:.2f})"
        return Line(told, tuple(sizes.tolist()), facts, kind="fit")


def _fits(
    line: StoredLine, found: CapacityWithLimits, size: Callable[[Any], float], law: Law
) -> list[_Fit]:
    """Of all sizes; and of those that embeddings do not limit, where they limit some."""
    whole = found.capacities
    free = [each for place, each in enumerate(whole) if not found.limited(place)]
    if not line.counts and len(whole) * len(line.seeds) < _FEWEST:
        return []  # too few points to say anything
    fits = [_fit(line.name, whole, size, law, line.counts)]
    if len(free) < len(whole):
        told = f"{line.name}, sizes that embeddings do not limit"
        fits.append(_fit(told, free, size, law, line.counts))
    return fits


def _of_all(
    lines: Sequence[StoredLine],
    found: Mapping[str, CapacityWithLimits],
    size: Callable[[Any], float],
    law: Law,
) -> Slope:
    """The exponent of all lines together, at sizes that embeddings do not limit."""
    free = [
        each
        for line in lines
        if line.counts
        for place, each in enumerate(found[line.name].capacities)
        if not found[line.name].limited(place)
    ]
    return _fit(_ALL, free, size, law, True).slope


def _fit(
    name: str, found: Sequence[Capacity], size: Callable[[Any], float], law: Law, counts: bool
) -> _Fit:
    """The exponent of all seeds and sizes together; None where it cannot be fitted."""
    sizes = [size(capacity.problem) for capacity in found for _ in capacity.seeds]
    ends = [_ends(capacity.problem, seed) for capacity in found for seed in capacity.seeds]
    values = [None if each is None else (law.value(each[0]), law.value(each[1])) for each in ends]
    if len(set(sizes)) > 1:
        fitted = fitted_brackets(sizes, values)
        if math.isfinite(fitted.half_width):
            told = (fitted.exponent, fitted.low, fitted.high)
            return _Fit(Slope(name, law.told, *told, law.expected, counts), fitted, tuple(sizes))
    return _Fit(Slope(name, law.told, None, None, None, law.expected, counts), None, tuple(sizes))


def _caption(
    ran: str, slopes: Sequence[Slope], unless: str, found: Mapping[str, CapacityWithLimits]
) -> str:
    parts = [ran, "Points are medians over seeds, bars their range."]
    parts += _slopes_told(slopes)
    failing = [slope.name for slope in slopes if slope.counts and slope.says and not slope.holds]
    if failing:
        parts.append(f"The law does not hold here for: {'; '.join(failing)}.")
    if limits := _limits_told(found):
        parts.append(
            "Embeddings alone set a limit, whatever the weights are, for an answer within the "
            "convex hull of others is never decoded: of the smallest table that is not stored, "
            f"{'; '.join(limits)} of the facts have an answer that any vector decodes to."
        )
    elif failing:
        parts.append(unless)
    nothing = [
        f"{name} at d = {_dim(capacity)}"
        for name, line in found.items()
        for capacity in line.capacities
        if _stored(capacity)[0] <= 0
    ]
    if nothing:
        parts.append(f"Without a point, for some seed stores nothing: {'; '.join(nothing)}.")
    return " ".join(part for part in parts if part)


def _slopes_told(slopes: Sequence[Slope]) -> list[str]:
    """Each slope, or of many lines what they come to."""
    if not slopes or slopes[-1].name != _ALL:
        return [slope.told for slope in slopes]
    *each, together = slopes
    found = sorted(s.slope for s in each if s.counts and s.says and s.slope is not None)
    holding = sum(slope.holds for slope in each if slope.counts)
    if not found:
        return [together.told]
    return [
        together.told,
        f"Slopes of {len(found)} lines have an interval that says something: {found[0]:.2f} to "
        f"{found[-1]:.2f}, median {statistics.median(found):.2f}; {holding} of them hold.",
    ]


def _limits_told(found: Mapping[str, CapacityWithLimits]) -> list[str]:
    """For every d at which embeddings are the limit, the share of facts that they allow."""
    shares: dict[int, list[float]] = {}
    for each in found.values():
        for place, capacity in enumerate(each.capacities):
            if each.limited(place):
                here = [share for at, share in each.possible.items() if at[0] == place]
                shares.setdefault(_dim(capacity), []).extend(here)
    return [
        f"at d = {dim} {_span([100 * share for share in some])} %" for dim, some in shares.items()
    ]


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _dim(capacity: Capacity) -> int:
    problem: Any = capacity.problem
    return problem.dim


_COLUMNS = ("line", "dim", "heads", "head_dim", "width", "size", "parameters", "criterion", "seed")
_FOUND = ("largest_stored", "smallest_not_stored", "facts", "facts_not_stored")
_BESIDE = ("relative_margin", "possible", "probes", "seconds")


def _data(found: Mapping[str, CapacityWithLimits], size: Callable[[Any], float]) -> DataTable:
    """A row for each seed of each size. `possible` is the share of facts of the smallest table
    that is not stored which some model could get right, where that was asked."""
    rows = [
        _row(name, capacity, seed, size, line.possible.get((place, seed.seed)))
        for name, line in found.items()
        for place, capacity in enumerate(line.capacities)
        for seed in capacity.seeds
    ]
    return DataTable.of((*_COLUMNS, *_FOUND, *_BESIDE), rows)


def _row(
    name: str,
    capacity: Capacity,
    seed: SeedCapacity,
    size: Callable[[Any], float],
    possible: float | None,
) -> list[Any]:
    problem: Any = capacity.problem
    shape = [getattr(problem, part, None) for part in ("heads", "head_dim", "width")]
    ends = (seed.bracket.lower, seed.bracket.upper)
    facts = [None if end is None else problem.facts(end) for end in ends]
    largest = None if seed.largest is None else seed.largest.metrics or {}
    margin = None if largest is None else largest.get("relative_margin")
    seconds = round(sum(record.seconds for record in seed.probes.values()), 2)
    return [
        *(name, problem.dim, *shape, size(problem), problem.parameters, problem.criterion),
        *(seed.seed, *ends, *facts, margin, possible, len(seed.probes), seconds),
    ]
