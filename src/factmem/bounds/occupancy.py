"""How many of k equally likely things n draws leave unseen, exactly, for n and k of any size.

Counts of n draws are independent Poisson counts of any mean λ, given that their sum is n. So all k
things are seen with the chance

    P = n! (e^λ − 1)^k / (λ^n k^n) · P(T = n),   T = the sum of k Poisson counts, none of them zero.

With the λ at which T has the mean n, P(T = n) is no small number, and it is a sum over a circle of
T's characteristic function. The rest is written so that nothing large is subtracted.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, lambertw

__all__ = ["log_all_seen", "unseen_chances", "unseen_mean", "unseen_variance"]

_SPREAD = 15.0
"""Standard deviations on both sides of a mean beyond which chances do not count, and 60 more."""
_ROUND_CIRCLE = 40
_KINDS_AT_ONCE = 2**14


def log_all_seen(draws: int, kinds: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " sizes"]:
    """ln of the chance that n draws show each of k equally likely things; −∞ where k > n.

    Args:
        draws: n, at least 1.
        kinds: values of k, whole numbers from 1.

    Examples:
        >>> np.exp(log_all_seen(3, np.array([1.0, 2.0, 3.0, 4.0]))).round(6).tolist()
        [1.0, 0.75, 0.222222, 0.0]
    """
    kinds = np.asarray(kinds, np.float64)
    found = np.where(kinds > draws, -np.inf, _log_permutations(draws))
    between = (kinds > 1) & (kinds < draws)
    found[kinds == 1] = 0.0
    found[between] = np.minimum(_between(draws, kinds[between]), 0.0)
    return found


def unseen_chances(draws: int, kinds: int) -> tuple[int, Float[np.ndarray, " counts"]]:
    """The distribution of how many of k things n draws leave unseen.

    Returns:
        The first number, and the chances of it and of those that follow; what is left out has a
        chance below 1e-30 in all.

    Examples:
        >>> first, chances = unseen_chances(2, 3)
        >>> first, chances.round(6).tolist()
        (1, [0.666667, 0.333333])
    """
    mean, deviation = unseen_mean(draws, kinds), math.sqrt(unseen_variance(draws, kinds))
    reach = _SPREAD * deviation + 60
    first = max(0, kinds - draws, math.floor(mean - reach))
    last = min(kinds - 1, math.ceil(mean + reach))
    unseen = np.arange(first, last + 1, dtype=np.float64)
    seen = kinds - unseen
    # ln of the part that is seen, from whichever of the two is small
    part = np.where(unseen < seen, np.log1p(-unseen / kinds), np.log(seen / kinds))
    logs = _log_choices(unseen, seen) + draws * part + log_all_seen(draws, seen)
    chances = np.exp(logs - logs.max())
    kept = np.flatnonzero(chances > 1e-40)
    chances = chances[kept[0] : kept[-1] + 1]
    return first + int(kept[0]), chances / chances.sum()


def unseen_mean(draws: int, kinds: int) -> float:
    """k (1 − 1/k)^n."""
    return kinds * math.exp(draws * math.log1p(-1 / kinds)) if kinds > 1 else 0.0


def unseen_variance(draws: int, kinds: int) -> float:
    """That of the number unseen, to leading order in 1/k: k e^−λ (1 − (1 + λ) e^−λ), λ = n/k."""
    rate = draws / kinds
    return kinds * math.exp(-rate) * max(0.0, 1 - (1 + rate) * math.exp(-rate))


def _log_permutations(count: int) -> float:
    """ln n!/n^n, the chance to see n things in n draws."""
    return _stirling_rest(count) - count


def _stirling_rest(count: int) -> float:
    """ln n! − n ln n + n."""
    if count < 10**4:
        return float(gammaln(count + 1)) - count * math.log(count) + count
    return 0.5 * math.log(2 * math.pi * count) + 1 / (12 * count)


def _log_choices(unseen: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """ln of the ways to choose those unseen, up to a constant: from one number to the next."""
    steps = np.log(seen[:-1] / unseen[1:])
    return np.concatenate([[0.0], np.cumsum(steps)])


def _between(draws: int, kinds: np.ndarray) -> np.ndarray:
    """ln P for 1 < k < n."""
    rate = _rate((draws - kinds) / kinds)
    return (
        _stirling_rest(draws)
        + (kinds - draws) * np.log(-np.expm1(-rate))
        - draws * np.exp(-rate)
        + np.log(_sum_is(draws, kinds, rate))
    )


def _rate(excess: np.ndarray) -> np.ndarray:
    """λ with λ/(1 − e^−λ) = 1 + excess: by Lambert's function, and near λ = 0, where that is a
    difference of equals, by Newton's method on the series 1 + λ/2 + λ²/12 − λ⁴/720 + …"""
    load = 1 + excess
    far = load + np.real(lambertw(-load * np.exp(-load)))
    near = 2 * excess
    for _ in range(4):
        value = near / 2 + near**2 / 12 - near**4 / 720 + near**6 / 30240
        slope = 1 / 2 + near / 6 - near**3 / 180 + near**5 / 5040
        near = near - (value - excess) / slope
    return np.where(excess < 0.01, near, far)


def _sum_is(draws: int, kinds: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """P(T = n), the mean over a circle of θ of E[exp(iθ (T − n))]; some k at a time."""
    parts = range(_KINDS_AT_ONCE, len(kinds), _KINDS_AT_ONCE)
    each = zip(np.split(kinds, parts), np.split(rate, parts), strict=True)
    return np.concatenate([_mean_over_circle(draws, *part) for part in each])


def _deviation(draws: int, kinds: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Of T; a Poisson count that is not zero, of mean μ, has the variance μ (1 + λ − μ)."""
    return np.sqrt(draws * np.maximum(rate - (draws - kinds) / kinds, 0.0))


def _points(deviation: np.ndarray) -> np.ndarray:
    """How many θ > 0 count: up to half the circle, or to where the function has died out."""
    whole = _whole_circle(deviation)
    died = np.ceil(whole / (2 * np.pi) * 24 / np.maximum(deviation, 1e-9))
    return np.minimum((whole - 1) // 2, died)


def _whole_circle(deviation: np.ndarray) -> np.ndarray:
    """So many θ that T − n, an odd number of points around, is told from all its likely values."""
    return 2 * np.ceil(_ROUND_CIRCLE / 2 + _SPREAD / 2 * deviation) + 1


def _mean_over_circle(draws: int, kinds: np.ndarray, rate: np.ndarray) -> np.ndarray:
    deviation = _deviation(draws, kinds, rate)
    whole, points = _whole_circle(deviation), _points(deviation)
    step = np.arange(1, int(points.max(initial=0.0)) + 1, dtype=np.float64)[None, :]
    angle = 2 * np.pi * step / whole[:, None]
    one = np.exp(1j * angle)
    some, column = -np.expm1(-rate[:, None] * one), rate[:, None]
    # e^{iθ} − 1 by half the angle, which small angles leave exact
    moved = 2j * np.sin(angle / 2) * np.exp(0.5j * angle)
    exponent = column * moved + np.log(some / -np.expm1(-column))
    values = np.real(np.exp(kinds[:, None] * exponent - 1j * draws * angle))
    return (1 + 2 * np.where(step <= points[:, None], values, 0.0).sum(axis=1)) / whole
