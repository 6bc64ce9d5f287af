"""Models beside the bounds of section 6: `benchmarks/bounds.py` measures them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from factmem._core.power_law import PowerLaw
from factmem.plotting.drawing import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Held",
    "LossLaw",
    "Trained",
    "bits_against_bits",
    "loss_against_bits",
    "loss_against_parameters",
]

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "h", "d")
_COLORS = ("1b6ca8", "d1495b", "2e933c", "7a5195", "8a6d3b", "444444")
_SHARES = {1.0: "the bound", 0.1: "10 %", 0.01: "1 %", 1e-3: "0.1 %", 1e-4: "0.01 %"}
_DASHES = {1: "-", 2: "--", 4: ":"}


@dataclass(frozen=True)
class Held:
    """Models of one method and size, one for each seed.

    Args:
        method: its name; models of the same method share a marker.
        used: bits of the weights of each.
        stored: bits that they hold.
    """

    method: str
    used: tuple[float, ...]
    stored: tuple[float, ...]


@dataclass(frozen=True)
class LossLaw:
    """Losses against bits for one power of Zipf's law, all in bits.

    Args:
        power: α.
        memory: the law of the memories' losses.
        bits, loss: of memories.
        table_bits, table_loss, table_bound: of ideal tables, and the bound for as many questions.
        bound_bits, bound_loss: the bound for the questions that the memories are asked.
    """

    power: float
    memory: PowerLaw
    bits: Float[np.ndarray, " memories"]
    loss: Float[np.ndarray, " memories"]
    table_bits: Float[np.ndarray, " tables"]
    table_loss: Float[np.ndarray, " tables"]
    table_bound: Float[np.ndarray, " tables"]
    bound_bits: Float[np.ndarray, " places"]
    bound_loss: Float[np.ndarray, " places"]


@dataclass(frozen=True)
class Trained:
    """Losses of trained transformers for one power of Zipf's law, in bits.

    Args:
        power: α.
        parameters, loss: of every model.
        law: fitted to them.
        bound_parameters, bounds: the bound for models of so many bits a parameter.
    """

    power: float
    parameters: Float[np.ndarray, " models"]
    loss: Float[np.ndarray, " models"]
    law: PowerLaw
    bound_parameters: Float[np.ndarray, " places"]
    bounds: Mapping[int, Float[np.ndarray, " places"]]


def bits_against_bits(held: Sequence[Held], title: str = "") -> Figure:
    """Bits that models hold against the bits of their weights, and the bound: all of them.

    Args:
        held: the models; a marker is the median of seeds, a line their range.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(6.4, 3.9))
        axes = figure.subplots()
        methods = list(dict.fromkeys(model.method for model in held))
        for place, method in enumerate(methods):
            these = [models for models in held if models.method == method]
            color = f"#{_COLORS[place % len(_COLORS)]}"
            heights = [float(np.median(models.stored)) for models in these]
            least, most = ([end(models.used) for models in these] for end in (min, max))
            axes.hlines(heights, least, most, color=color, linewidth=1)
            axes.plot(
                [float(np.median(models.used)) for models in these],
                heights,
                _MARKERS[place % len(_MARKERS)],
                color=color,
                # Colors come twice: filled, and then hollow.
                markerfacecolor="white" if place >= len(_COLORS) else color,
                markersize=5,
                linestyle="none",
                label=method,
            )
        _draw_shares(axes, held)
        axes.set_xlabel("bits of the weights")
        axes.set_ylabel("bits that they hold")
        figure.legend(loc="outside right center", fontsize=7.5)
        figure.suptitle(title, parse_math=False)
        return figure


def _draw_shares(axes: "Axes", held: Sequence[Held]) -> None:
    used = [bits for models in held for bits in models.used]
    stored = [bits for models in held for bits in models.stored]
    bottom, top = min(stored) / 2, 3 * max(stored)
    height = top / 1.6  # of labels, the first of which must be in sight
    left, right = min(height, *used) / 4, 2 * max(used)
    for share, text in _SHARES.items():
        if height / share > right:
            break
        ends = np.array([left, right])
        style = "-" if share == 1 else "--"
        axes.plot(ends, share * ends, color="0.45", linewidth=0.9, linestyle=style)
        axes.annotate(
            text,
            (height / share, height),
            ha="right",
            va="bottom",
            fontsize=7.5,
            color="0.3",
            xytext=(-5, 0),
            textcoords="offset points",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def loss_against_bits(laws: Sequence[LossLaw], title: str = "") -> Figure:
    """The quantized memory, ideal tables and the bound of Theorem 7, a panel for each power.

    Args:
        laws: one for each power.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.6, 3.5))
        row = figure.subplots(1, len(laws), sharex=True, squeeze=False)[0]
        for axes, law in zip(row, laws, strict=True):
            _draw_law(axes, law)
        row[0].set_ylabel("expected loss (bits)")
        lines, labels = row[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=2, fontsize=7.5)
        figure.suptitle(title, parse_math=False)
        return figure


def _draw_law(axes: "Axes", law: LossLaw) -> None:
    blue, red, green = (f"#{color}" for color in _COLORS[:3])
    axes.plot(law.bound_bits, law.bound_loss, "-", color=red, label="least loss of any model")
    places = law.bits, law.loss
    axes.plot(*places, "o", color=blue, markersize=4, label="MLP memory, 16 bits a weight")
    ends = np.array([law.bits.min(), law.bits.max()])
    axes.plot(ends, law.memory.at(ends), "-", color=blue, linewidth=0.8)
    shown = law.table_loss > 0
    axes.plot(
        law.table_bits[shown],
        law.table_loss[shown],
        "x",
        color=green,
        markersize=5,
        label="ideal table, fewer questions",
    )
    axes.plot(
        law.table_bits[shown],
        law.table_bound[shown],
        ":",
        color=green,
        linewidth=1,
        label="least loss for its questions",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_ticks(axes)
    axes.set_xlabel("bits of the model")
    slope = f"slope {_signed(law.memory.exponent)} ± {law.memory.half_width:.2f}"
    axes.set_title(f"Zipf {law.power:g}: 1 − α = {_signed(1 - law.power)}\n{slope}", fontsize=8.5)


def loss_against_parameters(panels: Sequence[Trained], title: str = "") -> Figure:
    """The loss of trained transformers against their size, beside the bound.

    Args:
        panels: one for each power.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.2, 3.6))
        row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, panel in zip(row, panels, strict=True):
            _draw_trained(axes, panel)
        row[0].set_ylabel("expected loss (bits)")
        lines, labels = row[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=2, fontsize=7.5)
        figure.suptitle(title, parse_math=False)
        return figure


def _draw_trained(axes: "Axes", panel: Trained) -> None:
    blue = f"#{_COLORS[0]}"
    sizes = np.unique(panel.parameters)
    each = [panel.loss[panel.parameters == size] for size in sizes]
    middle = np.array([np.median(losses) for losses in each])
    least, most = ([end(losses) for losses in each] for end in (np.min, np.max))
    axes.vlines(sizes, least, most, color=blue, linewidth=1)
    axes.plot(sizes, middle, "o", color=blue, markersize=4, label="trained, median and range")
    axes.plot(sizes, panel.law.at(sizes), "-", color=blue, linewidth=0.8, label="fitted power law")
    for bits, loss in panel.bounds.items():
        shown = loss > 0
        axes.plot(
            panel.bound_parameters[shown],
            loss[shown],
            linestyle=_DASHES[bits],
            color="0.35",
            linewidth=1.1,
            label=f"least loss at {bits} bit{'s' * (bits > 1)} a parameter",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=min(0.03, panel.loss.min() / 2))
    _plain_ticks(axes)
    axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("parameters")
    slope = f"slope {_signed(panel.law.exponent)} ± {panel.law.half_width:.2f}"
    axes.set_title(f"Zipf {panel.power:g}: {slope}", fontsize=8.5)


def _plain_ticks(axes: "Axes") -> None:
    """Losses as 0.2 and not as 2 × 10⁻¹, where they span less than a few decades."""
    axes.yaxis.set_major_locator(FixedLocator([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
