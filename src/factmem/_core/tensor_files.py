"""Tensor files: safetensors with the configuration as JSON in the header."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import TensorFileError, printable

__all__ = ["load_tensors", "read_kind", "save_tensors"]

_HEADER = "factmem"


def save_tensors(
    path: str | os.PathLike[str], kind: str, config: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Save named arrays and their configuration.

    Args:
        path: the file; an existing file is replaced atomically.
        kind: the content of the file, such as `"transformer"`; `load_tensors` checks it.
        config: JSON data.
        tensors: arrays by name.

    Raises:
        TensorFileError: an array contains NaN or infinity.
        OSError: the file cannot be written.
    """
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    for name, array in arrays.items():
        _check_finite(name, array, "was not saved")
    header = json.dumps({"kind": kind, "config": dict(config)}, allow_nan=False)
    write_atomic(path, save(arrays, metadata={_HEADER: header}))


def load_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Load the configuration and the arrays of a file written by `save_tensors`, without pickle.

    Raises:
        TensorFileError: the file is damaged, not written by factmem, of another kind, or contains
            NaN or infinity.
        OSError: the file cannot be opened.
    """
    name = printable(Path(path).name)
    with open(path, "rb"):  # safetensors does not say why a file cannot be opened
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError, KeyError, AttributeError, OSError) as error:
        raise TensorFileError(
            f"{name} is not a complete safetensors file ({printable(str(error))})"
        ) from None
    config = _read_header(name, metadata, kind)
    for key, array in tensors.items():
        _check_finite(key, array, f"in {name}")
    return config, tensors


def read_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file that `save_tensors` wrote, without reading its tensors.

    Raises:
        TensorFileError: the file is damaged or was not written by factmem.
        OSError: the file cannot be opened.
    """
    name = printable(Path(path).name)
    with open(path, "rb"):  # safetensors hides why a file cannot be opened
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            return str(header["kind"])
    except (SafetensorError, TypeError, ValueError, LookupError, OSError, RecursionError):
        raise TensorFileError(f"{name} is not a file written by factmem") from None


def _read_header(name: str, metadata: Mapping[str, str], kind: str) -> dict[str, Any]:
    if _HEADER not in metadata:
        raise TensorFileError(
            f"{name} was not written by factmem: its header has no '{_HEADER}' entry"
        )
    try:
        header = json.loads(metadata[_HEADER])
        actual_kind, config = header["kind"], header["config"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TensorFileError(f"{name} has a damaged header") from None
    if actual_kind != kind or not isinstance(config, dict):
        raise TensorFileError(
            f"{name} must contain '{kind}', but it contains '{printable(str(actual_kind))}'"
        )
    return config


def _check_finite(name: str, array: np.ndarray, context: str) -> None:
    # By kind, because bfloat16 is not among numpy's floating types.
    if array.dtype.kind not in "biu" and not np.isfinite(array).all():
        raise TensorFileError(f"tensor '{printable(name)}' {context}: it contains NaN or infinity")
