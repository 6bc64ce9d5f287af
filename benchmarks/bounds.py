"""How close models come to the bounds of section 6; docs/bounds.md explains the results.

* Bits that memories and transformers store, against the bits of their weights.
* The quantized MLP memory of Theorem 7: it stores the K most likely associations in weights of 16
  bits, K is searched for, and it knows nothing about all others; with an ideal table and the bound.
* The loss of transformers of growing size, trained on Zipf-distributed subjects of one table.

Runs are kept in the run store: an interrupted benchmark resumes. Writes CSV files and figures to
`docs/bounds/`.

    python benchmarks/bounds.py [--workers COUNT] [--stored-only]
"""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from factmem._core.power_law import fit_power_law
from factmem.bounds import IdealTable, QuestionProbabilities, Zipf, min_loss
from factmem.experiments import (
    MEMORY_BITS,
    TRANSFORMER_BITS,
    ZIPF_LOSS,
    Attention,
    AttentionMLP,
    CapacitySearches,
    Compile,
    IndependentTasks,
    LocalWorkers,
    MeasurementGroup,
    MemorySpec,
    MLPCapacityProblem,
    PromptSpec,
    TableSpec,
    Task,
    Train,
    TransformerMethod,
    TransformerSpec,
)
from factmem.facts.prompts import fact_probabilities
from factmem.plotting import draw_matplotlib, save_figure
from factmem.plotting.bit_usage import (
    ModelBits,
    QuantizedLosses,
    TrainedLosses,
    bits_stored,
    quantized_losses,
    trained_losses,
)
from factmem.training.protocol import BEST, PAPER, Protocol
from factmem.transformer.shape import Shape
from results import Metrics, open_results, option_parser
from rows import write_rows

FOLDER = Path(__file__).parent.parent / "docs" / "bounds"
SEEDS = range(3)

# ---- stored bits ---------------------------------------------------------------------------------

TRAINED = ("trained-linear", "trained-mlp")
"""Trained until 99% are recalled; all other memories recall everything."""


def memory_task(method: str, facts: int, dim: int, seed: int, **sizes: int) -> Task:
    """Return the measurement of a memory of a random map."""
    spec = MemorySpec(
        method=method, dim=dim, facts=facts, outputs=facts, target="uniform", seed=seed, **sizes
    )
    criterion = 0.99 if method in TRAINED else 1.0
    return Task(MEMORY_BITS, {**spec.config(), "criterion": criterion})


# A little above the sizes in benchmarks/memories.md; some larger.
MEMORIES = [
    memory_task(method, facts, dim, seed, **sizes)
    for method, facts, dim, sizes in (
        ("hebbian", 128, 120, {}),
        ("hebbian", 512, 208, {}),
        ("hebbian", 512, 288, {}),
        ("low-rank", 128, 360, {"rank": 180}),
        ("low-rank", 512, 420, {"rank": 210}),
        ("hermite", 128, 64, {"width": 512, "degree": 2}),
        ("hermite", 512, 64, {"width": 1024, "degree": 2}),
        ("tangent", 128, 32, {"width": 1024, "degree": 2}),
        ("tangent", 512, 64, {"width": 1792, "degree": 2}),
        ("optimal", 128, 31, {}),
        ("optimal", 512, 66, {}),
        ("optimal", 512, 93, {}),
        ("fitted-relu", 128, 32, {"width": 14}),
        ("fitted-relu", 512, 64, {"width": 21}),
        ("fitted-relu", 512, 64, {"width": 42}),
        ("fitted-bilinear", 128, 32, {"width": 5}),
        ("fitted-bilinear", 512, 64, {"width": 11}),
        ("fitted-bilinear", 512, 64, {"width": 22}),
        ("trained-linear", 128, 31, {}),
        ("trained-linear", 512, 68, {}),
        ("trained-mlp", 128, 32, {"width": 8}),
        ("trained-mlp", 512, 64, {"width": 19}),
    )
    for seed in SEEDS
]


def transformer_task(
    method: TransformerMethod, side: int, answers: int, shape: Shape, seed: int
) -> Task:
    """Return the measurement for S = R = side; trained models are tested on sampled prompts."""
    table = TableSpec.random(side, side, answers)
    spec = TransformerSpec(table=table, shape=shape, method=method, seed=seed)
    trained = isinstance(method, Train)
    accuracy = {"criterion": 0.99 if trained else 1.0, "worst_noise": not trained}
    return Task(TRANSFORMER_BITS, {**spec.config(), **accuracy})


def block_size(dim: int) -> int:
    return max(1, dim // 160)


# Constructions choose the number of heads themselves.
TRANSFORMERS = [
    *(
        transformer_task(Attention(block_size=block_size(dim)), side, 4, Shape(dim, 1, dim), seed)
        for side, dim in ((4, 112), (7, 240), (11, 400))
        for seed in SEEDS
    ),
    *(
        transformer_task(
            AttentionMLP(block_size=block_size(dim)), side, 4, Shape(dim, 1, dim // 4, width), seed
        )
        for side, dim, width in ((4, 240, 400), (7, 336, 512), (11, 528, 768))
        for seed in SEEDS
    ),
    *(
        transformer_task(Compile(), side, 8, shape, seed)
        for side, shape in ((16, Shape(17, 13, 1, 17)), (24, Shape(32, 8, 4, 32)))
        for seed in SEEDS
    ),
    *(
        transformer_task(Train(protocol=protocol), side, 8, Shape(16, 8, 2, 16), seed)
        # More than the 99% of PAPER at a check, so that 99% of all prompts are safe.
        for side, protocol in ((11, replace(PAPER, criterion=0.998)), (15, BEST))
        for seed in SEEDS
    ),
]

# ---- losses for Zipf-distributed subjects --------------------------------------------------------

TABLE = TableSpec.random(subjects=256, relations=4, answers=8)
POWERS = (1.0, 1.5)
DIMS = (4, 6, 8, 12, 16)
PROTOCOL = Protocol(
    learning_rates=(3e-2, 1e-1),
    steps=2**12,
    batch_size=512,
    stratified=True,
    schedule="cosine",
    evaluations=1,
)


def zipf_task(power: float, dim: int, seed: int, protocol: Protocol = PROTOCOL) -> Task:
    """Return a training without noise: d_h = 2, H·d_h = d, m = 2d."""
    spec = TransformerSpec(
        table=TABLE,
        shape=Shape(dim, dim // 2, 2, 2 * dim),
        method=Train(protocol=protocol, stop_when_one_succeeds=False),
        prompts=PromptSpec(noise=1, length=3, subject_power=power),
        seed=seed,
    )
    return Task(ZIPF_LOSS, {**spec.config(), "prompts_per_fact": 1})


LOSSES = [zipf_task(power, dim, seed) for dim in DIMS for power in POWERS for seed in SEEDS]

# ---- the quantized memory ------------------------------------------------------------------------

OUTPUTS, DIM = 32, 16
WIDTHS = (16, 24, 32, 48, 64)
MEMORY_POWERS = (1.2, 1.5, 2.0)
QUESTIONS = 10**9
SCALE_BITS = 64
"""The scales of the two matrices, one float32 each."""
TABLE_QUESTIONS = 2000

SEARCHES = CapacitySearches(
    [MLPCapacityProblem(DIM, width, outputs=OUTPUTS) for width in WIDTHS], SEEDS
)

SMALLEST = {
    "memories": [memory_task("hebbian", 32, 48, 0), memory_task("fitted-relu", 32, 16, 0, width=6)],
    "transformers": [
        transformer_task(Attention(block_size=1), 2, 4, Shape(64, 1, 64), 0),
        transformer_task(Compile(), 4, 4, Shape(8, 4, 2, 8), 0),
    ],
    "losses": [zipf_task(1.0, 4, 0, replace(PROTOCOL, steps=64))],
}


def quantized_rows(capacities: list[Any]) -> list[dict[str, Any]]:
    """Return the bits and the number of stored associations of every width and seed."""
    return [
        {
            "width": capacity.problem.width,
            "seed": seed.seed,
            "parameters": capacity.problem.parameters,
            "bits": 16 * capacity.problem.parameters + SCALE_BITS,
            "stored": seed.bracket.lower,
            "not_stored": seed.bracket.upper,
        }
        for capacity in capacities
        for seed in capacity.seeds
    ]


def table_loss(target: list[int], bits: int, power: float) -> float:
    """Return the loss of an ideal table, from the answers that it leaves possible."""
    table = IdealTable.encode(target, OUTPUTS, bits)
    possible = [table.possible_answers(x) for x in range(TABLE_QUESTIONS)]
    assert all(f in answers for f, answers in zip(target, possible, strict=True))
    losses = np.log2([len(answers) for answers in possible])
    weights = np.arange(1, TABLE_QUESTIONS + 1) ** -power
    return float(losses @ weights / weights.sum())


def losses_at_power(power: float, memories: list[dict[str, Any]]) -> QuantizedLosses:
    """Return the losses of the memories, of ideal tables with as many bits, and of the bound."""
    questions, table_questions = Zipf(QUESTIONS, power), Zipf(TABLE_QUESTIONS, power)
    bits = np.array([row["bits"] for row in memories], float)
    loss = math.log2(OUTPUTS) * np.array([questions.tail(row["stored"]) for row in memories])
    bound_bits = np.geomspace(64, bits.max(), 60)
    target = np.random.default_rng(0).integers(0, OUTPUTS, TABLE_QUESTIONS).tolist()
    table_bits = [2**k for k in range(6, 14)]
    return QuantizedLosses(
        power=power,
        memory_law=fit_power_law(bits.tolist(), loss.tolist()),
        memory_bits=bits,
        memory_loss=loss,
        table_bits=np.array(table_bits, float),
        table_loss=np.array([table_loss(target, size, power) for size in table_bits]),
        table_bound=np.array([min_loss(size, OUTPUTS, table_questions) for size in table_bits]),
        bound_bits=bound_bits,
        bound_loss=np.array([min_loss(float(size), OUTPUTS, questions) for size in bound_bits]),
    )


# ---- CSV files and figures -----------------------------------------------------------------------


METHOD_NAMES = {
    "attention": "Theorem 3",
    "mlp": "Theorem 4",
    "compiled": "compiled",
    "trained": "trained transformer",
}


def bits_row(task: Task, metrics: Metrics) -> dict[str, Any]:
    config = task.config
    is_transformer = task.experiment is TRANSFORMER_BITS
    sizes = ("facts", "parameters", "bits_per_weight", "weight_bits")
    stored = ("argmax_bits", "log_loss_bits", "usage", "accuracy")
    width = config["width"] if config.get("rank") is None else config["rank"]
    return {
        "model": "transformer" if is_transformer else "memory",
        "method": METHOD_NAMES[config["method"]] if is_transformer else config["method"],
        "dim": config["dim"],
        "heads": metrics.get("heads"),
        "head_dim": config.get("head_dim"),
        "width": width,
        "criterion": config["criterion"],
        "seed": config["seed"],
        **{name: metrics[name] for name in (*sizes, *stored)},
    }


def write_stored_bits(tasks: list[Task], metrics: list[Metrics]) -> None:
    rows = [bits_row(task, entry) for task, entry in zip(tasks, metrics, strict=True)]
    write_rows(FOLDER / "stored-bits.csv", rows)
    save_figure(draw_matplotlib(bits_stored(best_sizes(rows))), FOLDER / "stored-bits.png")


def best_sizes(rows: list[dict[str, Any]]) -> list[ModelBits]:
    """Return the size with the largest bit usage for each method and number of facts."""
    seeds_by_size: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row["usage"] is not None:
            size = row["method"], row["facts"], row["parameters"]
            seeds_by_size.setdefault(size, []).append(row)
    best: dict[tuple[str, int], Any] = {}
    for (method, facts, _), seeds in seeds_by_size.items():
        usage = np.median([row["usage"] for row in seeds])
        best[method, facts] = max(best.get((method, facts), (0, None)), (usage, seeds))
    return [
        ModelBits(
            method,
            tuple(float(row["weight_bits"]) for row in seeds),
            tuple(row["argmax_bits"] for row in seeds),
        )
        for (method, _), (_, seeds) in best.items()
    ]


def write_quantized(memories: list[dict[str, Any]]) -> None:
    panels = [losses_at_power(power, memories) for power in MEMORY_POWERS]
    write_rows(FOLDER / "quantized.csv", memories)
    rows = [
        {"power": panel.power, "model": model, "bits": bits, "loss_bits": loss, "min_loss": bound}
        for panel in panels
        for model, columns in (
            ("memory", (panel.memory_bits, panel.memory_loss, memory_bounds(panel))),
            ("table", (panel.table_bits, panel.table_loss, panel.table_bound)),
        )
        for bits, loss, bound in zip(*columns, strict=True)
    ]
    write_rows(FOLDER / "quantized-loss.csv", rows)
    for panel in panels:
        law = panel.memory_law
        print(f"Zipf {panel.power}: slope {law.exponent:.3f} ± {law.half_width:.3f}")
    save_figure(draw_matplotlib(quantized_losses(panels)), FOLDER / "quantized.png")


def memory_bounds(panel: QuantizedLosses) -> list[float]:
    questions = Zipf(QUESTIONS, panel.power)
    return [min_loss(float(bits), OUTPUTS, questions) for bits in panel.memory_bits]


def write_losses(metrics: list[Metrics]) -> None:
    rows, panels = [], []
    for power in POWERS:
        for task, entry in zip(LOSSES, metrics, strict=True):
            if task.config["subject_power"] == power:
                names = ("parameters", "loss_bits", "loss_nats", "learning_rate")
                run = {"power": power, "dim": task.config["dim"], "seed": task.config["seed"]}
                rows.append({**run, **{name: entry[name] for name in names}})
        panels.append(trained_panel(power, [row for row in rows if row["power"] == power]))
    write_rows(FOLDER / "zipf-loss.csv", rows)
    for panel in panels:
        print(f"Zipf {panel.power}: slope {panel.law.exponent:.3f} ± {panel.law.half_width:.3f}")
    save_figure(draw_matplotlib(trained_losses(panels)), FOLDER / "zipf-loss.png")


def trained_panel(power: float, rows: list[dict[str, Any]]) -> TrainedLosses:
    parameters = np.array([row["parameters"] for row in rows], float)
    loss = np.array([row["loss_bits"] for row in rows])
    probabilities = QuestionProbabilities(fact_probabilities(TABLE.draw(0), power))
    sizes = np.geomspace(parameters.min(), parameters.max(), 60)
    answers = TABLE.answers
    assert answers is not None
    return TrainedLosses(
        power=power,
        parameters=parameters,
        loss=loss,
        law=fit_power_law(parameters.tolist(), loss.tolist()),
        bound_parameters=sizes,
        bounds={
            bits: np.array([min_loss(float(bits * p), answers, probabilities) for p in sizes])
            for bits in (1, 2, 4)
        },
    )


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    tasks = {"memories": MEMORIES, "losses": LOSSES, "transformers": TRANSFORMERS}
    tasks = SMALLEST if options.smallest else tasks
    group = MeasurementGroup({name: IndependentTasks(tuple(part)) for name, part in tasks.items()})
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        capacities = [] if options.smallest else results.get(SEARCHES)
        metrics = results.get(group)
    if options.smallest:
        return
    if metrics is None or capacities is None:
        raise SystemExit("some runs are not in the store")
    FOLDER.mkdir(exist_ok=True)
    stored = [*metrics["memories"], *metrics["transformers"]]
    write_stored_bits([*MEMORIES, *TRANSFORMERS], stored)
    write_quantized(quantized_rows(capacities))
    write_losses(metrics["losses"])


if __name__ == "__main__":
    main()
