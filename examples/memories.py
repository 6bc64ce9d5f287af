"""Section 3 of the paper in a minute: what each kind of memory stores, and at what cost.

python examples/memories.py
"""

from factmem import MemorySpec
from factmem.memories import bits_needed

SPECS = [
    MemorySpec(method="hebbian", dim=64, facts=64),
    MemorySpec(method="low-rank", dim=128, facts=60, rank=64),
    MemorySpec(method="hermite", dim=64, facts=256, width=1024),
    MemorySpec(method="tangent", dim=64, facts=256, outputs=2, width=4096),
    MemorySpec(method="optimal", dim=64, facts=500),
    MemorySpec(method="optimal", dim=64, facts=620),
    MemorySpec(method="trained-linear", dim=64, facts=500),
    MemorySpec(method="fitted-features", dim=64, facts=512, width=96),
    MemorySpec(method="fitted-bilinear", dim=64, facts=1024, width=21),
]
COLUMNS = "{:<15} {:>4} {:>5} {:>5} {:>10} {:>8} {:>10} {:>6} {:>7}"


def main() -> None:
    """Build the memories, one seed each, and print what they recall."""
    print("Associative memories on random unit embeddings")
    names = ("method", "d", "N", "M", "parameters", "recalled", "bits/param", "bits/w", "time")
    print(COLUMNS.format(*names))
    for spec in SPECS:
        result = spec.run()
        pairs = result.instance.associations
        score = result.model.score(pairs)
        bits = bits_needed(result.model, pairs)
        row = (
            spec.method,
            spec.dim,
            pairs.facts,
            pairs.outputs,
            f"{score.parameters:,}",
            f"{score.accuracy:.1%}",
            f"{score.bits_per_parameter:.3f}",
            "–" if bits is None else bits,
            f"{result.seconds:.1f} s",
        )
        print(COLUMNS.format(*row), flush=True)
        if "verdict" in result.metrics:
            print(f"  storing all of them in one matrix: {result.metrics['verdict']}")


if __name__ == "__main__":
    main()
