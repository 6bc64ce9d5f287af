"""The FLOPs of a step, against those that jax counts."""

import jax
import jax.random as jr
import pytest
from benchmarks.flops import dot_flops
from equinox import tree_at

from factmem.facts import FactTable, PromptDistribution
from factmem.training import step_flops
from factmem.training.cost import step_products
from factmem.transformer import (
    Shape,
    Transformer,
    choose_prompt_form,
    cross_entropy,
    sample_prompts,
)


@pytest.mark.parametrize("width", [0, 24])
def test_step_flops_match_the_traced_program(width):
    prompts = PromptDistribution.from_table(FactTable.random(9, 7, 4), length=8)
    shape = Shape(16, 4, 8, width)
    model = Transformer.draw(shape, prompts.vocabulary, key=jr.key(0))
    batch = prompts.sample_batch(512, form="counts", key=jr.key(1))

    def loss(weights):
        return cross_entropy(
            tree_at(lambda m: m.weights, model, weights), batch.content, batch.answers
        )

    expected = dot_flops(jax.make_jaxpr(jax.grad(loss))(model.weights).jaxpr)
    assert step_flops(shape, prompts.vocabulary, 512) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(("noise", "form"), [(40, "split"), (800, "tokens")])
def test_step_flops_of_large_vocabularies_match_the_traced_program(noise, form):
    table = FactTable.random(1200, 2, 4)
    prompts = PromptDistribution.from_table(table, noise=noise, length=32)
    shape = Shape(32, 4, 8, 0)
    model = Transformer.draw(shape, prompts.vocabulary, key=jr.key(0))
    batch = sample_prompts(prompts, 512, form, key=jr.key(1))
    assert choose_prompt_form(prompts.vocabulary, 32, 32) == form

    def loss(weights):
        trained = tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(trained, batch.content, batch.answers)

    expected = dot_flops(jax.make_jaxpr(jax.grad(loss))(model.weights).jaxpr)
    assert step_flops(shape, prompts.vocabulary, 512, 32) == pytest.approx(expected, rel=0.2)


def test_attention_only_step_has_no_mlp_products():
    vocabulary = PromptDistribution.from_table(FactTable.random(9, 7, 4)).vocabulary
    assert "MLP in" in step_products(Shape(16, 4, 8, 1), vocabulary, 32)
    assert "MLP in" not in step_products(Shape(16, 4, 8, 0), vocabulary, 32)
