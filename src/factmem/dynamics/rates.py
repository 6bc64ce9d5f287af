"""Escape rates: how fast weights grow from near zero, by formula and in a flow.

While all weights are small, predictions are uniform and g_z := E[C(z) (1{a = a*} − 1/|A|)] is
constant. Then W_OV(·, z)' = W_KQ(z) g_z and W_KQ(z)' = ⟨W_OV(·, z), g_z⟩, so both grow like exp(λt)
with λ = ‖g_z‖:

    relations   p(r) ‖p(·|r) − 1/|A|‖
    subjects    p(s) ‖p(·|s) − 1/|A|‖
    noise       (T − 3)/|N| ‖p(·) − 1/|A|‖
    EOS         ‖p(·) − 1/|A|‖

If all prompts are equally likely, p(r) = 1/R and p(s) = 1/S.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from factmem.dynamics.flow import Flow
from factmem.dynamics.prompt_ensembles import PromptPopulation

__all__ = ["EscapeRates", "escape_rates", "fit_escape_rates"]

_MIN_GROWTH = 10.0
"""The fit begins where W_KQ(z) is 10 times the token's initial weights. From there on growth is
exponential to a few thousandths: the decaying mode is a hundred times smaller."""
_MAX_KQ = 0.03
"""The fit ends at W_KQ(z) = 0.03: up to there a token adds about W_KQ(z)² < 0.001 to the logits."""
_MAX_FRACTION = 1 / 3
"""For tokens that never grow so large, because others have learned the same, the fit ends at this
fraction of their largest W_KQ(z)."""


class EscapeRates(NamedTuple):
    """λ of every token, in units of 1/time."""

    subjects: Float[np.ndarray, " subjects"]
    relations: Float[np.ndarray, " relations"]
    noise: Float[np.ndarray, " noise"]
    """One entry if noise is one class of tokens."""
    eos: float


def escape_rates(population: PromptPopulation) -> EscapeRates:
    """Compute the rates at which weights grow while all are small."""
    answers = population.given_relation.shape[1]
    deviations = {
        "answers": population.answer_probabilities - 1 / answers,
        "subjects": population.given_subject - 1 / answers,
        "relations": population.given_relation - 1 / answers,
    }
    marginal = float(np.linalg.norm(deviations["answers"]))
    return EscapeRates(
        population.subject_probabilities * np.linalg.norm(deviations["subjects"], axis=1),
        population.relation_probabilities * np.linalg.norm(deviations["relations"], axis=1),
        np.array([(population.length - 3) / population.noise * marginal]),
        marginal,
    )


def fit_escape_rates(flow: Flow, population: PromptPopulation) -> EscapeRates:
    """Fit the rates of a flow: slopes of log W_KQ(z) while it is small but far above its start.

    A rate is NaN for a token that never gets there, such as noise with rate 0. Tokens that escape
    later follow the formulas only if what others have learned does not change g_z; in balanced
    tables it does not.
    """
    initial = np.sqrt(flow.start.kq**2 + (flow.start.ov**2).sum(axis=1))
    slopes = [
        _fit_slope(flow.times, np.abs(kq), size)
        for kq, size in zip(flow.kq.T, initial, strict=True)
    ]
    kinds = population.split_by_kind(np.array(slopes))
    return EscapeRates(kinds.subjects, kinds.relations, kinds.noise, float(kinds.eos[0]))


def _fit_slope(
    times: Float[np.ndarray, " points"], kq: Float[np.ndarray, " points"], initial: float
) -> float:
    end = int(np.argmax(kq > min(_MAX_KQ, _MAX_FRACTION * kq.max())))
    window = np.flatnonzero(kq[:end] > _MIN_GROWTH * initial)
    if len(window) < 3:
        return float("nan")
    return float(np.polyfit(times[window], np.log(kq[window]), 1)[0])
