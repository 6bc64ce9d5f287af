"""Tensors on disk: safetensors with the configuration as JSON in the header, written whole."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from factmem._core.errors import TensorFileError, visible

__all__ = ["load_tensors", "save_tensors", "write_whole"]

_HEADER = "factmem"


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file so that a reader finds the old content or the new one, never a part.

    The bytes go to a temporary name in the same folder, reach the disk, and are renamed. A link is
    followed, a file keeps its rights, and what is no file (a pipe, /dev/null) is written to.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    temporary = path.with_name(f".factmem-{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
    write_whole(path, save(arrays, metadata={_HEADER: header}))


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
