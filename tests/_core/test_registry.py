"""Registries: entries by name, from the modules of a package and from other code."""

import importlib
import sys

import pytest

from factmem._core.errors import FactmemError
from factmem._core.registry import Registry

PACKAGE = "registry_sample_package"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Create a package whose modules register entries; return its registry."""

    def create(**modules):
        folder = tmp_path / PACKAGE
        folder.mkdir()
        (folder / "__init__.py").write_text(
            "from factmem._core.registry import Registry\n"
            f"REGISTRY = Registry('fruit', {PACKAGE!r})\n"
        )
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(f"from {PACKAGE} import REGISTRY\n{text}\n")
        importlib.invalidate_caches()
        return importlib.import_module(PACKAGE).REGISTRY

    monkeypatch.syspath_prepend(tmp_path)
    yield create
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


APPLE = "REGISTRY.add('apple', 1, order=2)"
PEAR = "REGISTRY.add('pear', 2, order=1)"


def test_modules_are_discovered_on_first_use(package):
    registry = package(apple=APPLE, pear=PEAR)
    assert f"{PACKAGE}.apple" not in sys.modules
    assert dict(registry) == {"pear": 2, "apple": 1}
    assert len(registry) == 2


def test_an_entry_with_a_module_of_its_name_needs_no_other_module(package):
    package(fruit_red_apple="REGISTRY.add('red-apple', 1)", fruit_pear=PEAR)
    registry = importlib.import_module(PACKAGE).REGISTRY
    registry.prefixes = ("tree_", "fruit_")
    assert registry["red-apple"] == 1
    assert f"{PACKAGE}.fruit_pear" not in sys.modules
    assert list(registry) == ["pear", "red-apple"]


@pytest.mark.parametrize("name", ["", "..", "../apple", "apple.pear", "a\0b", "a b"])
def test_names_that_cannot_be_modules_are_unknown(package, name):
    registry = package(apple=APPLE)
    with pytest.raises(FactmemError, match="choose from apple"):
        registry[name]


def test_an_entry_in_a_module_of_another_name_is_found(package):
    registry = package(apple=f"{APPLE}; {PEAR}", plum="")
    assert registry["pear"] == 2


@pytest.mark.parametrize("use", [len, list, lambda registry: "apple" in registry, str.split])
def test_every_use_discovers_modules(package, use):
    registry = package(apple=APPLE)
    if use is str.split:
        registry.get("apple")
    else:
        assert use(registry)
    assert f"{PACKAGE}.apple" in sys.modules


def test_only_modules_with_a_prefix_are_imported(package):
    package(fruit_apple=APPLE, tree_pear=PEAR)
    registry = Registry("fruit", PACKAGE, prefixes=("fruit_", "berry_"))
    assert len(registry) == 0
    assert f"{PACKAGE}.fruit_apple" in sys.modules
    assert f"{PACKAGE}.tree_pear" not in sys.modules


def test_entries_are_listed_by_order_and_then_by_registration(package):
    registry = package(apple=APPLE, pear=PEAR)
    registry.add("plum", 3)
    registry.add("fig", 4)
    registry.add("kiwi", 5, order=1.5)
    assert list(registry) == ["pear", "kiwi", "apple", "plum", "fig"]
    assert list(registry.values()) == [2, 5, 1, 3, 4]


def test_an_unknown_name_lists_the_names(package):
    registry = package(apple=APPLE, pear=PEAR)
    message = r"^unknown fruit 'x\\n'; choose from pear, apple$"
    with pytest.raises(FactmemError, match=message):
        registry["x\n"]
    assert "x" not in registry
    assert registry.get("x") is None
    assert registry.get("x", 7) == 7
    assert registry.get("apple", 7) == 1


def test_rejects_a_duplicate_name(package):
    registry = package(apple=APPLE)
    assert len(registry) == 1
    with pytest.raises(FactmemError, match="fruit 'apple' is already registered"):
        registry.add("apple", 9)
    assert registry["apple"] == 1


def test_an_entry_can_be_removed_and_added_again(package):
    registry = package(apple=APPLE, pear=PEAR)
    registry.remove("apple")
    assert list(registry) == ["pear"]
    with pytest.raises(FactmemError, match="unknown fruit 'apple'; choose from pear"):
        registry.remove("apple")
    registry.add("apple", 9, order=0)
    assert dict(registry) == {"apple": 9, "pear": 2}


def test_a_module_may_use_the_registry_while_it_is_imported(package):
    registry = package(apple=f"{APPLE}\nassert list(REGISTRY) == ['apple']")
    assert list(registry) == ["apple"]


def test_a_module_that_cannot_be_imported_is_an_error_every_time(package):
    registry = package(apple=APPLE, broken="raise ZeroDivisionError('broken')")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="broken"):
            list(registry)
