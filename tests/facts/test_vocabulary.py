"""Token ids: subjects, relations, noise, EOS, answers."""

import pytest

from factmem._core.errors import FactmemError
from factmem.facts import Vocabulary


def test_ids_follow_each_other_without_gaps():
    names = Vocabulary(subjects=5, relations=3, noise=8, answers=6)
    assert (names.first_relation, names.first_noise, names.eos) == (5, 8, 16)
    assert (names.prompt_tokens, names.first_answer, names.size) == (17, 17, 23)


@pytest.mark.parametrize("field", ["subjects", "relations", "noise", "answers"])
def test_none_may_be_empty(field):
    sizes = dict.fromkeys(["subjects", "relations", "noise", "answers"], 2)
    with pytest.raises(FactmemError, match=field):
        Vocabulary(**(sizes | {field: 0}))
