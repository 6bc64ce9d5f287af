"""A setting so small that every prompt can be written down, one by one."""

import itertools

import numpy as np

from factmem.facts import FactTable

S, R, D, N, T = 3, 2, 2, 2, 5
ANSWERS = R * D
TABLE = FactTable(
    np.array([[0, 2], [1, 2], [1, 3]]), answer_names=tuple(f"a{a}" for a in range(ANSWERS))
)
TOKENS = S + R + N + 1
EOS = TOKENS - 1


def prompts(power: float = 0.0):
    """Every prompt with its probability: (chance, tokens in their places, subject, relation)."""
    weight = (np.arange(S) + 1.0) ** -power
    weight /= weight.sum() * R
    for s, r in itertools.product(range(S), range(R)):
        places = list(itertools.permutations(range(T - 1), 2))
        for i, j in places:
            for noise in itertools.product(range(S + R, S + R + N), repeat=T - 3):
                rest = iter(noise)
                tokens = [s if t == i else S + r if t == j else next(rest) for t in range(T - 1)]
                chance = weight[s] / len(places) / N ** (T - 3)
                yield chance, [*tokens, EOS], s, r


def spread(by_class):
    """Weights of classes as weights of tokens: all noise tokens alike."""
    return np.concatenate(
        [by_class[: S + R], np.repeat(by_class[S + R :][:1], N, 0), by_class[-1:]]
    )


def predicted(ov, kq, tokens):
    """p̂ of one prompt, token by token."""
    logits = sum(ov[z] * kq[z] for z in tokens)
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def velocity(ov, kq, power: float = 0.0):
    """The right side of the flow's equation, prompt by prompt, for weights of all tokens."""
    errors = np.zeros_like(ov)
    for chance, tokens, s, r in prompts(power):
        off = -predicted(ov, kq, tokens)
        off[TABLE.answer_of[s, r]] += 1
        for z in tokens:
            errors[z] += chance * off
    return kq[:, None] * errors, (ov * errors).sum(axis=1)


def loss(ov, kq, power: float = 0.0):
    return sum(
        -chance * np.log(predicted(ov, kq, tokens)[TABLE.answer_of[s, r]])
        for chance, tokens, s, r in prompts(power)
    )
