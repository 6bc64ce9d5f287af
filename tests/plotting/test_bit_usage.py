"""Plots of bits and losses beside the bounds."""

import numpy as np
import pytest

from factmem._core.power_law import PowerLaw
from factmem.plotting import draw_matplotlib
from factmem.plotting.bit_usage import (
    ModelBits,
    QuantizedLosses,
    TrainedLosses,
    bits_stored,
    quantized_losses,
    trained_losses,
)

MODELS = [
    ModelBits("hebbian", (1e5, 2e5, 1.2e5), (900.0, 900.0, 890.0)),
    ModelBits("hebbian", (8e5,), (4600.0,)),
    ModelBits("optimal", (3e4,), (4600.0,)),
]
BITS = np.array([1e3, 1e4, 1e5])


def lines_by_name(panel):
    return {line.name: line for line in panel.lines}


def test_each_method_is_a_line_of_medians_with_ranges():
    (chart,) = bits_stored(MODELS, "$t$").panels
    line = lines_by_name(chart)["hebbian"]
    assert (line.x, line.y) == ((1.2e5, 8e5), (900, 4600))
    assert (line.x_low, line.x_high) == ((1e5, 8e5), (2e5, 8e5))


def test_methods_differ_in_their_markers():
    (axes,) = draw_matplotlib(bits_stored(MODELS)).axes
    markers = {c.get_label(): c[0].get_marker() for c in axes.containers}
    assert markers["hebbian"] != markers["optimal"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["hebbian", "optimal"]


def test_references_show_the_bound_and_fractions_of_it():
    (chart,) = bits_stored(MODELS).panels
    references = [line for line in chart.lines if line.kind == "reference"]
    slopes = [np.divide(line.y, line.x).tolist() for line in references]
    assert np.allclose(slopes, [[1, 1], [0.1, 0.1], [0.01, 0.01]])
    assert [note.text for note in chart.notes] == ["the bound", "10%", "1%"]
    for note, fraction in zip(chart.notes, (1, 0.1, 0.01), strict=True):
        assert note.y == pytest.approx(fraction * note.x)
        assert chart.x.limits[0] < note.x < chart.x.limits[1]
        assert chart.y.limits[0] < note.y < chart.y.limits[1]


def losses(power):
    law = PowerLaw(1.01 - power, 0.976 - power, 1.044 - power, 2.0)
    tables = np.array([4.0, 2.0, 0.0])
    return QuantizedLosses(power, law, BITS, law.at(BITS), BITS, tables, tables, BITS, BITS**-power)


def test_quantized_losses_show_slopes_and_the_bound():
    first, second = quantized_losses([losses(1.5), losses(2.0)]).panels
    assert first.title == "Zipf 1.5: 1 − α = −0.50\nslope −0.49 ± 0.03"
    assert second.title == "Zipf 2: 1 − α = −1.00\nslope −0.99 ± 0.03"
    lines = lines_by_name(first)
    assert np.allclose(lines["minimum loss of any model"].y, BITS**-1.5)
    assert np.allclose(lines["MLP memory, 16 bits per weight"].y, 2 * BITS**-0.49)
    assert np.allclose(lines["fitted power law"].y, [2 * bits**-0.49 for bits in (1e3, 1e5)])


def test_a_loss_of_zero_is_left_out_of_logarithmic_axes():
    (chart,) = quantized_losses([losses(1.5)]).panels
    assert lines_by_name(chart)["ideal table, fewer keys"].y == (4, 2)
    assert lines_by_name(chart)["minimum loss for the table's keys"].y == (4, 2)


def test_trained_losses_show_medians_ranges_and_bounds():
    parameters = np.array([100.0, 100, 100, 800, 800, 800])
    loss = np.array([4.0, 3, 5, 1, 2, 1.5])
    bounds = {1: np.array([2.0, 0.0]), 2: np.array([1.0, 0.0]), 4: np.array([0.5, 0.0])}
    trained = TrainedLosses(
        1.0, parameters, loss, PowerLaw(-0.4, -0.5, -0.3, 25.0), np.array([100.0, 800.0]), bounds
    )
    (chart,) = trained_losses([trained]).panels
    lines = lines_by_name(chart)
    medians = lines["trained, median and range"]
    assert (medians.y, medians.low, medians.high) == ((4, 1.5), (3, 1), (5, 2))
    assert lines["minimum loss at 1 bit per parameter"].y == (2,)
    assert lines["minimum loss at 4 bits per parameter"].y == (0.5,)
    assert chart.title == "Zipf 1: slope −0.40 ± 0.10"
    assert chart.x.ticks == ((100, "100"), (800, "800"))
