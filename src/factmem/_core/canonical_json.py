"""Conversion to JSON data, and one canonical JSON text for equal data."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["canonical_json", "to_json_data"]


def to_json_data(value: Any) -> Any:
    """Convert data to the types of JSON; NaN and infinity become null.

    Raises:
        TypeError: the data contain a type that JSON does not have.
    """
    if isinstance(value, Mapping):
        return {str(key): to_json_data(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return to_json_data(value.tolist())
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [to_json_data(entry) for entry in value]
    raise TypeError(f"{type(value).__name__} is not JSON data")


def canonical_json(value: Any) -> str:
    """Return the same JSON text for equal data: sorted keys, no spaces, numbers by value.

    Raises:
        TypeError: the data contain a type that JSON does not have.

    Examples:
        >>> canonical_json({"rate": 1.0, "dim": 8}) == canonical_json({"dim": 8.0, "rate": 1})
        True
    """
    data = _integers_where_whole(to_json_data(value))
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _integers_where_whole(value: Any) -> Any:
    """Convert floats such as 1.0 to integers, so that 1 and 1.0 give the same text."""
    if isinstance(value, dict):
        return {key: _integers_where_whole(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_integers_where_whole(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
