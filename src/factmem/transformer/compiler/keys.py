"""Keys for the compiler: which token every head reads for every fact.

A head may read any tokens, subjects and relations alike, as long as every noise token scores below
EOS. Of subject, relation and EOS it then reads the one with the highest score: a known token for
every fact, whatever the noise. So a key is free within a cone, and which of its facts a head can
tell apart depends on where in the cone it lies. Keys are chosen in three steps:

1. Many candidates: the nearest points of the cone to random sums of tokens.
2. Of them as many as there are heads, so that facts with different answers are read differently by
   as many heads as possible: one after the other the candidate that helps most, then exchanges.
3. Each is moved to the middle of its cell, the set of keys that read the same, where the scores
   that decide are as far apart as they can be.

Steps 1 and 3 are least-distance problems with linear inequalities, solved exactly as non-negative
least squares (Lawson and Hanson, 1974).
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.constructions.denoiser import tokens_read

__all__ = ["choose_keys", "nearest_key", "widest_key"]

_CANDIDATES = 2000
_PAIRS = 10_000
_DECAY = 1.0
"""A pair of facts that h heads read differently counts exp(−h · decay)."""
_EXCHANGES = 2
_REPAIRS = 3000


def choose_keys(
    rng: np.random.Generator,
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    asked: PromptDistribution,
    heads: int,
) -> Float[np.ndarray, "heads dim"]:
    """Unit keys under which every noise token scores below EOS and facts are read differently.

    Args:
        rng: randomness of the candidates.
        tokens: φ, EOS last.
        asked: the facts and their tokens.
        heads: how many keys.

    Raises:
        FactmemError: EOS cannot be put above all noise, or facts with different answers are read
            alike by every head.
    """
    names, count = asked.vocabulary, max(_CANDIDATES, 3 * heads)
    content, subjects = np.arange(names.first_noise), names.subjects
    pools = ([content], [content[:subjects], content[subjects:]])  # both kinds, or one of them
    for kinds in pools:
        candidates = np.concatenate(
            [_candidates(rng, tokens, kind, count // len(kinds)) for kind in kinds]
        )
        read = tokens_read(tokens @ candidates.T, asked.known_tokens())
        chosen = _chosen(rng, read, asked, heads)
        if chosen is not None:
            return np.stack([_centerd(key, tokens, asked) for key in candidates[chosen]])
    raise FactmemError(
        f"each choice of {heads} keys that was tried reads some facts exactly as others with "
        f"different answers; more heads or a larger d would tell them apart"
    )


# ---- candidates ----------------------------------------------------------------------------------


def _candidates(
    rng: np.random.Generator,
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    wanted: Int[np.ndarray, " wanted"],
    count: int,
) -> Float[np.ndarray, "candidates dim"]:
    """Unit keys with EOS above all tokens that are not wanted, and below many that are.

    The first wish is a random sum of tokens. Those that the nearest key scores highest are the next
    wish, a few times over.
    """
    apart = tokens[:-1] - tokens[-1]
    apart = apart / np.linalg.norm(apart, axis=1, keepdims=True)
    others, apart = np.delete(apart, wanted, axis=0), apart[wanted]
    found = []
    for number in range(count):
        some = rng.random(len(apart)) < rng.uniform(0.0, 0.3)
        # Every token is wished for most of all in its turn: some are hard to put above the noise.
        wish = apart[some].sum(axis=0) + rng.uniform(0, 10) * apart[number % len(apart)]
        length = np.exp(rng.uniform(np.log(300.0), np.log(10_000.0)))
        reach = rng.uniform(0.0, 0.15)
        key = wish
        for _ in range(rng.integers(1, 5)):
            key = nearest_key(wish * length / np.linalg.norm(wish), -others)
            if key is None:
                raise FactmemError(
                    f"no head can ignore the noise: in d = {tokens.shape[1]} dimensions no key "
                    f"puts EOS above all of {len(others)} tokens; a larger d would"
                )
            liked = apart @ key > -reach * np.linalg.norm(key)
            if not liked.any():
                break
            wish = apart[liked].sum(axis=0)
        found.append(key / np.linalg.norm(key))
    return np.stack(found)


def nearest_key(
    wished: Float[np.ndarray, " dim"], rows: Float[np.ndarray, "rows dim"]
) -> Float[np.ndarray, " dim"] | None:
    """The key nearest to a wished one among those with rows·key ≥ 1, if there are any.

    The dual is the best non-negative combination of the columns (row, 1 − row·wished) for the
    target (0, …, 0, 1): its residual points from the wish to the key.
    """
    columns = np.vstack([rows.T, 1.0 - rows @ wished])
    target = np.zeros(len(columns))
    target[-1] = 1.0
    try:
        weights, _ = nnls(columns, target, maxiter=30 * len(rows))
    except RuntimeError:  # it went round in circles
        return None
    residual = columns @ weights - target
    if -residual[-1] < 1e-12:
        return None
    return wished - residual[:-1] / residual[-1]


# ---- the choice among them -----------------------------------------------------------------------


def _chosen(
    rng: np.random.Generator,
    read: Int[np.ndarray, "facts candidates"],
    asked: PromptDistribution,
    heads: int,
) -> list[int] | None:
    """Candidates that tell all facts of different answers apart, most of them many times over."""
    left, right = _close_pairs(rng, asked)
    chosen = _most_different(read[left] != read[right], heads)
    return _all_different(rng, read, chosen, asked)


def _most_different(differ: Bool[np.ndarray, "pairs candidates"], heads: int) -> list[int]:
    """One candidate after the other that helps most, then exchanges."""
    gains = differ.astype(np.float32)
    fade = np.where(differ, np.float32(np.exp(-_DECAY)), np.float32(1))
    weight = np.ones(len(gains), np.float32)
    chosen: list[int] = []

    def take_best() -> None:
        gain = weight @ gains
        gain[chosen] = -1.0
        chosen.append(int(gain.argmax()))

    for _ in range(min(heads, gains.shape[1])):
        take_best()
        weight *= fade[:, chosen[-1]]
    for _ in range(_EXCHANGES * len(chosen)):
        weight /= fade[:, chosen.pop(0)]
        take_best()
        weight *= fade[:, chosen[-1]]
    return chosen


def _all_different(
    rng: np.random.Generator,
    read: Int[np.ndarray, "facts candidates"],
    chosen: list[int],
    asked: PromptDistribution,
) -> list[int] | None:
    """Exchanges more candidates, until no two facts of different answers are read alike, if it can.

    What a fact's heads read is one sum of random numbers, one for each token and head: equal sums
    mean equal tokens.
    """
    chosen = list(chosen)
    numbers = rng.integers(2**62, size=read.shape[1:], dtype=np.int64)[None, :]
    codes = (read + 1) * numbers
    total = codes[:, chosen].sum(axis=1)
    lost, other = _read_alike(total, asked)
    for _ in range(_REPAIRS):
        if len(lost) == 0:
            return chosen
        place = rng.integers(len(lost))
        helpful = np.flatnonzero(read[lost[place]] != read[other[place]])
        if len(helpful) == 0:
            break
        new, old = int(rng.choice(helpful)), int(rng.integers(len(chosen)))
        if new in chosen:
            continue
        attempt = total - codes[:, chosen[old]] + codes[:, new]
        found = _read_alike(attempt, asked)
        if len(found[0]) <= len(lost):
            (lost, other), total, chosen[old] = found, attempt, new
    return None


def _close_pairs(
    rng: np.random.Generator, asked: PromptDistribution
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of facts with one token in common and different answers: the hardest to tell apart."""
    answers = np.asarray(asked.fact_answers)
    left, right = [], []
    for tokens in (np.asarray(asked.fact_subjects), np.asarray(asked.fact_relations)):
        order = np.argsort(tokens, kind="stable")
        counts = np.bincount(tokens)
        first = np.cumsum(counts) - counts
        some = rng.integers(len(tokens), size=_PAIRS // 2)
        place = first[tokens[some]] + rng.integers(counts[tokens[some]])
        left.append(some)
        right.append(order[place])
    one, other = np.concatenate(left), np.concatenate(right)
    different = answers[one] != answers[other]
    return one[different], other[different]


def _read_alike(
    codes: Int[np.ndarray, " facts"], asked: PromptDistribution
) -> tuple[np.ndarray, np.ndarray]:
    """Facts with the code of another one that has a different answer, and that one."""
    answers = np.asarray(asked.fact_answers)
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    other = first[group.ravel()]
    lost = np.flatnonzero(answers != answers[other])
    return lost, other[lost]


# ---- the middle of a cell ------------------------------------------------------------------------


def _centerd(
    key: Float[np.ndarray, " dim"],
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    asked: PromptDistribution,
) -> Float[np.ndarray, " dim"]:
    """The unit key that reads the same with the largest margin of all scores that decide."""
    names = asked.vocabulary
    apart = tokens[:-1] - tokens[-1]
    scores = apart @ key
    scores[names.first_noise :] = -np.abs(scores[names.first_noise :])
    above = scores[: names.first_noise] > 0
    subjects = apart[: names.subjects][above[: names.subjects]]
    relations = apart[names.subjects : names.first_noise][above[names.subjects :]]
    between = (subjects[:, None, :] - relations[None, :, :]).reshape(-1, tokens.shape[1])
    rows = np.vstack([apart, between])
    signs = np.sign(np.concatenate([scores, between @ key]))
    rows = rows * (signs / np.linalg.norm(rows, axis=1))[:, None]
    found = widest_key(rows)
    return key if found is None else found[0]


def widest_key(rows: Float[np.ndarray, "rows dim"]) -> tuple[np.ndarray, float] | None:
    """The unit vector k with the largest smallest product k·row, and that product, if positive.

    It has the direction of the shortest key with rows·key ≥ 1.
    """
    shortest = nearest_key(np.zeros(rows.shape[1]), rows)
    if shortest is None:
        return None
    key = shortest / np.linalg.norm(shortest)
    margin = float((rows @ key).min())
    return (key, margin) if margin > 0 else None
