"""The misreading: it fails, unless parameters and bits are miscounted."""

from tests.paper.claim_checks import check, evidence, replace_memory_measurement

from factmem import bounds
from factmem.experiments import LinearCapacityProblem, MLPCapacityProblem, Store
from factmem.paper import Verdict
from factmem.paper.section_3_cubic_misreading import cubic_capacity

BROKEN = {"cubic-capacity": (lambda: cubic_capacity([0, 1]), None)}


def store_by_weights(*, dim, width, facts, **_):
    return {"stored": facts <= 0.75 * dim * (width or dim)}


def root_of_weights(problem):
    return (problem.dim * getattr(problem, "width", problem.dim)) ** 0.5


def test_misreading_fails_unless_parameters_and_bits_are_miscounted(monkeypatch, tmp_path):
    replace_memory_measurement(monkeypatch, store_by_weights)
    build, _ = BROKEN["cubic-capacity"]
    with Store(tmp_path / "runs.sqlite") as store:
        intact = check(build(), store)
        assert intact.finding.verdict is Verdict.FAILS, evidence(intact)
        assert intact.as_expected
        monkeypatch.setattr(bounds, "bits_for_loss", lambda *_: 1.0)
        assert check(build(), store).finding.verdict is Verdict.FAILS
        for problem in (LinearCapacityProblem, MLPCapacityProblem):
            monkeypatch.setattr(problem, "parameters", property(root_of_weights))
        broken = check(build(), store)
    assert broken.finding.verdict is Verdict.HOLDS, evidence(broken)
    assert not broken.as_expected
