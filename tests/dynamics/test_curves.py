import numpy as np
import pytest
from tests.dynamics import made

from factmem._core.errors import FactmemError
from factmem.dynamics import Curves, spaced


def curves(times, loss):
    return Curves(np.asarray(times, float), made.seen(loss))


def test_equal_times_begin_at_0_and_logarithmic_ones_at_a_thousandth():
    assert np.allclose(spaced(8.0, 5, "equal"), [0, 2, 4, 6, 8])
    assert np.allclose(spaced(100.0, 4, "log"), [0.1, 1, 10, 100])


@pytest.mark.parametrize("points", [1, 0, -3])
def test_a_curve_has_two_points_at_least(points):
    with pytest.raises(FactmemError, match="at least 2 points"):
        spaced(1.0, points, "equal")


def test_a_crossing_lies_between_two_points():
    falling = curves([0, 1, 2, 4], [3.0, 3.0, 2.0, 1.0])
    assert falling.first_below(2.5) == pytest.approx(1.5)
    assert falling.first_below(1.25) == pytest.approx(3.5)
    assert falling.first_below(3.0) == 0
    assert curves([0, 1], [3.0, 1.0]).first_below(1.5) == pytest.approx(0.75)
    assert falling.first_below(0.5) is None


def test_the_nearest_points_are_the_nearest():
    rng = np.random.default_rng(0)
    times, wanted = np.sort(rng.uniform(size=50)), rng.uniform(-0.1, 1.1, size=200)
    expected = np.abs(times[None, :] - wanted[:, None]).argmin(axis=1)
    assert (curves(times, np.zeros(50)).nearest(wanted) == expected).all()


def test_training_is_over_when_the_loss_is_a_hundredth():
    assert curves([0, 1, 2], [1.0, 0.02, 0.0]).converged_at == pytest.approx(1.5, rel=1e-5)
    assert curves([0, 1], [1.0, 0.01 + 1e-9]).converged_at == pytest.approx(1, rel=1e-5)
    assert curves([0, 1], [1.0, 0.011]).converged_at is None
