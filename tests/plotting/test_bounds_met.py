"""What the figures of bounds hold; how they look was looked at."""

import numpy as np
import pytest

from factmem._core.power_law import PowerLaw
from factmem.plotting.bounds_met import (
    Held,
    LossLaw,
    Trained,
    bits_against_bits,
    loss_against_bits,
    loss_against_parameters,
)

HELD = [
    Held("hebbian", (1e5, 2e5, 1.2e5), (900.0, 900.0, 890.0)),
    Held("hebbian", (8e5,), (4600.0,)),
    Held("maximal", (3e4,), (4600.0,)),
]
X = np.array([1e3, 1e4, 1e5])


def lines_of(axes):
    return {line.get_label(): line for line in axes.lines}


def test_every_method_has_a_marker_of_its_own():
    (axes,) = bits_against_bits(HELD, "$t$").axes
    lines = lines_of(axes)
    assert list(lines["hebbian"].get_xdata()) == [1.2e5, 8e5]
    assert list(lines["hebbian"].get_ydata()) == [900, 4600]
    ranges = [list(ends[:, 0]) for ends in axes.collections[0].get_segments()]
    assert ranges == [[1e5, 2e5], [8e5, 8e5]]
    assert lines["hebbian"].get_marker() != lines["maximal"].get_marker()


def test_the_diagonal_is_the_bound():
    (axes,) = bits_against_bits(HELD).axes
    shares = [
        line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"
    ]
    slopes = [(line.get_ydata() / line.get_xdata()).tolist() for line in shares]
    assert np.allclose(slopes, [[1, 1], [0.1, 0.1], [0.01, 0.01]])
    assert [text.get_text() for text in axes.texts] == ["the bound", "10 %", "1 %"]
    for text, share in zip(axes.texts, (1, 0.1, 0.01), strict=True):
        assert text.xy[1] == pytest.approx(share * text.xy[0])


def law(power):
    memory = PowerLaw(1.01 - power, 0.976 - power, 1.044 - power, 2.0)
    tables = np.array([4.0, 2.0, 0.0])
    return LossLaw(power, memory, X, memory.at(X), X, tables, tables, X, X**-power)


def test_losses_stand_beside_the_bound_with_their_slopes():
    figure = loss_against_bits([law(1.5), law(2.0)])
    first, second = figure.axes
    assert first.get_title() == "Zipf 1.5: 1 − α = −0.50\nslope −0.49 ± 0.03"
    assert second.get_title() == "Zipf 2: 1 − α = −1.00\nslope −0.99 ± 0.03"
    lines = lines_of(first)
    assert np.allclose(lines["least loss of any model"].get_ydata(), X**-1.5)
    assert np.allclose(lines["MLP memory, 16 bits a weight"].get_ydata(), 2 * X**-0.49)
    # A table that knows everything has no logarithm to be drawn at.
    assert list(lines["ideal table, fewer questions"].get_ydata()) == [4, 2]


def test_losses_of_trained_models_have_a_spread():
    parameters = np.array([100.0, 100, 100, 800, 800, 800])
    loss = np.array([4.0, 3, 5, 1, 2, 1.5])
    bounds = {1: np.array([2.0, 0.0]), 2: np.array([1.0, 0.0]), 4: np.array([0.5, 0.0])}
    panel = Trained(
        1.0, parameters, loss, PowerLaw(-0.4, -0.5, -0.3, 25.0), np.array([100.0, 800.0]), bounds
    )
    (axes,) = loss_against_parameters([panel]).axes
    lines = lines_of(axes)
    assert list(lines["trained, median and range"].get_ydata()) == [4, 1.5]
    (ranges,) = axes.collections
    assert [list(ends[:, 1]) for ends in ranges.get_segments()] == [[3, 5], [1, 2]]
    assert list(lines["least loss at 1 bit a parameter"].get_ydata()) == [2]
    assert list(lines["least loss at 4 bits a parameter"].get_ydata()) == [0.5]
    assert axes.get_title() == "Zipf 1: slope −0.40 ± 0.10"
