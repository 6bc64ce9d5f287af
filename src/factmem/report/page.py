"""The report as one HTML file that contains everything and needs no network."""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from factmem._core.atomic_files import write_atomic
from factmem.plotting.styles import LINE_COLORS, REFERENCE_COLOR
from factmem.report.claims_table import claims_context
from factmem.report.content import Report
from factmem.report.figure_section import figure_context, figure_data

__all__ = ["report_html", "write_report"]


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the report as an HTML file, atomically."""
    write_atomic(path, report_html(report).encode())


def report_html(report: Report) -> str:
    """Return the report as HTML.

    Templates escape every text of the report; only scripts, styles and data of this package are
    inserted as they are.
    """
    scripts = (_plotly_script(), _package_file("report.js"))
    data = [figure_data(section) for section in report.sections]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            policy=_security_policy(scripts),
            colors=_colors(),
            style=Markup(_package_file("report.css")),
            figures=[figure_context(section) for section in report.sections],
            claims=claims_context(report.claims),
            figure_data=Markup(_script_json(data)),
            scripts=[Markup(script) for script in scripts],
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("factmem.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _security_policy(scripts: Sequence[str]) -> str:
    """Allow only our own scripts, identified by their hashes, and no requests at all."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _colors() -> list[tuple[str, tuple[str, str]]]:
    """Return colors of lines as CSS variables, which the script reads when the theme changes."""
    lines = [(f"line-{index}", colors) for index, colors in enumerate(LINE_COLORS)]
    return [*lines, ("reference", REFERENCE_COLOR)]


def _script_json(data: Any) -> str:
    """Return JSON that cannot end the script element that contains it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def _plotly_script() -> str:
    # Browsers read every line end as \n before they compute the hash.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


def _package_file(name: str) -> str:
    return files("factmem.report").joinpath(name).read_text(encoding="utf-8")
