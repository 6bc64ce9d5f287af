"""A training on disk: where it is, so that it can go on as if nothing had happened."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from factmem._core.errors import FactmemError, TensorFileError, visible
from factmem._core.tensor_files import load_tensors, save_tensors

__all__ = ["Checkpoint", "digest"]

_KIND = "training"


def digest(*trees: Any) -> str:
    """A fingerprint of arrays and of how they are put together."""
    leaves, structure = jax.tree.flatten(trees)
    found = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf, order="C")
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds one training, and no other.

    Args:
        path: of the file, replaced as a whole whenever it is written.
        identity: of the training; a file with another one is refused.
    """

    path: str | os.PathLike[str]
    identity: str

    def exists(self) -> bool:
        """Whether there is something to go on from."""
        return os.path.exists(self.path)

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Removes a checkpoint, if there is one, and no other file.

        Raises:
            TensorFileError: something else is there.
        """
        if os.path.exists(path):
            load_tensors(path, _KIND)
            os.unlink(path)

    def save(self, arrays: Any, records: Any) -> None:
        """Writes a tree of arrays, and JSON data beside it."""
        tensors = {_name(place): leaf for place, leaf in enumerate(jax.tree.leaves(arrays))}
        config = {"identity": self.identity, "records": records}
        save_tensors(self.path, _KIND, config, tensors)

    def load(self, like: Any) -> tuple[Any, Any]:
        """The arrays, as a tree like this one, and the JSON data.

        Raises:
            TensorFileError: the file is damaged, or something else.
            FactmemError: it belongs to another training.
            OSError: it cannot be opened.
        """
        config, tensors = load_tensors(self.path, _KIND)
        name = visible(Path(self.path).name)
        if config.get("identity") != self.identity:
            raise FactmemError(
                f"{name} holds another training (facts, sizes, protocol or seed differ): "
                "give another file, or remove this one"
            )
        leaves, structure = jax.tree.flatten(like)
        found = [tensors.get(_name(place)) for place in range(len(leaves))]
        for wanted, got in zip(leaves, found, strict=True):
            if got is None or (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
                raise TensorFileError(f"{name} is damaged: its arrays are not those of a training")
        arrays = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in found])
        return arrays, config.get("records")


def _name(place: int) -> str:
    return f"state.{place:03}"
