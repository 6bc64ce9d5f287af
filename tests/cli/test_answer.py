"""JSON is one object with JSON's own types."""

import json

import numpy as np
import pytest

from factmem.cli.answer import Answer, Output, emit, plain


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


def test_what_is_no_json_is_a_fault():
    with pytest.raises(TypeError, match="set"):
        plain({"odd": {1, 2}})


def test_json_is_one_line_and_nothing_else(capsys):
    answer = Answer({"name": "<b>\x1b\n"}, lambda: "never shown", Output(json=True))
    assert emit(answer) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "<b>\x1b\n"}
    assert err == ""
