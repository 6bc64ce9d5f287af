"""All claims, in the order of the paper."""

from collections.abc import Callable, Sequence

from factmem.claims import bounds, dynamics, memories, transformers
from factmem.claims.claim import Claim
from factmem.errors import FactmemError, visible

__all__ = ["all_claims", "claim_named"]

_SEEDS = 3

_MAKERS: tuple[Callable[[Sequence[int]], Claim], ...] = (
    memories.theorem_1a,
    memories.theorem_1b,
    memories.orthonormal_embeddings,
    memories.exact_matching,
    memories.shared_answers,
    memories.one_gradient_step,
    memories.limit_of_linear_memories,
    memories.theorem_2,
    memories.tangents_are_learnt,
    memories.features_against_tangents,
    memories.few_outputs,
    memories.quantisation,
    transformers.superposed_tokens,
    transformers.theorem_3,
    transformers.theorem_4,
    transformers.repeated_answers,
    transformers.partial_tables,
    transformers.attention_against_mlp,
    transformers.facts_per_parameter,
    dynamics.invariant,
    dynamics.convergence,
    dynamics.sequential_learning,
    dynamics.plateau,
    dynamics.softmax_stages,
    dynamics.without_many_subjects,
    bounds.theorem_7,
    bounds.scaling_law,
    bounds.bound_is_met,
    bounds.theorem_8,
    bounds.cubic_capacity,
)


def all_claims(seed: int = 0) -> tuple[Claim, ...]:
    """Every claim, with three seeds from this one on."""
    seeds = range(seed, seed + _SEEDS)
    return tuple(make(seeds) for make in _MAKERS)


def claim_named(name: str, seed: int = 0) -> Claim:
    """The claim of this id.

    Raises:
        FactmemError: there is none; the message lists those that there are.
    """
    claims = {claim.id: claim for claim in all_claims(seed)}
    if name not in claims:
        raise FactmemError(f"no claim '{visible(name)}'; there are {', '.join(claims)}")
    return claims[name]
