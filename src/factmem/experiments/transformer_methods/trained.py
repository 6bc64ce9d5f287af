"""Training from random initialization."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from factmem._core.result import Result
from factmem.experiments.specs import COMPLETED_FRACTION, restore_types
from factmem.experiments.transformer_methods import TransformerMethod, register_transformer_method
from factmem.training.protocol import Protocol

__all__ = ["BestOfRuns", "Train"]


@dataclass(frozen=True, kw_only=True)
class BestOfRuns(Result):
    """The best of the runs at all learning rates of a protocol.

    Args:
        model: the model of the best run.
        status: the status of the best run.
        best: the best run.
        runs: all runs.
        flops: floating-point operations of all runs.
    """

    best: Any
    runs: tuple[Any, ...]
    flops: int | float

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the best run."""
        return {
            "learning_rate": self.best.learning_rate,
            "steps": self.best.steps,
            "status": self.status.label,
            "best_accuracy": self.best.best_accuracy,
            "total_steps": sum(run.steps for run in self.runs),
            "flops": self.flops,
        }


@register_transformer_method("trained", summary="trained from random initialization", order=4)
@dataclass(frozen=True, kw_only=True)
class Train(TransformerMethod):
    """Train by a protocol and take the best learning rate.

    Args:
        protocol: optimizer, learning rates, steps, criterion.
        padding: the largest numbers of subjects, relations, noise tokens, answers and facts, and
            optionally of heads and neurons (`width`), for which the training is compiled. Tables
            of many sizes then share one program.
        stop_when_one_succeeds: whether the first run that reaches the criterion stops the
            others; if not, each run continues until it ends on its own.
    """

    protocol: Protocol
    padding: Mapping[str, int] | None = None
    stop_when_one_succeeds: bool = True

    def draw_embeddings(self, dim: int, vocabulary: Any, key: Any) -> Any:
        """Draw the embeddings of the start that `build` draws with the same key."""
        from factmem.transformer import Transformer

        return Transformer.draw_embeddings(dim, vocabulary, key=key)

    def build(
        self, instance: Any, shape: Any, *, report: Any = None, checkpoint: str | None = None
    ) -> BestOfRuns:
        """Train one run for every learning rate."""
        from factmem.training import (
            TrainingRun,
            best_run,
            runs_for_learning_rates,
            step_flops,
            train_transformers,
        )
        from factmem.transformer import Transformer

        start = Transformer.draw(shape, instance.vocabulary, key=instance.start_key)
        prompts, protocol = instance.prompts, self.protocol
        if self.stop_when_one_succeeds:
            runs = runs_for_learning_rates(start, prompts, protocol)
        else:
            runs = [TrainingRun(start, prompts, rate) for rate in protocol.learning_rates]
        results = train_transformers(
            runs,
            protocol,
            key=instance.method_key,
            report=report,
            checkpoint=checkpoint,
            padding=self._padded_sizes(),
        )
        best = best_run(results)
        steps = sum(result.steps for result in results)
        step = step_flops(shape, instance.vocabulary, protocol.batch_size, prompts.length)
        return BestOfRuns(
            model=best.model,
            status=best.status,
            best=best,
            runs=tuple(results),
            flops=steps * step,
        )

    def _padded_sizes(self) -> Any:
        if self.padding is None:
            return None
        from factmem.facts import Vocabulary
        from factmem.training import PaddedSizes

        sizes = self.padding
        names = ("subjects", "relations", "noise", "answers")
        vocabulary = Vocabulary(*(sizes[name] for name in names))
        return PaddedSizes(vocabulary, sizes["facts"], sizes.get("heads"), sizes.get("width"))

    def flops_per_step(self, shape: Any, vocabulary: Any, facts: int) -> float:
        """Count the floating-point operations of a training step."""
        from factmem.training import step_flops

        return float(step_flops(shape, vocabulary, self.protocol.batch_size))

    @property
    def expected_steps(self) -> float:
        """The expected number of steps of all runs."""
        return COMPLETED_FRACTION * len(self.protocol.learning_rates) * self.protocol.steps

    def config(self) -> dict[str, Any]:
        """Return the method as JSON data: all numbers of the protocol, not its name."""
        return {
            "method": self.name,
            "training": _protocol_config(self.protocol),
            "padding": None if self.padding is None else dict(self.padding),
            "stop_when_one_succeeds": self.stop_when_one_succeeds,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Train":
        """Return the method with the options in `config`."""
        return cls(
            protocol=Protocol(**restore_types(Protocol, config["training"])),
            padding=config.get("padding"),
            stop_when_one_succeeds=config.get("stop_when_one_succeeds", True),
        )


def _protocol_config(protocol: Protocol) -> dict[str, Any]:
    """Return a protocol as JSON data; without hard noise, as before there was any."""
    config = asdict(protocol)
    if not protocol.hard_noise:
        del config["hard_noise"]
    return config
