"""Section 4 of the paper in half a minute: facts are written into weights, not trained.

Theorem 3, Theorem 4 and the compiler; each transformer is tested on every fact with the worst
noise. Then a compiled transformer is saved, loaded and certified again.

    python examples/compile.py
"""

import tempfile
from pathlib import Path

import jax.random as jr

import factmem
from factmem import Embeddings, PromptSpec, Shape, TableSpec, recall
from factmem.transformer import EXPERIMENT_CONVENTION, THEORY_CONVENTION

COLUMNS = "{:<10} {:>6} {:>11} {:>16} {:>9} {:>16}"


def main() -> None:
    """Build three transformers, one seed each, and print what they recall."""
    prompts_64 = PromptSpec().draw(TableSpec.random(16, 4, 4).draw(seed=0))
    prompts_900 = PromptSpec().draw(TableSpec.random(30, 30, 8).draw(seed=0))

    def embeddings(dim, prompts, convention):
        return Embeddings.draw(dim, prompts.vocabulary, convention, key=jr.key(0))

    theorem_3 = factmem.attention_construction(
        prompts_64, embeddings(512, prompts_64, THEORY_CONVENTION), 256, key=jr.key(1), block_size=4
    )
    theorem_4 = factmem.mlp_construction(
        prompts_64,
        embeddings(384, prompts_64, THEORY_CONVENTION),
        96,
        2048,
        key=jr.key(1),
        block_size=4,
    )
    compiled = factmem.compile_facts(
        prompts_900,
        embeddings(32, prompts_900, EXPERIMENT_CONVENTION),
        Shape(32, 8, 4, 32),
        key=jr.key(1),
    )
    names = ("", "facts", "parameters", "facts/parameter", "recalled", "denoiser margin")
    print(COLUMNS.format(*names))
    results = {"Theorem 3": theorem_3, "Theorem 4": theorem_4, "compiled": compiled}
    for name, result in results.items():
        prompts = prompts_900 if name == "compiled" else prompts_64
        accuracy = recall(result.model, prompts, key=jr.key(2)).accuracy
        parameters = result.model.shape.parameters
        density = f"{prompts.facts / parameters:.3g}"
        row = (f"{parameters:,}", density, f"{accuracy:.1%}", f"{result.denoiser_margin:.3f}")
        print(COLUMNS.format(name, prompts.facts, *row))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.safetensors"
        factmem.save(compiled.model, path)
        certificate = factmem.certify(factmem.load(path), prompts_900)
        print(f"\nCompiled, saved ({path.stat().st_size:,} bytes) and loaded:")
    print(f"  certified for all prompts: {certificate.certified_accuracy:.1%} of the facts")
    print(f"  smallest certified margin: {certificate.min_certified_margin:.3g}")


if __name__ == "__main__":
    main()
