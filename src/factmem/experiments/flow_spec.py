"""The experiments of section 5: a table, prompts about it, and three ways to learn it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.dynamics.descent import Descent, descend
from factmem.dynamics.flow import Flow, gradient_flow
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.problems import Population, PromptSample
from factmem.dynamics.softmax_head import SoftmaxHead
from factmem.facts import FactTable, PromptDistribution

__all__ = [
    "LEAST_DESCENT_SCALE",
    "LINEAR_DESCENT",
    "SOFTMAX_DESCENT",
    "FlowSpec",
    "SGDConfig",
    "Start",
]

Start = Literal["equal", "balanced", "random"]


class SGDConfig(NamedTuple):
    """How descent is done where nothing else is said."""

    rate: float
    steps: int
    batch: int


LINEAR_DESCENT = SGDConfig(rate=0.1, steps=8192, batch=1024)
"""The authors' notebook."""
SOFTMAX_DESCENT = SGDConfig(rate=16.0, steps=4096, batch=1024)
"""Ours; theirs is not known."""

LEAST_DESCENT_SCALE = 1e-30
"""Below this, steps of float32 could vanish."""

_FLOW_PROMPTS = 32
"""For each fact, in a flow whose noise tokens differ."""
_TEST_PROMPTS = 64
"""For each fact, when descent is tested, where a table is small enough."""
_TESTED = 2**14
"""Prompts on which descent is tested, at most, unless there are more facts."""


@dataclass(frozen=True, eq=False)
class FlowSpec:
    """What is to be learned, and from which weights.

    Args:
        table: the facts.
        noise: how many different noise tokens there are; S + R if left out, as in the paper.
        length: T, the tokens in a prompt.
        subject_power: subject s is asked for in proportion to (s + 1)^−power; 0 is uniform.
        start: all weights α (`equal`), as the theorems want them (`balanced`), or `random`.
        scale: α.
        seed: of weights, embeddings and prompts.

    Raises:
        FactmemError: a scale that is none.

    Examples:
        >>> from factmem.dynamics import find_stages
        >>> fig5 = FlowSpec(FactTable.structured(16, 4, 8))
        >>> stages = find_stages(fig5.flow(), fig5.population)
        >>> round(stages.init_end), round(stages.hallucination_end)
        (191, 392)
    """

    table: FactTable
    noise: int | None = None
    length: int = 32
    subject_power: float = 0.0
    start: Start = "equal"
    scale: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.scale < np.inf:
            raise FactmemError(f"the scale of a start is a number above 0, not {self.scale}")

    @cached_property
    def population(self) -> Population:
        """All questions, with one class of noise."""
        return Population.of(
            self.table, noise=self.noise, length=self.length, subject_power=self.subject_power
        )

    @cached_property
    def asked(self) -> PromptDistribution:
        """Where prompts come from."""
        return PromptDistribution.of(
            self.table, noise=self.noise, length=self.length, subject_power=self.subject_power
        )

    @property
    def tested(self) -> PromptSample:
        """Fixed prompts on which descent is tested."""
        return self._sample(min(_TEST_PROMPTS, max(1, _TESTED // self.table.facts)))

    @property
    def sampled_prompts(self) -> int | None:
        """Prompts that stand for the population in `flow`; None where it is exact."""
        return _FLOW_PROMPTS * self.table.facts if self.start == "random" else None

    def flow(
        self,
        *,
        until: float | None = None,
        times: Float[np.ndarray, " times"] | None = None,
        report: Report | None = None,
    ) -> Flow:
        """Gradient flow of linear attention, exact unless noise tokens start unequal."""
        questions = self._sample(_FLOW_PROMPTS) if self.start == "random" else self.population
        start = self._start(questions.tokens)
        return gradient_flow(start, questions, until=until, times=times, report=report)

    def descent(
        self,
        *,
        rate: float = LINEAR_DESCENT.rate,
        steps: int = LINEAR_DESCENT.steps,
        batch: int = LINEAR_DESCENT.batch,
        times: Float[np.ndarray, " times"] | None = None,
        report: Report | None = None,
    ) -> Descent:
        """Stochastic gradient descent of linear attention, as on the left of Figure 5."""
        start = self._start(self.asked.vocabulary.prompt_tokens)
        return self._descend(start, rate, steps, batch, times, report)

    def softmax_descent(
        self,
        *,
        dim: int | None = None,
        rate: float = SOFTMAX_DESCENT.rate,
        steps: int = SOFTMAX_DESCENT.steps,
        batch: int = SOFTMAX_DESCENT.batch,
        times: Float[np.ndarray, " times"] | None = None,
        report: Report | None = None,
    ) -> Descent:
        """The same of a softmax head on random embeddings, as on the right of Figure 5.

        Args:
            dim: d; four times the vocabulary if left out. With less room subjects get in each
                other's way, and the stage of relations is cut short or missing.
            rate, steps, batch, times, report: as in `descend`.
        """
        if self.start != "equal":
            raise FactmemError("a softmax head starts with equal weights")
        names = self.asked.vocabulary
        dim = self.default_dim if dim is None else dim
        model = SoftmaxHead.start(
            self._keys[0], names.prompt_tokens, names.answers, dim, self.scale
        )
        return self._descend(model, rate, steps, batch, times, report)

    @property
    def default_dim(self) -> int:
        """Of the embeddings of a softmax head: four times the vocabulary."""
        return 4 * self.asked.vocabulary.size

    def _descend(
        self,
        model: LinearAttention | SoftmaxHead,
        rate: float,
        steps: int,
        batch: int,
        times: Float[np.ndarray, " times"] | None,
        report: Report | None,
    ) -> Descent:
        if self.scale < LEAST_DESCENT_SCALE:
            raise FactmemError(
                f"from weights of {self.scale:g} float32 cannot leave zero: "
                f"start from at least {LEAST_DESCENT_SCALE:g}"
            )
        return descend(
            model,
            self.asked,
            self.tested,
            self._keys[2],
            rate=rate,
            steps=steps,
            batch=batch,
            times=times,
            report=report,
        )

    def _start(self, tokens: int) -> LinearAttention:
        answers = self.table.answers
        if self.start == "random":
            return LinearAttention.random(tokens, answers, self.scale, self.seed)
        start = {"equal": LinearAttention.equal, "balanced": LinearAttention.balanced}[self.start]
        return start(tokens, answers, self.scale)

    def _sample(self, prompts: int) -> PromptSample:
        return PromptSample.draw(self._keys[1], self.population, self.asked, prompts)

    @cached_property
    def _keys(self) -> Key[Array, " 3"]:
        """Of embeddings, fixed prompts and fresh prompts."""
        return jr.split(jr.key(self.seed), 3)
