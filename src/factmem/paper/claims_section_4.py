"""Section 4 of the paper: what attention and MLPs store by construction, Theorems 3 and 4.

Importing this loads no jax.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import transformer
from factmem.experiments.measurement import direct
from factmem.facts.table import MISSING, FactTable
from factmem.paper.claim import (
    Claim,
    Finding,
    between,
    close,
    exponent,
    fitted,
)
from factmem.paper.results import Results, column, mean

__all__ = [
    "partial_tables",
    "repeated_answers",
    "superposed_tokens",
    "theorem_3",
    "theorem_4",
]


def measure_superposition(*, dims: Sequence[int], tokens: int, seed: int) -> dict[str, Any]:
    """For each d the largest block that the paper's key separates, and the noise of its scores."""
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.memories.embeddings import sphere
    from factmem.transformer.constructions.denoiser import superposed_key

    largest, spread = [], []
    for dim in dims:
        phi = sphere(jr.key(seed), tokens, dim)
        sizes = np.arange(1, tokens // 8)
        blocks = np.arange(tokens)[None, :] < sizes[:, None]
        scores = jnp.matmul(phi, superposed_key(phi, blocks).T, precision="highest")
        separated = transformer.denoiser_margins(scores, blocks) > 0
        largest.append(int(np.argmin(separated)))
        # Block 64 on tokens that are neither in it nor EOS.
        noise = np.asarray(scores, np.float64)[64:-1, 63]
        spread.append(float(noise.var() / ((64 + 0.25) / dim)))
    return {"largest": largest, "spread": spread}


def superposed_tokens(
    seeds: Sequence[int], dims: Sequence[int] = (512, 1024, 2048, 4096), tokens: int = 1024
) -> Claim:
    """How many tokens one head can read."""

    def judge(results: Results) -> Finding:
        blocks = column(results, "largest")
        law = fitted([dim for _ in blocks for dim in dims], blocks.ravel().tolist())
        return Finding.of(
            [
                exponent("largest block against d", law, 0.8, 1.2),
                between("largest block over d", float((blocks / np.array(dims)).max()), most=1),
                close("variance of scores over (|B| + θ²)/d", mean(results, "spread"), 1, 0.1),
            ]
        )

    return Claim(
        "superposed-tokens",
        "One head can superpose the keys of about d tokens, up to logarithms, and no more.",
        "Section 4, before Theorem 3",
        f"The paper's key for growing blocks of {tokens} random unit vectors: the largest that "
        "every token stays on its side of, and the variance of its scores.",
        unstored_tasks(measure_superposition, seeds, dims=list(dims), tokens=tokens),
        judge,
    )


def _asked(table: FactTable) -> Any:
    from factmem.facts import PromptDistribution

    return PromptDistribution.of(table)


def _embedded(asked: Any, dim: int, key: Any) -> Any:
    return transformer.Embeddings.draw(key, dim, asked.vocabulary, transformer.THEORY)


def measure_attention_alone(
    *,
    subjects: Sequence[int],
    relations: int,
    answers: int,
    dim: int,
    head_dim: int,
    block: int,
    seed: int,
) -> dict[str, Any]:
    """Recall of Theorem 3 at growing S and fixed d, and what its heads write for right answers."""
    import jax.random as jr

    keys = jr.split(jr.key(seed), 3)
    accuracies, parameters, written = [], [], []
    for count in subjects:
        table = FactTable.random(count, relations, answers, seed=seed)
        asked = _asked(table)
        phi = _embedded(asked, dim, keys[0])
        built = transformer.attention_construction(keys[1], asked, phi, head_dim, block=block)
        accuracies.append(transformer.recall(built.model, asked, keys[2], 2).accuracy)
        parameters.append(built.model.shape.parameters)
        written.append(_written_for_right_answers(built, table))
    return {"accuracies": accuracies, "parameters": parameters, "written": written}


def _written_for_right_answers(built: Any, table: FactTable) -> float:
    """The mean of φ(a)ᵀ Oᵀ V φ(s) over facts, by the head of the subject's block; 1 in theory."""
    weights, tokens = built.model.weights, np.asarray(built.model.embeddings.tokens)
    subjects, _, answers = table.fact_ids
    heads = built.blocks[:, subjects].argmax(axis=0)
    value, output = np.asarray(weights.value), np.asarray(weights.output)
    phi_a = tokens[answers + built.model.vocabulary.first_answer]
    read = np.einsum("fkd,fd->fk", value[heads], tokens[subjects])
    return float(np.einsum("fk,fkd,fd->f", read, output[heads], phi_a).mean())


def theorem_3(
    seeds: Sequence[int],
    subjects: Sequence[int] = (8, 16, 32),
    relations: int = 4,
    answers: int = 4,
    dim: int = 512,
    head_dim: int = 192,
    block: int = 4,
) -> Claim:
    """Theorem 3."""

    def judge(results: Results) -> Finding:
        facts = [count * relations for count in subjects]
        law = fitted(facts, column(results, "parameters").mean(axis=0).tolist())
        accuracy = float(np.min(column(results, "accuracies")))
        return Finding.of(
            [
                between("recall of all facts, any noise, all seeds and S", accuracy, 1),
                close(
                    "what heads write for right answers",
                    float(np.mean(column(results, "written"))),
                    1,
                    0.05,
                ),
                between("exponent of parameters against facts", law.exponent, 0.7, 1.05),
            ]
        )

    return Claim(
        "theorem-3",
        "Attention alone recalls every fact with d ≳ max(R, D) and H·d_h ≳ S + R: parameters in "
        "proportion to facts.",
        "Theorem 3",
        f"The construction at S = {', '.join(map(str, subjects))}, R = {relations}, D = {answers}, "
        f"d = {dim}, d_h = {head_dim}, one head for {block} tokens: recall among sampled and worst "
        "noise, and the exponent of its parameters.",
        unstored_tasks(
            measure_attention_alone,
            seeds,
            subjects=list(subjects),
            relations=relations,
            answers=answers,
            dim=dim,
            head_dim=head_dim,
            block=block,
        ),
        judge,
    )


def measure_attention_and_mlp(
    *, tables: Sequence[Mapping[str, int]], dim: int, head_dim: int, block: int, seed: int
) -> dict[str, Any]:
    """Recall of Theorem 4 for several tables, each with a width of its own."""
    import jax.random as jr

    keys = jr.split(jr.key(seed), 3)
    accuracies, margins = [], []
    for sizes in tables:
        asked = _asked(_table(sizes, seed))
        built = transformer.mlp_construction(
            keys[1], asked, _embedded(asked, dim, keys[0]), head_dim, sizes["width"], block=block
        )
        found = transformer.recall(built.model, asked, keys[2], 2)
        accuracies.append(found.accuracy)
        margins.append(found.min_margin)
    return {"accuracies": accuracies, "margins": margins}


def _table(sizes: Mapping[str, int], seed: int) -> FactTable:
    """A random table, or one whose answers have equally many facts; all questions or some."""
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


def theorem_4(
    seeds: Sequence[int],
    subjects: Sequence[int] = (8, 16, 32),
    relations: int = 4,
    answers: int = 4,
    dim: int = 384,
    head_dim: int = 96,
    width_per_subject: int = 128,
) -> Claim:
    """Theorem 4."""
    tables = [
        {"subjects": s, "relations": relations, "answers": answers, "width": width_per_subject * s}
        for s in subjects
    ]

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between(
                    f"recall of all facts, S = {s}, m = {width_per_subject * s}",
                    float(np.min(column(results, "accuracies")[:, place])),
                    1,
                )
                for place, s in enumerate(subjects)
            ]
        )

    return Claim(
        "theorem-4",
        "With an MLP, H·d_h ≳ S + R and m·d ≳ S·R are enough to recall every fact.",
        "Theorem 4",
        f"The construction with m·d in proportion to S·R at fixed d = {dim}, R = {relations}, "
        f"D = {answers}: recall among sampled and worst noise.",
        unstored_tasks(
            measure_attention_and_mlp, seeds, tables=tables, dim=dim, head_dim=head_dim, block=4
        ),
        judge,
    )


def repeated_answers(
    seeds: Sequence[int], dim: int = 512, narrow: int = 192, wide: int = 3072
) -> Claim:
    """m ≥ max C(a)."""
    cases = [(16, narrow), (1, narrow), (1, wide)]
    tables = [
        {"subjects": 16, "relations": 4, "answers": answers, "width": width, "equal": 1}
        for answers, width in cases
    ]

    def judge(results: Results) -> Finding:
        once, often, often_wide = column(results, "accuracies").mean(axis=0)
        return Finding.of(
            [
                between(f"recall with C(a) = 1, m = {narrow}", float(once), 0.95),
                between(f"recall with C(a) = 16, m = {narrow}", float(often), most=0.92),
                between(f"recall with C(a) = 16, m = {wide}", float(often_wide), 0.95),
            ]
        )

    return Claim(
        "repeated-answers",
        "Theorem 4's construction needs a width m of about max C(a), the facts of one answer, even "
        "where m·d is far above the number of facts.",
        "Theorem 4, its second condition",
        f"64 facts (S = 16, R = 4), d = {dim}: all answers different, or 16 facts to each, at the "
        "same width and at a larger one.",
        unstored_tasks(measure_attention_and_mlp, seeds, tables=tables, dim=dim, head_dim=128, block=4),
        judge,
    )


def partial_tables(
    seeds: Sequence[int],
    facts: Sequence[int] = (32, 64, 128),
    subjects: int = 32,
    dim: int = 384,
    width_per_fact: int = 32,
) -> Claim:
    """K facts out of S·R."""
    sizes = {"subjects": subjects, "relations": 4, "answers": 4}
    tables = [{**sizes, "facts": count, "width": width_per_fact * count} for count in facts]
    lean = {**sizes, "facts": facts[-1], "width": width_per_fact * facts[0] // 4}

    def judge(results: Results) -> Finding:
        accuracies = column(results, "accuracies")
        checks = [
            between(
                f"recall of K = {count} of {4 * subjects} facts, m = {width_per_fact * count}",
                float(accuracies[:, place].min()),
                1,
            )
            for place, count in enumerate(facts)
        ]
        return Finding.of(
            [
                *checks,
                between(
                    f"recall of K = {facts[-1]} with m = {lean['width']}",
                    float(accuracies[:, -1].mean()),
                    most=0.95,
                ),
            ]
        )

    return Claim(
        "partial-tables",
        "To store K of the S·R facts it takes m·d ≳ K, not S·R.",
        "Section 4, remarks on Theorems 3 and 4",
        f"Theorem 4's construction at d = {dim} with m in proportion to K; and the most facts with "
        "a width for far fewer.",
        unstored_tasks(
            measure_attention_and_mlp, seeds, tables=[*tables, lean], dim=dim, head_dim=96, block=4
        ),
        judge,
    )
