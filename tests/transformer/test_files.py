"""Transformers are restored exactly from their files; other files are rejected."""

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
from factmem.facts import FactTable, PromptDistribution, Vocabulary
from factmem.memories.activations import HermitePolynomial, Relu
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Shape,
    Transformer,
    load,
    load_transformer,
    save,
    save_transformer,
)

PROMPTS = PromptDistribution.from_table(FactTable.random(5, 3, 2))


def model_of(seed=0, convention=EXPERIMENT_CONVENTION, width=6, activation=Relu()):
    shape = Shape(8, 2, 4, width)
    return Transformer.draw(shape, PROMPTS.vocabulary, convention, activation, key=jr.key(seed))


@given(
    seed=st.integers(0, 1000),
    convention=st.sampled_from([THEORY_CONVENTION, EXPERIMENT_CONVENTION]),
    width=st.sampled_from([0, 6]),
    coefficients=st.none() | st.lists(st.floats(-2, 2), min_size=1, max_size=4),
)
def test_loads_what_was_saved_bit_for_bit(tmp_path_factory, seed, convention, width, coefficients):
    activation = Relu() if coefficients is None else HermitePolynomial(tuple(coefficients))
    model = model_of(seed, convention, width, activation)
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    save_transformer(model, path)
    loaded = load_transformer(path)
    assert bool(eqx.tree_equal(model, loaded))
    assert jax.tree.structure(model) == jax.tree.structure(loaded)


def edited(tmp_path, change):
    """Save a transformer, then change the config and tensors of the file."""
    path = tmp_path / "model.safetensors"
    save_transformer(model_of(), path)
    config, tensors = load_tensors(path, "transformer")
    change(config, tensors)
    save_tensors(path, "transformer", config, tensors)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, t: t.pop("weights.key"), "'weights.key' is missing; its shape is"),
        (lambda c, t: t.update({"weights.key": t["weights.key"][:1]}), "must have shape"),
        (lambda c, t: t.update({"weights.key": t["weights.key"][0, 0, 0]}), "must have shape"),
        (lambda c, t: t.update({"weights.more": t["weights.key"]}), "unknown tensor"),
        (
            lambda c, t: t.update({"weights.key": t["weights.key"].astype(np.int32)}),
            "must be floating-point, got int32",
        ),
        (
            lambda c, t: t.update({"weights.key": t["weights.key"].astype(float) * 1e300}),
            "outside the range of float32",
        ),
        (lambda c, t: c.pop("shape"), "'shape' is missing"),
        (lambda c, t: c["shape"].update(heads=3), "must have shape"),
        (lambda c, t: c["shape"].update(heads=-3), "heads must be at least 1, got -3"),
        (lambda c, t: c["shape"].update(heads="many"), "is not a transformer"),
        (lambda c, t: c["shape"].update(color=1), "is not a transformer"),
        (lambda c, t: c.update(shape=[1, 2]), "is not a transformer"),
        (lambda c, t: c["convention"].update(embedding="cube"), "is not a transformer"),
        (lambda c, t: c["convention"].update(shared_table=True), "must have shape"),
        (lambda c, t: c["vocabulary"].update(noise=0), "noise"),
        (lambda c, t: c["activation"].update(name="tanh"), "activation"),
    ],
)
def test_rejects_damaged_files(tmp_path, change, message):
    with pytest.raises(TensorFileError, match=message) as error:
        load_transformer(edited(tmp_path, change))
    assert str(error.value).isprintable()


def test_does_not_save_nan(tmp_path):
    model = eqx.tree_at(lambda m: m.weights.key, model_of(), replace_fn=lambda k: k * jnp.nan)
    with pytest.raises(TensorFileError, match=r"'weights\.key' was not saved: it contains NaN"):
        save_transformer(model, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_rejects_another_kind_of_file(tmp_path):
    save_tensors(tmp_path / "f", "fact table", {}, {"a": np.zeros(2)})
    with pytest.raises(TensorFileError, match="contains 'fact table'"):
        load_transformer(tmp_path / "f")


def test_save_and_load_choose_by_the_kind_of_file(tmp_path):
    table = FactTable.random(3, 2, 2)
    model = Transformer.draw(Shape(4, 1, 2, 3), Vocabulary(3, 2, 5, 4), key=jr.key(0))
    save(table, tmp_path / "table.safetensors")
    save(model, tmp_path / "model.safetensors")
    assert load(tmp_path / "table.safetensors").answer_names == table.answer_names
    assert eqx.tree_equal(load(tmp_path / "model.safetensors"), model)
    (tmp_path / "other").write_bytes(b"nothing")
    with pytest.raises(TensorFileError, match="not a file written by factmem"):
        load(tmp_path / "other")
