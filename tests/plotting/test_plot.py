"""Plot descriptions: validation, slopes and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.plotting.plot import Axis, DataTable, HeatMap, Line, Slope

AXIS = Axis("a")


def slope(low, high, expected=(0.85, 1.15), **fields):
    middle = None if low is None else (low + high) / 2
    return Slope("line", "facts ∝ parameters^slope", middle, low, high, expected, **fields)


def heat_map(values, **fields):
    return HeatMap(AXIS, AXIS, (0.0, 1.0, 2.0, 3.0), (0.0, 1.0, 2.0), values, "value", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"y": (1.0,)},
        {"y": (1.0, 2.0, 3.0)},
        {"y": (1.0, 2.0), "low": (1.0,)},
        {"y": (1.0, 2.0), "high": (1.0, 2.0, 3.0)},
        {"y": (1.0, 2.0), "hover_texts": ("one",)},
        {"y": (1.0, 2.0), "x_low": (1.0,)},
    ],
)
def test_rejects_lines_with_columns_of_different_lengths(fields):
    with pytest.raises(FactmemError, match=r"line 'it': .* one value per x \(2\)"):
        Line("it", (1.0, 2.0), **fields)


def test_ranges_and_hover_texts_are_optional_and_lines_may_be_empty():
    assert Line("it", (), ()).low is None
    assert Line("it", (1.0,), (2.0,), (1.0,), (3.0,), hover_texts=("one",)).hover_texts == ("one",)


def test_rejects_heat_maps_with_missing_cells():
    assert heat_map(((1.0, None, 3.0), (4.0, 5.0, 6.0))).high == 1
    for wrong in (
        ((1.0, 2.0, 3.0),),
        ((1.0, 2.0), (3.0, 4.0)),
        ((1.0, 2.0, 3.0), (4.0, 5.0)),
    ):
        with pytest.raises(FactmemError, match="2 × 3 cells"):
            heat_map(wrong)
    full = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    for name in ("texts", "hover_texts"):
        with pytest.raises(FactmemError, match="2 × 3 cells"):
            heat_map(full, **{name: (("a", "b", "c"),)})


def test_rejects_table_rows_of_the_wrong_length():
    table = DataTable.of(["a", "b"], [[1, None], ("x", 2.5)])
    assert table.rows == ((1, None), ("x", 2.5))
    with pytest.raises(FactmemError, match=r"one value per column \(2\), got 1"):
        DataTable.of(["a", "b"], [[1, 2], [3]])


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [
        (0.95, 1.05, True),
        (1.15, 1.3, True),
        (1.16, 1.3, False),
        (0.7, 0.85, True),
        (0.7, 0.84, False),
        (1.4, 1.6, False),
        (0.8, 1.2, False),
    ],
)
def test_a_slope_holds_if_a_narrow_interval_overlaps_the_range(low, high, holds):
    assert slope(low, high).holds is holds


@given(st.floats(-3, 3), st.floats(0.31, 10))
def test_a_wide_interval_is_inconclusive(low, width):
    result = slope(low, low + width)
    assert not result.conclusive
    assert not result.holds
    assert result.description.endswith("inconclusive.")


@given(st.floats(0, 2), st.floats(0, 0.29), st.floats(0, 2), st.floats(0, 1))
def test_intervals_that_overlap_the_range_hold(low, width, expected, more):
    result = slope(low, low + width, (expected, expected + more))
    overlap = max(low, expected) <= min(low + width, expected + more)
    assert result.holds is overlap


def test_the_description_has_the_interval_and_the_verdict():
    assert slope(0.95, 1.05).description == (
        "line: facts ∝ parameters^slope, slope 1.00 (95% interval 0.95 to 1.05, expected 0.85 to "
        "1.15): holds."
    )
    assert slope(1.45, 1.55).description.endswith("expected 0.85 to 1.15): does not hold here.")


def test_a_slope_without_a_fit_does_not_hold():
    result = slope(None, None)
    assert not result.holds
    assert not result.conclusive
    assert "no law can be fitted" in result.description
