"""The examples in docstrings run and give what they say."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "factmem.bounds.associations",
    "factmem.bounds.ideal_table",
    "factmem.bounds.occupancy",
    "factmem.bounds.stored",
    "factmem.bounds.tables",
    "factmem.dynamics.experiment",
    "factmem.facts.table",
    "factmem.facts.prompts",
    "factmem.json_data",
    "factmem.memories.associations",
    "factmem.methods",
    "factmem.power_law",
    "factmem.runs.task",
    "factmem.stopwatch",
    "factmem.training.transformers",
    "factmem.transformer.attention_construction",
    "factmem.transformer.model",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_say(name):
    outcome = doctest.testmod(import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
