"""Section 4 of the paper in half a minute: facts written into weights, not trained.

Theorem 3, Theorem 4 and the compiler, each asked for every fact among the worst noise; then a
compiled transformer goes to a file and comes back with its certificate.

    python examples/compile.py
"""

import tempfile
from pathlib import Path

import jax.random as jr
from rich.console import Console
from rich.table import Table

from factmem import FactTable, PromptDistribution, Shape, load_transformer, save_transformer
from factmem._core.timing import Stopwatch
from factmem.transformer import (
    EXPERIMENTS,
    THEORY,
    Embeddings,
    attention_construction,
    certify,
    compile_facts,
    mlp_construction,
    recall,
)


def main() -> None:
    """Builds three transformers, one seed each, and prints what they recall."""
    few = PromptDistribution.of(FactTable.random(16, 4, 4))
    many = PromptDistribution.of(FactTable.random(30, 30, 8))
    phi3, phi4, phi = (
        Embeddings.draw(jr.key(0), dim, asked.vocabulary, convention)
        for dim, asked, convention in (
            (512, few, THEORY),
            (384, few, THEORY),
            (32, many, EXPERIMENTS),
        )
    )
    builders = {
        "Theorem 3": (few, lambda key: attention_construction(key, few, phi3, 256, block=4)),
        "Theorem 4": (few, lambda key: mlp_construction(key, few, phi4, 96, 2048, block=4)),
        "compiled": (many, lambda key: compile_facts(key, many, phi, Shape(32, 8, 4, 32))),
    }
    columns = ("", "facts", "parameters", "density", "recalled", "denoiser margin", "s")
    table = Table(
        *columns,
        title="Transformers that were built, worst prompts included; density: facts per parameter",
    )
    for name, (asked, build) in builders.items():
        with Stopwatch() as watch:
            built = build(jr.key(1))
        found = recall(built.model, asked, jr.key(2))
        parameters = built.model.shape.parameters
        table.add_row(
            name,
            f"{asked.facts}",
            f"{parameters:,}",
            f"{asked.facts / parameters:.3g}",
            f"{found.accuracy:.1%}",
            f"{built.denoiser_margin:.3f}",
            f"{watch.seconds:.1f}",
        )
    console = Console()
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.safetensors"
        save_transformer(built.model, path)
        certificate = certify(load_transformer(path), many)
        console.print(
            f"Compiled, saved ({path.stat().st_size:,} bytes) and loaded: "
            f"{certificate.certified_accuracy:.1%} of the facts certified over every prompt, "
            f"smallest certified margin {certificate.min_certified_margin:.3g}"
        )


if __name__ == "__main__":
    main()
