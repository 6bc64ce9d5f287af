"""Theorem 4: attention and an MLP recall every fact.

Importing this module loads no jax.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import transformer
from factmem.experiments.measurement import uncached_tasks
from factmem.facts.table import MISSING, FactTable
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, column

__all__ = ["partial_tables", "repeated_answers", "theorem_4"]


def measure_attention_and_mlp(
    *, tables: Sequence[Mapping[str, int]], dim: int, head_dim: int, block: int, seed: int
) -> dict[str, Any]:
    """Measure recall of the construction for several tables, each with its own width."""
    import jax.random as jr

    from factmem.facts import PromptDistribution

    keys = jr.split(jr.key(seed), 3)
    accuracies, margins = [], []
    for sizes in tables:
        prompts = PromptDistribution.from_table(_table(sizes, seed))
        phi = transformer.Embeddings.draw(
            dim, prompts.vocabulary, transformer.THEORY_CONVENTION, key=keys[0]
        )
        built = transformer.mlp_construction(
            prompts, phi, head_dim, sizes["width"], key=keys[1], block_size=block
        )
        recall = transformer.recall(built.model, prompts, key=keys[2], prompts_per_fact=2)
        accuracies.append(recall.accuracy)
        margins.append(recall.min_margin)
    return {"accuracies": accuracies, "margins": margins}


def _table(sizes: Mapping[str, int], seed: int) -> FactTable:
    """Return a random table, or one with equally frequent answers, complete or partial."""
    shape = (sizes["subjects"], sizes["relations"], sizes["answers"])
    table = (
        FactTable.structured(*shape) if "equal" in sizes else FactTable.random(*shape, seed=seed)
    )
    facts = sizes.get("facts", table.facts)
    if facts == table.facts:
        return table
    grid = np.array(table.answer_of)
    left_out = np.random.default_rng(seed).permutation(grid.size)[facts:]
    grid.flat[left_out] = MISSING
    return FactTable(grid, answer_names=table.answer_names)


@register_claim("theorem-4", order=(4, 30))
def theorem_4(
    seeds: Sequence[int],
    subjects: Sequence[int] = (8, 16, 32),
    relations: int = 4,
    answers: int = 4,
    dim: int = 384,
    head_dim: int = 96,
    width_per_subject: int = 128,
) -> Claim:
    """Check Theorem 4."""
    tables = [
        {"subjects": s, "relations": relations, "answers": answers, "width": width_per_subject * s}
        for s in subjects
    ]

    def judge(results: SeedResults) -> Finding:
        accuracies = column(results, "accuracies").min(axis=0)
        return Finding.from_checks(
            [
                check_between(f"accuracy, S = {s}, m = {width_per_subject * s}", float(accuracy), 1)
                for s, accuracy in zip(subjects, accuracies, strict=True)
            ]
        )

    return Claim(
        "theorem-4",
        "With an MLP, H·d_h ≳ S + R and m·d ≳ S·R suffice to recall every fact.",
        "Theorem 4",
        f"The construction with m·d in proportion to S·R at fixed d = {dim}, R = {relations}, "
        f"D = {answers}: recall in sampled and worst-case noise.",
        uncached_tasks(
            measure_attention_and_mlp, seeds, tables=tables, dim=dim, head_dim=head_dim, block=4
        ),
        judge,
    )


@register_claim("repeated-answers", order=(4, 40))
def repeated_answers(
    seeds: Sequence[int], dim: int = 512, narrow: int = 192, wide: int = 3072
) -> Claim:
    """Check the condition m ≥ max C(a)."""
    cases = [(16, narrow), (1, narrow), (1, wide)]
    tables = [
        {"subjects": 16, "relations": 4, "answers": answers, "width": width, "equal": 1}
        for answers, width in cases
    ]

    def judge(results: SeedResults) -> Finding:
        distinct, repeated, repeated_wide = column(results, "accuracies").mean(axis=0)
        return Finding.from_checks(
            [
                check_between(f"accuracy with C(a) = 1, m = {narrow}", float(distinct), 0.95),
                check_between(f"accuracy with C(a) = 16, m = {narrow}", float(repeated), high=0.92),
                check_between(f"accuracy with C(a) = 16, m = {wide}", float(repeated_wide), 0.95),
            ]
        )

    return Claim(
        "repeated-answers",
        "Theorem 4's construction needs a width m of about max C(a), the number of facts with the "
        "same answer, even if m·d is far above the number of facts.",
        "Theorem 4, its second condition",
        f"64 facts (S = 16, R = 4), d = {dim}: all answers distinct, or 16 facts per answer, at "
        "the same width and at a larger one.",
        uncached_tasks(
            measure_attention_and_mlp, seeds, tables=tables, dim=dim, head_dim=128, block=4
        ),
        judge,
    )


@register_claim("partial-tables", order=(4, 50))
def partial_tables(
    seeds: Sequence[int],
    facts: Sequence[int] = (32, 64, 128),
    subjects: int = 32,
    dim: int = 384,
    width_per_fact: int = 32,
) -> Claim:
    """Check tables with K facts out of S·R."""
    sizes = {"subjects": subjects, "relations": 4, "answers": 4}
    tables = [{**sizes, "facts": count, "width": width_per_fact * count} for count in facts]
    narrow = {**sizes, "facts": facts[-1], "width": width_per_fact * facts[0] // 4}

    def judge(results: SeedResults) -> Finding:
        accuracies = column(results, "accuracies")
        checks = [
            check_between(
                f"accuracy on K = {count} of {4 * subjects} facts, m = {width_per_fact * count}",
                float(accuracies[:, index].min()),
                1,
            )
            for index, count in enumerate(facts)
        ]
        return Finding.from_checks(
            [
                *checks,
                check_between(
                    f"accuracy on K = {facts[-1]} with m = {narrow['width']}",
                    float(accuracies[:, -1].mean()),
                    high=0.95,
                ),
            ]
        )

    return Claim(
        "partial-tables",
        "Storing K of the S·R facts takes m·d ≳ K, not S·R.",
        "Section 4, remarks on Theorems 3 and 4",
        f"Theorem 4's construction at d = {dim} with m in proportion to K; and the largest K with "
        "a width for far fewer facts.",
        uncached_tasks(
            measure_attention_and_mlp,
            seeds,
            tables=[*tables, narrow],
            dim=dim,
            head_dim=96,
            block=4,
        ),
        judge,
    )
