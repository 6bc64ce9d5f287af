"""Whether training by `paper` may be ended early: verdicts with and without the rule.

Training is carried to its end around the threshold, seed by seed, and the rule is applied to the
curves afterwards. It was chosen on the first grid; the second was measured for this page alone, and
had no say. Results are kept in `results/`; `benchmarks/hopeless.md` is written from them.

    python benchmarks/hopeless.py [--only-kept]
"""

import argparse
from dataclasses import replace
from pathlib import Path

from factmem.experiments import Experiment, LocalWorkers, PendingTasks, Store, Task, sweep
from kept import RESULTS

CHOSEN_ON = [
    *(((32, 8, 4, 32), size, seed) for size in range(23, 29) for seed in range(10, 14)),
    *(((16, 8, 2, 16), size, seed) for size in range(10, 16) for seed in range(10, 17)),
]
HELD_OUT = [
    *(((16, 8, 2, 16), size, seed) for size in range(12, 16) for seed in range(20, 35)),
    *(((24, 8, 3, 24), size, seed) for size in range(18, 22) for seed in range(20, 25)),
]


def curves(*, shape, size, seed):
    """The accuracy of every learning rate at every check; S = R, D = 8."""
    import jax.random as jr

    from factmem import PAPER, FactTable, PromptDistribution, Shape, Transformer
    from factmem.training import runs_for_learning_rates, train_transformers

    asked = PromptDistribution.of(FactTable.random(size, size, 8, seed=seed))
    keys = jr.split(jr.key(seed), 3)
    start = Transformer.draw(keys[0], Shape(*shape), asked.vocabulary)
    runs = train_transformers(runs_for_learning_rates(start, asked, PAPER), PAPER, keys[1])
    return {
        "runs": [
            {"reached": run.success, "accuracy": [check.accuracy for check in run.checks]}
            for run in runs
        ]
    }


CURVES = Experiment("paper-curves", 1, curves)


def task(shape, size, seed):
    return Task(CURVES, {"shape": shape, "size": size, "seed": seed})


def with_rule(runs, protocol):
    """What the rule makes of a training: the verdict, and the checks that are done."""

    def end(run):
        """The check at which a run ends, and whether it has reached the criterion there."""
        last, best = len(run["accuracy"]) - 1, 0.0
        for check, accuracy in enumerate(run["accuracy"]):
            best = max(best, accuracy)
            if check < last and protocol.is_hopeless(protocol.steps_at(check), best):
                return check, False
        return last, run["reached"]

    ends = [end(run) for run in runs]
    winners = [check for check, reached in ends if reached]
    return bool(winners), sum(min([check, *winners]) for check, _ in ends)


def compared(grid, known):
    """How often verdicts agree, and what share of the steps is done, in all and in failures."""
    from factmem import PAPER
    from factmem.experiments.transformer_capacity import _HOPELESS

    protocol = replace(PAPER, hopeless=_HOPELESS)
    agree, stored, done, whole, failing, failing_whole = 0, 0, 0, 0, 0, 0
    wrong = []
    for entry in grid:
        runs = known[task(*entry).identity].metrics["runs"]
        truth, cost = any(run["reached"] for run in runs), _checks(runs)
        verdict, spent = with_rule(runs, protocol)
        agree += verdict == truth
        stored += truth
        wrong += [entry] * (verdict != truth)
        done, whole = done + spent, whole + cost
        if not truth:
            failing, failing_whole = failing + spent, failing_whole + cost
    return {
        "probes": len(grid),
        "stored": stored,
        "agree": agree,
        "wrong": wrong,
        "steps": done / whole,
        "failing": failing / failing_whole,
    }


def _checks(runs):
    return sum(len(run["accuracy"]) - 1 for run in runs)


def written(rows):
    lines = [
        "# Ending hopeless training early",
        "",
        "By `benchmarks/hopeless.py`: training by `paper`, S = R, D = 8, carried to its end,",
        "around the threshold. The rule ends a run whose best accuracy at the checks is below 75 %",
        "after a quarter of the steps, or below 93 % after half of them.",
        "",
        "| probes | stored | verdicts agree | steps done, of all | of those that fail |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name}: {row['probes']} | {row['stored']} | {row['agree']} "
            f"({row['agree'] / row['probes']:.1%}) | {row['steps']:.0%} | {row['failing']:.0%} |"
        )
    wrong = [entry for row in rows.values() for entry in row["wrong"]]
    told = "; ".join(f"{shape}, S = {size}, seed {seed}" for shape, size, seed in wrong)
    lines += ["", f"Where they differ the rule calls something not stored that is: {told}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only-kept", action="store_true")
    options = parser.parse_args()
    tasks = [task(*entry) for entry in (*CHOSEN_ON, *HELD_OUT)]

    def pending(known):
        return PendingTasks([each for each in tasks if each.identity not in known])

    with Store(RESULTS / "hopeless.sqlite") as store, LocalWorkers() as workers:
        if options.only_kept:
            known = {record.identity: record for record in store.records()}
        else:
            known = sweep(wanted, store, workers, report=lambda state: print(len(state.known)))
    grids = {"chosen on these": CHOSEN_ON, "held out": HELD_OUT}
    page = written({name: compared(grid, known) for name, grid in grids.items()})
    Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
