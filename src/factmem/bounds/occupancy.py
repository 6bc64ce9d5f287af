"""The occupancy problem: how many of k equally likely bins do n draws leave unseen?

The counts of n draws are independent Poisson counts of any mean λ, conditioned on the sum n. So all
k bins are seen with probability

    P = n! (e^λ − 1)^k / (λ^n k^n) · P(T = n),   T = the sum of k Poisson counts, none of them zero.

With the λ at which T has mean n, P(T = n) is not small, and it equals the mean of T's
characteristic function over the unit circle. The rest is written without cancellation, so n and k
can be of any size.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, lambertw

__all__ = [
    "log_probability_all_seen",
    "unseen_distribution",
    "unseen_mean",
    "unseen_variance",
]

_MAX_DEVIATIONS = 15.0
"""Probabilities further from the mean than 15 standard deviations plus 60 are negligible."""
_MIN_CIRCLE_POINTS = 40
_MAX_ROWS = 2**14


def log_probability_all_seen(
    draws: int, bins: Float[np.ndarray, " sizes"]
) -> Float[np.ndarray, " sizes"]:
    """Compute ln of the probability that n draws show all of k bins; −∞ if k > n.

    Args:
        draws: n, at least 1.
        bins: values of k, integers from 1.

    Examples:
        >>> np.exp(log_probability_all_seen(3, np.array([1.0, 2.0, 3.0, 4.0]))).round(6).tolist()
        [1.0, 0.75, 0.222222, 0.0]
    """
    bins = np.asarray(bins, np.float64)
    logs = np.where(bins > draws, -np.inf, _log_permutations(draws))
    between = (bins > 1) & (bins < draws)
    logs[bins == 1] = 0.0
    logs[between] = np.minimum(_log_between(draws, bins[between]), 0.0)
    return logs


def unseen_distribution(draws: int, bins: int) -> tuple[int, Float[np.ndarray, " counts"]]:
    """Compute the distribution of the number of k bins that n draws leave unseen.

    Returns:
        The smallest number, and the probabilities of it and the following ones. Together, omitted
        numbers have a probability below 1e-30.

    Examples:
        >>> first, probabilities = unseen_distribution(2, 3)
        >>> first, probabilities.round(6).tolist()
        (1, [0.666667, 0.333333])
    """
    mean, deviation = unseen_mean(draws, bins), math.sqrt(unseen_variance(draws, bins))
    reach = _MAX_DEVIATIONS * deviation + 60
    first = max(0, bins - draws, math.floor(mean - reach))
    last = min(bins - 1, math.ceil(mean + reach))
    unseen = np.arange(first, last + 1, dtype=np.float64)
    seen = bins - unseen
    # ln(seen / bins), computed from the smaller of the two numbers
    log_fraction = np.where(unseen < seen, np.log1p(-unseen / bins), np.log(seen / bins))
    logs = _log_choices(unseen, seen) + draws * log_fraction + log_probability_all_seen(draws, seen)
    probabilities = np.exp(logs - logs.max())
    support = np.flatnonzero(probabilities > 1e-40)
    probabilities = probabilities[support[0] : support[-1] + 1]
    return first + int(support[0]), probabilities / probabilities.sum()


def unseen_mean(draws: int, bins: int) -> float:
    """Compute the mean number of unseen bins, k (1 − 1/k)^n."""
    return bins * math.exp(draws * math.log1p(-1 / bins)) if bins > 1 else 0.0


def unseen_variance(draws: int, bins: int) -> float:
    """Compute the variance of the number of unseen bins to leading order in 1/k.

    It is k e^−λ (1 − (1 + λ) e^−λ) with λ = n/k.
    """
    rate = draws / bins
    return bins * math.exp(-rate) * max(0.0, 1 - (1 + rate) * math.exp(-rate))


def _log_permutations(count: int) -> float:
    """Compute ln n!/n^n, the log probability to see n bins in n draws."""
    return _stirling_remainder(count) - count


def _stirling_remainder(count: int) -> float:
    """Compute ln n! − n ln n + n."""
    if count < 10**4:
        return float(gammaln(count + 1)) - count * math.log(count) + count
    return 0.5 * math.log(2 * math.pi * count) + 1 / (12 * count)


def _log_choices(unseen: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Compute ln of the number of choices of unseen bins, up to a constant, by recursion."""
    steps = np.log(seen[:-1] / unseen[1:])
    return np.concatenate([[0.0], np.cumsum(steps)])


def _log_between(draws: int, bins: np.ndarray) -> np.ndarray:
    """Compute ln P for 1 < k < n."""
    rate = _poisson_rate((draws - bins) / bins)
    return (
        _stirling_remainder(draws)
        + (bins - draws) * np.log(-np.expm1(-rate))
        - draws * np.exp(-rate)
        + np.log(_probability_of_sum(draws, bins, rate))
    )


def _poisson_rate(excess: np.ndarray) -> np.ndarray:
    """Solve λ/(1 − e^−λ) = 1 + excess for λ.

    By Lambert's W function; near λ = 0, where that cancels, by Newton's method on the series
    1 + λ/2 + λ²/12 − λ⁴/720 + …
    """
    load = 1 + excess
    far = load + np.real(lambertw(-load * np.exp(-load)))
    near = 2 * excess
    for _ in range(4):
        value = near / 2 + near**2 / 12 - near**4 / 720 + near**6 / 30240
        slope = 1 / 2 + near / 6 - near**3 / 180 + near**5 / 5040
        near = near - (value - excess) / slope
    return np.where(excess < 0.01, near, far)


def _probability_of_sum(draws: int, bins: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Compute P(T = n), the mean over θ of E[exp(iθ (T − n))], in blocks of values of k."""
    splits = range(_MAX_ROWS, len(bins), _MAX_ROWS)
    blocks = zip(np.split(bins, splits), np.split(rate, splits), strict=True)
    return np.concatenate([_mean_over_circle(draws, *block) for block in blocks])


def _deviation(draws: int, bins: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Compute the standard deviation of T.

    A Poisson count conditioned on not being zero, with mean μ, has variance μ (1 + λ − μ).
    """
    return np.sqrt(draws * np.maximum(rate - (draws - bins) / bins, 0.0))


def _circle_points(deviation: np.ndarray) -> np.ndarray:
    """Return an odd number of θ, large enough that aliases of T = n are negligible."""
    return 2 * np.ceil(_MIN_CIRCLE_POINTS / 2 + _MAX_DEVIATIONS / 2 * deviation) + 1


def _positive_points(deviation: np.ndarray) -> np.ndarray:
    """Return how many θ > 0 matter: half the circle, or up to where the function is negligible."""
    points = _circle_points(deviation)
    negligible = np.ceil(points / (2 * np.pi) * 24 / np.maximum(deviation, 1e-9))
    return np.minimum((points - 1) // 2, negligible)


def _mean_over_circle(draws: int, bins: np.ndarray, rate: np.ndarray) -> np.ndarray:
    deviation = _deviation(draws, bins, rate)
    points, positive = _circle_points(deviation), _positive_points(deviation)
    index = np.arange(1, int(positive.max(initial=0.0)) + 1, dtype=np.float64)[None, :]
    angle = 2 * np.pi * index / points[:, None]
    phase = np.exp(1j * angle)
    nonzero, column = -np.expm1(-rate[:, None] * phase), rate[:, None]
    # e^{iθ} − 1 from half the angle, which is exact for small angles
    phase_minus_1 = 2j * np.sin(angle / 2) * np.exp(0.5j * angle)
    exponent = column * phase_minus_1 + np.log(nonzero / -np.expm1(-column))
    values = np.real(np.exp(bins[:, None] * exponent - 1j * draws * angle))
    return (1 + 2 * np.where(index <= positive[:, None], values, 0.0).sum(axis=1)) / points
