"""Memory methods by name."""

from dataclasses import replace

import jax.random as jr
import pytest

from factmem._core.errors import FactmemError
from factmem._core.result import Result, Status
from factmem.experiments import (
    MEMORY_METHODS,
    BuiltMemory,
    build_memory,
    register_memory_method,
)
from factmem.memories import Associations, hebbian
from factmem.training import LINEAR_PROTOCOL, MLP_PROTOCOL

PAIRS = Associations.draw(6, 4, key=jr.key(0))
OPTIONS = {"width", "rank", "degree", "protocol"}


def required(name):
    return [option for option, needed in MEMORY_METHODS[name].options.items() if needed]


def test_the_methods_in_order():
    assert list(MEMORY_METHODS) == [
        "hebbian",
        "low-rank",
        "hermite",
        "tangent",
        "optimal",
        "fitted-features",
        "fitted-relu",
        "fitted-bilinear",
        "trained-linear",
        "trained-mlp",
    ]
    assert MEMORY_METHODS["trained-linear"].max_steps == LINEAR_PROTOCOL.steps
    assert MEMORY_METHODS["trained-mlp"].max_steps == MLP_PROTOCOL.steps
    assert all(method.name == name for name, method in MEMORY_METHODS.items())


def test_the_options_of_every_method():
    width = {"width": True}
    assert {name: method.options for name, method in MEMORY_METHODS.items()} == {
        "hebbian": {},
        "low-rank": {"rank": True},
        "hermite": {"width": True, "degree": False},
        "tangent": {"width": True, "degree": False},
        "optimal": {},
        "fitted-features": width,
        "fitted-relu": width,
        "fitted-bilinear": width,
        "trained-linear": {"protocol": False},
        "trained-mlp": {"width": True, "protocol": False},
    }


@pytest.mark.parametrize("name", MEMORY_METHODS)
def test_rejects_missing_options(name):
    for option in required(name):
        with pytest.raises(FactmemError, match=f"^{option} is required for {name}$"):
            build_memory(name, PAIRS, key=jr.key(0))


@pytest.mark.parametrize("name", MEMORY_METHODS)
def test_rejects_options_that_a_method_does_not_have(name):
    options = dict.fromkeys(required(name), 2)
    for other in OPTIONS - MEMORY_METHODS[name].options.keys():
        with pytest.raises(FactmemError, match=f"^{other} cannot be used with {name}$"):
            build_memory(name, PAIRS, key=jr.key(0), **options, **{other: 2})


def test_an_unknown_method_lists_the_methods():
    message = r"unknown method 'x\\n'; choose from hebbian, low-rank"
    with pytest.raises(FactmemError, match=message):
        build_memory("x\n", PAIRS, key=jr.key(0))


def test_details_describe_the_memory():
    def details(method, pairs=PAIRS, **options):
        return build_memory(method, pairs, key=jr.key(0), **options).details

    assert details("low-rank", rank=3) == {"rank": 3}
    assert details("tangent", width=3) == {"width": 3, "neurons": 6, "degree": 2}
    feasible = details("optimal")
    assert (feasible["verdict"], feasible["feasible"]) == ("feasible", True)
    assert feasible["certificate_residual"] is None
    infeasible = details("optimal", Associations.draw(40, 4, key=jr.key(0)))
    assert (infeasible["verdict"], infeasible["feasible"]) == ("infeasible", False)
    assert infeasible["certificate_residual"] < infeasible["certificate_threshold"]


@pytest.mark.parametrize("name", MEMORY_METHODS)
def test_every_method_returns_a_result_with_a_status(name):
    options = {option: 4 if option == "rank" else 16 for option in required(name)}
    if name.startswith("trained"):
        protocol = LINEAR_PROTOCOL if name == "trained-linear" else MLP_PROTOCOL
        options["protocol"] = replace(protocol, steps=8, evaluations=2)
    built = build_memory(name, PAIRS, key=jr.key(0), **options)
    assert isinstance(built, BuiltMemory)
    assert isinstance(built, Result)
    assert isinstance(built.status, Status)
    assert built.metrics == {**built.details, "status": built.status.label}
    assert 0 <= built.model.score(PAIRS).accuracy <= 1


def test_a_registered_function_becomes_a_method():
    @register_memory_method("double hebbian", summary="twice the sum", max_steps=7, order=1.5)
    def double(associations, *, factor, power=1, key, report):
        return BuiltMemory(model=hebbian(associations), details={"factor": factor, "power": power})

    try:
        assert list(MEMORY_METHODS)[:3] == ["hebbian", "double hebbian", "low-rank"]
        method = MEMORY_METHODS["double hebbian"]
        assert (method.summary, method.max_steps) == ("twice the sum", 7)
        assert method.options == {"factor": True, "power": False}
        built = build_memory("double hebbian", PAIRS, key=jr.key(0), factor=2)
        assert built.metrics == {"factor": 2, "power": 1, "status": "constructed"}
    finally:
        MEMORY_METHODS.remove("double hebbian")
    assert "double hebbian" not in MEMORY_METHODS
