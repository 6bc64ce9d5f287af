"""One figure of the page: its plots, its controls, what is said about it and its numbers."""

import html
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from factmem.plotting.plot import Chart, DataTable, HeatMap, Slope
from factmem.plotting.plotly_backend import drawn_panels
from factmem.report.content import Section
from factmem.report.marks import line_names, marks_of

__all__ = ["figure_data", "figure_section"]

_MOST_ROWS = 500
"""Rows of a table on the page; more are for programs, which read the file."""
_WIDE, _NARROW = 1000, 300
"""Pixels across for all panels of a row, on wide and on narrow screens."""


def figure_data(section: Section) -> dict[str, Any]:
    """What the script needs to draw a figure."""
    names = line_names(section.plot)
    panels = []
    for drawn in drawn_panels(section.plot):
        lines = [None if name is None else names.index(name) for name in drawn.lines]
        panels.append({**asdict(drawn), "lines": lines})
    return {"anchor": section.anchor, "panels": panels}


def figure_section(section: Section) -> str:
    """The figure as HTML; the script draws into its panels."""
    plot, anchor = section.plot, section.anchor
    told = "\n".join(f"<p>{html.escape(part)}</p>" for part in section.paragraphs)
    panels = "\n".join(_panel(section, place) for place in range(len(plot.panels)))
    return f"""<section aria-labeledby="{anchor}" class="figure" data-figure="{anchor}">
<h2 id="{anchor}">{html.escape(section.heading)}</h2>
<div class="told">{told}</div>
<figure>
{_line_buttons(section)}
<div class="panels" style="--columns: {_columns(section)}">
{panels}
</div>
<figcaption>{html.escape(plot.caption)}</figcaption>
</figure>
{_slopes(plot.slopes)}
{_numbers(section)}
</section>"""


def _line_buttons(section: Section) -> str:
    """A button for each line: plotly's own legend can be used with a mouse only."""
    names, marks = line_names(section.plot), marks_of(section.plot)
    if not names:
        return ""
    buttons = []
    for place, name in enumerate(names):
        buttons.append(
            f'<button type="button" class="choice" aria-pressed="true" data-line="{place}" '
            f'style="--swatch: var(--{marks[name].variable})">{html.escape(name)}</button>'
        )
    return '<div class="choices" role="group" aria-label="Lines shown">\n{}\n</div>'.format(
        "\n".join(buttons)
    )


def _panel(section: Section, place: int) -> str:
    panel = section.plot.panels[place]
    title = html.escape(panel.title)
    heading = f"<h3>{title}</h3>" if title else ""
    rows = _legend_rows(panel, _WIDE // _columns(section))
    narrow_rows = _legend_rows(panel, _NARROW)
    return f"""<div class="panel">
<div class="head">{heading}{_controls(panel, place)}</div>
<div class="graph" role="img" aria-label="{html.escape(_described(section, place))}"
 data-panel="{place}" style="--rows: {rows}; --narrow-rows: {narrow_rows}"></div>
</div>"""


def _columns(section: Section) -> int:
    return max(1, min(section.plot.columns, len(section.plot.panels)))


def _legend_rows(panel: Chart | HeatMap, width: int) -> int:
    """About how many rows plotly's legend takes: so much higher is the panel."""
    rows, left = 0, 0
    for name in dict.fromkeys(line.name for line in panel.lines):
        needed = 50 + 7 * len(name)
        if needed > left:
            rows, left = rows + 1, width
        left -= needed
    return rows


def _controls(panel: Chart | HeatMap, place: int) -> str:
    """Buttons of one panel. Maps have none for scales: their cells' edges mean one scale."""
    where = html.escape(panel.title or f"panel {place + 1}")
    buttons = [
        f'<button type="button" class="scale" data-panel="{place}" data-axis="{letter}" '
        f'aria-pressed="{str(axis.scale == "log").lower()}" '
        f'aria-label="log {letter}, {where}">log {letter}</button>'
        for letter, axis in (("x", panel.x), ("y", panel.y))
        if isinstance(panel, Chart)
    ]
    buttons.append(
        f'<button type="button" class="save" data-panel="{place}" '
        f'aria-label="PNG: save {where} as an image">PNG</button>'
    )
    return f'<div class="controls" role="group" aria-label="{where}">{"".join(buttons)}</div>'


def _described(section: Section, place: int) -> str:
    """What a panel shows, for those who do not see it."""
    panel = section.plot.panels[place]
    title = f"{section.heading}. {panel.title}" if panel.title else section.heading
    if isinstance(panel, HeatMap):
        told = f"A map of {panel.unit} over {panel.x.label} and {panel.y.label}"
    else:
        told = f"A chart of {panel.y.label} against {panel.x.label}"
    names = ", ".join(dict.fromkeys(line.name for line in panel.lines))
    lines = f", with lines for {names}" if names else ""
    return f"{title}. {told}{lines}. The numbers stand in the table below."


def _slopes(slopes: tuple[Slope, ...]) -> str:
    if not slopes:
        return ""
    lines = "\n".join(
        f'<li class="{"good" if slope.holds else "bad"}">{html.escape(slope.told)}'
        f"{'' if slope.counts else ' Not a statement of the paper.'}</li>"
        for slope in slopes
    )
    return f'<h3>Fitted slopes</h3>\n<ul class="marked">\n{lines}\n</ul>'


def _numbers(section: Section) -> str:
    data, anchor = section.plot.data, section.anchor
    heading = html.escape(section.heading)
    address = "data:text/csv;charset=utf-8," + quote(data.csv, safe="")
    more = len(data.rows) - _MOST_ROWS
    note = f"<p>{more} more rows are in the CSV file.</p>" if more > 0 else ""
    return f"""<p class="download"><a download="{anchor}.csv" href="{address}"
 aria-label="Download the data as CSV: {heading}">Download the data (CSV)</a></p>
<details>
<summary>The numbers ({len(data.rows)} row{"s" * (len(data.rows) != 1)})</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Numbers: {heading}">
{_table(data)}
</div>{note}
</details>"""


def _table(data: DataTable) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in data.header)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in data.rows[:_MOST_ROWS])
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _cell(value: str | int | float | None) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        return f'<td class="number">{shown}</td>'
    return f"<td>{'' if value is None else html.escape(str(value))}</td>"
