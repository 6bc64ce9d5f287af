"""Checking claims in this process, so that a test can break what they check."""

from concurrent.futures import Future

import jax
import pytest

from factmem.claims import Verdict, check_claims
from factmem.runs import Store, Workers, perform


class Here(Workers):
    """One worker: this process, at once."""

    def free(self):
        return 1

    def submit(self, task):
        future = Future()
        try:
            future.set_result(perform(task))
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
    checks = [f"{c.what}: {c.measured} ({c.wanted})" for c in found.finding.checks]
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
