"""Text and numbers in the form that plotly draws and JSON holds.

Plotly interprets tags, links and entities in any label and fills in `%{…}` in templates. Every text
is escaped here, and no name ever becomes part of a template.
"""

import html
import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any

__all__ = ["HOVER_TEMPLATE", "hover_text", "label_text", "rounded", "to_json"]

HOVER_TEMPLATE = "%{hovertext}<extra></extra>"
_HOVER_WIDTH = 46
"""Letters in a line: plotly wraps nothing, and phones are narrow."""


def label_text(text: str, width: int | None = None) -> str:
    """Return text that plotly draws literally, wrapped at `width` letters if given."""
    lines = text.splitlines()
    if width is not None:
        lines = [part for line in lines for part in textwrap.wrap(line, width) or [""]]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def hover_text(text: str) -> str:
    """Return text for a hover label."""
    return label_text(text, _HOVER_WIDTH)


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """Return values with seven digits, enough for any screen; None where there is no number."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.7g}")
        for value in values
    ]


def to_json(thing: Any) -> dict[str, Any]:
    """Return an object that plotly has validated as JSON data."""
    return json.loads(json.dumps(thing.to_plotly_json(), allow_nan=False))
