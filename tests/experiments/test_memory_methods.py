"""Methods by name."""

import jax.random as jr
import pytest

from factmem._core.errors import FactmemError
from factmem.experiments.memory_methods import METHODS, build, method_named
from factmem.memories import Associations
from factmem.training import LINEAR_PROTOCOL, MLP_PROTOCOL

PAIRS = Associations.draw(jr.key(0), 6, 4)


def test_the_methods_are_those_of_the_command_line():
    assert list(METHODS) == [
        "hebbian",
        "low-rank",
        "hermite",
        "tangent",
        "maximal",
        "fitted-features",
        "fitted-relu",
        "fitted-bilinear",
        "trained-linear",
        "trained-mlp",
    ]
    assert METHODS["trained-linear"].steps == LINEAR_PROTOCOL.steps
    assert METHODS["trained-mlp"].steps == MLP_PROTOCOL.steps


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_needs_it_must_be_told(name):
    for size in METHODS[name].needs:
        with pytest.raises(FactmemError, match=f"{name} needs a {size}"):
            build(name, jr.key(0), PAIRS)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_has_no_use_for_is_refused(name):
    method = METHODS[name]
    sizes = dict.fromkeys(method.needs, 2)
    for other in {"width", "rank", "degree"} - {*method.needs, *method.takes}:
        with pytest.raises(FactmemError, match=f"{name} has no {other}"):
            build(name, jr.key(0), PAIRS, **sizes, **{other: 2})


def test_an_unknown_method_is_refused_with_a_list():
    with pytest.raises(FactmemError, match=r"no method 'x\\n'; there are hebbian, low-rank"):
        method_named("x\n")


def test_details_say_what_was_built():
    assert build("low-rank", jr.key(0), PAIRS, rank=3).details == {"rank": 3}
    assert build("tangent", jr.key(0), PAIRS, width=3).details == {
        "width": 3,
        "neurons": 6,
        "degree": 2,
    }
    details = build("maximal", jr.key(0), PAIRS).details
    assert (details["verdict"], details["feasible"]) == ("feasible", True)
    assert details["certificate_residual"] is None
    crowded = Associations.draw(jr.key(0), 40, 4)
    details = build("maximal", jr.key(0), crowded).details
    assert (details["verdict"], details["feasible"]) == ("infeasible", False)
    assert details["certificate_residual"] < details["certificate_threshold"]
