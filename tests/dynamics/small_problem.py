"""A problem so small that every prompt can be enumerated."""

import itertools

import numpy as np

from factmem.dynamics import PromptPopulation
from factmem.facts import FactTable

S, R, D, N, T = 3, 2, 2, 2, 5
ANSWERS = R * D
TABLE = FactTable(
    np.array([[0, 2], [1, 2], [1, 3]]), answer_names=tuple(f"a{a}" for a in range(ANSWERS))
)
TOKENS = S + R + N + 1
EOS = TOKENS - 1


def make_population(power: float = 0.0, table: FactTable = TABLE):
    return PromptPopulation.from_table(table, noise=N, length=T, subject_power=power)


def all_prompts(power: float = 0.0):
    """Yield every prompt: its probability, its tokens in order, subject and relation."""
    weight = (np.arange(S) + 1.0) ** -power
    weight /= weight.sum() * R
    for s, r in itertools.product(range(S), range(R)):
        positions = list(itertools.permutations(range(T - 1), 2))
        for i, j in positions:
            for noise in itertools.product(range(S + R, S + R + N), repeat=T - 3):
                rest = iter(noise)
                tokens = [s if t == i else S + r if t == j else next(rest) for t in range(T - 1)]
                probability = weight[s] / len(positions) / N ** (T - 3)
                yield probability, [*tokens, EOS], s, r


def expand_noise(by_class):
    """Convert weights of token classes to weights of tokens, equal for all noise tokens."""
    return np.concatenate(
        [by_class[: S + R], np.repeat(by_class[S + R :][:1], N, 0), by_class[-1:]]
    )


def predict(ov, kq, tokens):
    """Return p̂ of one prompt, token by token."""
    logits = sum(ov[z] * kq[z] for z in tokens)
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def velocity(ov, kq, power: float = 0.0):
    """Return the right-hand side of the flow for weights of all tokens, prompt by prompt."""
    errors = np.zeros_like(ov)
    for probability, tokens, s, r in all_prompts(power):
        error = -predict(ov, kq, tokens)
        error[TABLE.answer_of[s, r]] += 1
        for z in tokens:
            errors[z] += probability * error
    return kq[:, None] * errors, (ov * errors).sum(axis=1)


def loss(ov, kq, power: float = 0.0):
    return sum(
        -probability * np.log(predict(ov, kq, tokens)[TABLE.answer_of[s, r]])
        for probability, tokens, s, r in all_prompts(power)
    )
