"""Keys for the compiler: what every head reads, and by what margin.

A head may read any tokens, subjects and relations alike, as long as every noise token scores below
EOS: of subject, relation and EOS it then reads the one with the highest score, which is known for
every fact. A block is grown from one token: others join, those first that score high already and
that few heads read, while some key still keeps a margin,

    k·(φ(z) − φ(EOS)) ≥ margin for the block's tokens,   k·(φ(n) − φ(EOS)) ≤ −margin for noise,

with ‖k‖ = 1 and differences of unit length. The key of the largest margin is the shortest vector
with all products at least 1, a non-negative least-squares problem (Lawson and Hanson, 1974).
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from factmem.errors import FactmemError
from factmem.facts.prompts import PromptDistribution

__all__ = ["choose_keys", "widest_key"]

_LEAST_MARGIN = 0.02


def widest_key(rows: Float[np.ndarray, "rows dim"]) -> tuple[np.ndarray, float] | None:
    """The unit vector k with the largest smallest product k·row, and that product, if positive.

    The shortest x with rows·x ≥ 1 is k over the margin. Its dual: the residual of the best
    non-negative combination of the columns (row, 1) for the target (0, …, 0, 1).
    """
    count, dim = rows.shape
    columns = np.vstack([rows.T, np.ones(count)])
    target = np.zeros(dim + 1)
    target[-1] = 1.0
    try:
        weights, _ = nnls(columns, target, maxiter=30 * count)
    except RuntimeError:  # it went round in circles: no key was found
        return None
    residual = columns @ weights - target
    length = np.linalg.norm(residual[:-1])
    if -residual[-1] < 1e-9 or length == 0:
        return None
    key = residual[:-1] / length
    margin = float((rows @ key).min())
    return (key, margin) if margin > 0 else None


def choose_keys(
    rng: np.random.Generator,
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    asked: PromptDistribution,
    heads: int,
) -> Float[np.ndarray, "heads dim"]:
    """Unit keys under which every noise token scores below EOS, and every fact can be told apart.

    Args:
        rng: decides what is equal otherwise.
        tokens: φ, EOS last.
        asked: the facts and their tokens.
        heads: how many keys.

    Raises:
        FactmemError: a token that no key can put above EOS and EOS above all noise, or facts of
            different answers that the heads cannot tell apart.
    """
    names = asked.vocabulary
    apart = tokens[:-1] - tokens[-1]
    apart = apart / np.linalg.norm(apart, axis=1, keepdims=True)
    content, noise = apart[: names.first_noise], apart[names.first_noise :]
    readers = np.zeros(len(content))
    keys = []
    for head in range(heads):
        subjects = head < round(heads * names.subjects / names.first_noise)
        want = (
            np.arange(names.subjects) if subjects else np.arange(names.subjects, names.first_noise)
        )
        avoid = np.vstack([noise, np.delete(content, want, axis=0)])
        first = np.lexsort((rng.random(len(want)), readers[want]))[0]
        key = _grown(content[want], avoid, int(first), readers[want])
        if key is None:
            raise FactmemError(_unreadable(int(first), asked, tokens.shape[1]))
        readers += content @ key > 0
        keys.append(key)
    return np.stack(keys)


def _grown(
    content: Float[np.ndarray, "content dim"],
    noise: Float[np.ndarray, "noise dim"],
    first: int,
    readers: Float[np.ndarray, " content"],
) -> Float[np.ndarray, " dim"] | None:
    """The key of a block around one token, or None if that token cannot be read at all."""
    block = [first]
    found = widest_key(np.vstack([content[block], -noise]))
    if found is None:
        return None
    key, margin = found
    least = min(margin, _LEAST_MARGIN)
    waiting = [token for token in range(len(content)) if token != first]
    while waiting:
        wanted = content[waiting] @ key - 0.05 * readers[waiting]
        token = waiting.pop(int(wanted.argmax()))
        found = widest_key(np.vstack([content[[*block, token]], -noise]))
        if found is not None and found[1] >= least:
            block.append(token)
            key = found[0]
    return key


def _unreadable(token: int, asked: PromptDistribution, dim: int) -> str:
    names = asked.vocabulary
    kind = "subject" if token < names.subjects else "relation"
    number = token if token < names.subjects else token - names.first_relation
    return (
        f"no head can read {kind} {number}: in d = {dim} dimensions no key puts it above EOS and "
        f"EOS above all {names.noise} noise tokens; a larger d would"
    )
