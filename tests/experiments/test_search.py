"""Searches find the largest stored size from verdicts alone."""

from functools import partial
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.experiments import (
    Bracket,
    FastSearch,
    PaperSearch,
    ProbeVerdict,
    SearchStatus,
    trace_search,
)
from factmem.experiments.search import likely_sizes

STORED, NOT_STORED, UNDECIDED = ProbeVerdict


def up_to(limit):
    return lambda size: STORED if size <= limit else NOT_STORED


@st.composite
def searches(draw):
    minimum = draw(st.integers(1, 50))
    maximum = draw(st.integers(minimum, 10**6))
    guess = draw(st.integers(minimum, maximum))
    ratio = draw(st.floats(1.001, 2.0))
    return FastSearch(guess, ratio, draw(st.floats(1.0, 2.0)), minimum, maximum)


@given(searches(), st.integers(0, 2 * 10**6))
def test_the_final_bracket_is_narrow_and_contains_the_limit(search, limit):
    trace = trace_search(search, up_to(limit))
    lower, upper = trace.bracket.lower, trace.bracket.upper
    assert trace.next_size is None
    assert lower is None or search.minimum <= lower <= min(limit, search.maximum)
    assert upper is None or limit < upper
    assert len(set(trace.sizes)) == len(trace.sizes)
    assert all(search.minimum <= size <= search.maximum for size in trace.sizes)
    status = search.status(trace.bracket)
    if search.minimum <= limit < search.maximum:
        assert status is SearchStatus.BRACKETED
        assert upper <= max(lower + 1, lower * search.ratio)
    elif limit < search.minimum:
        assert (status, upper) == (SearchStatus.NONE_STORED, search.minimum)
    else:
        assert (status, lower) == (SearchStatus.ALL_STORED, search.maximum)


@given(searches(), st.integers(0, 2 * 10**6))
def test_a_wrong_guess_costs_few_tries(search, limit):
    trace = trace_search(search, up_to(limit))
    # Steps of the logarithm double, so even a guess that is wrong by 10^6 takes few of them. Near
    # 1, where integers are far apart, each step is at least 1.
    assert len(trace.sizes) <= 40


@given(searches(), st.integers(0, 2 * 10**6), st.integers(0, 40))
def test_an_interrupted_search_resumes_at_the_same_size(search, limit, known):
    complete = trace_search(search, up_to(limit))
    first = set(complete.sizes[:known])
    part = trace_search(search, lambda size: up_to(limit)(size) if size in first else None)
    assert part.sizes == complete.sizes[:known]
    assert part.next_size == (None if known >= len(complete.sizes) else complete.sizes[known])


@given(searches(), st.integers(0, 2 * 10**6))
def test_likely_sizes_start_with_the_next_ones(search, limit):
    bracket = Bracket()
    while (size := search.next(bracket)) is not None:
        sizes = list(islice(likely_sizes(search, bracket), 16))
        assert sizes[0] == size
        probability = search.probability_stored(bracket, size)
        assert 0 <= probability <= 1
        likely = STORED if probability >= 0.5 else NOT_STORED
        following = search.next(bracket.after(size, likely))
        assert following is None or following == sizes[1]
        assert len(set(sizes)) == len(sizes)
        bracket = bracket.after(size, up_to(limit)(size))
    assert list(likely_sizes(search, bracket)) == []


def test_one_step_above_a_success_a_failure_is_more_likely():
    # 31 is being tried: 29, which follows a failure, comes before 38, which follows a success.
    search = FastSearch(25, 1.05)
    assert list(islice(likely_sizes(search, Bracket(28)), 4)) == [31, 29, 30, 38]
    assert list(islice(likely_sizes(search, Bracket(None, 22)), 3)) == [20, 21, 16]


@given(searches(), st.integers(1, 10**6), st.integers(1, 10**6))
def test_larger_sizes_are_less_likely_stored(search, one, other):
    small, large = sorted((one, other))
    probability = partial(search.probability_stored, Bracket())
    assert probability(small) >= probability(large)
    assert probability(search.guess) == 0.5


def test_a_correct_guess_costs_two_tries():
    assert trace_search(FastSearch(26, 1.05), up_to(26)).sizes == (26, 27)
    assert trace_search(FastSearch(27, 1.05), up_to(26)).sizes == (27, 26)


def test_steps_grow_upwards_and_downwards():
    assert trace_search(FastSearch(100, 1.1), up_to(400)).sizes[:6] == (
        100,
        110,
        121,
        146,
        213,
        453,
    )
    assert trace_search(FastSearch(100, 1.1), up_to(20)).sizes[:6] == (100, 91, 83, 69, 48, 24)
    # A given first step, and then the geometric mean of the ends.
    assert trace_search(FastSearch(100, 1.01, 1.21), up_to(118)).sizes == (
        100,
        121,
        110,
        115,
        118,
        119,
    )


def test_an_undecided_size_counts_as_not_stored_and_is_reported():
    def verdict(size):
        return STORED if size < 27 else UNDECIDED if size == 27 else NOT_STORED

    trace = trace_search(FastSearch(26, 1.05), verdict)
    assert trace.bracket == Bracket(26, 27, undecided=True)
    trace = trace_search(FastSearch(28, 1.05), verdict)
    assert trace.bracket == Bracket(26, 27, undecided=True)
    # A smaller size that is proved not to be stored replaces it.
    trace = trace_search(
        FastSearch(27, 1.05), lambda size: UNDECIDED if size == 27 else up_to(20)(size)
    )
    assert not trace.bracket.undecided


def test_contradictory_verdicts_give_a_bracket_of_neighbors():
    verdicts = {24: NOT_STORED, 25: STORED, 26: STORED, 27: NOT_STORED}
    trace = trace_search(FastSearch(25, 1.05), lambda size: verdicts.get(size, NOT_STORED))
    assert trace.bracket == Bracket(26, 27)
    trace = trace_search(FastSearch(24, 1.05), lambda size: verdicts.get(size, up_to(23)(size)))
    assert trace.bracket == Bracket(23, 24)


def test_the_bisection_of_the_paper():
    trace = trace_search(PaperSearch(8, 512), up_to(26))
    assert trace.sizes == (260, 134, 71, 39, 23, 31, 27, 25, 26)
    assert trace.bracket == Bracket(26, 27)
    assert PaperSearch(8, 512).status(trace.bracket) is SearchStatus.BRACKETED
    # For linear memories it ends when the ends are within 1%.
    trace = trace_search(PaperSearch(64, 2048, 1.01), up_to(590))
    assert trace.bracket.lower <= 590 < trace.bracket.upper <= 1.01 * trace.bracket.lower


def test_the_bisection_of_the_paper_never_tries_its_ends():
    search = PaperSearch(8, 512)
    trace = trace_search(search, up_to(3))
    assert min(trace.sizes) == 9
    assert trace.bracket == Bracket(None, 9)
    assert search.status(trace.bracket) is SearchStatus.UNTESTED
    trace = trace_search(search, up_to(10**6))
    assert trace.bracket == Bracket(511, None)
    assert search.status(trace.bracket) is SearchStatus.ALL_STORED


@given(searches(), st.integers(0, 2 * 10**6))
def test_max_remaining_bounds_the_rest_of_a_bisection(search, limit):
    bracket = Bracket()
    sizes = trace_search(search, up_to(limit)).sizes
    for done, size in enumerate(sizes):
        if bracket.lower is not None and bracket.upper is not None:
            # Rounding to integers may take one more.
            assert len(sizes) - done <= search.max_remaining(bracket) + 1
        bracket = bracket.after(size, up_to(limit)(size))
    if bracket.lower is not None and bracket.upper is not None:
        assert search.max_remaining(bracket) == 0


def test_max_remaining_of_the_bisection_of_the_paper():
    search = PaperSearch(8, 512)
    assert search.max_remaining(Bracket()) == 9
    assert search.max_remaining(Bracket(26, 27)) == 0
    assert search.max_remaining(Bracket(23, 39)) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: FastSearch(5, 1.0),
        lambda: FastSearch(5, float("nan")),
        lambda: FastSearch(0),
        lambda: FastSearch(5, minimum=6),
        lambda: FastSearch(5, maximum=4),
        lambda: PaperSearch(8, 8),
        lambda: PaperSearch(0, 8),
    ],
)
def test_rejects_searches_out_of_order(make):
    with pytest.raises(FactmemError):
        make()
