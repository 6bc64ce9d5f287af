"""The spec of an associative memory: what it stores, its method and its sizes.

Importing this module does not load jax.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from factmem._core.progress import Report
from factmem.experiments.memory_methods import MEMORY_METHODS, BuiltMemory, build_memory
from factmem.experiments.specs import COMPLETED_FRACTION, Cost, RunResult, restore_types
from factmem.experiments.task import Experiment, Task
from factmem.training.protocol import MemoryProtocol

if TYPE_CHECKING:
    from jaxtyping import Array, Key

    from factmem.memories import Associations, Memory

__all__ = ["MEMORY_EXPERIMENT", "MemoryInstance", "MemorySpec", "run_memory"]

_ITERATIONS = {
    "optimal": 1000,
    "fitted-features": 1500,
    "fitted-relu": 1500,
    "fitted-bilinear": 1500,
}
"""Typical iterations of L-BFGS; methods in closed form have one step."""

_SIZES = ("width", "rank", "degree")


@dataclass(frozen=True)
class MemoryInstance:
    """What a memory spec and its seed determine.

    Args:
        associations: what is to be stored.
        method_key: randomness of the method.
        test_key: randomness of tests.
    """

    associations: "Associations"
    method_key: "Key[Array, '']"
    test_key: "Key[Array, '']"


@dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """An associative memory on random embeddings.

    The associations of a larger N start with those of a smaller N, with the same values. So a
    memory of more facts also stores fewer, as long as there are as many outputs as facts.

    Args:
        method: a name in `MEMORY_METHODS`.
        dim: d.
        facts: N.
        outputs: M; N by default.
        target: f*: `identity`, `permutation`, `blocks` (⌊xM/N⌋) or `uniform` (drawn from all
            outputs); by default `identity`, or `blocks` if there are fewer outputs than facts.
        width, rank, degree: options of the method.
        protocol: overrides the protocol of a trained memory.
        seed: the seed of embeddings, target and method.

    Examples:
        >>> spec = MemorySpec(method="hebbian", dim=64, facts=64, seed=0)
        >>> result = spec.run()
        >>> result.model.score(result.instance.associations).accuracy
        1.0
    """

    method: str
    dim: int
    facts: int
    outputs: int | None = None
    target: Literal["identity", "permutation", "blocks", "uniform"] | None = None
    width: int | None = None
    rank: int | None = None
    degree: int | None = None
    protocol: MemoryProtocol | None = None
    seed: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """The options for `build_memory`."""
        options = {name: getattr(self, name) for name in (*_SIZES, "protocol")}
        return {name: value for name, value in options.items() if value is not None}

    def draw(self) -> MemoryInstance:
        """Draw the associations and the keys."""
        import jax.random as jr

        from factmem.memories import Associations

        keys = jr.split(jr.key(self.seed), 3)
        target = None if self.target == "uniform" else self.target
        pairs = Associations.draw(self.facts, self.dim, self.outputs, target, key=keys[0])
        if self.target == "uniform":
            import jax.numpy as jnp

            outputs = pairs.values.shape[0]
            uniform = jr.randint(keys[2], (self.facts,), 0, outputs, dtype=jnp.int32)
            pairs = Associations(pairs.keys, pairs.values, uniform)
        return MemoryInstance(pairs, keys[1], keys[2])

    def run(self, report: Report | None = None) -> "RunResult[Memory, MemoryInstance]":
        """Build the memory."""
        MEMORY_METHODS[self.method]  # an unknown method fails before jax is loaded
        instance = self.draw()

        def build() -> BuiltMemory:
            return build_memory(
                self.method,
                instance.associations,
                key=instance.method_key,
                report=report,
                **self.options,
            )

        return RunResult.from_build(instance, build)

    def config(self) -> dict[str, Any]:
        """Return the spec as JSON data."""
        config = asdict(self)
        return {**config, "outputs": self.facts if self.outputs is None else self.outputs}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "MemorySpec":
        """Return the spec that `config` describes."""
        protocol = config["protocol"]
        if protocol is not None:
            protocol = MemoryProtocol(**restore_types(MemoryProtocol, protocol))
        return cls(**{**config, "protocol": protocol})

    def task(self) -> Task:
        """Return the run as a task."""
        return Task(MEMORY_EXPERIMENT, self.config())

    def identity(self) -> str:
        """Return a hash of the complete configuration."""
        return self.task().identity

    def cost(self) -> Cost:
        """Estimate what `run` costs."""
        from factmem.training.protocol import LINEAR_PROTOCOL, MLP_PROTOCOL

        outputs = self.facts if self.outputs is None else self.outputs
        weights = self.dim**2 if self.width is None else 2 * self.width * self.dim
        defaults = {"trained-linear": LINEAR_PROTOCOL, "trained-mlp": MLP_PROTOCOL}
        protocol = self.protocol or defaults.get(self.method)
        if protocol is None:
            steps = float(_ITERATIONS.get(self.method, 1))
        else:
            steps = COMPLETED_FRACTION * protocol.steps
        return Cost(
            steps=steps,
            flops_per_step=6.0 * self.facts * (outputs * self.dim + weights),
            peak_bytes=8 * (self.facts * (outputs + self.dim) + 4 * weights),
            overhead=0.25,
        )


def run_memory(**config: Any) -> dict[str, Any]:
    """Build a memory from its configuration and return its metrics."""
    result = MemorySpec.from_config(config).run()
    score = result.model.score(result.instance.associations)
    return {
        **result.metrics,
        "parameters": score.parameters,
        "accuracy": score.accuracy,
        "min_margin": score.min_margin,
        "min_relative_margin": score.min_relative_margin,
    }


MEMORY_EXPERIMENT = Experiment("memory run", 2, run_memory)
