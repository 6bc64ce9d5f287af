"""The spec of a transformer that stores facts: table, prompts, shape, method and seed.

Importing this module does not load jax.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.experiments.specs import Cost, PromptSpec, RunResult, TableSpec
from factmem.experiments.task import Experiment, Task
from factmem.experiments.transformer_methods import TRANSFORMER_METHODS, TransformerMethod
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.shape import Shape

if TYPE_CHECKING:
    from jaxtyping import Array, Key

    from factmem.facts import FactTable, PromptDistribution
    from factmem.transformer import Embeddings, RecallResult, Transformer

__all__ = ["TRANSFORMER_EXPERIMENT", "TransformerInstance", "TransformerSpec", "run_transformer"]

_SHAPE = ("dim", "heads", "head_dim", "width")


@dataclass(frozen=True)
class TransformerInstance:
    """What a transformer spec and its seed determine.

    Args:
        table: the facts.
        prompts: the distribution of prompts.
        start_key: randomness of embeddings and, for training, of the first weights.
        method_key: randomness of the method.
        test_key: randomness of test prompts.
    """

    table: "FactTable"
    prompts: "PromptDistribution"
    start_key: "Key[Array, '']"
    method_key: "Key[Array, '']"
    test_key: "Key[Array, '']"

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the prompts."""
        return self.prompts.vocabulary

    def recall(
        self, model: "Transformer", prompts_per_fact: int, report: Report | None = None
    ) -> "RecallResult":
        """Test every fact on sampled prompts and on worst-case prompts."""
        from factmem.transformer import recall

        return recall(
            model,
            self.prompts,
            key=self.test_key,
            prompts_per_fact=prompts_per_fact,
            report=report,
        )

    def recall_metrics(self, model: "Transformer") -> dict[str, Any]:
        """Return the accuracies and margins of a test with eight sampled prompts per fact."""
        result = self.recall(model, 8)
        return {
            "accuracy": result.sampled_accuracy,
            "worst_case_accuracy": result.accuracy,
            "min_margin": result.min_margin,
            "min_relative_margin": result.min_relative_margin,
        }


@dataclass(frozen=True, kw_only=True)
class TransformerSpec:
    """A transformer that stores a table of facts.

    Args:
        table: the facts.
        shape: the sizes. Constructions choose the number of heads themselves; None means that the
            compiler searches for the smallest shape.
        method: how the facts are stored.
        prompts: noise tokens and length of prompts.
        seed: the seed of table, embeddings, weights and prompts.

    Examples:
        >>> from factmem.experiments import Compile
        >>> table = TableSpec.random(subjects=6, relations=6, answers=4)
        >>> spec = TransformerSpec(table=table, shape=Shape(16, 4, 4, 16), method=Compile())
        >>> result = spec.run()
        >>> result.instance.recall(result.model, 4).accuracy
        1.0
    """

    table: TableSpec
    shape: Shape | None
    method: TransformerMethod
    prompts: PromptSpec = field(default_factory=PromptSpec)
    seed: int = 0

    def draw(self) -> TransformerInstance:
        """Draw the table, the prompts and the keys."""
        import jax.random as jr

        table = self.table.draw(self.seed)
        start_key, method_key, test_key = jr.split(jr.key(self.seed), 3)
        return TransformerInstance(table, self.prompts.draw(table), start_key, method_key, test_key)

    def draw_embeddings(self) -> "Embeddings":
        """Draw the embeddings that `run` works with."""
        if self.shape is None:
            raise FactmemError("embeddings have no dimension before a shape is chosen")
        instance = self.draw()
        return self.method.draw_embeddings(self.shape.dim, instance.vocabulary, instance.start_key)

    def run(
        self, report: Report | None = None, checkpoint: str | None = None
    ) -> "RunResult[Transformer, TransformerInstance]":
        """Store the facts.

        Args:
            report: called with the progress.
            checkpoint: a file from which an interrupted training resumes.
        """
        instance = self.draw()
        build = partial(
            self.method.build, instance, self.shape, report=report, checkpoint=checkpoint
        )
        return RunResult.from_build(instance, build)

    def config(self) -> dict[str, Any]:
        """Return the spec as JSON data."""
        sizes = {name: None if self.shape is None else getattr(self.shape, name) for name in _SHAPE}
        prompts = self.prompts.config()
        if prompts["noise"] is None and self.table.subjects and self.table.relations:
            prompts["noise"] = self.table.subjects + self.table.relations
        return {
            **self.method.config(),
            **sizes,
            **self.table.config(),
            **prompts,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TransformerSpec":
        """Return the spec that `config` describes."""
        return cls(
            table=TableSpec.from_config(config),
            shape=None if config["dim"] is None else Shape(*(config[name] for name in _SHAPE)),
            method=TRANSFORMER_METHODS[config["method"]].from_config(config),
            prompts=PromptSpec.from_config(config),
            seed=config["seed"],
        )

    def task(self) -> Task:
        """Return the run as a task."""
        return Task(TRANSFORMER_EXPERIMENT, self.config())

    def identity(self) -> str:
        """Return a hash of the complete configuration."""
        return self.task().identity

    def cost(self) -> Cost:
        """Estimate what `run` costs."""
        if self.shape is None or self.table.kind == "csv":
            raise FactmemError("the cost is estimated for a given shape and for given table sizes")
        config = self.config()
        subjects, relations = config["subjects"], config["relations"]
        vocabulary = Vocabulary(subjects, relations, config["noise"], relations * config["answers"])
        facts = subjects * relations
        return Cost(
            steps=self.method.expected_steps,
            flops_per_step=self.method.flops_per_step(self.shape, vocabulary, facts),
            peak_bytes=4 * (8 * self.shape.parameters + vocabulary.size * (self.shape.dim + 1024)),
        )


def run_transformer(**config: Any) -> dict[str, Any]:
    """Build a transformer from its configuration and return its metrics."""
    result = TransformerSpec.from_config(config).run()
    return {
        **result.metrics,
        "facts": result.instance.table.facts,
        "parameters": result.model.shape.parameters,
        **result.instance.recall_metrics(result.model),
    }


TRANSFORMER_EXPERIMENT = Experiment("transformer run", 2, run_transformer)
