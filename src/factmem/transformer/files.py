"""Transformers on disk: safetensors, with everything but the numbers in the header."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from factmem._core.errors import FactmemError, TensorFileError, visible
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import activation_from_config
from factmem.transformer.convention import Convention
from factmem.transformer.model import Embeddings, Shape, Transformer, Weights, array_shapes

__all__ = ["load_transformer", "save_transformer"]

_KIND = "transformer"


def save_transformer(model: Transformer, path: str | os.PathLike[str]) -> None:
    """Saves a transformer with everything that is needed to use it again.

    Raises:
        TensorFileError: the weights hold NaN or infinity; nothing is written.
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
        for part, sizes in parts.items()
        for name, size in sizes.items()
        if size is not None
    }
    save_tensors(path, _KIND, config, tensors)


def load_transformer(path: str | os.PathLike[str]) -> Transformer:
    """The transformer that `save_transformer` wrote.

    Raises:
        TensorFileError: the file is damaged, is something else, lacks a tensor, has one of the
            wrong shape or type, or holds NaN or infinity.
        OSError: the file cannot be opened.
    """
    config, tensors = load_tensors(path, _KIND)
    try:
        return _transformer(config, tensors)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        name = visible(Path(path).name)
        raise TensorFileError(f"{name} holds no transformer: {visible(reason, 200)}") from None


def _transformer(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Transformer:
    shape, vocabulary = Shape(**config["shape"]), Vocabulary(**config["vocabulary"])
    convention = Convention(**config["convention"])
    parts = array_shapes(shape, vocabulary, convention)
    left = dict(tensors)
    arrays = {
        part: {
            name: _array(f"{part}.{name}", left.pop(f"{part}.{name}", None), size)
            for name, size in sizes.items()
        }
        for part, sizes in parts.items()
    }
    if left:
        raise FactmemError(f"unknown tensor '{min(left)}'")
    return Transformer(
        Weights(**arrays["weights"]),
        Embeddings(**arrays["embeddings"]),
        shape,
        vocabulary,
        convention,
        activation_from_config(config["activation"]),
    )


def _array(name: str, found: np.ndarray | None, size: tuple[int, ...] | None) -> Any:
    """A tensor of the file as jax has it, or None where this convention has no such tensor."""
    if (None if found is None else found.shape) != size:
        has = "is missing" if found is None else f"has the shape {found.shape}"
        needs = "it has no place in this convention" if size is None else f"{size} is needed"
        raise FactmemError(f"tensor '{name}' {has}; {needs}")
    if found is None:
        return None
    if found.dtype.kind in "biu":
        raise FactmemError(f"tensor '{name}' holds {found.dtype}, not floating-point numbers")
    with np.errstate(over="ignore"):  # a float64 file may hold more than float32 can
        array = jnp.asarray(found, jnp.result_type(float))
    if not jnp.isfinite(array).all():
        raise FactmemError(f"tensor '{name}' holds numbers beyond the range of {array.dtype}")
    return array
