"""The cost of a step, against the products that jax finds in its own program."""

import jax
import jax.random as jr
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.training import step_flops
from factmem.training.cost import step_products
from factmem.transformer import Shape, Transformer, cross_entropy


def dot_flops(jaxpr) -> int:
    """Additions and multiplications of all matrix products in a program, loops taken once."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = 1
            for axis in contracted:
                inner *= left[axis]
            total += 2 * inner * equation.outvars[0].aval.size
        for value in equation.params.values():
            for inside in value if isinstance(value, tuple | list) else (value,):
                inside = getattr(inside, "jaxpr", inside)
                if hasattr(inside, "eqns"):
                    total += dot_flops(inside)
    return total


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
