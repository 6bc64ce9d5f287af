"""Data that JSON can hold: as numbers, text, lists and mappings, and in one canonical form."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["canonical", "plain"]


def plain(value: Any) -> Any:
    """The same data with JSON's own types; numbers that are not finite are null.

    Raises:
        TypeError: something that JSON does not have.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return plain(value.tolist())
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(entry) for entry in value]
    raise TypeError(f"{type(value).__name__} is no JSON data")


def canonical(value: Any) -> str:
    """JSON text that is the same for the same data: keys in order, no spaces, numbers by value.

    Raises:
        TypeError: something that JSON does not have.

    Examples:
        >>> canonical({"rate": 1.0, "dim": 8}) == canonical({"dim": 8.0, "rate": 1})
        True
    """
    data = _by_value(plain(value))
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _by_value(value: Any) -> Any:
    """The same data with whole numbers as integers: 1 and 1.0 are one number."""
    if isinstance(value, dict):
        return {key: _by_value(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_by_value(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
