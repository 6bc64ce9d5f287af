"""The smallest transformer into which a table can be compiled.

Few dimensions, many heads of one dimension and a wide MLP store the most facts per parameter: keys
and queries need one dimension only, and what the MLP reads and writes has d dimensions each. So
d_h is 1, the heads follow from the number of tokens, and the search is over the width, and over d
unless that is given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Array, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.transformer.compiler.compiler import Compiled, compile_facts
from factmem.transformer.convention import EXPERIMENTS, Convention
from factmem.transformer.model import Embeddings, Shape

__all__ = ["Probe", "compile_smallest", "natural_dim", "natural_heads"]

_FIRST_DENSITY = 0.23
"""Facts per parameter that the search starts with."""
_LEAST_DENSITY = 0.02
_SMALLER, _LARGER = 0.97, 1.08
"""What the parameters are multiplied by after a success and after a failure."""


@dataclass(frozen=True)
class Probe:
    """One shape that was tried."""

    shape: Shape
    certified_accuracy: float


def compile_smallest(
    key: Key[Array, ""],
    asked: PromptDistribution,
    embeddings: Callable[[int], Embeddings],
    dim: int | None = None,
    *,
    convention: Convention = EXPERIMENTS,
    report: Report | None = None,
) -> tuple[Compiled, tuple[Probe, ...]]:
    """Compiles into smaller and smaller shapes, until one does not certify every fact.

    Args:
        key: randomness of the compiler.
        asked: the facts, the noise tokens and the length of prompts.
        embeddings: gives the tables of a dimension.
        dim: d; some that suit the table if left out.
        convention: see `compile_facts`.
        report: told how far each compilation is.

    Returns:
        The transformer of the fewest parameters that certifies every fact, and all that was tried.

    Raises:
        FactmemError: nothing up to 50 parameters a fact does.
    """
    probes: list[Probe] = []
    best: Compiled | None = None
    problem: FactmemError | None = None

    def attempt(shape: Shape, tables: Embeddings) -> Compiled | None:
        found = compile_facts(key, asked, tables, shape, convention=convention, report=report)
        probes.append(Probe(shape, found.certificate.certified_accuracy))
        return found if probes[-1].certified_accuracy == 1 else None

    def down_from(parameters: float, tables: Embeddings) -> Compiled | None:
        """The last success on the way down, after a way up if there was none before."""
        dim = tables.tokens.shape[1]
        found = attempt(_shape(dim, parameters, asked), tables)
        while found is None and best is None and parameters < asked.facts / _LEAST_DENSITY:
            parameters *= _LARGER
            found = attempt(_shape(dim, parameters, asked), tables)
        last = None
        while found is not None:
            last, shape = found, found.model.shape
            smaller = min(_shape(dim, _SMALLER * shape.parameters, asked).width, shape.width - 1)
            found = attempt(replace(shape, width=smaller), tables) if smaller >= 0 else None
        return last

    for d in _dims(asked) if dim is None else (dim,):
        size = _SMALLER * best.model.shape.parameters if best else asked.facts / _FIRST_DENSITY
        try:
            best = down_from(size, embeddings(d)) or best
        except FactmemError as error:  # of this dimension, whatever the width
            problem = error
    if best is not None:
        return best, tuple(probes)
    if not probes and problem is not None:
        raise problem
    most = max(probes, key=lambda probe: probe.shape.parameters)
    raise FactmemError(
        f"up to {most.shape.parameters} parameters with d = {most.shape.dim} do not hold the "
        f"table: only {most.certified_accuracy:.4f} of the facts are certified"
    )


def natural_dim(asked: PromptDistribution) -> int:
    """A d that suits so many tokens: 14 for 32 of them, 17 for 60, 22 for 120."""
    return round(1.6 * math.sqrt(asked.vocabulary.first_noise) + 4.5)


def natural_heads(asked: PromptDistribution, dim: int) -> int:
    """As many heads as tell the facts apart well, fewer where d lets each read more tokens."""
    more_room = min(1.0, math.sqrt(natural_dim(asked) / dim))
    return max(4, round(2.6 * more_room * math.sqrt(asked.vocabulary.first_noise)))


def _dims(asked: PromptDistribution) -> tuple[int, ...]:
    dim = natural_dim(asked)
    return dim, dim + 3, max(2, dim - 2)


def _shape(dim: int, parameters: float, asked: PromptDistribution) -> Shape:
    heads = natural_heads(asked, dim)
    return Shape(dim, heads, 1, max(0, round(parameters / (2 * dim) - 2 * heads)))
