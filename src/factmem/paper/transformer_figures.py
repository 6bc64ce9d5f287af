"""What Figures 4 (left), 7, 8 and 9 share: facts of trained transformers against parameters."""

from factmem.experiments.transformer_capacity import TransformerCapacityProblem
from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.memory_lines import QUICK_SEEDS, half_powers, listed
from factmem.paper.stored_facts import Law, StoredLine, stored_facts_figure
from factmem.paper.transformer_lines import (
    PAPER_LINES,
    QUICK_DIMS,
    QUICK_LINES,
    QUICK_RATIO,
    TransformerLine,
)
from factmem.plotting.plot import Axis, Line

__all__ = ["transformer_figure"]

AUTHORS_SEED = 64
PAPER_DIMS = half_powers(3, 7.5)
_MOST_FACTS = 11_000
"""The authors draw no point above this, so that shapes expected to store more are not searched."""
_COMPILED = {"quick": (12, 16), "paper": half_powers(3, 6)}
_COMPILED_RATIO = 1.12
_REFERENCE = Line(
    "authors' line, facts = 0.15 · parameters",
    (800.0, 100_000.0),
    (120.0, 15_000.0),
    kind="reference",
)
_LAW = Law("facts ∝ parameters^slope", float, float)
_TABLES = {
    "s=r": "S = R and D = 8",
    "s=r2": "S = R² and D = 8",
    "d=s=r": "D = S = R",
}


def transformer_figure(
    name: str, title: str, told: str, scale: FigureScale, *, compiled: bool = False
) -> PaperFigure:
    """One of the four figures.

    Args:
        name: which.
        title, told: as in `PaperFigure`.
        scale: `quick` is one shape, three seeds and training in seconds; `paper` is the authors'
            25 shapes with their one seed and their protocol.
        compiled: whether compiled transformers are a further line.
    """
    chosen = _quick(name) if scale == "quick" else _paper(name)
    if compiled:
        chosen.append(_compiled(QUICK_LINES[name], scale))
    return stored_facts_figure(
        name,
        title,
        told=told,
        lines=chosen,
        axes=(Axis("parameters, 4·H·d·d_h + 2·m·d", "log"), Axis("facts stored, S·R", "log")),
        size=lambda problem: float(problem.parameters),
        law=_LAW,
        reference=_REFERENCE,
        ran=_ran(name, scale, compiled),
        unless="",
    )


def _quick(name: str) -> list[StoredLine]:
    line = QUICK_LINES[name]
    problems = line.problems(QUICK_DIMS[name], "quick", QUICK_RATIO)
    return [StoredLine("trained, α = β = 1", problems, QUICK_SEEDS, limits=True)]


def _paper(name: str) -> list[StoredLine]:
    """A line for each shape (α, β), with the d that the authors' picture has room for."""
    found = []
    for line in PAPER_LINES[name]:
        problems = [q for q in line.problems(PAPER_DIMS, "paper") if _in_sight(q)]
        group = f"α = {line.attention:g}"
        told = f"{group}, β = {line.mlp:g}"
        found.append(StoredLine(told, problems, (AUTHORS_SEED,), limits=True, group=group))
    return found


def _in_sight(problem: TransformerCapacityProblem) -> bool:
    return problem.expected <= _MOST_FACTS


def _compiled(line: TransformerLine, scale: FigureScale) -> StoredLine:
    problems = line.problems(_COMPILED[scale], "compiled", _COMPILED_RATIO)
    seeds = QUICK_SEEDS[:1] if scale == "quick" else QUICK_SEEDS
    return StoredLine("compiled, 100 % certified", problems, seeds, counts=False)


def _ran(name: str, scale: FigureScale, compiled: bool) -> str:
    if scale == "quick":
        line = QUICK_LINES[name]
        parts = [
            f"Transformers of d = {listed(sorted(QUICK_DIMS[name]))} with H = {line.heads}, "
            f"d_h = ⌊d/H⌋ and m = d (α = β = 1), on random tables of {_TABLES[line.scaling]}, "
            "prompts of 32 tokens. Each size of table is trained on for 4,096 steps of 512 prompts "
            "(Muon, in seconds; the authors' training is longer and stores less) and counts as "
            f"stored at 99 % of 1,024 test prompts. Seeds {listed(QUICK_SEEDS)}; brackets of S to "
            f"a ratio of {QUICK_RATIO}."
        ]
    else:
        line = PAPER_LINES[name][0]
        parts = [
            f"The authors' grid: H = {line.heads}, H·d_h = αd and m = βd with α and β from 4 to "
            f"1/4, d = {listed(PAPER_DIMS)}, on random tables of {_TABLES[line.scaling]}; Adam at "
            "the best of three rates, 2^14 steps of 1,024 prompts, stored means 99 %. Seed "
            f"{AUTHORS_SEED}, as theirs. Shapes expected to store more than {_MOST_FACTS:,} facts "
            "are left out, for their picture ends there."
        ]
    if compiled:
        parts.append(
            f"Compiled transformers of d = {listed(_COMPILED[scale])} have their weights written, "
            "not trained, with a certificate for every fact in any noise"
            + (", one seed." if scale == "quick" else ", three seeds.")
        )
    if name in ("7", "8", "9"):
        parts.append(
            "Which of Figures 7, 8 and 9 has which heads and tables is our own allocation: the "
            "authors' code does not say."
        )
    return " ".join(parts)
