"""Bits and losses of models beside their bounds; `benchmarks/bounds.py` measures them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from factmem._core.power_law import PowerLaw
from factmem.plotting.plot import Axis, Chart, Line, Note, Plot

__all__ = [
    "ModelBits",
    "QuantizedLosses",
    "TrainedLosses",
    "bits_stored",
    "quantized_losses",
    "trained_losses",
]

_SHARES = {1.0: "the bound", 0.1: "10%", 0.01: "1%", 1e-3: "0.1%", 1e-4: "0.01%"}
_LOSS_TICKS = tuple(
    (loss, f"{loss:g}") for loss in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0)
)
_LOSS_AXIS_START = 0.03
"""The loss axis of trained models starts at this value or below."""


@dataclass(frozen=True)
class ModelBits:
    """Models of one method and size, one per seed.

    Args:
        method: name of the method; models of one method share a marker.
        weight_bits: bits of the weights of each model.
        stored_bits: bits of facts that each model stores.
    """

    method: str
    weight_bits: tuple[float, ...]
    stored_bits: tuple[float, ...]


@dataclass(frozen=True)
class QuantizedLosses:
    """Losses against bits for one exponent of Zipf's law, all in bits.

    Args:
        power: exponent α of Zipf's law.
        memory_law: power law fitted to the losses of memories.
        memory_bits, memory_loss: sizes and losses of quantized MLP memories.
        table_bits, table_loss, table_bound: sizes and losses of ideal tables with fewer keys, and
            the bound for as many keys.
        bound_bits, bound_loss: the bound for as many keys as the memories have.
    """

    power: float
    memory_law: PowerLaw
    memory_bits: Float[np.ndarray, " memories"]
    memory_loss: Float[np.ndarray, " memories"]
    table_bits: Float[np.ndarray, " tables"]
    table_loss: Float[np.ndarray, " tables"]
    table_bound: Float[np.ndarray, " tables"]
    bound_bits: Float[np.ndarray, " points"]
    bound_loss: Float[np.ndarray, " points"]


@dataclass(frozen=True)
class TrainedLosses:
    """Losses of trained transformers for one exponent of Zipf's law, in bits.

    Args:
        power: exponent α of Zipf's law.
        parameters, loss: of every model.
        law: power law fitted to them.
        bound_parameters: sizes at which the bounds are given.
        bounds: the bound for each number of bits per parameter.
    """

    power: float
    parameters: Float[np.ndarray, " models"]
    loss: Float[np.ndarray, " models"]
    law: PowerLaw
    bound_parameters: Float[np.ndarray, " points"]
    bounds: Mapping[int, Float[np.ndarray, " points"]]


def bits_stored(models: Sequence[ModelBits], title: str = "") -> Plot:
    """Plot the bits that models store against the bits of their weights, which bound them.

    Args:
        models: the models; a marker is the median over seeds, a bar their range.
        title: title of the plot.
    """
    methods = dict.fromkeys(model.method for model in models)
    lines = [_method_line([m for m in models if m.method == method]) for method in methods]
    weights = [bits for model in models for bits in model.weight_bits]
    stored = [bits for model in models for bits in model.stored_bits]
    bottom, top = min(stored) / 2, 3 * max(stored)
    height = top / 1.6  # of the notes
    left, right = min(height, *weights) / 4, 2 * max(weights)
    notes = []
    for share, text in _SHARES.items():
        if height / share > right:
            break
        ends = (share * left, share * right)
        group = "bound" if share == 1 else "share"
        lines.append(
            Line(text, (left, right), ends, kind="reference", group=group, in_legend=False)
        )
        notes.append(Note(text, height / share, height))
    x = Axis("bits of the weights", "log", limits=(left, right))
    y = Axis("bits stored", "log", limits=(bottom, top))
    return Plot("bits", title, (Chart(x, y, tuple(lines), notes=tuple(notes)),), columns=1)


def _method_line(models: Sequence[ModelBits]) -> Line:
    return Line(
        models[0].method,
        tuple(float(np.median(model.weight_bits)) for model in models),
        tuple(float(np.median(model.stored_bits)) for model in models),
        kind="points",
        x_low=tuple(min(model.weight_bits) for model in models),
        x_high=tuple(max(model.weight_bits) for model in models),
    )


def quantized_losses(losses: Sequence[QuantizedLosses], title: str = "") -> Plot:
    """Plot losses of quantized memories and of ideal tables beside the bound of Theorem 7.

    Args:
        losses: one panel each.
        title: title of the plot.
    """
    panels = [_quantized_chart(panel, first=index == 0) for index, panel in enumerate(losses)]
    return Plot("quantized", title, tuple(panels), columns=len(panels), shared_legend=True)


def _quantized_chart(losses: QuantizedLosses, *, first: bool) -> Chart:
    ends = np.array([losses.memory_bits.min(), losses.memory_bits.max()])
    positive = losses.table_loss > 0  # a logarithmic axis cannot show 0
    tables = _floats(losses.table_bits[positive])
    lines = (
        Line(
            "MLP memory, 16 bits per weight",
            _floats(losses.memory_bits),
            _floats(losses.memory_loss),
            kind="points",
        ),
        Line("fitted power law", _floats(ends), _floats(losses.memory_law.at(ends)), kind="fit"),
        Line(
            "ideal table, fewer keys", tables, _floats(losses.table_loss[positive]), kind="points"
        ),
        Line(
            "minimum loss of any model",
            _floats(losses.bound_bits),
            _floats(losses.bound_loss),
            kind="reference",
        ),
        Line(
            "minimum loss for the table's keys",
            tables,
            _floats(losses.table_bound[positive]),
            kind="reference",
        ),
    )
    top = 1.3 * max(float(losses.bound_loss.max()), float(losses.table_loss.max()))
    exponent = f"Zipf {losses.power:g}: 1 − α = {_signed(1 - losses.power)}"
    return Chart(
        Axis("bits of the model", "log"),
        Axis("expected loss (bits)" if first else "", "log", _LOSS_TICKS, (None, top)),
        lines,
        title=f"{exponent}\n{_slope(losses.memory_law)}",
    )


def trained_losses(losses: Sequence[TrainedLosses], title: str = "") -> Plot:
    """Plot the loss of trained transformers against their size, beside the bound.

    Args:
        losses: one panel each; all panels share their limits.
        title: title of the plot.
    """
    lowest = min(float(panel.loss.min()) for panel in losses)
    highest = max(
        float(loss.max()) for panel in losses for loss in (panel.loss, *panel.bounds.values())
    )
    y = Axis(
        "expected loss (bits)",
        "log",
        _LOSS_TICKS,
        limits=(min(_LOSS_AXIS_START, lowest / 2), 1.5 * highest),
    )
    panels = tuple(_trained_chart(panel, y) for panel in losses)
    return Plot("trained", title, panels, columns=len(panels), shared_legend=True)


def _trained_chart(losses: TrainedLosses, y: Axis) -> Chart:
    sizes = np.unique(losses.parameters)
    by_size = [losses.loss[losses.parameters == size] for size in sizes]
    middle, low, high = (
        tuple(float(statistic(values)) for values in by_size)
        for statistic in (np.median, np.min, np.max)
    )
    x = _floats(sizes)
    lines = [
        Line("trained, median and range", x, middle, low, high, kind="points"),
        Line("fitted power law", x, _floats(losses.law.at(sizes)), kind="fit"),
    ]
    for bits, loss in losses.bounds.items():
        positive = loss > 0
        name = f"minimum loss at {bits} bit{'s' * (bits > 1)} per parameter"
        bound = _floats(losses.bound_parameters[positive]), _floats(loss[positive])
        lines.append(Line(name, *bound, kind="reference"))
    return Chart(
        Axis("parameters", "log", tuple((size, f"{size:,.0f}") for size in x)),
        y,
        tuple(lines),
        title=f"Zipf {losses.power:g}: {_slope(losses.law)}",
    )


def _slope(law: PowerLaw) -> str:
    return f"slope {_signed(law.exponent)} ± {law.half_width:.2f}"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.asarray(values, float).tolist())
