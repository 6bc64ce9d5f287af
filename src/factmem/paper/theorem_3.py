"""Theorem 3: attention alone recalls every fact.

Importing this module loads no jax.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import transformer
from factmem.experiments.measurement import uncached_tasks
from factmem.facts.table import FactTable
from factmem.paper.claim import (
    Claim,
    Finding,
    check_between,
    check_close,
    check_exponent,
    fit_values,
)
from factmem.paper.memory_figures import comma_separated
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, column, mean

__all__ = ["superposed_tokens", "theorem_3"]


def measure_superposition(*, dims: Sequence[int], tokens: int, seed: int) -> dict[str, Any]:
    """Measure, for each d, the largest block that the paper's key separates, and its noise."""
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.memories.embeddings import sphere
    from factmem.transformer.constructions.denoiser import superposed_keys

    largest, noise_ratio = [], []
    for dim in dims:
        phi = sphere(tokens, dim, key=jr.key(seed))
        sizes = np.arange(1, tokens // 8)
        blocks = np.arange(tokens)[None, :] < sizes[:, None]
        scores = jnp.matmul(phi, superposed_keys(phi, blocks).T, precision="highest")
        separated = transformer.denoiser_margins(scores, blocks) > 0
        largest.append(int(np.argmin(separated)))
        # The block of 64 tokens, on tokens that are neither in it nor EOS.
        noise = np.asarray(scores, np.float64)[64:-1, 63]
        noise_ratio.append(float(noise.var() / ((64 + 0.25) / dim)))
    return {"largest": largest, "noise_ratio": noise_ratio}


@register_claim("superposed-tokens", order=(4, 10))
def superposed_tokens(
    seeds: Sequence[int], dims: Sequence[int] = (512, 1024, 2048, 4096), tokens: int = 1024
) -> Claim:
    """Check how many tokens one head can read."""

    def judge(results: SeedResults) -> Finding:
        blocks = column(results, "largest")
        law = fit_values([dim for _ in blocks for dim in dims], blocks.ravel().tolist())
        return Finding.from_checks(
            [
                check_exponent("largest block against d", law, 0.8, 1.2),
                check_between("largest block / d", float((blocks / np.array(dims)).max()), high=1),
                check_close(
                    "variance of scores over (|B| + θ²)/d", mean(results, "noise_ratio"), 1, 0.1
                ),
            ]
        )

    return Claim(
        "superposed-tokens",
        "One head can superpose the keys of about d tokens, up to logarithms, and no more.",
        "Section 4, before Theorem 3",
        f"The paper's key for growing blocks of {tokens} random unit vectors: the largest block "
        "that it separates from all other tokens, and the variance of its scores.",
        uncached_tasks(measure_superposition, seeds, dims=list(dims), tokens=tokens),
        judge,
    )


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
    """Measure recall of the construction at growing S and fixed d, and what its heads write."""
    import jax.random as jr

    from factmem.facts import PromptDistribution

    keys = jr.split(jr.key(seed), 3)
    accuracies, parameters, written = [], [], []
    for count in subjects:
        table = FactTable.random(count, relations, answers, seed=seed)
        prompts = PromptDistribution.from_table(table)
        phi = transformer.Embeddings.draw(
            dim, prompts.vocabulary, transformer.THEORY_CONVENTION, key=keys[0]
        )
        built = transformer.attention_construction(
            prompts, phi, head_dim, key=keys[1], block_size=block
        )
        recall = transformer.recall(built.model, prompts, key=keys[2], prompts_per_fact=2)
        accuracies.append(recall.accuracy)
        parameters.append(built.model.shape.parameters)
        written.append(_written_to_correct_answers(built, table))
    return {"accuracies": accuracies, "parameters": parameters, "written": written}


def _written_to_correct_answers(built: Any, table: FactTable) -> float:
    """Return the mean of φ(a)ᵀ Oᵀ V φ(s) over facts, in the head of the subject's block.

    It is 1 in theory.
    """
    weights, tokens = built.model.weights, np.asarray(built.model.embeddings.tokens)
    subjects, _, answers = table.fact_ids
    heads = built.blocks[:, subjects].argmax(axis=0)
    value, output = np.asarray(weights.value), np.asarray(weights.output)
    phi_a = tokens[answers + built.model.vocabulary.first_answer]
    read = np.einsum("fkd,fd->fk", value[heads], tokens[subjects])
    return float(np.einsum("fk,fkd,fd->f", read, output[heads], phi_a).mean())


@register_claim("theorem-3", order=(4, 20))
def theorem_3(
    seeds: Sequence[int],
    subjects: Sequence[int] = (8, 16, 32),
    relations: int = 4,
    answers: int = 4,
    dim: int = 512,
    head_dim: int = 192,
    block: int = 4,
) -> Claim:
    """Check Theorem 3."""

    def judge(results: SeedResults) -> Finding:
        facts = [count * relations for count in subjects]
        law = fit_values(facts, column(results, "parameters").mean(axis=0).tolist())
        accuracy = float(np.min(column(results, "accuracies")))
        written = float(np.mean(column(results, "written")))
        return Finding.from_checks(
            [
                check_between("accuracy in any noise, all seeds and S", accuracy, 1),
                check_close("what heads write to correct answers", written, 1, 0.05),
                check_between("exponent of parameters against facts", law.exponent, 0.7, 1.05),
            ]
        )

    return Claim(
        "theorem-3",
        "Attention alone recalls every fact with d ≳ max(R, D) and H·d_h ≳ S + R: parameters in "
        "proportion to facts.",
        "Theorem 3",
        f"The construction at S = {comma_separated(subjects)}, R = {relations}, D = {answers}, "
        f"d = {dim}, d_h = {head_dim}, one head for {block} tokens: recall in sampled and "
        "worst-case noise, and the exponent of its parameters.",
        uncached_tasks(
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
