"""Maps of the hallucination stage, beyond the paper; docs/dynamics.md explains the results.

Runs are kept in the run store: an interrupted benchmark resumes. Writes CSV files and figures to
`docs/dynamics/`.

    python benchmarks/dynamics.py [--workers COUNT] [--stored-only]
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

from factmem.experiments import (
    FlowSpec,
    IndependentTasks,
    LocalWorkers,
    MeasurementGroup,
    PromptSpec,
    SGDConfig,
    TableSpec,
    Task,
)
from factmem.plotting import draw_matplotlib, save_figure
from factmem.plotting.stage_maps import TableStage, learning_order, softmax_losses, stage_map
from results import Metrics, open_results, option_parser
from rows import write_rows

FOLDER = Path(__file__).parent.parent / "docs" / "dynamics"

ANSWERS, LENGTH, SCALE = 8, 32, 1e-5
SUBJECTS, RELATIONS = (8, 16, 32, 64, 128, 256), (2, 4, 8, 16, 32, 64)
SEEDS = range(3)
POWERS = (0.0, 0.5, 1.0, 1.5)
DIMS, SOFTMAX_SEEDS = (41, 73, 146, 292), range(5)
SGD = SGDConfig(learning_rate=16.0, steps=4096, batch_size=1024)


def flow_task(
    subjects: int, relations: int, kind: Any = "structured", power: float = 0.0, seed: int = 0
) -> Task:
    """Return a gradient flow."""
    table = TableSpec(kind=kind, subjects=subjects, relations=relations, answers=ANSWERS)
    prompts = PromptSpec(noise=subjects + relations, length=LENGTH, subject_power=power)
    return FlowSpec(table=table, prompts=prompts, scale=SCALE, seed=seed).task()


def softmax_task(dim: int, seed: int, sgd: SGDConfig = SGD) -> Task:
    """Return the training of a softmax head."""
    table = TableSpec.structured(16, 4, ANSWERS)
    spec = FlowSpec(table=table, method="softmax-sgd", scale=SCALE, sgd=sgd, dim=dim, seed=seed)
    return spec.task()


def table_sizes(max_facts: int) -> list[tuple[int, int]]:
    """Return all S and R with at most this many facts: S/R from 1/8 to 128."""
    return [(s, r) for s in SUBJECTS for r in RELATIONS if s * r <= max_facts]


TASKS = {
    "structured": [flow_task(s, r) for s, r in table_sizes(1024)],
    "zipf": [flow_task(64, 4, kind, p) for kind in ("structured", "random") for p in POWERS],
    "random": [flow_task(s, r, "random", seed=seed) for s, r in table_sizes(512) for seed in SEEDS],
    "softmax": [softmax_task(dim, seed) for dim in DIMS for seed in SOFTMAX_SEEDS],
}
SMALLEST = {
    "structured": [flow_task(8, 2)],
    "zipf": [flow_task(8, 2, power=1.0)],
    "random": [flow_task(8, 2, "random", seed=1)],
    "softmax": [softmax_task(41, 0, SGD._replace(steps=64))],
}


def order(task: Task) -> float:
    """Return the sort key of a task: flows of short duration first, softmax heads last."""
    return math.inf if task.config["method"] == "softmax-sgd" else task.config["relations"]


# ---- CSV files and figures -----------------------------------------------------------------------


def longest_stage(metrics: Metrics) -> tuple[str | None, Metrics]:
    """Return what is known alone in a stage, and its metrics; the longer stage if there are two."""
    stages = {"relations": metrics["hallucination"], "subjects": metrics["subject_only"]}
    stages = {kind: stage for kind, stage in stages.items() if stage is not None}
    return max(stages.items(), key=lambda entry: entry[1]["share"], default=(None, {}))


def flow_row(config: Metrics, metrics: Metrics) -> dict[str, Any]:
    sizes = ("subjects", "relations", "answers", "noise", "length", "scale", "subject_power")
    kinds = ("relations", "subjects", "noise", "eos")
    losses = ("loss", "relation_loss", "subject_loss")
    distances = ("relation_kl", "subject_kl", "relation_distance")
    known, stage = longest_stage(metrics)
    return {
        **{name: config[name] for name in (*sizes, "seed")},
        **{f"rate_{kind}": metrics["rates"][kind] for kind in kinds},
        **{f"first_{kind}": metrics["left_zero"][kind] for kind in kinds},
        "stage": known or "none",
        **{name: stage.get(name) for name in ("start", "end", "share")},
        **{f"middle_{name}": stage.get(name) for name in (*losses, *distances)},
        "min_relation_distance": metrics["min_relation_distance"],
        **{f"level_{name}": level for name, level in metrics["levels"].items()},
        "init_end": metrics["init_end"],
        "converged_at": metrics["converged_at"],
    }


def table_stage(row: dict[str, Any]) -> TableStage:
    has_stage = row["stage"] != "none"
    first = [row["first_noise"], row["first_eos"]]
    return TableStage(
        row["subjects"],
        row["relations"],
        row["rate_relations"] / row["rate_subjects"],
        row["stage"] if has_stage else None,
        row["share"] if has_stage else 0.0,
        (row["end"] - row["start"]) / row["end"] if has_stage else 0.0,
        any(time is not None and time < row["first_relations"] for time in first),
    )


def write_map(name: str, metrics: list[Metrics], title: str) -> None:
    tasks = TASKS[name]
    rows = [flow_row(task.config, entry) for task, entry in zip(tasks, metrics, strict=True)]
    write_rows(FOLDER / f"{name}.csv", rows)
    plot = stage_map([table_stage(row) for row in rows], ANSWERS, title)
    save_figure(draw_matplotlib(plot), FOLDER / f"{name}.png")


def write_learning_order(metrics: list[Metrics]) -> None:
    panels: dict[str, Any] = {}
    rows = []
    for task, entry in zip(TASKS["zipf"], metrics, strict=True):
        kind, power = task.config["table"], task.config["subject_power"]
        probabilities, times = entry["subject_probabilities"], entry["learned"]
        name = "uniform" if power == 0 else f"Zipf {power:g}"
        panels.setdefault(f"{kind} facts", {})[name] = (probabilities, times)
        for subject, (probability, time) in enumerate(zip(probabilities, times, strict=True)):
            run = {"table": kind, "subject_power": power, "subject": subject}
            rows.append({**run, "probability": probability, "learned_at": time})
    write_rows(FOLDER / "zipf.csv", rows)
    title = "64 subjects, 4 relations, 8 answers each"
    save_figure(draw_matplotlib(learning_order(panels, title)), FOLDER / "zipf.png")


def write_softmax(metrics: list[Metrics]) -> None:
    panels: dict[str, Any] = {}
    rows = []
    columns = ("init_end", "hallucination_end", "min_relation_distance", "loss", "relation_loss")
    for task, entry in zip(TASKS["softmax"], metrics, strict=True):
        config, sgd = task.config, task.config["sgd"]
        panels.setdefault(f"d = {config['dim']}", []).append((entry["times"], entry["losses"]))
        run = {"dim": config["dim"], "learning_rate": sgd["learning_rate"], "steps": sgd["steps"]}
        run |= {"scale": config["scale"], "seed": config["seed"]}
        rows.append({**run, **{name: entry[name] for name in columns}})
    write_rows(FOLDER / "softmax.csv", rows)
    levels = {"ln 32": math.log(32), "ln 8": math.log(8)}
    plot = softmax_losses(panels, levels, "softmax head, 16 subjects, 4 relations, 5 seeds")
    save_figure(draw_matplotlib(plot), FOLDER / "softmax.png")


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    tasks = SMALLEST if options.smallest else TASKS
    parts = {name: IndependentTasks(tuple(part)) for name, part in tasks.items()}
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        metrics = results.get(MeasurementGroup(parts, order))
    if options.smallest:
        return
    if metrics is None:
        raise SystemExit("some runs are not in the store")
    FOLDER.mkdir(exist_ok=True)
    write_map("structured", metrics["structured"], "structured facts: which stage, how long")
    write_map("random", metrics["random"], "random facts, three seeds: which stage, how long")
    write_learning_order(metrics["zipf"])
    write_softmax(metrics["softmax"])


if __name__ == "__main__":
    main()
