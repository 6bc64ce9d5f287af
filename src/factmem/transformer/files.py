"""Transformers in safetensors files, with their configuration in the header."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from factmem._core.errors import FactmemError, TensorFileError, printable
from factmem._core.tensor_files import load_tensors, read_kind, save_tensors
from factmem.facts.table import FactTable
from factmem.facts.table_files import load_table, save_table
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import activation_from_config
from factmem.transformer.convention import Convention
from factmem.transformer.model import Embeddings, Transformer, Weights, array_shapes
from factmem.transformer.shape import Shape

__all__ = ["load", "load_transformer", "save", "save_transformer"]

_KIND = "transformer"


def save(value: Transformer | FactTable, path: str | os.PathLike[str]) -> None:
    """Save a transformer or a fact table as a safetensors file.

    Raises:
        FactmemError: the value is something else, or the weights contain NaN or infinity.
    """
    if isinstance(value, Transformer):
        save_transformer(value, path)
    elif isinstance(value, FactTable):
        save_table(value, path)
    else:
        raise FactmemError(
            f"only transformers and fact tables can be saved, got {type(value).__name__}"
        )


def load(path: str | os.PathLike[str]) -> Transformer | FactTable:
    """Load a transformer or a fact table that `save` wrote.

    Raises:
        TensorFileError: the file is damaged or was not written by factmem.
        OSError: the file cannot be opened.
    """
    return load_transformer(path) if read_kind(path) == _KIND else load_table(path)


def save_transformer(model: Transformer, path: str | os.PathLike[str]) -> None:
    """Save a transformer with everything that is needed to use it again.

    Raises:
        TensorFileError: the weights contain NaN or infinity; nothing is written.
    """
    config = {
        "shape": asdict(model.shape),
        "vocabulary": asdict(model.vocabulary),
        "convention": asdict(model.convention),
        "activation": model.activation.config(),
    }
    parts = array_shapes(model.shape, model.vocabulary, model.convention)
    tensors = {
        f"{part}.{name}": getattr(getattr(model, part), name)
        for part, shapes in parts.items()
        for name, shape in shapes.items()
        if shape is not None
    }
    save_tensors(path, _KIND, config, tensors)


def load_transformer(path: str | os.PathLike[str]) -> Transformer:
    """Load a transformer that `save_transformer` wrote.

    Raises:
        TensorFileError: the file is damaged or not a transformer, a tensor is missing or has the
            wrong shape or type, or a tensor contains NaN or infinity.
        OSError: the file cannot be opened.
    """
    config, tensors = load_tensors(path, _KIND)
    try:
        return _transformer(config, tensors)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        name = printable(Path(path).name)
        raise TensorFileError(f"{name} is not a transformer: {printable(reason, 200)}") from None


def _transformer(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Transformer:
    shape, vocabulary = Shape(**config["shape"]), Vocabulary(**config["vocabulary"])
    convention = Convention(**config["convention"])
    parts = array_shapes(shape, vocabulary, convention)
    unused = dict(tensors)
    arrays = {
        part: {
            name: _array(f"{part}.{name}", unused.pop(f"{part}.{name}", None), array_shape)
            for name, array_shape in shapes.items()
        }
        for part, shapes in parts.items()
    }
    if unused:
        raise FactmemError(f"unknown tensor '{min(unused)}'")
    return Transformer(
        Weights(**arrays["weights"]),
        Embeddings(**arrays["embeddings"]),
        shape,
        vocabulary,
        convention,
        activation_from_config(config["activation"]),
    )


def _array(name: str, tensor: np.ndarray | None, shape: tuple[int, ...] | None) -> Any:
    """Check a tensor of the file and convert it to jax; None if the convention lacks it."""
    if tensor is None:
        if shape is None:
            return None
        raise FactmemError(f"tensor '{name}' is missing; its shape is {shape}")
    if shape is None:
        raise FactmemError(f"tensor '{name}' does not exist in this convention")
    if tensor.shape != shape:
        raise FactmemError(f"tensor '{name}' must have shape {shape}, got {tensor.shape}")
    if tensor.dtype.kind in "biu":
        raise FactmemError(f"tensor '{name}' must be floating-point, got {tensor.dtype}")
    with np.errstate(over="ignore"):  # a float64 file may exceed the range of float32
        array = jnp.asarray(tensor, jnp.result_type(float))
    if not jnp.isfinite(array).all():
        raise FactmemError(f"tensor '{name}' has values outside the range of {array.dtype}")
    return array
