"""Search for the smallest transformer into which a table can be compiled.

The search begins with the rule of `shapes.py` and goes over the width; for small tables also over
d, if it is not given.
"""

import time
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
from factmem.transformer.compiler.shapes import MAX_FULL_BATCH_FACTS, default_dim, shape_with
from factmem.transformer.convention import EXPERIMENT_CONVENTION, Convention
from factmem.transformer.model import Embeddings
from factmem.transformer.shape import Shape

__all__ = ["compile_smallest"]

_INITIAL_DENSITY = 0.25
"""Facts per parameter of the first shape."""
_MIN_DENSITY = 0.02
_SHRINK, _GROW = 0.97, 1.08
"""The factors of the number of parameters after a success and after a failure."""
_LARGE_LOAD, _LARGE_SHRINK, _LARGE_GROW = 0.7, 0.85, 1.25
"""The same for large tables, where a compilation takes minutes, and the bits per parameter of the
first shape."""


def compile_smallest(
    prompts: PromptDistribution,
    draw_embeddings: Callable[[int], Embeddings],
    dim: int | None = None,
    *,
    key: Key[Array, ""],
    convention: Convention = EXPERIMENT_CONVENTION,
    report: Report | None = None,
    time_limit: float | None = None,
) -> CompileResult:
    """Compile into smaller and smaller shapes until one does not certify every fact.

    Args:
        prompts: the facts, the noise tokens and the prompt length.
        draw_embeddings: returns the embedding tables for a dimension d.
        dim: d; by default the search tries three values for a small table, one for a large one.
        key: random key of the compiler.
        convention: see `compile_facts`.
        report: called with the progress of each compilation, and its shape as text.
        time_limit: seconds after which no further compilation begins, once a shape is certified.

    Returns:
        The transformer with the fewest parameters that certifies every fact. Its `probes` are all
        shapes that were tried.

    Raises:
        FactmemError: no shape with up to 50 parameters per fact certifies every fact.
    """
    large = prompts.facts > MAX_FULL_BATCH_FACTS
    shrink, grow = (_LARGE_SHRINK, _LARGE_GROW) if large else (_SHRINK, _GROW)
    start = time.monotonic()
    probes: list[Probe] = []
    best: CompileResult | None = None
    last_error: FactmemError | None = None

    def attempt(shape: Shape, embeddings: Embeddings) -> CompileResult | None:
        def report_shape(iterations: int | None, **values: Any) -> None:
            if report is not None:
                report(iterations, **values, shape=_describe(shape))

        result = compile_facts(
            prompts, embeddings, shape, key=key, convention=convention, report=report_shape
        )
        probes.append(Probe(shape, result.certificate.certified_accuracy))
        return result if result.status is CompileStatus.CERTIFIED else None

    def is_late() -> bool:
        return time_limit is not None and time.monotonic() - start > time_limit

    def search(parameters: float, embeddings: Embeddings) -> CompileResult | None:
        """Shrink the shape while it is certified; if none has been yet, grow it first."""
        dim = embeddings.dim
        result = attempt(shape_with(parameters, dim, prompts), embeddings)
        while result is None and best is None and parameters < prompts.facts / _MIN_DENSITY:
            parameters *= grow
            result = attempt(shape_with(parameters, dim, prompts), embeddings)
        smallest = None
        while result is not None:
            smallest, shape = result, result.model.shape
            if is_late():
                break
            width = min(shape_with(shrink * shape.parameters, dim, prompts).width, shape.width - 1)
            result = attempt(replace(shape, width=width), embeddings) if width >= 0 else None
        return smallest

    for d in _default_dims(prompts) if dim is None else (dim,):
        if best is not None:
            if is_late():
                break
            parameters = shrink * best.model.shape.parameters
        elif large:
            parameters = prompts.table.association_bits / _LARGE_LOAD
        else:
            parameters = prompts.facts / _INITIAL_DENSITY
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


def _default_dims(prompts: PromptDistribution) -> tuple[int, ...]:
    dim = default_dim(prompts)
    if prompts.facts > MAX_FULL_BATCH_FACTS:
        return (dim,)
    return dim, dim + 3, max(2, dim - 2)


def _describe(shape: Shape) -> str:
    return f"d={shape.dim} H={shape.heads} d_h={shape.head_dim} m={shape.width}"
