"""Check claims in this process, so that a test can break the code that they check.

Every test module of claims has a dict BROKEN. For each claim it gives a function that returns the
claim at a small size, and a function of `monkeypatch` that breaks the code under test.
"""

import math

import jax
import pytest
from tests.experiments.inline_workers import InlineWorkers

from factmem import memories
from factmem.experiments import Experiment, Store, memory_capacity
from factmem.paper import Verdict, check_claims


def check(claim, store, **options):
    (checked,) = check_claims([claim], store, InlineWorkers(), **options)
    return checked


def evidence(checked):
    """Return the verdict and all checks as text, for failing tests."""
    checks = [f"{c.quantity}: {c.measured} ({c.expected})" for c in checked.finding.checks]
    return "\n".join([checked.finding.verdict.value, *checks, checked.finding.note])


def assert_holds_and_fails_when_broken(build, break_code, monkeypatch, directory):
    """Check a claim before and after breaking the code, each time with an empty store."""
    with Store(directory / "intact.sqlite") as store:
        intact = check(build(), store)
    assert intact.as_expected, evidence(intact)
    break_code(monkeypatch)
    with Store(directory / "broken.sqlite") as store:
        broken = check(build(), store)
    monkeypatch.undo()
    assert broken.finding.verdict is Verdict.FAILS, evidence(broken)


def mark_slow(names, slow):
    """Return test parameters of which some run only at night."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


def clear_compiled():
    """Forget compiled functions, which do not see what a test breaks later."""
    jax.clear_caches()


def change_result(name, change):
    """Return a function that breaks a function of `memories` by changing its result."""

    def break_code(monkeypatch):
        original = getattr(memories, name)
        monkeypatch.setattr(memories, name, lambda *a, **k: change(original(*a, **k)))

    return break_code


def replace_memory_measurement(monkeypatch, function):
    """Let capacity searches of memories call this function."""
    experiment = Experiment(function.__name__, 1, function)
    monkeypatch.setattr(memory_capacity, "EXPERIMENT", experiment)


# ---- measurements for capacity searches ----------------------------------------------------------


def one_bit_per_weight(*, dim, width, outputs, facts, seed, **_):
    """Store about a bit per weight, a little more with larger seeds."""
    weights = dim * (width or dim)
    return {"stored": facts * math.log2(outputs) <= 1.4 * (1 + seed / 50) * weights}


def proportional_to_weights(*, dim, width, facts, seed, **_):
    """Store as many facts as half the weights: without a logarithm."""
    return {"stored": facts <= (1 + seed / 50) * dim * (width or dim) / 2}


def everything(**_):
    return {"stored": True}


def nothing(**_):
    return {"stored": False}
