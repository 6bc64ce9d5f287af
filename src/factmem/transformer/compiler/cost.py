"""What a compilation costs: an estimate of time and memory, before any work begins."""

from dataclasses import dataclass

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.compiler.fit import Schedule
from factmem.transformer.compiler.repair import repair_bytes
from factmem.transformer.compiler.steps import sampled_answers
from factmem.transformer.shape import Shape

__all__ = ["CompileCost", "check_memory", "compile_cost"]

_FLOPS_PER_SECOND = 1e11
"""Of two cores: 54,031 facts in 999,936 parameters took 105 s for 40 epochs, 1.6·10¹¹ a second."""
_CERTIFICATE_SLOWDOWN = 4.0
"""The certificate computes in float64 and bounds every product twice."""
_BASE_BYTES, _BLOCK_BYTES = 4e8, 4e8
"""Of Python, jax and compiled programs, and of the arrays of one block of facts."""
_FACT_BYTES = 250


@dataclass(frozen=True)
class CompileCost:
    """An estimate for one compilation.

    Args:
        seconds: time of the first round, of two certificates and of a repair, on two cores.
        peak_bytes: memory of the process.
    """

    seconds: float
    peak_bytes: float


def compile_cost(prompts: PromptDistribution, shape: Shape) -> CompileCost:
    """Estimate time and memory of a compilation.

    Memory is 8·V·(2d + 5H + 4·H·d_h) bytes for V prompt tokens, 24·d for each answer, 250 for each
    fact, 56 for each parameter, 12·m² + 32,000·m for the repair of the last facts, and 0.8 GB for
    programs and the blocks of facts.
    """
    vocabulary, facts = prompts.vocabulary, prompts.facts
    schedule = Schedule.default(facts, prompts.table.association_bits / shape.parameters)
    answers = sampled_answers(vocabulary.answers)
    step_flops = 6 * facts * (shape.parameters + shape.dim * answers)
    exact_flops = 2 * facts * (3 * shape.parameters + shape.dim * vocabulary.answers)
    units = shape.width or shape.heads * shape.head_dim
    repair_flops = 2 * facts * units**2
    flops = schedule.epochs * step_flops + 2 * _CERTIFICATE_SLOWDOWN * exact_flops + repair_flops
    head_sizes = 5 * shape.heads + 4 * shape.heads * shape.head_dim
    peak_bytes = (
        8 * vocabulary.prompt_tokens * (2 * shape.dim + head_sizes)
        + 24 * vocabulary.answers * shape.dim
        + _FACT_BYTES * facts
        + 56 * shape.parameters
        + repair_bytes(units)
        + _BASE_BYTES
        + _BLOCK_BYTES
    )
    return CompileCost(flops / _FLOPS_PER_SECOND, peak_bytes)


def check_memory(prompts: PromptDistribution, shape: Shape) -> None:
    """Check that a compilation fits into the memory that is available.

    Raises:
        FactmemError: it does not; the message has the estimates of memory and time.
    """
    import psutil

    cost, available = compile_cost(prompts, shape), psutil.virtual_memory().available
    if cost.peak_bytes > available:
        raise FactmemError(
            f"compiling {prompts.facts:,} facts into {shape.parameters:,} parameters needs about "
            f"{cost.peak_bytes / 1e9:,.1f} GB of memory (and {cost.seconds / 60:,.0f} minutes on "
            f"two cores), but only {available / 1e9:,.1f} GB are available"
        )
