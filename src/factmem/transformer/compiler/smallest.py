"""Search for the smallest transformer into which a table can be compiled.

Few dimensions, many heads with d_h = 1 and a wide MLP store the most facts per parameter: queries
and keys need only one dimension, while the MLP reads and writes all d. So d_h is 1, the number of
heads follows from the number of tokens, and the search is over the width, and over d if it is not
given.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtyping import Array, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.compiler.compiler import (
    CompileResult,
    CompileStatus,
    Probe,
    compile_facts,
)
from factmem.transformer.convention import EXPERIMENT_CONVENTION, Convention
from factmem.transformer.model import Embeddings
from factmem.transformer.shape import Shape

__all__ = ["compile_smallest", "default_dim", "default_heads"]

_INITIAL_DENSITY = 0.23
"""Facts per parameter of the first shape."""
_MIN_DENSITY = 0.02
_SHRINK, _GROW = 0.97, 1.08
"""The factors of the number of parameters after a success and after a failure."""


def compile_smallest(
    prompts: PromptDistribution,
    draw_embeddings: Callable[[int], Embeddings],
    dim: int | None = None,
    *,
    key: Key[Array, ""],
    convention: Convention = EXPERIMENT_CONVENTION,
    report: Report | None = None,
) -> CompileResult:
    """Compile into smaller and smaller shapes until one does not certify every fact.

    Args:
        prompts: the facts, the noise tokens and the prompt length.
        draw_embeddings: returns the embedding tables for a dimension d.
        dim: d; by default the search tries three values that suit the table.
        key: random key of the compiler.
        convention: see `compile_facts`.
        report: called with the progress of each compilation, and its shape as text.

    Returns:
        The transformer with the fewest parameters that certifies every fact. Its `probes` are all
        shapes that were tried.

    Raises:
        FactmemError: no shape with up to 50 parameters per fact certifies every fact.
    """
    probes: list[Probe] = []
    best: CompileResult | None = None
    last_error: FactmemError | None = None

    def attempt(shape: Shape, embeddings: Embeddings) -> CompileResult | None:
        def report_shape(iterations: int, **values: Any) -> None:
            if report is not None:
                report(iterations, **values, shape=_describe(shape))

        result = compile_facts(
            prompts, embeddings, shape, key=key, convention=convention, report=report_shape
        )
        probes.append(Probe(shape, result.certificate.certified_accuracy))
        return result if result.status is CompileStatus.CERTIFIED else None

    def search(parameters: float, embeddings: Embeddings) -> CompileResult | None:
        """Shrink the shape while it is certified; if none has been yet, grow it first."""
        dim = embeddings.dim
        result = attempt(_shape(dim, parameters, prompts), embeddings)
        while result is None and best is None and parameters < prompts.facts / _MIN_DENSITY:
            parameters *= _GROW
            result = attempt(_shape(dim, parameters, prompts), embeddings)
        smallest = None
        while result is not None:
            smallest, shape = result, result.model.shape
            width = min(_shape(dim, _SHRINK * shape.parameters, prompts).width, shape.width - 1)
            result = attempt(replace(shape, width=width), embeddings) if width >= 0 else None
        return smallest

    for d in _default_dims(prompts) if dim is None else (dim,):
        if best is None:
            parameters = prompts.facts / _INITIAL_DENSITY
        else:
            parameters = _SHRINK * best.model.shape.parameters
        try:
            best = search(parameters, draw_embeddings(d)) or best
        except FactmemError as error:  # for this dimension, whatever the width
            last_error = error
    if best is not None:
        return replace(best, probes=tuple(probes))
    if not probes and last_error is not None:
        raise last_error
    largest = max(probes, key=lambda probe: probe.shape.parameters)
    raise FactmemError(
        f"no shape up to {largest.shape.parameters} parameters with dim = {largest.shape.dim} "
        f"stores the table: only {largest.certified_accuracy:.4f} of the facts are certified"
    )


def default_dim(prompts: PromptDistribution) -> int:
    """Return a d that suits the number of subjects and relations: 14 for 32, 17 for 60."""
    return round(1.6 * math.sqrt(prompts.vocabulary.first_noise) + 4.5)


def default_heads(prompts: PromptDistribution, dim: int) -> int:
    """Return how many heads distinguish the facts; with a larger d fewer are enough."""
    factor = min(1.0, math.sqrt(default_dim(prompts) / dim))
    return max(4, round(2.6 * factor * math.sqrt(prompts.vocabulary.first_noise)))


def _default_dims(prompts: PromptDistribution) -> tuple[int, ...]:
    dim = default_dim(prompts)
    return dim, dim + 3, max(2, dim - 2)


def _shape(dim: int, parameters: float, prompts: PromptDistribution) -> Shape:
    """Return the shape with d_h = 1 and about this number of parameters."""
    heads = default_heads(prompts, dim)
    return Shape(dim, heads, 1, max(0, round(parameters / (2 * dim) - 2 * heads)))


def _describe(shape: Shape) -> str:
    return f"d={shape.dim} H={shape.heads} d_h={shape.head_dim} m={shape.width}"
