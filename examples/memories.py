"""Section 3 of the paper in a minute: what each kind of memory stores, and at what price.

python examples/memories.py
"""

import jax
import jax.random as jr
from rich.console import Console
from rich.table import Table

from factmem import Associations, build
from factmem._core.timing import Stopwatch
from factmem.memories import bits_needed

# method, d, N, M, sizes
MEMORIES = [
    ("hebbian", 64, 64, 64, {}),
    ("low-rank", 128, 60, 60, {"rank": 64}),
    ("hermite", 64, 256, 256, {"width": 1024}),
    ("tangent", 64, 256, 2, {"width": 4096}),
    ("maximal", 64, 500, 500, {}),
    ("maximal", 64, 620, 620, {}),
    ("trained-linear", 64, 500, 500, {}),
    ("fitted-features", 64, 512, 512, {"width": 96}),
    ("fitted-bilinear", 64, 1024, 1024, {"width": 21}),
]


def main() -> None:
    """Builds the memories, one seed each, and prints what they recall."""
    columns = (
        "method",
        "d",
        "N",
        "M",
        "numbers",
        "recalled",
        "bits/number",
        "bits/weight",
        "s",
        "",
    )
    table = Table(*columns, title="Associative memories on random unit embeddings")
    for method, dim, facts, outputs, sizes in MEMORIES:
        pair_key, method_key = jr.split(jr.key(0))
        pairs = Associations.draw(pair_key, facts, dim, outputs)
        with Stopwatch() as watch:
            built = build(method, method_key, pairs, **sizes)
            jax.block_until_ready(built.memory)
        score = built.memory.score(pairs)
        bits = bits_needed(built.memory, pairs)
        table.add_row(
            method,
            *(f"{size:,}" for size in (dim, facts, outputs, score.parameters)),
            f"{score.accuracy:.1%}",
            f"{score.bits_per_parameter:.3f}",
            "–" if bits is None else str(bits),
            f"{watch.seconds:.1f}",
            str(built.details.get("verdict", "")),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
