"""The cost of a step, against the products that jax finds in its own program."""

import jax
import jax.random as jr
import pytest
from benchmarks.flops import dot_flops

from factmem.facts import FactTable, PromptDistribution
from factmem.training import step_flops
from factmem.training.cost import step_products
from factmem.transformer import Shape, Transformer, cross_entropy


@pytest.mark.parametrize("width", [0, 24])
def test_the_products_of_a_step_are_those_of_its_program(width):
    asked = PromptDistribution.of(FactTable.random(9, 7, 4), length=8)
    shape = Shape(16, 4, 8, width)
    model = Transformer.draw(jr.key(0), shape, asked.vocabulary)
    prompts = asked.sample(jr.key(1), 512, form="counts")

    def loss(weights):
        from equinox import tree_at

        return cross_entropy(
            tree_at(lambda m: m.weights, model, weights), prompts.content, prompts.answers
        )

    found = dot_flops(jax.make_jaxpr(jax.grad(loss))(model.weights).jaxpr)
    counted = step_flops(shape, asked.vocabulary, 512)
    assert counted == pytest.approx(found, rel=0.2)


def test_attention_alone_has_no_mlp():
    words = PromptDistribution.of(FactTable.random(9, 7, 4)).vocabulary
    assert "MLP in" in step_products(Shape(16, 4, 8, 1), words, 32)
    assert "MLP in" not in step_products(Shape(16, 4, 8, 0), words, 32)
