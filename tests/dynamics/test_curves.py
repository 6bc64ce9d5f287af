"""Learning curves and the times of their points."""

import numpy as np
import pytest
from tests.dynamics import synthetic_flows

from factmem._core.errors import FactmemError
from factmem.dynamics import Curves, spaced_times


def curves(times, loss):
    return Curves(np.asarray(times, float), synthetic_flows.statistics(loss))


def test_times_are_equally_or_logarithmically_spaced():
    assert np.allclose(spaced_times(8.0, 5, "equal"), [0, 2, 4, 6, 8])
    assert np.allclose(spaced_times(100.0, 4, "log"), [0.1, 1, 10, 100])


@pytest.mark.parametrize("points", [1, 0, -3])
def test_rejects_fewer_than_two_points(points):
    with pytest.raises(FactmemError, match="points must be at least 2, got"):
        spaced_times(1.0, points, "equal")


def test_first_below_interpolates():
    falling = curves([0, 1, 2, 4], [3.0, 3.0, 2.0, 1.0])
    assert falling.first_below(2.5) == pytest.approx(1.5)
    assert falling.first_below(1.25) == pytest.approx(3.5)
    assert falling.first_below(3.0) == 0
    assert curves([0, 1], [3.0, 1.0]).first_below(1.5) == pytest.approx(0.75)
    assert falling.first_below(0.5) is None


def test_nearest_returns_the_nearest_points():
    rng = np.random.default_rng(0)
    times, queries = np.sort(rng.uniform(size=50)), rng.uniform(-0.1, 1.1, size=200)
    expected = np.abs(times[None, :] - queries[:, None]).argmin(axis=1)
    assert (curves(times, np.zeros(50)).nearest(queries) == expected).all()


def test_converges_when_the_loss_is_a_hundredth():
    assert curves([0, 1, 2], [1.0, 0.02, 0.0]).converged_at == pytest.approx(1.5, rel=1e-5)
    assert curves([0, 1], [1.0, 0.01 + 1e-9]).converged_at == pytest.approx(1, rel=1e-5)
    assert curves([0, 1], [1.0, 0.011]).converged_at is None
