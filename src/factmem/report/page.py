"""The page: one file with everything in it, that asks nothing of any network."""

import base64
import hashlib
import html
import json
import os
from functools import cache
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from factmem._core.atomic_files import write_atomic
from factmem.report.claims_table import claims_table
from factmem.report.content import KeyNumber, Report
from factmem.report.figure_section import figure_data, figure_section
from factmem.report.marks import COLORS, REFERENCE_COLOR

__all__ = ["report_html", "write_report"]


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Writes the page; a reader finds the old file or the new one, never a part."""
    write_atomic(path, report_html(report).encode())


def report_html(report: Report) -> str:
    """The page as text."""
    title = html.escape(report.title)
    scripts = (_plotly(), _own("report.js"))
    figures = "\n".join(map(figure_section, report.sections))
    data = _safe_json([figure_data(section) for section in report.sections])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{_colors()}
{_own("report.css")}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<div class="wide">
<h1>{title}</h1>
<button type="button" id="theme" class="switch" aria-pressed="false">Dark colors</button>
</div>
</header>
<main id="content" tabindex="-1" class="wide">
<noscript><p class="notice">Figures are drawn by a script, which does not run here. Their numbers
stand in the tables below each of them.</p></noscript>
{_numbers(report.numbers)}
{_contents(report)}
{_run(report)}
{figures}
{claims_table(report.claims)}
</main>
<script type="application/json" id="figures">{data}</script>
<script>{scripts[0]}</script>
<script>{scripts[1]}</script>
</body>
</html>
"""


def _numbers(numbers: tuple[KeyNumber, ...]) -> str:
    cards = "\n".join(
        f'<li><p class="question">{html.escape(number.problem)}</p>'
        f'<p class="value">{html.escape(number.value)}</p>'
        f"<p>{html.escape(number.told)}</p></li>"
        for number in numbers
    )
    return f"""<section aria-labeledby="numbers" class="numbers">
<h2 id="numbers" class="hidden">In short</h2>
<ul>
{cards}
</ul>
</section>"""


def _contents(report: Report) -> str:
    entries = [("run", "What was run, and on what")]
    entries += [(section.anchor, section.heading) for section in report.sections]
    entries += [("claims", "The claims of the paper")]
    links = "\n".join(
        f'<li><a href="#{anchor}">{html.escape(heading)}</a></li>' for anchor, heading in entries
    )
    return f'<nav aria-label="Contents">\n<ul>\n{links}\n</ul>\n</nav>'


def _run(report: Report) -> str:
    lines = "\n".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd></div>"
        for label, value in report.run
    )
    return f"""<section aria-labeledby="run">
<h2 id="run">What was run, and on what</h2>
<dl>
{lines}
</dl>
</section>"""


def _policy(scripts: tuple[str, ...]) -> str:
    """Only our own scripts run, known by their hashes, and nothing is fetched from anywhere."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _colors() -> str:
    """Colors of lines as variables, which the script reads when the theme changes."""
    named = [(f"line-{place}", pair) for place, pair in enumerate(COLORS)]
    named += [("reference", REFERENCE_COLOR)]
    lines = (f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in named)
    return f":root {{ {' '.join(lines)} }}"


def _safe_json(data: Any) -> str:
    """JSON that no text in it can end early."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def _plotly() -> str:
    # A browser reads every line end as \n, and hashes what it has read.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


def _own(name: str) -> str:
    return files("factmem.report").joinpath(name).read_text(encoding="utf-8")
