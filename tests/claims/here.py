"""Checking claims in this process, so that a test can break what they check."""

from concurrent.futures import Future

import jax

from factmem.claims import check_claims
from factmem.runs import Workers, perform


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


def forget_compiled():
    """What was compiled knows nothing of what is broken later."""
    jax.clear_caches()
