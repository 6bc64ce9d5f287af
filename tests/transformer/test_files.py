"""Transformers survive their files, and files that hold none are refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import TensorFileError
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts import FactTable, PromptDistribution
from factmem.memories.activations import HermitePolynomial, Relu
from factmem.transformer import (
    EXPERIMENTS,
    THEORY,
    Shape,
    Transformer,
    load_transformer,
    save_transformer,
)

ASKED = PromptDistribution.of(FactTable.random(5, 3, 2))


def model_of(seed=0, convention=EXPERIMENTS, width=6, activation=Relu()):
    shape = Shape(8, 2, 4, width)
    return Transformer.draw(jr.key(seed), shape, ASKED.vocabulary, convention, activation)


@given(
    seed=st.integers(0, 1000),
    convention=st.sampled_from([THEORY, EXPERIMENTS]),
    width=st.sampled_from([0, 6]),
    coefficients=st.none() | st.lists(st.floats(-2, 2), min_size=1, max_size=4),
)
def test_a_transformer_survives_its_file_bit_for_bit(
    tmp_path_factory, seed, convention, width, coefficients
):
    activation = Relu() if coefficients is None else HermitePolynomial(tuple(coefficients))
    model = model_of(seed, convention, width, activation)
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    save_transformer(model, path)
    loaded = load_transformer(path)
    assert bool(eqx.tree_equal(model, loaded))
    assert jax.tree.structure(model) == jax.tree.structure(loaded)


def edited(tmp_path, change):
    """A saved transformer whose config and tensors were changed behind its back."""
    path = tmp_path / "model.safetensors"
    save_transformer(model_of(), path)
    config, tensors = load_tensors(path, "transformer")
    change(config, tensors)
    save_tensors(path, "transformer", config, tensors)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, t: t.pop("weights.key"), "'weights.key' is missing"),
        (lambda c, t: t.update({"weights.key": t["weights.key"][:1]}), "has the shape"),
        (lambda c, t: t.update({"weights.key": t["weights.key"][0, 0, 0]}), "has the shape"),
        (lambda c, t: t.update({"weights.more": t["weights.key"]}), "unknown tensor"),
        (
            lambda c, t: t.update({"weights.key": t["weights.key"].astype(np.int32)}),
            "not floating-point",
        ),
        (
            lambda c, t: t.update({"weights.key": t["weights.key"].astype(float) * 1e300}),
            "beyond the range of float32",
        ),
        (lambda c, t: c.pop("shape"), "'shape' is missing"),
        (lambda c, t: c["shape"].update(heads=3), "has the shape"),
        (lambda c, t: c["shape"].update(heads=-3), "at least 1"),
        (lambda c, t: c["shape"].update(heads="many"), "holds no transformer"),
        (lambda c, t: c["shape"].update(color=1), "holds no transformer"),
        (lambda c, t: c.update(shape=[1, 2]), "holds no transformer"),
        (lambda c, t: c["convention"].update(embedding="cube"), "holds no transformer"),
        (lambda c, t: c["convention"].update(shared_table=True), "has the shape"),
        (lambda c, t: c["vocabulary"].update(noise=0), "noise"),
        (lambda c, t: c["activation"].update(name="tanh"), "activation"),
    ],
)
def test_a_file_that_holds_no_transformer_is_refused(tmp_path, change, message):
    with pytest.raises(TensorFileError, match=message) as refusal:
        load_transformer(edited(tmp_path, change))
    assert str(refusal.value).isprintable()


def test_undefined_weights_are_not_saved(tmp_path):
    model = eqx.tree_at(lambda m: m.weights.key, model_of(), replace_fn=lambda k: k * jnp.nan)
    with pytest.raises(TensorFileError, match=r"'weights\.key' not saved"):
        save_transformer(model, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_another_kind_of_file_is_refused(tmp_path):
    save_tensors(tmp_path / "f", "fact table", {}, {"a": np.zeros(2)})
    with pytest.raises(TensorFileError, match="holds a fact table, not a transformer"):
        load_transformer(tmp_path / "f")
