"""Tables and prompts of specs, costs, and types restored from JSON."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.canonical_json import canonical_json
from factmem._core.errors import FactmemError
from factmem.experiments import (
    Compile,
    Cost,
    FlowSpec,
    PromptSpec,
    TableSpec,
    TransformerSpec,
)
from factmem.experiments.specs import restore_types
from factmem.facts import FactTable, PromptDistribution, format_csv
from factmem.training import PAPER, QUICK, MemoryProtocol, Protocol
from factmem.transformer import Shape

ROOT = Path(__file__).parents[2]


def from_json(config):
    """Return the configuration as a store or a remote worker reads it."""
    return json.loads(canonical_json(config))


# ---- tables -------------------------------------------------------------------------------------


def test_tables_are_drawn_by_kind():
    random = TableSpec.random(6, 5, 4).draw(seed=3)
    assert np.array_equal(random.answer_of, FactTable.random(6, 5, 4, seed=3).answer_of)
    assert not np.array_equal(random.answer_of, TableSpec.random(6, 5, 4).draw(seed=4).answer_of)
    structured = FactTable.structured(8, 2, 4).answer_of
    for seed in (0, 1):
        drawn = TableSpec.structured(8, 2, 4).draw(seed)
        assert np.array_equal(drawn.answer_of, structured)


@given(st.sampled_from(["random", "structured"]), *[st.integers(1, 10**6)] * 3)
def test_tables_round_trip_through_json(kind, subjects, relations, answers):
    spec = TableSpec(kind=kind, subjects=subjects, relations=relations, answers=answers)
    assert TableSpec.from_config(from_json(spec.config())) == spec


def test_table_kinds_differ_in_their_configuration():
    assert TableSpec.random(8, 2, 4).config() != TableSpec.structured(8, 2, 4).config()


@pytest.fixture
def csv_file(tmp_path):
    def write(name, table):
        (tmp_path / name).write_bytes(format_csv(table))
        return str(tmp_path / name)

    return write


def test_a_csv_table_is_read(csv_file):
    table = FactTable.random(4, 3, 2, seed=0)
    drawn = TableSpec.csv(csv_file("a.csv", table)).draw(seed=5)
    assert format_csv(drawn) == format_csv(table)


@pytest.mark.parametrize(
    "make",
    [
        lambda table: TransformerSpec(table=table, shape=Shape(8, 2, 4, 8), method=Compile()),
        lambda table: FlowSpec(table=table),
    ],
    ids=["transformer", "flow"],
)
def test_the_identity_of_a_csv_table_depends_on_contents_and_not_on_the_path(csv_file, make):
    table, other = (FactTable.random(4, 3, 2, seed=seed) for seed in (0, 1))
    first, renamed, changed = (
        make(TableSpec.csv(path)).identity()
        for path in (
            csv_file("a.csv", table),
            csv_file("renamed.csv", table),
            csv_file("changed.csv", other),
        )
    )
    assert first == renamed != changed


def test_a_csv_table_cannot_be_restored_and_has_no_cost(csv_file):
    table = TableSpec.csv(csv_file("a.csv", FactTable.random(4, 3, 2, seed=0)))
    with pytest.raises(FactmemError, match="a CSV table cannot be restored"):
        TableSpec.from_config(table.config())
    with pytest.raises(FactmemError, match="for given table sizes"):
        FlowSpec(table=table).cost()
    with pytest.raises(FactmemError, match="for given table sizes"):
        TransformerSpec(table=table, shape=Shape(8, 2, 4, 8), method=Compile()).cost()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "random"}, "subjects must be at least 1, got None"),
        ({"subjects": 4, "relations": 3}, "answers must be at least 1, got None"),
        ({"subjects": 0, "relations": 3, "answers": 2}, "subjects must be at least 1, got 0"),
        (
            {"kind": "structured", "subjects": 4, "relations": -1, "answers": 2},
            "relations must be at least 1, got -1",
        ),
        ({"kind": "csv"}, "a table has a path if and only if its kind is 'csv'"),
        (
            {"subjects": 4, "relations": 3, "answers": 2, "path": "a.csv"},
            "a table has a path if and only if its kind is 'csv'",
        ),
        (
            {"kind": "csv", "path": "a.csv", "relations": 3},
            "a CSV table has its own relations, got relations = 3",
        ),
    ],
)
def test_rejects_invalid_tables(fields, message):
    with pytest.raises(FactmemError, match=message):
        TableSpec(**fields)


def test_a_missing_csv_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        TableSpec.csv(str(tmp_path / "missing.csv")).config()


# ---- prompts and costs --------------------------------------------------------------------------


def test_prompts_are_drawn_as_specified():
    table = FactTable.random(6, 5, 4, seed=0)
    prompts = PromptSpec().draw(table)
    assert (prompts.vocabulary.noise, prompts.length) == (11, 32)
    prompts = PromptSpec(noise=3, length=8, subject_power=1.0).draw(table)
    expected = PromptDistribution.from_table(table, noise=3, length=8, subject_power=1.0)
    assert (prompts.vocabulary, prompts.length) == (expected.vocabulary, 8)
    assert np.array_equal(prompts.thresholds, expected.thresholds)


@given(st.none() | st.integers(1, 1000), st.integers(3, 1000), st.floats(0, 4))
def test_prompts_round_trip_through_json(noise, length, subject_power):
    spec = PromptSpec(noise=noise, length=length, subject_power=subject_power)
    restored = PromptSpec.from_config(from_json(spec.config()))
    assert restored == spec
    assert isinstance(restored.subject_power, float)


def test_the_flops_of_a_cost():
    assert Cost(steps=3.0, flops_per_step=5.0, peak_bytes=1).flops == 15


# ---- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [PAPER, QUICK, replace(PAPER, momentum=0.0)])
def test_floats_and_tuples_of_a_protocol_are_restored(protocol):
    config = from_json(protocol.__dict__)
    restored = Protocol(**restore_types(Protocol, config))
    assert restored == protocol
    assert repr(restored) == repr(protocol), "the types are the same too"


def test_whole_learning_rates_stay_floats():
    protocol = MemoryProtocol(learning_rate=1000.0, steps=64, evaluations=2, criterion=1.0)
    config = from_json(protocol.__dict__)
    assert isinstance(config["learning_rate"], int)
    assert repr(MemoryProtocol(**restore_types(MemoryProtocol, config))) == repr(protocol)


def test_unknown_entries_are_not_dropped():
    with pytest.raises(TypeError, match="unknown"):
        MemoryProtocol(
            **restore_types(MemoryProtocol, {"learning_rate": 1, "steps": 4, "unknown": 2})
        )


WITHOUT_JAX = """
import sys
from factmem._core.errors import FactmemError
from factmem.experiments import (
    MEMORY_METHODS, TRANSFORMER_METHODS, Compile, FlowSpec, MemorySpec, TableSpec, Train,
    TransformerCapacityProblem, TransformerSpec,
)
from factmem.training.protocol import PAPER
from factmem.transformer.shape import Shape
list(MEMORY_METHODS), list(TRANSFORMER_METHODS)
table, shape = TableSpec.random(4, 3, 2), Shape(8, 2, 4, 8)
for spec in (
    MemorySpec(method="hebbian", dim=4, facts=5),
    TransformerSpec(table=table, shape=shape, method=Compile()),
    TransformerSpec(table=table, shape=shape, method=Train(protocol=PAPER)),
    FlowSpec(table=table),
):
    spec.identity(), spec.cost()
    assert type(spec).from_config(spec.config()).identity() == spec.identity()
TransformerCapacityProblem(shape).task(5, 0).identity
for fail in (
    lambda: MemorySpec(method="x", dim=4, facts=5).run(),
    lambda: TableSpec.from_config({"table": "x", "subjects": 4, "relations": 3, "answers": 2}),
):
    try:
        fail()
    except FactmemError as error:
        print(error)
assert "jax" not in sys.modules
"""


def test_specs_and_tasks_are_created_and_rejected_without_jax():
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    unknown_method, unknown_table = process.stdout.splitlines()
    assert unknown_method.startswith("unknown method 'x'; choose from hebbian, low-rank")
    assert unknown_table == "kind must be one of random, structured, csv, got 'x'"
