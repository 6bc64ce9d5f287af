"""`factmem train`: trains one transformer, by flags or by a protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem._core.threads import one_thread
from factmem.cli.answer import Answer, Output
from factmem.cli.asked import Facts, check_facts, sizes_of, table_of
from factmem.cli.checks import (
    check_accuracy,
    check_numbers,
    check_positive,
    check_width,
    check_writable,
)
from factmem.cli.progress import progress
from factmem.cli.shown import shown

if TYPE_CHECKING:
    from factmem.facts import FactTable
    from factmem.training import Protocol, TrainedTransformer

__all__ = ["train"]

_PROMPTS = 8
"""For each fact, when the trained transformer is asked for all of them."""
_RATES = {"adam": 1e-2, "muon": 5e-2}


@Parameter(name="*")
@dataclass(frozen=True)
class Size:
    """How large the transformer is."""

    dim: int
    """d, the dimension of embeddings."""
    heads: int
    """H."""
    head_dim: int
    """d_h, the dimension of a head."""
    width: int
    """m, the neurons of the MLP; 0 is attention alone."""


@Parameter(name="*")
@dataclass(frozen=True)
class Training:
    """How it is trained."""

    protocol: Literal["paper", "best"] | None = None
    """paper: Adam at three rates, the best counts. best: the most facts in the same time."""
    steps: int | None = None
    """At most so many (default: 16384); training ends above an accuracy of 99 %."""
    batch: int | None = None
    """Fresh prompts in every step (default: 1024)."""
    learning_rate: float | None = None
    """The optimizer's (default: 0.01 for adam, 0.05 for muon)."""
    optimizer: Literal["adam", "muon"] | None = None
    """adam as in paper (default), or muon as in best."""


@Parameter(name="*")
@dataclass(frozen=True)
class Files:
    """What is kept."""

    checkpoint: str | None = None
    """A file to go on from if training is interrupted: give the same command again."""
    fresh: Annotated[bool, Parameter(negative=())] = False
    """Begin anew, even if the checkpoint exists."""
    out: str | None = None
    """Save the trained transformer (safetensors)."""
    plot: str | None = None
    """Draw loss and accuracy into this file (.png, .pdf or .svg)."""


@Parameter(name="*")
@dataclass(frozen=True)
class Trial:
    """What is asked of the result."""

    deterministic: Annotated[bool, Parameter(negative=())] = False
    """One thread, so that every run of this command gives the same bits."""
    require: float | None = None
    """Exit with code 1 if the accuracy over all facts is below this."""


def train(
    *,
    size: Size,
    facts: Facts = Facts(),
    training: Training = Training(),
    files: Files = Files(),
    trial: Trial = Trial(),
    output: Output = Output(),
) -> Answer:
    """Train one transformer on a table of facts, from a random start.

    By --protocol paper or best, or by flags of your own. The accuracy is that over all facts with
    fresh noise, of the weights where training ended; the best accuracy is the protocol's own: the
    largest at any check on 1024 fixed prompts.
    """
    _check(size, facts, training, files, trial)
    if trial.deterministic:
        one_thread()
    table = table_of(facts)
    import jax.random as jr

    from factmem._core.timing import Stopwatch
    from factmem.facts import PromptDistribution
    from factmem.training import Checkpoint, best_run, runs_for_learning_rates, train_transformers
    from factmem.transformer import Shape, Transformer, recall

    protocol = _protocol(training)
    asked = PromptDistribution.of(table, noise=facts.noise, length=facts.length)
    keys = jr.split(jr.key(facts.seed), 3)
    shape = Shape(size.dim, size.heads, size.head_dim, size.width)
    if files.fresh and files.checkpoint is not None:
        Checkpoint.discard(files.checkpoint)
    resumed = files.checkpoint is not None and Path(files.checkpoint).exists()
    label = training.protocol or "train"
    with progress(output, label, protocol.steps) as report, Stopwatch() as watch:
        start = Transformer.draw(keys[0], shape, asked.vocabulary)
        runs = train_transformers(
            runs_for_learning_rates(start, asked, protocol),
            protocol,
            keys[1],
            report=report,
            checkpoint=files.checkpoint,
        )
    best = best_run(runs)
    _keep(files, best, runs, protocol, table)
    found = recall(best.model, asked, keys[2], _PROMPTS)
    steps = sum(run.steps for run in runs)
    data = {
        "protocol": training.protocol,
        **sizes_of(table, facts, best.model),
        "optimizer": protocol.optimizer,
        "batch": protocol.batch,
        "learning_rate": best.learning_rate,
        "steps": best.steps,
        "outcome": best.outcome.value,
        "success": best.success,
        "best_accuracy": best.best_accuracy,
        "accuracy": found.sampled_accuracy,
        "accuracy_in_worst_noise": found.accuracy,
        "min_margin": found.min_margin,
        "relative_margin": found.relative_margin,
        "runs": [_told(run) for run in runs],
        "resumed": resumed,
        "seconds": watch.seconds,
        "compile_seconds": watch.compile_seconds,
        # Of an interrupted training, only the last part was timed.
        "steps_per_second": None if resumed else steps / watch.seconds,
    }
    holds = trial.require is None or found.sampled_accuracy >= trial.require
    notes = [] if holds else [f"The accuracy is below the {trial.require} that was required."]
    title = f"trained by {training.protocol or protocol.optimizer}"
    return Answer(data, lambda: shown(title, _LABELS, data, notes), output, holds)


def _check(size: Size, facts: Facts, training: Training, files: Files, trial: Trial) -> None:
    """What can be said before anything is loaded."""
    check_facts(facts)
    check_positive(
        dim=size.dim,
        heads=size.heads,
        head_dim=size.head_dim,
        steps=training.steps,
        batch=training.batch,
    )
    check_width(size.width)
    check_numbers(max(facts.tokens, size.width, size.heads * size.head_dim), size.dim)
    check_numbers(training.batch or 1024, facts.tokens)
    check_accuracy(trial.require)
    own = ("steps", "batch", "learning_rate", "optimizer")
    given = [name for name in own if getattr(training, name) is not None]
    if training.protocol is not None and given:
        flag = given[0].replace("_", "-")
        raise FactmemError(f"--protocol {training.protocol} has its own --{flag}: give one of them")
    if files.fresh and files.checkpoint is None:
        raise FactmemError("--fresh says what to do with a --checkpoint: give one")
    if files.plot is not None:
        from factmem.plotting.drawing import check_format

        check_format(files.plot)
    for file in (files.checkpoint, files.out, files.plot):
        # Before training, not after it.
        if file is not None:
            check_writable(file)


def _protocol(training: Training) -> "Protocol":
    from factmem.training import BEST, PAPER

    if training.protocol is not None:
        return {"paper": PAPER, "best": BEST}[training.protocol]
    optimizer = training.optimizer or "adam"
    model = {"adam": PAPER, "muon": BEST}[optimizer]
    rate = _RATES[optimizer] if training.learning_rate is None else training.learning_rate
    steps = PAPER.steps if training.steps is None else training.steps
    return replace(
        model,
        learning_rates=(rate,),
        steps=steps,
        batch=PAPER.batch if training.batch is None else training.batch,
        checks=min(PAPER.checks, steps),
    )


def _keep(
    files: Files,
    best: "TrainedTransformer",
    runs: "Sequence[TrainedTransformer]",
    protocol: "Protocol",
    table: "FactTable",
) -> None:
    if files.out is not None:
        from factmem.transformer import save_transformer

        save_transformer(best.model, files.out)
    if files.plot is not None:
        from factmem.plotting import save_figure, training_curve

        title = f"{table.facts:,} facts, {best.model.shape.parameters:,} parameters"
        save_figure(training_curve(runs, protocol.criterion, title), files.plot)


def _told(run: "TrainedTransformer") -> dict[str, Any]:
    return {
        "learning_rate": run.learning_rate,
        "steps": run.steps,
        "outcome": run.outcome.value,
        "best_accuracy": run.best_accuracy,
        "checks": {
            "steps": [check.steps for check in run.checks],
            "loss": [check.loss for check in run.checks],
            "accuracy": [check.accuracy for check in run.checks],
        },
    }


_LABELS = {
    "facts": "facts",
    "parameters": "parameters",
    "facts_per_parameter": "facts per parameter",
    "learning_rate": "learning rate",
    "steps": "steps",
    "outcome": "it ended because",
    "accuracy": "accuracy, all facts, fresh noise",
    "accuracy_in_worst_noise": "facts recalled in every prompt, worst noise included",
    "best_accuracy": "best accuracy at a check",
    "seconds": "seconds",
    "compile_seconds": "seconds of compilation besides",
    "steps_per_second": "steps per second, all runs together",
}
