"""How many facts the protocols `paper` and `best` store in one shape, seed by seed.

For every seed, S = R goes up from a guess while training succeeds, or down until it does: what is
given is the largest S = R stored next to one that was not. Probes are `factmem train --json` in a
process of its own. Results are kept in `results/`, so that a script started again does what is
missing; `benchmarks/protocols.md` is written from them.

    python benchmarks/protocols.py [--seeds N] [--protocols paper best] [--only-kept]
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from kept import RESULTS, Kept, MissingError

SHAPE = {"dim": 32, "heads": 8, "head_dim": 4, "width": 32}
ANSWERS = 8
GUESS = {"paper": 24, "best": 36}
TEN = range(10)
"""Seeds for which `paper` is asked for 24 × 24 facts."""


def probe(kept, protocol, size, seed):
    what = {"protocol": protocol, "size": size, "seed": seed, "answers": ANSWERS, **SHAPE}
    flags = {"subjects": size, "relations": size, "answers": ANSWERS, **SHAPE, "seed": seed}
    given = [part for k, v in flags.items() for part in (f"--{k.replace('_', '-')}", str(v))]

    def measured():
        ran = subprocess.run(
            [
                *(sys.executable, "-c", "from factmem.cli import run; run()", "train"),
                *(*given, "--protocol", protocol, "--json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(ran.stdout)
        for run in found["runs"]:
            del run["checks"]
        print(protocol, size, seed, found["best_accuracy"], f"{found['seconds']:.0f} s", flush=True)
        return found

    return kept.get(what, measured)


def largest(kept, protocol, seed):
    """The largest S = R that is stored, and the probe of it."""
    size = GUESS[protocol]
    found = probe(kept, protocol, size, seed)
    if found["success"]:
        while (above := probe(kept, protocol, size + 1, seed))["success"]:
            size, found = size + 1, above
    else:
        while not found["success"]:
            size -= 1
            found = probe(kept, protocol, size, seed)
    return size, found


def written(stored, ten):
    d, heads, head_dim, width = SHAPE.values()
    facts = {
        name: statistics.median(size**2 for size, _ in found) for name, found in stored.items()
    }
    lines = [
        f"# Facts stored by training in (d, H, d_h, m) = ({d}, {heads}, {head_dim}, {width})",
        "",
        f"S = R, D = {ANSWERS}; stored: above 99 % at one of the checks on 1024 fixed prompts. By",
        "`benchmarks/protocols.py`. Beside it the accuracy over *all* facts with fresh noise,",
        "where training ended, and the share of facts that are recalled in every one of the",
        "prompts, those filled with the worst noise included.",
        "",
        "| protocol | seed | largest S = R | facts | per parameter | steps | at a check |"
        " all facts | in the worst noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in stored.items():
        lines += [
            f"| {name} | {r['seed']} | {size} | {r['facts']} | {r['facts_per_parameter']:.3f} | "
            f"{r['steps']} | {r['best_accuracy']:.4f} | {r['accuracy']:.4f} | "
            f"{r['accuracy_in_worst_noise']:.3f} |"
            for size, r in found
        ]
        lines.append(f"| {name} | median | | {facts[name]:g} | | | | | |")
    if {"paper", "best"} <= set(facts):
        lines += ["", f"Ratio of the medians: {facts['best'] / facts['paper']:.2f}."]
    if ten:
        good = sum(found["success"] for found in ten)
        rates = [f"{found['learning_rate']:g}" for found in ten if found["success"]]
        lines += [
            "",
            f"24 × 24 facts by `paper`: {good} of seeds 0 to 9 succeed, at the rates "
            f"{', '.join(rates)}; best accuracies "
            + ", ".join(f"{found['best_accuracy']:.4f}" for found in ten)
            + "; over all facts with fresh noise "
            + ", ".join(f"{found['accuracy']:.4f}" for found in ten)
            + ".",
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--protocols", nargs="+", default=["paper", "best"])
    parser.add_argument("--only-kept", action="store_true")
    options = parser.parse_args()
    kept = Kept(RESULTS / "protocols.jsonl", complete=options.only_kept)
    stored, ten = {}, []
    for name in options.protocols:
        for seed in range(options.seeds):
            try:
                found = largest(kept, name, seed)
                stored.setdefault(name, []).append(found)
            except MissingError:
                print(f"missing: {name}, seed {seed}")
    try:
        ten = [probe(kept, "paper", 24, seed) for seed in TEN]
    except MissingError:
        print("missing: some of ten seeds at 24 × 24")
    page = written(stored, ten)
    Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
