"""Exact gradient flows from equal or balanced weights."""

from factmem.dynamics import LinearAttention, PromptPopulation, gradient_flow


def exact_flow(table, *, start="equal", scale=1e-5, noise=None, length=32, until=None):
    """Return the flow and its population of prompts."""
    population = PromptPopulation.from_table(table, noise=noise, length=length)
    weights = getattr(LinearAttention, start)(population.tokens, table.answers, scale)
    return gradient_flow(weights, population, until=until), population
