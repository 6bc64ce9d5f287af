"""Token ids."""

import pytest

from factmem._core.errors import FactmemError
from factmem.facts import Vocabulary


def test_ids_are_contiguous():
    vocabulary = Vocabulary(subjects=5, relations=3, noise=8, answers=6)
    assert (vocabulary.first_relation, vocabulary.first_noise, vocabulary.eos) == (5, 8, 16)
    assert (vocabulary.prompt_tokens, vocabulary.first_answer, vocabulary.size) == (17, 17, 23)


@pytest.mark.parametrize("field", ["subjects", "relations", "noise", "answers"])
def test_every_size_must_be_positive(field):
    sizes = dict.fromkeys(["subjects", "relations", "noise", "answers"], 2)
    with pytest.raises(FactmemError, match=f"{field} must be at least 1, got 0"):
        Vocabulary(**(sizes | {field: 0}))
