"""CapacitySearches find where stored meets not stored, from verdicts alone."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.experiments import Bracket, FastSearch, Outcome, PaperSearch, Verdict, trace_search
from factmem.experiments.search import ahead

STORED, NOT_STORED, UNDECIDED = Verdict


def up_to(limit):
    return lambda size: STORED if size <= limit else NOT_STORED


@st.composite
def searches(draw):
    least = draw(st.integers(1, 50))
    most = draw(st.integers(least, 10**6))
    guess = draw(st.integers(least, most))
    ratio = draw(st.floats(1.001, 2.0))
    return FastSearch(guess, ratio, draw(st.floats(1.0, 2.0)), least, most)


@given(searches(), st.integers(0, 2 * 10**6))
def test_the_bracket_holds_the_limit_and_is_narrow(search, limit):
    found = trace_search(search, up_to(limit))
    lower, upper = found.bracket.lower, found.bracket.upper
    assert found.next_size is None
    assert lower is None or search.least <= lower <= min(limit, search.most)
    assert upper is None or limit < upper
    assert len(set(found.sizes)) == len(found.sizes)
    assert all(search.least <= size <= search.most for size in found.sizes)
    outcome = search.outcome(found.bracket)
    if search.least <= limit < search.most:
        assert outcome is Outcome.FOUND
        assert upper <= max(lower + 1, lower * search.ratio)
    elif limit < search.least:
        assert (outcome, upper) == (Outcome.NONE_STORED, search.least)
    else:
        assert (outcome, lower) == (Outcome.ALL_STORED, search.most)


@given(searches(), st.integers(0, 2 * 10**6))
def test_a_wrong_guess_costs_few_tries(search, limit):
    found = trace_search(search, up_to(limit))
    # Steps in the logarithm double, so even a guess that is wrong by 10^6 takes few of them; near
    # 1, where whole numbers are far apart, each step is at least 1.
    assert len(found.sizes) <= 40


@given(searches(), st.integers(0, 2 * 10**6), st.integers(0, 40))
def test_an_interrupted_search_goes_on_where_it_was(search, limit, known):
    whole = trace_search(search, up_to(limit))
    first = set(whole.sizes[:known])
    part = trace_search(search, lambda size: up_to(limit)(size) if size in first else None)
    assert part.sizes == whole.sizes[:known]
    assert part.next_size == (None if known >= len(whole.sizes) else whole.sizes[known])


@given(searches(), st.integers(0, 2 * 10**6))
def test_looking_ahead_sees_what_comes_next(search, limit):
    bracket = Bracket()
    while (size := search.next(bracket)) is not None:
        seen = list(islice(ahead(search, bracket), 60))
        assert seen[0] == size
        chance = search.chance(bracket, size)
        assert 0 <= chance <= 1
        likely = STORED if chance >= 0.5 else NOT_STORED
        following = search.next(bracket.after(size, likely))
        assert following is None or following == seen[1]
        assert len(set(seen)) == len(seen)
        bracket = bracket.after(size, up_to(limit)(size))
    assert list(ahead(search, bracket)) == []


def test_one_step_above_a_success_the_next_guess_is_that_it_fails():
    # 31 is being tried: what follows a failure_record, 29, comes before what follows a success, 38.
    search = FastSearch(25, 1.05)
    assert list(islice(ahead(search, Bracket(28)), 4)) == [31, 29, 30, 38]
    assert list(islice(ahead(search, Bracket(None, 22)), 3)) == [20, 21, 16]


@given(searches(), st.integers(1, 10**6), st.integers(1, 10**6))
def test_larger_sizes_are_stored_less_likely(search, one, other):
    small, large = sorted((one, other))
    whole = Bracket()
    assert search.chance(whole, small) >= search.chance(whole, large)
    assert search.chance(whole, search.guess) == 0.5


def test_a_right_guess_costs_two_tries():
    assert trace_search(FastSearch(26, 1.05), up_to(26)).sizes == (26, 27)
    assert trace_search(FastSearch(27, 1.05), up_to(26)).sizes == (27, 26)


def test_steps_grow_upwards_and_downwards():
    assert trace_search(FastSearch(100, 1.1), up_to(400)).sizes[:6] == (100, 110, 121, 146, 213, 453)
    assert trace_search(FastSearch(100, 1.1), up_to(20)).sizes[:6] == (100, 91, 83, 69, 48, 24)
    # A first step of its own, and then the geometric mean of the ends.
    assert trace_search(FastSearch(100, 1.01, 1.21), up_to(118)).sizes == (100, 121, 110, 115, 118, 119)


def test_what_is_undecided_counts_as_not_stored_and_is_named():
    def verdict(size):
        return STORED if size < 27 else UNDECIDED if size == 27 else NOT_STORED

    found = trace_search(FastSearch(26, 1.05), verdict)
    assert found.bracket == Bracket(26, 27, undecided=True)
    found = trace_search(FastSearch(28, 1.05), verdict)
    assert found.bracket == Bracket(26, 27, undecided=True)
    # A smaller size that is proved not to be stored takes its place.
    found = trace_search(FastSearch(27, 1.05), lambda size: UNDECIDED if size == 27 else up_to(20)(size))
    assert not found.bracket.undecided


def test_luck_that_contradicts_the_assumption_leaves_a_place_where_both_meet():
    lucky = {24: NOT_STORED, 25: STORED, 26: STORED, 27: NOT_STORED}
    found = trace_search(FastSearch(25, 1.05), lambda size: lucky.get(size, NOT_STORED))
    assert found.bracket == Bracket(26, 27)
    found = trace_search(FastSearch(24, 1.05), lambda size: lucky.get(size, up_to(23)(size)))
    assert found.bracket == Bracket(23, 24)


def test_the_authors_bisection():
    found = trace_search(PaperSearch(8, 512), up_to(26))
    assert found.sizes == (260, 134, 71, 39, 23, 31, 27, 25, 26)
    assert found.bracket == Bracket(26, 27)
    assert PaperSearch(8, 512).outcome(found.bracket) is Outcome.FOUND
    # Linear memories: until the ends are within 1 %.
    found = trace_search(PaperSearch(64, 2048, 1.01), up_to(590))
    assert found.bracket.lower <= 590 < found.bracket.upper <= 1.01 * found.bracket.lower


def test_the_authors_never_try_their_ends():
    search = PaperSearch(8, 512)
    found = trace_search(search, up_to(3))
    assert min(found.sizes) == 9
    assert found.bracket == Bracket(None, 9)
    assert search.outcome(found.bracket) is Outcome.UNTESTED
    found = trace_search(search, up_to(10**6))
    assert found.bracket == Bracket(511, None)
    assert search.outcome(found.bracket) is Outcome.ALL_STORED


@given(searches(), st.integers(0, 2 * 10**6))
def test_how_many_are_left_at_most_once_there_are_two_ends(search, limit):
    bracket = Bracket()
    whole = trace_search(search, up_to(limit)).sizes
    for done, size in enumerate(whole):
        if bracket.lower is not None and bracket.upper is not None:
            # Rounding to whole numbers may take one more.
            assert len(whole) - done <= search.most_left(bracket) + 1
        bracket = bracket.after(size, up_to(limit)(size))
    if bracket.lower is not None and bracket.upper is not None:
        assert search.most_left(bracket) == 0


def test_how_many_the_authors_have_left():
    search = PaperSearch(8, 512)
    assert search.most_left(Bracket()) == 9
    assert search.most_left(Bracket(26, 27)) == 0
    assert search.most_left(Bracket(23, 39)) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: FastSearch(5, 1.0),
        lambda: FastSearch(5, float("nan")),
        lambda: FastSearch(0),
        lambda: FastSearch(5, least=6),
        lambda: FastSearch(5, most=4),
        lambda: PaperSearch(8, 8),
        lambda: PaperSearch(0, 8),
    ],
)
def test_what_is_no_search(make):
    with pytest.raises(FactmemError):
        make()
