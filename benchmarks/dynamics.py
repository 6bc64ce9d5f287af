"""Maps of the hallucination stage, beyond the paper: docs/dynamics.md shows and explains them.

Every experiment is one task of the run store (`results/dynamics.sqlite`), so that a script started
again does what is missing. From the store it writes CSV files and figures into `docs/dynamics/`.

    python benchmarks/dynamics.py [--workers COUNT]
"""

import argparse
import math
from pathlib import Path

from factmem.experiments import LocalWorkers, PendingTasks, Store, Task, sweep
from factmem.experiments.flow_measures import FLOW, SOFTMAX
from factmem.plotting import draw_matplotlib, save_figure
from factmem.plotting.stage_maps import TableStage, learning_order, softmax_losses, stage_map
from kept import RESULTS
from rows import write_rows

PAGES = Path(__file__).parent.parent / "docs" / "dynamics"

D, LENGTH, SCALE = 8, 32, 1e-5
SUBJECTS, RELATIONS = (8, 16, 32, 64, 128, 256), (2, 4, 8, 16, 32, 64)
SEEDS = range(3)
POWERS = (0.0, 0.5, 1.0, 1.5)
DIMS, HEAD_SEEDS = (41, 73, 146, 292), range(5)


def flow(subjects, relations, table="structured", power=0.0, seed=0):
    return Task(
        FLOW,
        {
            "subjects": subjects,
            "relations": relations,
            "answers": D,
            "table": table,
            "noise": subjects + relations,
            "length": LENGTH,
            "subject_power": power,
            "scale": SCALE,
            "seed": seed,
        },
    )


def head(dim, seed):
    sizes = {"subjects": 16, "relations": 4, "answers": D, "dim": dim}
    return Task(SOFTMAX, {**sizes, "rate": 16.0, "steps": 4096, "scale": SCALE, "seed": seed})


def sizes(most_facts):
    """Every S and R with so many facts at most: S/R from 1/8 to 128."""
    return [(s, r) for s in SUBJECTS for r in RELATIONS if s * r <= most_facts]


STRUCTURED = [flow(s, r) for s, r in sizes(1024)]
RANDOM = [flow(s, r, "random", seed=seed) for s, r in sizes(512) for seed in SEEDS]
ZIPF = [flow(64, 4, table, power) for table in ("structured", "random") for power in POWERS]
HEADS = [head(dim, seed) for dim in DIMS for seed in HEAD_SEEDS]
# The shortest first, so that something can be looked at early.
TASKS = sorted([*STRUCTURED, *ZIPF, *RANDOM], key=lambda t: t.config["relations"]) + HEADS
TASKS = list({task.identity: task for task in TASKS}.values())


def measured(store, workers):
    def pending(known):
        missing = [task for task in TASKS if task.identity not in known]
        return PendingTasks(needed=missing)

    def report(state):
        done = len(state.known)
        if done != report.told:
            print(f"{done} of {len(TASKS)}", flush=True)
            report.told = done

    report.told = 0
    return sweep(pending, store, workers, report=report)


# ---- tables --------------------------------------------------------------------------------------


def stage_of(metrics):
    """Which stage a flow has, and its numbers; where it has both, the longer."""
    found = {"relations": metrics["hallucination"], "subjects": metrics["subject_only"]}
    found = {kind: stage for kind, stage in found.items() if stage is not None}
    return max(found.items(), key=lambda entry: entry[1]["share"], default=(None, {}))


def row_of(config, metrics):
    kind, stage = stage_of(metrics)
    rates, first = metrics["rates"], metrics["left_zero"]
    return {
        "subjects": config["subjects"],
        "relations": config["relations"],
        "answers": config["answers"],
        "noise": config["noise"],
        "length": config["length"],
        "scale": config["scale"],
        "subject_power": config["subject_power"],
        "seed": config["seed"],
        **{f"rate_{name}": rates[name] for name in ("relations", "subjects", "noise", "eos")},
        **{f"first_{name}": first[name] for name in ("relations", "subjects", "noise", "eos")},
        "stage": kind or "none",
        **{name: stage.get(name) for name in ("start", "end", "share")},
        **{f"middle_{n}": stage.get(n) for n in ("loss", "relation_loss", "subject_loss")},
        **{f"middle_{n}": stage.get(n) for n in ("relation_gap", "subject_gap", "distance")},
        "nearest_distance": metrics["nearest"],
        **{f"level_{name}": level for name, level in metrics["levels"].items()},
        "init_end": metrics["init_end"],
        "converged_at": metrics["whole"],
    }


def table_stage(row):
    has = row["stage"] != "none"
    first = [row["first_noise"], row["first_eos"]]
    return TableStage(
        row["subjects"],
        row["relations"],
        row["rate_relations"] / row["rate_subjects"],
        row["stage"] if has else None,
        row["share"] if has else 0.0,
        (row["end"] - row["start"]) / row["end"] if has else 0.0,
        any(time is not None and time < row["first_relations"] for time in first),
    )


def write_map(name, tasks, found, title):
    rows = [row_of(task.config, found(task)) for task in tasks]
    write_rows(PAGES / f"{name}.csv", rows)
    plot = stage_map([table_stage(row) for row in rows], D, title)
    save_figure(draw_matplotlib(plot), PAGES / f"{name}.png")


def write_order(found):
    panels, rows = {}, []
    for task in ZIPF:
        config, metrics = task.config, found(task)
        law = "uniform" if config["subject_power"] == 0 else f"Zipf {config['subject_power']:g}"
        panels.setdefault(f"{config['table']} facts", {})[law] = (
            metrics["chances"],
            metrics["learned"],
        )
        for place, (chance, time) in enumerate(
            zip(metrics["chances"], metrics["learned"], strict=True)
        ):
            what = {"table": config["table"], "subject_power": config["subject_power"]}
            rows.append({**what, "subject": place, "chance": chance, "learned_at": time})
    write_rows(PAGES / "zipf.csv", rows)
    title = "64 subjects, 4 relations, 8 answers each"
    save_figure(draw_matplotlib(learning_order(panels, title)), PAGES / "zipf.png")


def write_heads(found):
    panels, rows = {}, []
    for task in HEADS:
        metrics, dim = found(task), task.config["dim"]
        panels.setdefault(f"d = {dim}", []).append((metrics["times"], metrics["losses"]))
        kept = ("init_end", "hallucination_end", "distance", "loss", "relation_loss")
        what = {key: task.config[key] for key in ("dim", "rate", "steps", "scale", "seed")}
        rows.append({**what, **{key: metrics[key] for key in kept}})
    write_rows(PAGES / "softmax.csv", rows)
    levels = {"ln 32": math.log(32), "ln 8": math.log(8)}
    plot = softmax_losses(panels, levels, "softmax head, 16 subjects, 4 relations, 5 seeds")
    save_figure(draw_matplotlib(plot), PAGES / "softmax.png")


def written(known):
    def found(task):
        return known[task.identity].metrics

    write_map("structured", STRUCTURED, found, "structured facts: which stage, how long")
    write_map("random", RANDOM, found, "random facts, three seeds: which stage, how long")
    write_order(found)
    write_heads(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    PAGES.mkdir(exist_ok=True)
    with Store(RESULTS / "dynamics.sqlite") as store, LocalWorkers(options.workers) as workers:
        written(measured(store, workers))


if __name__ == "__main__":
    main()
