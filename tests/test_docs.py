"""The documentation is true: its code runs, its commands parse, its lists are those of the code.

Tables between `<!-- generated: NAME -->` and `<!-- end -->` are made from the registries. To update
them, run `FACTMEM_UPDATE_SNAPSHOTS=1 pytest tests/test_docs.py` and look at the difference.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from factmem.cli import main
from factmem.cli.app import app
from factmem.experiments import MEMORY_METHODS, TRANSFORMER_METHODS
from factmem.paper import all_claims, claim_ids, figure_names
from factmem.training import OPTIMIZERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(
    r"<!-- generated: ([\w-]+) -->\n\n((?:(?!<!--).)*)\n\n<!-- end -->", re.DOTALL
)


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text()) if name in languages]


# ---- Python ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_blocks_run(page, tmp_path):
    """The blocks of a page are one script, in order; workers import it as they would a user's."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    environment = {**os.environ, "FACTMEM_STORE": str(tmp_path / "runs.sqlite")}
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_examples_of_extensions_are_short():
    for block in blocks(ROOT / "docs" / "extending.md", "python"):
        assert len(block.splitlines()) < 40


# ---- commands --------------------------------------------------------------------------------


def command_lines() -> list[str]:
    """Return the distinct command lines of factmem in the blocks of all pages."""
    lines = []
    for page in PAGES:
        for block in blocks(page, "console", "bash"):
            for line in block.splitlines():
                words = line.removeprefix("$ ")
                if words.startswith("factmem "):
                    lines.append(words)
    return list(dict.fromkeys(lines))


def test_command_lines_parse():
    lines = command_lines()
    assert len(lines) > 20
    for line in lines:
        words = shlex.split(re.sub(r"\$\(\w+\)", "host", line), comments=True)[1:]
        app.parse_args(words, print_error=False, exit_on_error=False)


def flags(command: tuple[str, ...]) -> set[str]:
    """Return the flags of a command."""
    node = app
    for word in command:
        node = node[word]
    names = {name for argument in node.assemble_argument_collection() for name in argument.names}
    # `negative=()` of the program's default parameter is not applied here.
    negative = {f"--{prefix}-{name[2:]}" for name in names for prefix in ("no", "empty")}
    return {name for name in names - negative if name.startswith("--")}


@cache
def commands() -> dict[str, set[str]]:
    """Return the flags of every command; those of all capacity commands are taken together."""
    found = {}
    for name in app:
        if name.startswith("-"):
            continue
        inner = [word for word in app[name] if not word.startswith("-")]
        paths = [(name, word) for word in inner] or [(name,)]
        found[name] = set.union(*(flags(path) for path in paths))
    return found


def test_flags_in_the_reference_of_commands_are_those_of_the_commands():
    """Every section of the page names all flags of its commands, and no other."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    everywhere = {"--json"}
    problems = []
    documented = set()
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        names = re.findall(r"`factmem (\w+)`", heading)
        documented |= set(names)
        if not names:
            continue
        own = set.union(*(commands()[name] for name in names)) - everywhere
        mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - everywhere
        problems += [f"{heading}: {flag} does not exist" for flag in sorted(mentioned - own)]
        problems += [f"{heading}: {flag} is not documented" for flag in sorted(own - mentioned)]
    assert not problems, "\n".join(problems)
    assert documented == set(commands())


def test_flags_in_text_exist():
    """Inline code such as `factmem runs --failed` names commands and flags that exist."""
    for page in PAGES:
        for code in re.findall(r"`factmem ([^`\n]+)`", page.read_text()):
            words = code.split()
            name = words[0].split("|")[0]
            assert name in commands() or name.startswith(("COMMAND", "--")), f"{page.name}: {code}"
            mentioned = {word.split("=")[0].strip("[]") for word in words if "--" in word}
            unknown = mentioned - commands().get(name, set()) - {"--help", "--version"}
            assert not unknown, f"{page.name}: factmem {code}"


def shown_outputs() -> list[tuple[str, list[str]]]:
    """Return the commands whose output is shown, with the lines of it."""
    shown = []
    for page in PAGES:
        for block in blocks(page, "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *output = part.splitlines()
                if output:
                    shown.append((command, [line for line in output if line.strip("… ")]))
    return shown


@pytest.mark.parametrize(
    ("command", "lines"),
    [(c, lines) for c, lines in shown_outputs() if c.split()[1] in ("facts", "bounds")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_shown_output_is_printed(command, lines, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.rstrip() not in printed] == []


def test_labels_of_shown_tables_are_those_of_the_commands():
    """Commands that take long are not run; the names of their rows are looked up."""
    source = "".join(path.read_text() for path in (ROOT / "src/factmem/cli").glob("*.py"))
    for command, lines in shown_outputs():
        if command.split()[1] in ("facts", "bounds"):
            continue
        for line in lines:
            label = line.split("│")[1].strip() if line.count("│") == 3 else ""
            pattern = re.escape(label).replace("S", r"(S|\{symbol\})")  # S or N of a capacity
            assert re.search(pattern, source), f"{command}: {label}"


# ---- lists -----------------------------------------------------------------------------------


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def method_table() -> list[str]:
    rows = ["| method | what it is | options |", "|---|---|---|"]
    for name, method in MEMORY_METHODS.items():
        options = ", ".join(
            f"`{option}`" if required else f"`{option}` (optional)"
            for option, required in method.options.items()
        )
        rows.append(f"| `{name}` | {cell(method.summary)} | {options or '–'} |")
    return rows


def claim_table() -> list[str]:
    rows = ["| id | statement | is checked by |", "|---|---|---|"]
    for claim in all_claims():
        statement = f"{cell(claim.statement)} ({cell(claim.reference)})"
        rows.append(f"| `{claim.id}` | {statement} | {cell(claim.method)} |")
    return rows


def names(entries) -> Callable[[], list[str]]:
    return lambda: [", ".join(f"`{name}`" for name in entries) + "."]


LISTS: dict[str, Callable[[], list[str]]] = {
    "memory-methods": method_table,
    "claims": claim_table,
    "memory-method-names": names(MEMORY_METHODS),
    "transformer-method-names": names(TRANSFORMER_METHODS),
    "optimizer-names": names(OPTIMIZERS),
    "figure-names": names(figure_names()),
    "claim-ids": names(claim_ids()),
}


def test_lists_are_those_of_the_registries():
    used = set()
    for page in PAGES:
        text = page.read_text()
        used |= {name for name, _ in GENERATED.findall(text)}
        expected = GENERATED.sub(
            lambda match: (
                f"<!-- generated: {match[1]} -->\n\n"
                + "\n".join(LISTS[match[1]]())
                + "\n\n<!-- end -->"
            ),
            text,
        )
        if os.environ.get("FACTMEM_UPDATE_SNAPSHOTS") and text != expected:
            page.write_text(expected)
            text = expected
        assert text == expected, page.name
    assert used == set(LISTS)


def test_the_table_of_figures_has_every_figure():
    rows = re.findall(r"^\| (\d[\w-]*) \|", (ROOT / "docs/figures.md").read_text(), re.MULTILINE)
    assert tuple(dict.fromkeys(rows))[: len(figure_names())] == figure_names()


# ---- files and names -------------------------------------------------------------------------


def test_files_in_the_map_exist():
    """Paths in the table of README.md; a name without a folder is in that of the name before."""
    readme = (ROOT / "README.md").read_text()
    table = readme[readme.index("## Where things are") :]
    for row in re.findall(r"^\|.*\|$", table, re.MULTILINE):
        folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row):
            path = ROOT / name if "/" in name else folder / name
            assert path.exists(), f"{name} in: {row}"
            folder = path if path.is_dir() else path.parent


def test_modules_in_the_reference_exist_and_are_complete():
    """Every module but those of the command line is in the reference; packages may be."""
    text = (ROOT / "docs" / "reference.md").read_text()
    listed = set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))
    source = ROOT / "src"
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in (source / "factmem").rglob("*.py")
    }
    assert listed <= modules, sorted(listed - modules)
    left_out = {name for name in modules - listed if not name.startswith("factmem.cli")}
    packages = {name for name in modules if (source / name.replace(".", "/")).is_dir()}
    assert left_out <= packages | {"factmem.__main__"}, sorted(left_out - packages)


def test_every_page_is_in_the_navigation():
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    navigation = (ROOT / "mkdocs.yml").read_text()
    index = (ROOT / "docs" / "index.md").read_text()
    assert set(re.findall(r"^  - ([\w-]+\.md)$", navigation, re.MULTILINE)) == pages
    assert set(re.findall(r"\(([\w-]+\.md)\)", index)) == pages - {"index.md"}


NOT_IN_THE_CODE = {"utils", "top_k", "argpartition", "ridge", "lion"}
"""Names of other libraries, of examples in extending.md, and one that the code avoids."""


def test_names_in_text_exist():
    """Inline code names things that are in the code; words in capitals are placeholders."""
    folders = ("src", "tests", "benchmarks", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py*")]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    code = "".join(path.read_text() for path in files if path.suffix != ".pyc")
    words = set(re.findall(r"\w+", code))
    unknown = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for span in re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text())):
            names = re.findall(r"(?<![\w/.-])[A-Za-z_][\w.]*", span)
            parts = {part for name in names for part in name.split(".") if part}
            unknown += [
                f"{page.name}: {part} in `{span}`"
                for part in sorted(parts - words - NOT_IN_THE_CODE)
                if part.upper() not in words | {part}  # a status has its name in capitals
            ]
    assert not unknown, "\n".join(unknown)
