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
    "factmem.experiments.flow_spec",
    "factmem.facts.table",
    "factmem.facts.prompts",
    "factmem._core.canonical_json",
    "factmem.memories.associations",
    "factmem.experiments.memory_methods",
    "factmem._core.power_law",
    "factmem.experiments.task",
    "factmem._core.timing",
    "factmem.training.transformers",
    "factmem.transformer.constructions.attention_only",
    "factmem.transformer.model",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_say(name):
    outcome = doctest.testmod(import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
