"""Conversion to JSON data and canonical JSON."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.canonical_json import canonical_json, to_json_data

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_numpy_types_and_nan_are_converted():
    data = {
        "integer": np.int64(3),
        "fraction": np.float32(0.5),
        "nan": float("nan"),
        "infinity": np.float64("inf"),
        "list": np.array([1.0, np.nan]),
        "boolean": np.bool_(True),
        "nested": {"deep": (1, None, "text")},
    }
    assert to_json_data(data) == {
        "integer": 3,
        "fraction": 0.5,
        "nan": None,
        "infinity": None,
        "list": [1.0, None],
        "boolean": True,
        "nested": {"deep": [1, None, "text"]},
    }


@pytest.mark.parametrize("function", [to_json_data, canonical_json])
@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object()])
def test_rejects_types_without_json_form(function, value):
    with pytest.raises(TypeError, match="is not JSON data"):
        function({"entry": value})


def test_text_depends_on_values_only():
    assert canonical_json({"a": 1, "b": [0.5, 2.0]}) == canonical_json({"b": (0.5, 2), "a": 1.0})
    assert canonical_json({"a": 1}) == '{"a":1}'
    different = [1, 2, 1.5, -1, True, False, None, "1", [1], {"1": 1}, "", []]
    assert len({canonical_json(data) for data in different}) == len(different)


@given(DATA)
def test_canonical_json_round_trip(data):
    def finite(value):
        if isinstance(value, list):
            return [finite(entry) for entry in value]
        if isinstance(value, dict):
            return {key: finite(entry) for key, entry in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    text = canonical_json(data)
    assert json.loads(text) == finite(data)
    assert canonical_json(json.loads(text)) == text
    assert text.isascii()
