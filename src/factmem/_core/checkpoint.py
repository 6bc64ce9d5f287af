"""Checkpoint files, from which an interrupted training resumes."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from factmem._core.errors import FactmemError, TensorFileError, printable
from factmem._core.tensor_files import load_tensors, read_kind, save_tensors

__all__ = ["Checkpoint", "digest", "is_checkpoint"]

_KIND = "training"


def digest(*trees: Any) -> str:
    """Return a SHA-256 digest of pytrees: their structure, dtypes, shapes and numbers."""
    leaves, structure = jax.tree.flatten(trees)
    sha256 = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf, order="C")
        sha256.update(f"{array.dtype}{array.shape}".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """A file with the state of one training.

    Args:
        path: the file; every write replaces it atomically.
        identity: identifies the training; a file with another identity is rejected.
    """

    path: str | os.PathLike[str]
    identity: str

    def exists(self) -> bool:
        """Return whether the file exists."""
        return os.path.exists(self.path)

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Delete a checkpoint if it exists.

        Raises:
            TensorFileError: the file is not a checkpoint.
        """
        if os.path.exists(path):
            load_tensors(path, _KIND)
            os.unlink(path)

    def save(self, arrays: Any, records: Any) -> None:
        """Write a pytree of arrays and JSON data."""
        leaves = jax.tree.leaves(arrays)
        tensors = {_tensor_name(index): leaf for index, leaf in enumerate(leaves)}
        config = {"identity": self.identity, "records": records}
        save_tensors(self.path, _KIND, config, tensors)

    def load(self, like: Any) -> tuple[Any, Any]:
        """Return the arrays, as a pytree with the structure of `like`, and the JSON data.

        Raises:
            TensorFileError: the file is damaged, or is not a checkpoint.
            FactmemError: the checkpoint belongs to another training run.
            OSError: the file cannot be opened.
        """
        config, tensors = load_tensors(self.path, _KIND)
        name = printable(Path(self.path).name)
        if config.get("identity") != self.identity:
            raise FactmemError(
                f"{name} belongs to another training run (facts, sizes, protocol or seed differ): "
                "use another file, or remove this one"
            )
        expected, structure = jax.tree.flatten(like)
        loaded = [tensors.get(_tensor_name(index)) for index in range(len(expected))]
        for old, new in zip(expected, loaded, strict=True):
            if new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
                raise TensorFileError(f"{name} is damaged: its arrays do not fit this training")
        arrays = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in loaded])
        return arrays, config.get("records")


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a checkpoint, of whatever training.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        return read_kind(path) == _KIND
    except TensorFileError:
        return False


def _tensor_name(index: int) -> str:
    return f"state.{index:03}"
