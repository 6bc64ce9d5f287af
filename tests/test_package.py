"""The package as a whole: what importing it costs, and which room may use which."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import factmem

SOURCE = Path(factmem.__file__).parent

# Every room may import those before it, never those after it.
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


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [p for p in sorted(SOURCE.rglob("*.py")) if room_of(p) != "__init__"]


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.trace(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names if name.split(".")[0] == "factmem"]
    return {part[1] for part in parts if len(part) > 1}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_only_rooms_before_them(path):
    room = room_of(path)
    later = PACKAGES[PACKAGES.index(room) + 1 :]
    assert not imported_rooms(path) & set(later)
    assert imported_rooms(path) <= set(PACKAGES)


def loaded_after(code: str) -> set[str]:
    """The top-level modules of a fresh interpreter that ran this."""
    report = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import factmem",
        "import factmem.facts; factmem.FactTable.random(4, 4, 2)",
        "import factmem; factmem.experiments.LinearCapacityProblem, factmem.experiments.LocalWorkers(1)",
        "import factmem.experiments.memory_capacity, factmem.experiments.transformer_capacity",
        "import factmem.experiments.cluster",
        "import factmem; factmem.experiments.TransformerCapacityProblem(8, 2, 4, 4).task(5, 0)",
        "import factmem; factmem.PAPER, factmem.BEST, factmem.training.LINEAR_PROTOCOL",
        "from factmem.cli import main; assert main(['--help']) == 0",
        "from factmem.cli import main; assert main(['--version']) == 0",
    ],
)
def test_light_uses_load_no_heavy_library(code):
    assert not loaded_after(code) & {"jax", "jaxlib", "equinox", "optax", "scipy", "matplotlib"}


def test_models_do_load_jax():
    assert "jax" in loaded_after("import factmem; factmem.Transformer")


@pytest.mark.parametrize(
    "package",
    ["factmem", *(f"factmem.{name}" for name in PACKAGES if name not in ("_core", "cli"))],
)
def test_every_public_name_loads_and_is_documented(package):
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing):
            assert thing.__doc__, f"{package}.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = factmem.no_such_name
