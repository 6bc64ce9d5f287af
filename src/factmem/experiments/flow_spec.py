"""The spec of a training run of one attention layer: gradient flow or SGD.

Importing this module does not load jax.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.progress import Report
from factmem.experiments.specs import Cost, PromptSpec, TableSpec, restore_types
from factmem.experiments.task import Task

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array, Float, Key

    from factmem.dynamics import (
        Flow,
        LinearAttention,
        PromptPopulation,
        PromptSample,
        SGDResult,
        SoftmaxHead,
    )
    from factmem.facts import FactTable, PromptDistribution

__all__ = [
    "LINEAR_SGD",
    "MIN_SGD_SCALE",
    "SOFTMAX_SGD",
    "FlowInstance",
    "FlowSpec",
    "Init",
    "SGDConfig",
]

Init = Literal["equal", "balanced", "random"]


class SGDConfig(NamedTuple):
    """Learning rate, number of steps and prompts per step of SGD."""

    learning_rate: float
    steps: int
    batch_size: int


LINEAR_SGD = SGDConfig(learning_rate=0.1, steps=8192, batch_size=1024)
"""The settings of the authors' notebook, for linear attention."""
SOFTMAX_SGD = SGDConfig(learning_rate=16.0, steps=4096, batch_size=1024)
"""Our settings for softmax attention; the authors' are not known."""

MIN_SGD_SCALE = 1e-30
"""From smaller weights, steps in float32 could vanish."""

_FLOW_PROMPTS = 32
"""Sampled prompts per fact in a flow whose noise tokens start unequal."""
_TEST_PROMPTS = 64
"""Test prompts per fact of SGD, for small tables."""
_MAX_TEST_PROMPTS = 2**14
"""The largest number of test prompts, unless there are more facts."""
_FLOW_STEPS = 2000
"""Typical number of solver steps, for estimates."""


@dataclass(frozen=True, eq=False)
class FlowInstance:
    """What a flow spec and its seed determine, and the ways to train on it.

    Args:
        table: the facts.
        prompt_spec: noise tokens, length and subject frequencies of prompts.
        init: how the weights are initialized.
        scale: α, the size of the weights at the start.
        seed: the seed of a random start.
        embedding_key: randomness of embeddings.
        test_key: randomness of fixed prompts.
        training_key: randomness of fresh prompts.
    """

    table: "FactTable"
    prompt_spec: PromptSpec
    init: Init
    scale: float
    seed: int
    embedding_key: "Key[Array, '']"
    test_key: "Key[Array, '']"
    training_key: "Key[Array, '']"

    @cached_property
    def population(self) -> "PromptPopulation":
        """All prompts, with noise as one class of tokens."""
        from factmem.dynamics import PromptPopulation

        spec = self.prompt_spec
        return PromptPopulation.from_table(
            self.table, noise=spec.noise, length=spec.length, subject_power=spec.subject_power
        )

    @cached_property
    def prompts(self) -> "PromptDistribution":
        """The distribution of prompts."""
        return self.prompt_spec.draw(self.table)

    @property
    def test_prompts(self) -> "PromptSample":
        """Fixed prompts on which SGD is tested."""
        return self._sample(min(_TEST_PROMPTS, max(1, _MAX_TEST_PROMPTS // self.table.facts)))

    @property
    def sampled_prompts(self) -> int | None:
        """The number of prompts that `flow` samples; None if the flow is exact."""
        return _FLOW_PROMPTS * self.table.facts if self.init == "random" else None

    @property
    def default_dim(self) -> int:
        """The dimension of a softmax head: four times the vocabulary."""
        return 4 * self.prompts.vocabulary.size

    def flow(
        self,
        *,
        until: float | None = None,
        times: "Float[np.ndarray, ' times'] | None" = None,
        report: Report | None = None,
    ) -> "Flow":
        """Follow the gradient flow of linear attention.

        It is exact unless noise tokens start unequal. The arguments are those of `gradient_flow`.
        """
        from factmem.dynamics import gradient_flow

        ensemble = self._sample(_FLOW_PROMPTS) if self.init == "random" else self.population
        start = self._linear_start(ensemble.tokens)
        return gradient_flow(start, ensemble, until=until, times=times, report=report)

    def sgd(
        self,
        config: SGDConfig = LINEAR_SGD,
        *,
        times: "Float[np.ndarray, ' times'] | None" = None,
        report: Report | None = None,
    ) -> "SGDResult":
        """Train linear attention by SGD."""
        start = self._linear_start(self.prompts.vocabulary.prompt_tokens)
        return self._sgd(start, config, times, report)

    def softmax_sgd(
        self,
        config: SGDConfig = SOFTMAX_SGD,
        *,
        dim: int | None = None,
        times: "Float[np.ndarray, ' times'] | None" = None,
        report: Report | None = None,
    ) -> "SGDResult":
        """Train a softmax head on random embeddings by SGD.

        Args:
            config: learning rate, steps and batch.
            dim: d; four times the vocabulary by default. In fewer dimensions subjects interfere
                with each other, and the stage of relations is cut short or missing.
            times: further times to record, as fractions of the total time.
            report: called with the progress.
        """
        from factmem.dynamics import SoftmaxHead

        if self.init != "equal":
            raise FactmemError(
                f"a softmax head needs the initial weights 'equal', got '{self.init}'"
            )
        vocabulary = self.prompts.vocabulary
        head = SoftmaxHead.equal(
            vocabulary.prompt_tokens,
            vocabulary.answers,
            self.default_dim if dim is None else dim,
            self.scale,
            key=self.embedding_key,
        )
        return self._sgd(head, config, times, report)

    def _sgd(
        self,
        model: "LinearAttention | SoftmaxHead",
        config: SGDConfig,
        times: "Float[np.ndarray, ' times'] | None",
        report: Report | None,
    ) -> "SGDResult":
        from factmem.dynamics import sgd

        if self.scale < MIN_SGD_SCALE:
            raise ArgumentError(
                "scale",
                f"must be at least {MIN_SGD_SCALE:g} for SGD in float32, got {self.scale:g}",
            )
        return sgd(
            model,
            self.prompts,
            self.test_prompts,
            key=self.training_key,
            learning_rate=config.learning_rate,
            steps=config.steps,
            batch_size=config.batch_size,
            times=times,
            report=report,
        )

    def _linear_start(self, tokens: int) -> "LinearAttention":
        from factmem.dynamics import LinearAttention

        answers = self.table.answers
        if self.init == "random":
            return LinearAttention.random(tokens, answers, self.scale, self.seed)
        start = {"equal": LinearAttention.equal, "balanced": LinearAttention.balanced}[self.init]
        return start(tokens, answers, self.scale)

    def _sample(self, prompts_per_fact: int) -> "PromptSample":
        from factmem.dynamics import PromptSample

        return PromptSample.draw(
            self.population, self.prompts, prompts_per_fact=prompts_per_fact, key=self.test_key
        )


@dataclass(frozen=True, kw_only=True)
class FlowSpec:
    """The training of one attention layer on a table of facts.

    Args:
        table: the facts.
        prompts: noise tokens, length and subject frequencies of prompts.
        method: `flow` is the gradient flow of linear attention, `sgd` trains it by SGD, and
            `softmax-sgd` trains a softmax head by SGD.
        init: all weights α (`equal`), the start of the theorems (`balanced`), or `random`.
        scale: α, the size of the weights at the start.
        until: when a flow ends; by default when it has converged.
        sgd: learning rate, steps and batch of SGD; by default `LINEAR_SGD` or `SOFTMAX_SGD`.
        dim: d of a softmax head; four times the vocabulary by default.
        seed: the seed of table, weights, embeddings and prompts.

    Raises:
        FactmemError: the scale is not a positive number.

    Examples:
        >>> from factmem.dynamics import find_stages
        >>> spec = FlowSpec(table=TableSpec.structured(16, 4, 8))
        >>> stages = find_stages(spec.run(), spec.draw().population)
        >>> round(stages.init_end), round(stages.hallucination_end)
        (191, 392)
    """

    table: TableSpec
    prompts: PromptSpec = field(default_factory=PromptSpec)
    method: Literal["flow", "sgd", "softmax-sgd"] = "flow"
    init: Init = "equal"
    scale: float = 1e-5
    until: float | None = None
    sgd: SGDConfig | None = None
    dim: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise FactmemError(f"scale must be positive and finite, got {self.scale}")

    @property
    def sgd_config(self) -> SGDConfig:
        """The settings of SGD, with the defaults of the method."""
        if self.sgd is not None:
            return self.sgd
        return SOFTMAX_SGD if self.method == "softmax-sgd" else LINEAR_SGD

    def draw(self) -> FlowInstance:
        """Draw the table and the keys."""
        import jax.random as jr

        keys = jr.split(jr.key(self.seed), 3)
        return FlowInstance(
            self.table.draw(self.seed), self.prompts, self.init, self.scale, self.seed, *keys
        )

    def run(
        self,
        report: Report | None = None,
        times: "Float[np.ndarray, ' times'] | None" = None,
        instance: FlowInstance | None = None,
    ) -> "Flow | SGDResult":
        """Train.

        Args:
            report: called with the progress.
            times: further times to record, as fractions of the total time.
            instance: the instance, if it has been drawn already.
        """
        instance = self.draw() if instance is None else instance
        if self.method == "flow":
            return instance.flow(until=self.until, times=times, report=report)
        if self.method == "sgd":
            return instance.sgd(self.sgd_config, times=times, report=report)
        return instance.softmax_sgd(self.sgd_config, dim=self.dim, times=times, report=report)

    def config(self) -> dict[str, Any]:
        """Return the spec as JSON data."""
        return {
            "method": self.method,
            **self.table.config(),
            **self.prompts.config(),
            "init": self.init,
            "scale": self.scale,
            "until": self.until,
            "sgd": None if self.method == "flow" else self.sgd_config._asdict(),
            "dim": self.dim,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "FlowSpec":
        """Return the spec that `config` describes."""
        names = ("method", "init", "scale", "until", "dim", "seed")
        sgd = config["sgd"]
        return cls(
            table=TableSpec.from_config(config),
            prompts=PromptSpec.from_config(config),
            sgd=None if sgd is None else SGDConfig(**restore_types(SGDConfig, sgd)),
            **restore_types(cls, {name: config[name] for name in names}),
        )

    def task(self) -> Task:
        """Return the measurement of the run as a task."""
        from factmem.experiments.flow_measures import FLOW, SGD

        return Task(FLOW if self.method == "flow" else SGD, self.config())

    def identity(self) -> str:
        """Return a hash of the complete configuration."""
        return self.task().identity

    def cost(self) -> Cost:
        """Estimate what `run` costs."""
        table = asdict(self.table)
        if self.table.kind == "csv":
            raise FactmemError("the cost is estimated for given table sizes")
        subjects, relations = table["subjects"], table["relations"]
        facts, answers = subjects * relations, relations * table["answers"]
        tokens = subjects + relations + 2
        prompts = facts if self.method == "flow" else self.sgd_config.batch_size
        steps = _FLOW_STEPS if self.method == "flow" else self.sgd_config.steps
        return Cost(
            steps=float(steps),
            flops_per_step=6.0 * prompts * tokens * answers,
            peak_bytes=8 * (prompts * (tokens + 2 * answers) + 4 * tokens * answers),
        )
