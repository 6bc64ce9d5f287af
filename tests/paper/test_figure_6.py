"""Figure 6: the claim on a fixed number of outputs."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.claim_checks import (
    assert_holds_and_fails_when_broken,
    change_result,
    check,
    everything,
    evidence,
    nothing,
    one_bit_per_weight,
    proportional_to_weights,
    replace_memory_measurement,
)

from factmem.experiments import Store
from factmem.paper import Verdict
from factmem.paper.figure_6 import few_outputs


def negate(fit):
    return replace(fit, model=eqx.tree_at(lambda m: m.out, fit.model, -fit.model.out))


BROKEN = {
    "few-outputs": (
        lambda: few_outputs([0, 1], 6, (12, 48), 6),
        change_result("fitted_relu", negate),
    )
}


@pytest.mark.slow
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["few-outputs"], monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (one_bit_per_weight, Verdict.HOLDS),
        (proportional_to_weights, Verdict.FAILS),
        (everything, Verdict.FAILS),
        (nothing, Verdict.FAILS),
    ],
)
def test_verdict_follows_from_the_searches(monkeypatch, tmp_path, function, verdict):
    replace_memory_measurement(monkeypatch, function)
    with Store(tmp_path / "runs.sqlite") as store:
        checked = check(few_outputs([0, 1]), store)
    assert checked.finding.verdict is verdict, evidence(checked)
