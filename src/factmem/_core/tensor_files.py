"""Tensors on disk: safetensors with the configuration as JSON in the header, written whole."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import TensorFileError, visible

__all__ = ["load_tensors", "save_tensors"]

_HEADER = "factmem"


def save_tensors(
    path: str | os.PathLike[str], kind: str, config: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Saves named arrays and the configuration that gives them meaning.

    Args:
        path: where to; an existing file is replaced at once, at the very end.
        kind: what the file is, such as `"transformer"`; `load_tensors` wants the same word.
        config: JSON data.
        tensors: arrays by name. NaN and infinity are refused, for no reader would take them.
    """
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    for name, array in arrays.items():
        _check_finite(name, array, "not saved")
    header = json.dumps({"kind": kind, "config": dict(config)}, allow_nan=False)
    write_atomic(path, save(arrays, metadata={_HEADER: header}))


def load_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the arrays of a file that `save_tensors` wrote; nothing is unpickled.

    Raises:
        TensorFileError: the file is damaged, foreign, of another kind, or holds NaN or infinity.
        OSError: the file cannot be opened.
    """
    name = visible(Path(path).name)
    with open(path, "rb"):  # safetensors hides why a file cannot be opened
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError, KeyError, AttributeError, OSError) as error:
        raise TensorFileError(
            f"{name} is not a whole safetensors file ({visible(str(error))})"
        ) from None
    config = _read_header(name, metadata, kind)
    for key, array in tensors.items():
        _check_finite(key, array, f"in {name}")
    return config, tensors


def _read_header(name: str, metadata: Mapping[str, str], kind: str) -> dict[str, Any]:
    if _HEADER not in metadata:
        raise TensorFileError(
            f"{name} was not written by factmem: its header has no '{_HEADER}' entry"
        )
    try:
        header = json.loads(metadata[_HEADER])
        found, config = header["kind"], header["config"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TensorFileError(f"{name} has a damaged header") from None
    if found != kind or not isinstance(config, dict):
        raise TensorFileError(f"{name} holds a {visible(str(found))}, not a {kind}")
    return config


def _check_finite(name: str, array: np.ndarray, where: str) -> None:
    # Not by numpy's list of floating types, which lacks bfloat16.
    if array.dtype.kind not in "biu" and not np.isfinite(array).all():
        raise TensorFileError(f"tensor '{visible(name)}' {where}: it holds NaN or infinite numbers")
