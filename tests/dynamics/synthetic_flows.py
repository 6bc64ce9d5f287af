"""Flows and learning curves with prescribed values."""

import numpy as np

from factmem.dynamics import Flow, FlowStatus, LinearAttention, LossStatistics


def statistics(loss, **others):
    """Return statistics with the given loss; all others are 0 unless given."""
    loss = np.asarray(loss, float)
    zeros = dict.fromkeys(LossStatistics._fields[1:-1], np.zeros_like(loss))
    given = {name: np.asarray(values, float) for name, values in others.items()}
    return LossStatistics(loss, **{**zeros, **given}, loss_by_subject=loss[:, None])


def flow(times, kq, *, largest_ov=None, invariant=None, distance=None, start=None):
    """Return a flow with the given weights, [points, tokens]."""
    times, kq = np.asarray(times, float), np.asarray(kq, float)
    zeros = np.zeros(len(times))
    start = LinearAttention(np.zeros((kq.shape[1], 2)), kq[0]) if start is None else start
    return Flow(
        times,
        statistics(zeros, relation_distance=zeros if distance is None else distance),
        model=start,
        status=FlowStatus.END_TIME,
        start=start,
        kq=kq,
        largest_ov=np.zeros_like(kq) if largest_ov is None else np.asarray(largest_ov, float),
        invariant=np.zeros_like(kq) if invariant is None else np.asarray(invariant, float),
        solver_steps=1,
    )
