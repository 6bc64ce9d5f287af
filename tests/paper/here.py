"""Checking claims in this process, so that a test can break what they check."""

import math
from concurrent.futures import Future

import jax
import pytest

from factmem import memories
from factmem.experiments import Experiment, Store, Workers, execute
from factmem.experiments import memory_capacity as questions
from factmem.paper import Verdict, check_claims


class Here(Workers):
    """One worker: this process, at once."""

    def free(self):
        return 1

    def submit(self, task):
        future = Future()
        try:
            future.set_result(execute(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self, future):
        return False

    def close(self):
        pass


def checked(claim, store, **options):
    (found,) = check_claims([claim], store, Here(), **options)
    return found


def told(found):
    """All that a verdict rests on, for when a test fails."""
    checks = [f"{c.what}: {c.measured} ({c.expected})" for c in found.finding.checks]
    return "\n".join([found.finding.verdict.value, *checks, found.finding.note])


def holds_then_fails(make, breaks, monkeypatch, folder):
    """Checks a claim, breaks what it checks, and checks again: each time into an empty store."""
    with Store(folder / "intact.sqlite") as store:
        intact = checked(make(), store)
    assert intact.as_expected, told(intact)
    breaks(monkeypatch)
    with Store(folder / "broken.sqlite") as store:
        broken = checked(make(), store)
    monkeypatch.undo()
    assert broken.finding.verdict is Verdict.FAILS, told(broken)


def nightly(names, slow):
    """Parameters for a test, of which slow ones run at night alone."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


def forget_compiled():
    """What was compiled knows nothing of what is broken later."""
    jax.clear_caches()


def wrapped(name, change):
    """Breaks a function of `memories`: its result is changed."""

    def breaks(monkeypatch):
        right = getattr(memories, name)
        monkeypatch.setattr(memories, name, lambda *a, **k: change(right(*a, **k)))

    return breaks


def searched(monkeypatch, function):
    """CapacitySearches for what memories store ask this function instead."""
    monkeypatch.setattr(questions, "MEASURE", Experiment(function.__name__, 1, function))


def by_information(*, dim, width, outputs, facts, seed, **_):
    """Stored is what has a bit for each weight, or a little more with another seed."""
    weights = dim * (width or dim)
    return {"stored": facts * math.log2(outputs) <= 1.4 * (1 + seed / 50) * weights}


def without_logarithm(*, dim, width, facts, seed, **_):
    return {"stored": facts <= (1 + seed / 50) * dim * (width or dim) / 2}


def everything(**_):
    return {"stored": True}


def nothing(**_):
    return {"stored": False}
