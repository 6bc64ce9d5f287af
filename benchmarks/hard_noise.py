"""What hard noise in the training batches does to accuracy, in sampled prompts and in all prompts.

Each protocol trains with random noise alone, and with hard noise in half of the prompts, at two
table sizes and on fresh seeds. Runs are kept in the run store: an interrupted benchmark resumes.
Writes `benchmarks/hard_noise.md`.

    python benchmarks/hard_noise.py [--workers COUNT] [--stored-only] [--smallest]
"""

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from factmem.experiments import (
    Experiment,
    IndependentTasks,
    LocalWorkers,
    TableSpec,
    Task,
    Train,
    TransformerSpec,
)
from factmem.training.protocol import BEST, PAPER
from factmem.transformer.shape import Shape
from results import Metrics, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
SHAPE = Shape(32, 8, 4, 32)
ANSWERS = 8
PROTOCOLS = {"paper": replace(PAPER, steps=2**12), "best": replace(BEST, steps=2**13)}
CRITERIA = {"all right": 0.9999, "last step": 1.0}
"""Training ends when all test prompts are right, or only at the last step."""
FRACTIONS = (0.0, 0.5)
SIZES = (16, 24)
SEEDS = (100, 101, 102)
Case = tuple[str, int, str, float, int]
"""End, S = R, protocol, fraction of hard noise, seed."""
CASES: list[Case] = [
    (end, size, protocol, fraction, seed)
    for end, sizes in (("all right", SIZES), ("last step", SIZES[:1]))
    for size in sizes
    for protocol in PROTOCOLS
    for fraction in FRACTIONS
    for seed in SEEDS
]
COLUMNS = {
    "accuracy": "sampled",
    "worst_case_accuracy": "worst noise",
    "any_token_accuracy": "any token",
    "certified_any": "certified",
    "certified_distinct": "certified, distinct",
}


def measure_robustness(**config: Any) -> dict[str, Any]:
    """Train, recall all facts and certify the best run."""
    from factmem.transformer import certify

    result = TransformerSpec.from_config(config).run()
    prompts = result.instance.prompts
    certified = {
        f"certified_{noise}": certify(result.model, prompts, noise=noise).certified_accuracy
        for noise in ("any", "distinct")
    }
    recalled = result.instance.recall_metrics(result.model)
    any_token = _any_token_accuracy(result.model, prompts)
    return {**result.metrics, **recalled, "any_token_accuracy": any_token, **certified}


def _any_token_accuracy(model: Any, prompts: Any) -> float:
    """Return the share of facts that are recalled whichever noise token fills the prompt."""
    import equinox as eqx
    import jax.numpy as jnp
    import numpy as np

    @eqx.filter_jit
    def correct(token: Any) -> Any:
        batch = prompts.fill_noise(jnp.arange(prompts.facts), token)
        return jnp.argmax(model.logits(batch.content), axis=1) == model.targets(batch.answers)

    noise = range(model.vocabulary.first_noise, model.vocabulary.eos)
    return float(np.mean(np.all([correct(jnp.asarray(token)) for token in noise], axis=0)))


EXPERIMENT = Experiment("robustness of training", 2, measure_robustness)


def training_task(case: Case, shape: Shape = SHAPE, **options: Any) -> Task:
    """Return one training."""
    end, size, name, fraction, seed = case
    protocol = replace(PROTOCOLS[name], criterion=CRITERIA[end], hard_noise=fraction, **options)
    spec = TransformerSpec(
        table=TableSpec.random(size, size, ANSWERS),
        shape=shape,
        method=Train(protocol=protocol),
        seed=seed,
    )
    return Task(EXPERIMENT, spec.config())


def format_page(metrics: dict[Case, Metrics]) -> str:
    """Return the page."""
    shape = f"({SHAPE.dim}, {SHAPE.heads}, {SHAPE.head_dim}, {SHAPE.width})"
    steps = ", ".join(f"`{name}` {protocol.steps:,}" for name, protocol in PROTOCOLS.items())
    header = " | ".join(COLUMNS.values())
    rule = "---|" * len(COLUMNS)
    lines = [
        f"# Hard noise in training, (d, H, d_h, m) = {shape}",
        "",
        f"S = R, D = {ANSWERS}, T = 32, S + R noise tokens. Written by `benchmarks/hard_noise.py`.",
        f"A quarter of the protocols' steps: {steps}. Training ends when all 1,024 test prompts",
        "are right (*all right*), or only at the last step. *Hard noise* is the fraction of the",
        "prompts of a batch, and of the test prompts, whose noise tokens are the strongest of a",
        "random head. The last columns are measured at the end of training:",
        "",
        "- sampled: accuracy in sampled prompts, all facts.",
        "- worst noise: the share of facts that are recalled in every test prompt, including those",
        "  filled with the strongest noise token of a head.",
        "- any token: the share of facts that are recalled whichever noise token fills the prompt.",
        "- certified: the share of facts with a certificate over all prompts; *distinct*: over all",
        "  prompts whose noise tokens are different.",
        "",
        "Means over the seeds:",
        "",
        f"| end | S = R | protocol | hard noise | {header} |",
        f"|---|---|---|---|{rule}",
    ]
    groups: dict[tuple[Any, ...], list[Metrics]] = {}
    for (*group, _), row in metrics.items():
        groups.setdefault(tuple(group), []).append(row)
    for group, rows in groups.items():
        means = [f"{statistics.mean(row[name] for row in rows):.3f}" for name in COLUMNS]
        lines.append(f"| {' | '.join(map(str, (*group, *means)))} |")
    lines += [
        "",
        "All runs; the steps are those of the best learning rate:",
        "",
        f"| end | S = R | protocol | hard noise | seed | steps | {header} |",
        f"|---|---|---|---|---|---|{rule}",
    ]
    for case, row in metrics.items():
        numbers = [f"{row[name]:.3f}" for name in COLUMNS]
        lines.append(f"| {' | '.join(map(str, (*case, row['steps'], *numbers)))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    tasks = {case: training_task(case) for case in CASES}
    if options.smallest:
        case = ("last step", 16, "paper", 0.5, 100)
        tasks = {case: training_task(case, Shape(16, 4, 4, 16), steps=128)}
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        metrics = results.get(IndependentTasks(tuple(tasks.values())))
    if metrics is None or not all(metrics):
        raise SystemExit("some runs are not in the store, or failed")
    page = format_page(dict(zip(tasks, metrics, strict=True)))
    if not options.smallest:
        PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
