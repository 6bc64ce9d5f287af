"""The package as a whole: the cost of importing it, the order of its packages, its public names.

After a change of the public API, run `FACTMEM_UPDATE_SNAPSHOTS=1 pytest tests/test_package.py` and
look at the difference in `tests/snapshots/api.txt`. A removed or renamed name belongs in
CHANGELOG.md.
"""

import ast
import enum
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import get_origin

import pytest

import factmem

SOURCE = Path(factmem.__file__).parent
API = Path(__file__).parent / "snapshots" / "api.txt"

# Every package may import those before it, never those after it.
PACKAGES = (
    "_core",
    "facts",
    "memories",
    "transformer",
    "training",
    "dynamics",
    "bounds",
    "experiments",
    "plotting",
    "paper",
    "report",
    "cli",
)
PUBLIC = ["factmem", *(f"factmem.{name}" for name in PACKAGES if name not in ("_core", "cli"))]


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    files = sorted(SOURCE.rglob("*.py"))
    return [path for path in files if package_of(path) not in ("__init__", "__main__")]


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names if name.split(".")[0] == "factmem"]
    return {part[1] for part in parts if len(part) > 1}


def test_packages_import_only_earlier_packages():
    violations = []
    for path in modules():
        package = package_of(path)
        assert package in PACKAGES, f"{path.relative_to(SOURCE)} is outside the packages"
        allowed = PACKAGES[: PACKAGES.index(package) + 1]
        violations += [
            f"{path.relative_to(SOURCE)} imports {name}"
            for name in sorted(imported_packages(path) - set(allowed))
        ]
    assert not violations, "\n".join(violations)


def test_only_later_packages_name_figures():
    """Before `paper`, a number of a figure stands only in a docstring's line `Reference: …`."""
    figure = re.compile(r"figures?[\s_-]*\d", re.IGNORECASE)
    violations = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in modules()
        if PACKAGES.index(package_of(path)) < PACKAGES.index("paper")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if figure.search(line) and not line.strip().strip('"').startswith("Reference:")
    ]
    assert not violations, "\n".join(violations)


def loaded_after(code: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter that has run this code."""
    report = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import factmem",
        "import factmem.facts; factmem.FactTable.random(4, 4, 2)",
        "import factmem; factmem.LinearCapacityProblem(8), factmem.LocalWorkers(1)",
        "import factmem.experiments.memory_capacity, factmem.experiments.transformer_capacity",
        "import factmem.experiments.cluster",
        "import factmem; factmem.experiments.TransformerCapacityProblem(factmem.Shape(8, 2, 4, 4))",
        "import factmem; factmem.PAPER, factmem.BEST, factmem.training.LINEAR_PROTOCOL",
        "from factmem.experiments import MEMORY_METHODS; list(MEMORY_METHODS)",
        "from factmem.training import OPTIMIZERS; list(OPTIMIZERS)",
        "import factmem; factmem.paper.figure_names()",
        "from factmem.cli import main; assert main(['--help']) == 0",
        "from factmem.cli import main; assert main(['--version']) == 0",
    ],
)
def test_light_uses_load_no_heavy_library(code):
    assert not loaded_after(code) & {"jax", "jaxlib", "equinox", "optax", "scipy", "matplotlib"}


def test_models_load_jax():
    assert "jax" in loaded_after("import factmem; factmem.Transformer")


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_loads_and_is_documented(package):
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        entry = getattr(module, name)
        if callable(entry):
            assert entry.__doc__, f"{package}.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = factmem.no_such_name


# ---- the public API as text ------------------------------------------------------------------


class Default:
    """A default value, printed without addresses or long contents."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, enum.Enum) or repr(self.value) == "<factory>":
            return str(self.value)
        if self.value is None or isinstance(self.value, bool | int | float | str | tuple):
            return repr(self.value)
        return getattr(self.value, "__name__", f"{type(self.value).__name__}(…)")


def describe_signature(entry: Callable) -> str:
    """Return the names, kinds and defaults of the parameters, without annotations."""
    parameters = []
    for parameter in inspect.signature(entry).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.default is not parameter.empty:
            parameter = parameter.replace(default=Default(parameter.default))
        parameters.append(parameter.replace(annotation=parameter.empty))
    return str(inspect.Signature(parameters))


def describe(name: str, entry: object) -> list[str]:
    """Return a public name with its signature, and the public members of a class."""
    if inspect.ismodule(entry):
        return []
    if not isinstance(entry, type):
        alias = get_origin(entry) is not None
        return [f"{name}{describe_signature(entry)}" if callable(entry) and not alias else name]
    if issubclass(entry, enum.Enum):
        return [f"{name}: {', '.join(entry.__members__)}" if len(entry) else f"{name} (enum)"]
    if issubclass(entry, BaseException) or getattr(entry, "_is_protocol", False):
        lines = [f"{name} ({'exception' if issubclass(entry, BaseException) else 'protocol'})"]
    else:
        lines = [f"{name}{describe_signature(entry)}"]
    for member, attribute in sorted(vars(entry).items()):
        if member.startswith("_"):
            continue
        function = getattr(attribute, "__func__", attribute)  # of class and static methods
        function = inspect.unwrap(function)  # of compiled methods
        if inspect.isfunction(function):
            lines.append(f"    .{member}{describe_signature(function)}")
        elif isinstance(attribute, property | cached_property):
            lines.append(f"    .{member}")
    return lines


def test_public_api_is_as_in_its_snapshot():
    lines = []
    for package in PUBLIC:
        module = import_module(package)
        lines.append(f"# {package}")
        for name in sorted(module.__all__):
            described = describe(name, getattr(module, name))
            # The members of a class are listed once, in its own package.
            lines += described[:1] if package == "factmem" else described
        lines.append("")
    text = "\n".join(lines)
    if os.environ.get("FACTMEM_UPDATE_SNAPSHOTS"):
        API.write_text(text, encoding="utf-8")
    assert text == API.read_text(encoding="utf-8")
