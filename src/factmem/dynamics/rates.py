"""How fast weights leave zero: what small weights must do, and what a flow did.

While all weights are small, predictions are uniform, and E[C(z) (1{a = a*} − 1/|A|)] =: g_z stays
what it is. Then W_OV(·, z)' = W_KQ(z) g_z and W_KQ(z)' = ⟨W_OV(·, z), g_z⟩, so that both grow like
exp(λt) with λ = ‖g_z‖:

    relations   p(r) ‖p(·|r) − 1/|A|‖        (1/R for uniform questions)
    subjects    p(s) ‖p(·|s) − 1/|A|‖        (1/S)
    noise       (T − 3)/|N| ‖p(·) − 1/|A|‖
    EOS         ‖p(·) − 1/|A|‖
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from factmem.dynamics.flow import Flow
from factmem.dynamics.questions import Population

__all__ = ["Rates", "escape_rates", "fitted_rates"]

_GROWN = 10.0
"""From W_KQ(z) = 10 times a token's weights at the start its growth is an exponential, to a few
thousandths: what shrinks meanwhile is a hundred times smaller by then."""
_SMALL = 0.03
"""Up to W_KQ(z) = 0.03 what one token adds to logits, about W_KQ(z)², is below a thousandth."""
_RISING = 1 / 3
"""Tokens that never get so far, for others have learned what they could say, are rising up to this
part of their largest W_KQ(z)."""


class Rates(NamedTuple):
    """λ for every token, in units of 1/time."""

    subjects: Float[np.ndarray, " subjects"]
    relations: Float[np.ndarray, " relations"]
    noise: Float[np.ndarray, " noise"]
    """One for all noise tokens, where they are one class."""
    eos: float


def escape_rates(questions: Population) -> Rates:
    """The rates at which weights leave zero while all are small."""
    answers = questions.given_relation.shape[1]
    marginal = float(np.linalg.norm(questions.answer_marginal - 1 / answers))
    return Rates(
        questions.subject_chances * np.linalg.norm(questions.given_subject - 1 / answers, axis=1),
        questions.relation_chances * np.linalg.norm(questions.given_relation - 1 / answers, axis=1),
        np.array([(questions.length - 3) / questions.noise * marginal]),
        marginal,
    )


def fitted_rates(flow: Flow, questions: Population) -> Rates:
    """The rates of a flow: slopes of log W_KQ(z) while it is small, but far above its start.

    NaN for tokens that never are, such as noise whose rate is 0. Later rates are as the formulas
    say only if what others have learned by then leaves g_z as it was: in balanced tables it does.
    """
    start = np.sqrt(flow.start.kq**2 + (flow.start.ov**2).sum(axis=1))
    each = [_slope(flow.times, np.abs(kq), size) for kq, size in zip(flow.kq.T, start, strict=True)]
    kinds = questions.by_kind(np.array(each))
    return Rates(kinds.subjects, kinds.relations, kinds.noise, float(kinds.eos[0]))


def _slope(
    times: Float[np.ndarray, " points"], kq: Float[np.ndarray, " points"], start: float
) -> float:
    end = int(np.argmax(kq > min(_SMALL, _RISING * kq.max())))
    window = np.flatnonzero(kq[:end] > _GROWN * start)
    if len(window) < 3:
        return float("nan")
    return float(np.polyfit(times[window], np.log(kq[window]), 1)[0])
