"""Keys for the compiler: which token every head reads for every fact.

A head may read subjects and relations, as long as every noise token scores below EOS. Of subject,
relation and EOS it reads the one with the highest score: a known token for every fact, whatever the
noise. So a key can be anywhere in a cone, and its position determines which facts the head
distinguishes. Keys are chosen in three steps:

1. Many candidates: the points of the cone that are closest to random sums of tokens.
2. A selection of one candidate per head, such that as many heads as possible distinguish facts with
   different answers: greedily, then by exchanges.
3. Each selected key moves to the center of its cell, the set of keys that read the same tokens,
   where the smallest gap between scores is as large as possible.

Steps 1 and 3 are least-distance problems with linear inequalities, solved exactly as non-negative
least squares (Lawson and Hanson, 1974).
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.constructions.denoiser import tokens_read

__all__ = ["choose_keys", "draw_keys", "nearest_key", "widest_key"]

_CANDIDATES = 2000
_PAIRS = 10_000
_DECAY = 1.0
"""The weight of a pair of facts that h heads distinguish is exp(−h · decay)."""
_EXCHANGES_PER_HEAD = 2
_MAX_REPAIRS = 3000
_EOS_PENALTY, _KEY_LENGTH, _KEY_STEPS, _KEY_TOLERANCE, _COVERAGE_DECAY = 2.0, 3000.0, 3, 0.05, 10.0
"""How keys of large tables are drawn. For 240 subjects and relations, 480 noise tokens, d = 128 and
128 heads, every token scores above EOS in at least 16 heads, and in 31 in the median. Without the
three steps it is 0 and 9, without the decay 0 and 10. At 9,646 facts in 67,584 parameters, 60
epochs recall 60% without the penalty and 98% with it."""


def choose_keys(
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    prompts: PromptDistribution,
    heads: int,
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, "heads dim"]:
    """Choose unit keys that score noise below EOS and distinguish facts with different answers.

    Args:
        tokens: φ, EOS last.
        prompts: the facts and their tokens.
        heads: number of keys.
        rng: random numbers for the candidates.

    Raises:
        FactmemError: no key scores EOS above all noise, or every head reads the same tokens for
            facts with different answers.
    """
    vocabulary, count = prompts.vocabulary, max(_CANDIDATES, 3 * heads)
    content, subjects = np.arange(vocabulary.first_noise), vocabulary.subjects
    # First keys that may read subjects and relations, then keys for one kind each.
    pools = ([content], [content[:subjects], content[subjects:]])
    for kinds in pools:
        candidates = np.concatenate(
            [_candidates(tokens, kind, count // len(kinds), rng=rng) for kind in kinds]
        )
        read = tokens_read(tokens @ candidates.T, prompts.known_tokens())
        selected = _select(read, prompts, heads, rng=rng)
        if selected is not None:
            return np.stack([_center_in_cell(key, tokens, prompts) for key in candidates[selected]])
    raise FactmemError(
        f"no choice of {heads} key{'s' * (heads != 1)} distinguishes all facts with different "
        "answers; use more heads or a larger dim"
    )


def draw_keys(
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    prompts: PromptDistribution,
    heads: int,
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, "heads dim"]:
    """Draw random unit keys that score noise below EOS; the work does not grow with the facts.

    A key starts as the point of the cone that is nearest to a random direction minus a multiple of
    φ(EOS). In few dimensions such a key scores nearly all tokens below EOS, and the head would read
    EOS. So the next target is the sum of the subjects and relations that score highest, more of
    those that few heads read so far, and the key moves to the nearest point of the cone again.

    Args:
        tokens: φ, EOS last.
        prompts: the facts and their tokens.
        heads: number of keys.
        rng: random numbers for the directions.

    Raises:
        FactmemError: no key scores EOS above all noise.
    """
    vocabulary, dim = prompts.vocabulary, tokens.shape[1]
    differences = tokens[:-1] - tokens[-1]
    differences = differences / np.linalg.norm(differences, axis=1, keepdims=True)
    noise, content = differences[vocabulary.first_noise :], differences[: vocabulary.first_noise]
    eos = tokens[-1] / np.linalg.norm(tokens[-1])
    sizes = np.array([vocabulary.subjects, vocabulary.relations])
    importance = np.repeat(1 / np.sqrt(sizes), sizes)  # relations count as much as subjects
    coverage = np.zeros(len(content))
    keys = np.empty((heads, dim))
    for head in range(heads):
        direction = rng.normal(size=dim)
        target = direction / np.linalg.norm(direction) - _EOS_PENALTY * eos
        key = _nearest_unit_key(target, noise)
        for _ in range(_KEY_STEPS):
            scores = content @ key
            weights = importance * np.exp(-_COVERAGE_DECAY * coverage / max(1, head))
            weights = np.where(scores > -_KEY_TOLERANCE, weights, 0.0)
            if not weights.any():
                weights[scores.argmax()] = 1.0
            key = _nearest_unit_key(weights @ content, noise)
        keys[head] = key
        coverage += content @ key > 0
    return keys


def _nearest_unit_key(
    target: Float[np.ndarray, " dim"], noise: Float[np.ndarray, "noise dim"]
) -> Float[np.ndarray, " dim"]:
    """Return the unit key in the cone of the noise that is nearly nearest to a direction."""
    key = _nearest_key_or_error(_KEY_LENGTH * target / np.linalg.norm(target), noise)
    return key / np.linalg.norm(key)


# ---- candidates ----------------------------------------------------------------------------------


def _candidates(
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    readable: Int[np.ndarray, " readable"],
    count: int,
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, "candidates dim"]:
    """Draw unit keys with EOS above all tokens that are not readable, and below many that are.

    The first target of a key is a random sum of readable tokens. The sum of the tokens that score
    highest under the nearest key is the next target, up to four times.
    """
    differences = tokens[:-1] - tokens[-1]
    differences = differences / np.linalg.norm(differences, axis=1, keepdims=True)
    others, differences = np.delete(differences, readable, axis=0), differences[readable]
    keys = []
    for number in range(count):
        included = rng.random(len(differences)) < rng.uniform(0.0, 0.3)
        # Each token dominates some targets, because some are hard to score above the noise.
        dominant = rng.uniform(0, 10) * differences[number % len(differences)]
        target = differences[included].sum(axis=0) + dominant
        length = np.exp(rng.uniform(np.log(300.0), np.log(10_000.0)))
        tolerance = rng.uniform(0.0, 0.15)
        key = target
        for _ in range(rng.integers(1, 5)):
            target = target * length / np.linalg.norm(target)
            key = _nearest_key_or_error(target, others)
            high = differences @ key > -tolerance * np.linalg.norm(key)
            if not high.any():
                break
            target = differences[high].sum(axis=0)
        keys.append(key / np.linalg.norm(key))
    return np.stack(keys)


def _nearest_key_or_error(
    target: Float[np.ndarray, " dim"], others: Float[np.ndarray, "others dim"]
) -> Float[np.ndarray, " dim"]:
    """Return the key with others·key ≤ −1 that is nearest to a target."""
    key = nearest_key(target, -others)
    if key is None:
        raise FactmemError(
            f"no head can ignore the noise: with dim = {len(target)} no key scores EOS above all "
            f"of {len(others)} tokens; use a larger dim"
        )
    return key


def nearest_key(
    target: Float[np.ndarray, " dim"], rows: Float[np.ndarray, "rows dim"]
) -> Float[np.ndarray, " dim"] | None:
    """Return the key with rows·key ≥ 1 that is nearest to a target, or None if there is none.

    The dual problem is the best non-negative combination of the columns (row, 1 − row·target) for
    the right-hand side (0, …, 0, 1); its residual points from the target to the key.
    """
    columns = np.vstack([rows.T, 1.0 - rows @ target])
    right_side = np.zeros(len(columns))
    right_side[-1] = 1.0
    try:
        weights, _ = nnls(columns, right_side, maxiter=30 * len(rows))
    except RuntimeError:  # nnls cycled
        return None
    residual = columns @ weights - right_side
    if -residual[-1] < 1e-12:
        return None
    return target - residual[:-1] / residual[-1]


# ---- selection -----------------------------------------------------------------------------------


def _select(
    read: Int[np.ndarray, "facts candidates"],
    prompts: PromptDistribution,
    heads: int,
    *,
    rng: np.random.Generator,
) -> list[int] | None:
    """Select candidates that together distinguish all facts with different answers."""
    left, right = _similar_pairs(prompts, rng=rng)
    selected = _select_greedily(read[left] != read[right], heads)
    return _repair(read, selected, prompts, rng=rng)


def _select_greedily(differ: Bool[np.ndarray, "pairs candidates"], heads: int) -> list[int]:
    """Add the candidate with the largest gain for each head, then exchange the oldest ones."""
    gains = differ.astype(np.float32)
    decay = np.where(differ, np.float32(np.exp(-_DECAY)), np.float32(1))
    weight = np.ones(len(gains), np.float32)
    selected: list[int] = []

    def add_best() -> None:
        gain = weight @ gains
        gain[selected] = -1.0
        selected.append(int(gain.argmax()))

    for _ in range(min(heads, gains.shape[1])):
        add_best()
        weight *= decay[:, selected[-1]]
    for _ in range(_EXCHANGES_PER_HEAD * len(selected)):
        weight /= decay[:, selected.pop(0)]
        add_best()
        weight *= decay[:, selected[-1]]
    return selected


def _repair(
    read: Int[np.ndarray, "facts candidates"],
    selected: list[int],
    prompts: PromptDistribution,
    *,
    rng: np.random.Generator,
) -> list[int] | None:
    """Exchange candidates until all facts with different answers are distinguished, if possible.

    The tokens that a fact's heads read are hashed as a sum of random numbers, one per token and
    head: equal hashes mean equal tokens.
    """
    selected = list(selected)
    numbers = rng.integers(2**62, size=read.shape[1:], dtype=np.int64)[None, :]
    codes = (read + 1) * numbers
    hashes = codes[:, selected].sum(axis=1)
    confused, other = _confused_facts(hashes, prompts)
    for _ in range(_MAX_REPAIRS):
        if len(confused) == 0:
            return selected
        index = rng.integers(len(confused))
        helpful = np.flatnonzero(read[confused[index]] != read[other[index]])
        if len(helpful) == 0:
            break
        new, old = int(rng.choice(helpful)), int(rng.integers(len(selected)))
        if new in selected:
            continue
        new_hashes = hashes - codes[:, selected[old]] + codes[:, new]
        new_confused, new_other = _confused_facts(new_hashes, prompts)
        if len(new_confused) <= len(confused):
            confused, other, hashes, selected[old] = new_confused, new_other, new_hashes, new
    return None


def _similar_pairs(
    prompts: PromptDistribution, *, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sample pairs of facts with one common token and different answers."""
    answers = np.asarray(prompts.fact_answers)
    left, right = [], []
    for tokens in (np.asarray(prompts.fact_subjects), np.asarray(prompts.fact_relations)):
        order = np.argsort(tokens, kind="stable")
        counts = np.bincount(tokens)
        first = np.cumsum(counts) - counts
        facts = rng.integers(len(tokens), size=_PAIRS // 2)
        position = first[tokens[facts]] + rng.integers(counts[tokens[facts]])
        left.append(facts)
        right.append(order[position])
    one, other = np.concatenate(left), np.concatenate(right)
    different = answers[one] != answers[other]
    return one[different], other[different]


def _confused_facts(
    hashes: Int[np.ndarray, " facts"], prompts: PromptDistribution
) -> tuple[np.ndarray, np.ndarray]:
    """Return facts that share a hash with a fact of another answer, and those other facts."""
    answers = np.asarray(prompts.fact_answers)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    other = first[group.ravel()]
    confused = np.flatnonzero(answers != answers[other])
    return confused, other[confused]


# ---- the center of a cell ------------------------------------------------------------------------


def _center_in_cell(
    key: Float[np.ndarray, " dim"],
    tokens: Float[np.ndarray, "prompt_tokens dim"],
    prompts: PromptDistribution,
) -> Float[np.ndarray, " dim"]:
    """Return the unit key that reads the same tokens with the largest smallest gap."""
    vocabulary = prompts.vocabulary
    differences = tokens[:-1] - tokens[-1]
    scores = differences @ key
    scores[vocabulary.first_noise :] = -np.abs(scores[vocabulary.first_noise :])
    above = scores[: vocabulary.first_noise] > 0
    subjects = differences[: vocabulary.subjects][above[: vocabulary.subjects]]
    relations = differences[vocabulary.subjects : vocabulary.first_noise][
        above[vocabulary.subjects :]
    ]
    between = (subjects[:, None, :] - relations[None, :, :]).reshape(-1, tokens.shape[1])
    rows = np.vstack([differences, between])
    signs = np.sign(np.concatenate([scores, between @ key]))
    rows = rows * (signs / np.linalg.norm(rows, axis=1))[:, None]
    widest = widest_key(rows)
    return key if widest is None else widest[0]


def widest_key(rows: Float[np.ndarray, "rows dim"]) -> tuple[np.ndarray, float] | None:
    """Return the unit vector k that maximizes min k·row, and that minimum; None if not positive.

    It has the direction of the shortest key with rows·key ≥ 1.
    """
    shortest = nearest_key(np.zeros(rows.shape[1]), rows)
    if shortest is None:
        return None
    key = shortest / np.linalg.norm(shortest)
    margin = float((rows @ key).min())
    return (key, margin) if margin > 0 else None
