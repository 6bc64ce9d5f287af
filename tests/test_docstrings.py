"""The examples in the docstrings of all modules run and print what they show."""

import doctest
import pkgutil
from importlib import import_module

import factmem

MIN_EXAMPLES = 75
"""About as many as there are: a change that hides examples from this test is noticed."""


def test_examples_in_docstrings():
    modules = [
        module.name
        for module in pkgutil.walk_packages(factmem.__path__, "factmem.")
        if module.name != "factmem.__main__"
    ]
    results = {name: doctest.testmod(import_module(name)) for name in modules}
    failed = [name for name, result in results.items() if result.failed]
    assert not failed, f"examples fail in {', '.join(failed)}"
    assert sum(result.attempted for result in results.values()) >= MIN_EXAMPLES
