"""Optimizers by name: what is registered, and how another one is added."""

import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

from factmem import FactmemError, FactTable, PromptDistribution, Shape
from factmem.training import OPTIMIZERS, PAPER, Protocol, register_optimizer, train
from factmem.training.hyperparameters import Hyperparameters
from factmem.training.optimizers import gradient_transformation


@pytest.fixture
def signs():
    """An optimizer that takes steps of equal size, registered for one test."""

    @register_optimizer("signs", summary="the sign of the gradient")
    def build(hyperparameters):
        return optax.scale_by_sign()

    yield "signs"
    OPTIMIZERS.remove("signs")


def test_the_paper_optimizer_is_listed_first():
    assert list(OPTIMIZERS) == ["adam", "muon"]
    assert [entry.protocol.optimizer for entry in OPTIMIZERS.values()] == ["adam", "muon"]


def test_trains_with_a_registered_optimizer(signs):
    prompts = PromptDistribution.from_table(FactTable.random(4, 3, 2), length=6)
    protocol = Protocol((0.1,), steps=2, batch_size=8, optimizer=signs, evaluations=1)
    result = train(prompts, Shape(8, 2, 4, 8), protocol, key=jr.key(0))
    assert result.steps == 2
    assert OPTIMIZERS[signs].protocol == PAPER


def test_rejects_an_unknown_optimizer():
    hyperparameters = Hyperparameters(*(jnp.asarray(1.0),) * 4)
    with pytest.raises(FactmemError, match="unknown optimizer 'sgd'; choose from adam, muon"):
        gradient_transformation("sgd", hyperparameters)


def test_rejects_a_name_that_is_taken():
    with pytest.raises(FactmemError, match="'adam' is already registered"):
        register_optimizer("adam", summary="")(lambda hyperparameters: optax.identity())
