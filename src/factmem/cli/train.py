"""`factmem train`: trains one transformer, by options or by a protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem._core.threads import use_one_thread
from factmem.cli.options import (
    CheckpointOptions,
    EvaluationOptions,
    FactOptions,
    ShapeOptions,
    check_array_size,
    check_output_file,
    check_plot_file,
    check_positive,
    flag,
)
from factmem.cli.progress import progress
from factmem.cli.render import (
    TIME_LABELS,
    CommandResult,
    OutputOptions,
    render_table,
    requirement_notes,
)
from factmem.training.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from factmem.facts import FactTable
    from factmem.training import Protocol, TrainingResult

__all__ = ["train"]

_OPTIMIZER_HELP = f"Optimizer: {', '.join(OPTIMIZERS)} (default: adam)."
_DEFAULT_RATES = (f"{o.protocol.learning_rates[-1]} for {name}" for name, o in OPTIMIZERS.items())
_LEARNING_RATE_HELP = f"Learning rate (default: {', '.join(_DEFAULT_RATES)})."


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions:
    """How the transformer is trained."""

    protocol: Literal["paper", "best"] | None = None
    """paper: Adam at three learning rates, of which the best is reported. best: the settings that
    store the most facts in the same time."""
    steps: int | None = None
    """Maximum number of steps (default: 16384); training stops above an accuracy of 99%."""
    batch_size: int | None = None
    """Batch size; every step samples new prompts (default: 1024)."""
    learning_rate: Annotated[float | None, Parameter(help=_LEARNING_RATE_HELP)] = None
    optimizer: Annotated[str | None, Parameter(help=_OPTIMIZER_HELP)] = None
    hard_noise: float = 0.0
    """Fraction of the training prompts whose noise tokens are the strongest ones of a head."""
    deterministic: bool = False
    """Use one thread, so that repeating the command gives bit-identical results."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_positive(steps=self.steps, batch_size=self.batch_size)
        if not 0 <= self.hard_noise <= 1:
            raise FactmemError(f"--hard-noise must be between 0 and 1, got {self.hard_noise:g}")
        if self.optimizer is not None:
            _ = OPTIMIZERS[self.optimizer]
        fixed = ("steps", "batch_size", "learning_rate", "optimizer")
        given = [name for name in fixed if getattr(self, name) is not None]
        if self.protocol is not None and given:
            raise FactmemError(
                f"--protocol {self.protocol} cannot be combined with {flag(given[0])}"
            )

    def to_protocol(self) -> "Protocol":
        """Return the training protocol."""
        from factmem.training import BEST, PAPER

        if self.protocol is not None:
            protocol = {"paper": PAPER, "best": BEST}[self.protocol]
            return replace(protocol, hard_noise=self.hard_noise)
        base = OPTIMIZERS[self.optimizer or "adam"].protocol
        rate = self.learning_rate
        steps = PAPER.steps if self.steps is None else self.steps
        return replace(
            base,
            learning_rates=(base.learning_rates[-1] if rate is None else rate,),
            steps=steps,
            batch_size=PAPER.batch_size if self.batch_size is None else self.batch_size,
            evaluations=min(PAPER.evaluations, steps),
            hard_noise=self.hard_noise,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class FileOptions:
    """Files that are written."""

    out: str | None = None
    """File for the trained transformer (safetensors)."""
    plot: str | None = None
    """File for a plot of loss and accuracy (.png, .pdf or .svg)."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        if self.plot is not None:
            check_plot_file("--plot", self.plot)
        if self.out is not None:
            check_output_file("--out", self.out)


def train(
    *,
    shape: ShapeOptions,
    facts: FactOptions = FactOptions(),
    training: TrainingOptions = TrainingOptions(),
    checkpoint: CheckpointOptions = CheckpointOptions(),
    files: FileOptions = FileOptions(),
    evaluation: EvaluationOptions = EvaluationOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Train one transformer on a table of facts, from random initialization.

    Choose a protocol with --protocol, or set the optimizer yourself. The accuracy is measured on
    all facts with new noise, with the weights at the end of training. The best accuracy, which
    the protocol compares with its criterion, is the largest at any check on 1024 fixed prompts.
    """
    _check(shape, facts, training, checkpoint, files, evaluation)
    if training.deterministic:
        use_one_thread()
    from factmem.experiments.transformer_methods.trained import Train
    from factmem.experiments.transformer_spec import TransformerSpec

    protocol = training.to_protocol()
    spec = TransformerSpec(
        table=facts.table_spec(),
        shape=shape.shape(),
        method=Train(protocol=protocol),
        prompts=facts.prompt_spec(),
        seed=facts.seed,
    )
    resumed = checkpoint.prepare()
    with progress(output, training.protocol or "train", protocol.steps) as report:
        result = spec.run(report, checkpoint=checkpoint.checkpoint)
    best, runs, table = result.built.best, result.built.runs, result.instance.table
    _write_files(files, best, runs, protocol, table)
    recalled = result.instance.recall_metrics(best.model)
    steps = sum(run.steps for run in runs)
    data = {
        "protocol": training.protocol,
        **facts.describe(table, best.model),
        "optimizer": protocol.optimizer,
        "batch_size": protocol.batch_size,
        "hard_noise": protocol.hard_noise,
        "learning_rate": best.learning_rate,
        "steps": best.steps,
        "status": best.status.label,
        "success": best.success,
        "best_accuracy": best.best_accuracy,
        **recalled,
        "runs": [_run_data(run) for run in runs],
        "resumed": resumed,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        # If training was resumed, only its last part was timed.
        "steps_per_second": None if resumed else steps / result.seconds,
    }
    passed = evaluation.passed(recalled["accuracy"])
    notes = [best.status.sentence, *requirement_notes(passed, evaluation.require)]
    title = f"trained with {training.protocol or protocol.optimizer}"
    return CommandResult(data, lambda: render_table(title, _LABELS, data, notes), output, passed)


def _check(
    shape: ShapeOptions,
    facts: FactOptions,
    training: TrainingOptions,
    checkpoint: CheckpointOptions,
    files: FileOptions,
    evaluation: EvaluationOptions,
) -> None:
    """Check all options before anything is loaded."""
    facts.check()
    shape.check()
    training.check()
    check_array_size(facts.min_tokens, shape.dim)
    check_array_size(training.batch_size or 1024, facts.min_tokens)
    evaluation.check()
    checkpoint.check()
    files.check()


def _write_files(
    files: FileOptions,
    best: "TrainingResult",
    runs: "Sequence[TrainingResult]",
    protocol: "Protocol",
    table: "FactTable",
) -> None:
    if files.out is not None:
        from factmem.transformer import save_transformer

        save_transformer(best.model, files.out)
    if files.plot is not None:
        from factmem.plotting import draw_matplotlib, save_figure, training_curve

        title = f"{table.facts:,} facts, {best.model.shape.parameters:,} parameters"
        plot = training_curve(runs, protocol.criterion, title)
        save_figure(draw_matplotlib(plot), files.plot)


def _run_data(run: "TrainingResult") -> dict[str, Any]:
    return {
        "learning_rate": run.learning_rate,
        "steps": run.steps,
        "status": run.status.label,
        "best_accuracy": run.best_accuracy,
        "evaluations": {
            "steps": [evaluation.steps for evaluation in run.evaluations],
            "loss": [evaluation.loss for evaluation in run.evaluations],
            "accuracy": [evaluation.accuracy for evaluation in run.evaluations],
        },
    }


_LABELS = {
    "facts": "facts",
    "parameters": "parameters",
    "facts_per_parameter": "facts in the table per parameter",
    "learning_rate": "learning rate",
    "steps": "steps",
    "status": "status",
    "accuracy": "accuracy (all facts, new noise)",
    "worst_case_accuracy": "worst-case accuracy (over noise)",
    "best_accuracy": "best accuracy during training",
    **TIME_LABELS,
    "steps_per_second": "steps per second (all runs)",
}
