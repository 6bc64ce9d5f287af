"""All claims, in the order of the paper."""

from collections.abc import Callable, Sequence

from factmem._core.errors import FactmemError, visible
from factmem.paper import (
    claims_linear_limits as linear_limits,
)
from factmem.paper import (
    claims_linear_memories as linear_memories,
)
from factmem.paper import (
    claims_mlp_memories as mlp_memories,
)
from factmem.paper import (
    claims_section_4 as constructions,
)
from factmem.paper import (
    claims_section_5 as dynamics,
)
from factmem.paper import (
    claims_section_6 as bounds,
)
from factmem.paper import (
    claims_trained as trained_transformers,
)
from factmem.paper.claim import Claim

__all__ = ["all_claims", "claim_named"]

_SEEDS = 3

_MAKERS: tuple[Callable[[Sequence[int]], Claim], ...] = (
    linear_memories.theorem_1a,
    linear_memories.theorem_1b,
    linear_memories.orthonormal_embeddings,
    linear_limits.exact_matching,
    linear_memories.shared_answers,
    linear_memories.one_gradient_step,
    linear_limits.limit_of_linear_memories,
    mlp_memories.theorem_2,
    mlp_memories.tangents_are_learned,
    mlp_memories.features_against_tangents,
    mlp_memories.few_outputs,
    linear_memories.quantization,
    constructions.superposed_tokens,
    constructions.theorem_3,
    constructions.theorem_4,
    constructions.repeated_answers,
    constructions.partial_tables,
    trained_transformers.attention_against_mlp,
    trained_transformers.facts_per_parameter,
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
