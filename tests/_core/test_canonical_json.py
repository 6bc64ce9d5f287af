"""JSON's own types, and one text for the same data."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.canonical_json import canonical, plain

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_numpy_numbers_and_undefined_ones_become_plain():
    data = {
        "whole": np.int64(3),
        "share": np.float32(0.5),
        "undefined": float("nan"),
        "endless": np.float64("inf"),
        "list": np.array([1.0, np.nan]),
        "truth": np.bool_(True),
        "nested": {"deep": (1, None, "text")},
    }
    assert plain(data) == {
        "whole": 3,
        "share": 0.5,
        "undefined": None,
        "endless": None,
        "list": [1.0, None],
        "truth": True,
        "nested": {"deep": [1, None, "text"]},
    }


@pytest.mark.parametrize("function", [plain, canonical])
@pytest.mark.parametrize("odd", [{1, 2}, b"bytes", object()])
def test_what_is_no_json_is_a_fault(function, odd):
    with pytest.raises(TypeError, match="is no JSON data"):
        function({"odd": odd})


def test_order_and_kind_of_number_do_not_matter_but_values_do():
    assert canonical({"a": 1, "b": [0.5, 2.0]}) == canonical({"b": (0.5, 2), "a": 1.0})
    assert canonical({"a": 1}) == '{"a":1}'
    different = [1, 2, 1.5, -1, True, False, None, "1", [1], {"1": 1}, "", []]
    assert len({canonical(data) for data in different}) == len(different)


@given(DATA)
def test_canonical_text_is_json_of_the_same_data_and_of_itself(data):
    def finite(value):
        if isinstance(value, list):
            return [finite(entry) for entry in value]
        if isinstance(value, dict):
            return {key: finite(entry) for key, entry in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    text = canonical(data)
    assert json.loads(text) == finite(data)
    assert canonical(json.loads(text)) == text
    assert text.isascii()
