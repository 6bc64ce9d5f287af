"""What a figure shows: what it refuses, and when a slope holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.plotting.plot import Axis, DataTable, HeatMap, Line, Slope, looks

AXIS = Axis("a")


def slope(low, high, wanted=(0.85, 1.15), **more):
    middle = None if low is None else (low + high) / 2
    return Slope("line", "facts ∝ parameters^slope", middle, low, high, wanted, **more)


def heat_map(values, **more):
    return HeatMap(AXIS, AXIS, (0.0, 1.0, 2.0, 3.0), (0.0, 1.0, 2.0), values, "unit", **more)


@pytest.mark.parametrize(
    "given",
    [
        {"y": (1.0,)},
        {"y": (1.0, 2.0, 3.0)},
        {"y": (1.0, 2.0), "low": (1.0,)},
        {"y": (1.0, 2.0), "high": (1.0, 2.0, 3.0)},
        {"y": (1.0, 2.0), "told": ("one",)},
    ],
)
def test_a_line_has_one_value_for_each_x(given):
    with pytest.raises(FactmemError, match="'it' has not one value for each x"):
        Line("it", (1.0, 2.0), **given)


def test_a_line_needs_neither_range_nor_words_and_may_be_empty():
    assert Line("it", (), ()).low is None
    assert Line("it", (1.0,), (2.0,), (1.0,), (3.0,), told=("one",)).told == ("one",)


def test_a_map_has_a_value_for_each_cell():
    assert heat_map(((1.0, None, 3.0), (4.0, 5.0, 6.0))).high == 1
    for wrong in (
        ((1.0, 2.0, 3.0),),
        ((1.0, 2.0), (3.0, 4.0)),
        ((1.0, 2.0, 3.0), (4.0, 5.0)),
    ):
        with pytest.raises(FactmemError, match="2 × 3 cells"):
            heat_map(wrong)
    full = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    for name in ("texts", "told"):
        with pytest.raises(FactmemError, match="2 × 3 cells"):
            heat_map(full, **{name: (("a", "b", "c"),)})


def test_a_row_of_a_table_has_a_cell_for_each_column():
    table = DataTable.of(["a", "b"], [[1, None], ("x", 2.5)])
    assert table.rows == ((1, None), ("x", 2.5))
    with pytest.raises(FactmemError, match="one cell for each column"):
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
def test_a_slope_holds_when_a_narrow_interval_meets_the_range(low, high, holds):
    assert slope(low, high).holds is holds


@given(st.floats(-3, 3), st.floats(0.31, 10))
def test_a_wide_interval_never_holds_and_says_so(low, width):
    found = slope(low, low + width)
    assert not found.says
    assert not found.holds
    assert found.told.endswith("too wide to tell.")


@given(st.floats(0, 2), st.floats(0, 0.29), st.floats(0, 2), st.floats(0, 1))
def test_intervals_that_share_a_number_with_the_range_hold(low, width, wanted, more):
    found = slope(low, low + width, (wanted, wanted + more))
    shared = max(low, wanted) <= min(low + width, wanted + more)
    assert found.holds is shared


def test_a_slope_is_told_with_its_interval():
    assert slope(0.95, 1.05).told == (
        "line: facts ∝ parameters^slope, slope 1.00 (95 % interval 0.95 to 1.05; asked to meet "
        "0.85 to 1.15): holds."
    )
    assert slope(1.45, 1.55).told.endswith("asked to meet 0.85 to 1.15): does not hold here.")


def test_without_a_line_nothing_holds():
    found = slope(None, None)
    assert not found.holds
    assert not found.says
    assert "no line can be fitted" in found.told


# ---- looks ---------------------------------------------------------------------------------------


def named(name, group="", kind="measured"):
    return Line(name, (1.0,), (1.0,), kind=kind, group=group)


def test_lines_of_their_own_differ_in_color_and_marker():
    found = looks([named("a"), named("b", kind="curve"), named("c")])
    assert found == {"a": (0, 0), "b": (1, 1), "c": (2, 2)}


def test_lines_of_a_group_share_a_color_and_differ_in_their_markers():
    lines = [named("a1", "a"), named("b1", "b"), named("a2", "a"), named("alone"), named("b2", "b")]
    assert looks(lines) == {
        "a1": (0, 0), "a2": (0, 1), "b1": (1, 0), "b2": (1, 1), "alone": (2, 2),
    }  # fmt: skip


def test_fits_and_references_have_no_look_of_their_own_and_panels_share_one():
    lines = [named("a"), named("fit", kind="fit"), named("theirs", kind="reference"), named("b")]
    assert looks([*lines, *lines]) == {"a": (0, 0), "b": (1, 1)}
