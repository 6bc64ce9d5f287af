"""Which answers are decodable, compared with convex hulls and with plain linear programs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from factmem._core.errors import FactmemError
from factmem.memories import decodable as module
from factmem.memories.decodable import decodable


def gaussian_values(seed, outputs, dim):
    return np.random.default_rng(seed).normal(size=(outputs, dim))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([(4, 2), (12, 2), (9, 3), (30, 3)]))
def test_decodable_values_are_vertices_of_the_convex_hull(seed, size):
    values = gaussian_values(seed, *size)
    is_vertex = np.zeros(len(values), bool)
    is_vertex[ConvexHull(values).vertices] = True
    np.testing.assert_array_equal(decodable(values), is_vertex)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_no_direction_decodes_to_values_that_are_not_decodable(seed):
    values = gaussian_values(seed, 25, 3)
    directions = np.random.default_rng(seed + 1).normal(size=(20_000, 3))
    decoded = np.bincount(np.argmax(directions @ values.T, axis=1), minlength=len(values)) > 0
    assert not (decoded & ~decodable(values)).any()
    assert decoded.sum() >= 4


def test_orthonormal_values_are_decodable():
    assert decodable(np.eye(7)).all()
    assert decodable(np.vstack([np.eye(3), -np.eye(3)])).all()


def test_interior_values_are_not_decodable():
    vertices = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    result = decodable(np.vstack([vertices.mean(axis=0, keepdims=True), vertices]))
    assert result.tolist() == [False, True, True, True, True]


def test_duplicates_and_points_on_edges_are_not_decodable():
    vertices = np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    duplicated = decodable(np.vstack([vertices, vertices[:1]]))
    assert duplicated.tolist() == [False, True, True, False]
    on_edge = (vertices[0] + vertices[1])[None] / 2
    assert decodable(np.vstack([vertices, on_edge])).tolist() == [True, True, True, False]
    assert not decodable(np.ones((2, 3))).any()


def test_a_single_value_is_decodable():
    assert decodable(np.zeros((1, 3))).tolist() == [True]


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1e3]))
def test_decodable_is_invariant_to_scale_shift_and_order(seed, scale):
    values = gaussian_values(seed, 15, 3)
    expected = decodable(values)
    np.testing.assert_array_equal(decodable(scale * values), expected)
    np.testing.assert_array_equal(decodable(values + 3.0), expected)
    np.testing.assert_array_equal(decodable(values[::-1]), expected[::-1])


def test_fraction_of_gaussian_values_that_are_not_decodable():
    """About one in twelve of 100 vectors in d = 8, and none in d = 32."""
    fractions = [np.mean(~decodable(gaussian_values(seed, 100, 8))) for seed in range(6)]
    assert 1 / 18 < np.mean(fractions) < 1 / 9
    assert decodable(gaussian_values(0, 100, 32)).all()


# ---- without all the linear programs -------------------------------------------------------------


def decodable_by_linear_programs(values):
    """Solve one linear program with all other answers for every answer."""
    values = np.asarray(values, float) / np.abs(values).max()
    solutions = []
    for y in range(len(values)):
        differences = values[y] - np.delete(values, y, axis=0)
        bounds = -np.ones(len(differences))
        solutions.append(
            linprog(np.zeros(values.shape[1]), -differences, bounds, bounds=(None, None))
        )
    return np.array([solution.status == 0 for solution in solutions])


def hard_values(kind, seed, count, dim):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, dim))
    if kind == "hidden":
        hull = values[: count // 2]
        values[count // 2 :] = rng.dirichlet(np.ones(len(hull)), size=count - len(hull)) @ hull
    elif kind == "duplicates":
        values[rng.integers(count, size=count // 3)] = values[rng.integers(count, size=count // 3)]
    elif kind == "shifted":
        values += 10 * rng.normal(size=dim)
    elif kind == "skewed":
        values *= np.geomspace(1, 1e-3, dim)
    elif kind == "sphere":
        values /= np.linalg.norm(values, axis=1, keepdims=True)
    elif kind == "flat":
        values[:, -1] = 1.0
    elif kind == "grid":
        values = np.round(values)
    return values


KINDS = ("gaussian", "hidden", "duplicates", "shifted", "skewed", "sphere", "flat", "grid")


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from([(8, 1), (12, 2), (30, 3), (25, 6), (40, 8)]),
)
def test_verdicts_are_those_of_linear_programs(seed, kind, size):
    values = hard_values(kind, seed, *size)
    np.testing.assert_array_equal(decodable(values), decodable_by_linear_programs(values))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from([1, 70]))
def test_ids_and_blocks_do_not_matter(seed, kind, entries):
    values = hard_values(kind, seed, 30, 3)
    expected = decodable(values)
    ids = np.random.default_rng(seed).integers(30, size=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_ENTRIES", entries)
        np.testing.assert_array_equal(decodable(values), expected)
        np.testing.assert_array_equal(decodable(values, ids), expected[ids])
    assert decodable(values, ids[:0]).shape == (0,)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_linear_programs_alone_have_the_same_verdicts(seed, kind):
    """Constraints are added one round at a time, from none."""
    values = hard_values(kind, seed, 40, 4)
    scaled = values / np.abs(values).max()
    result = [module._linear_program(scaled, y, np.array([y])) for y in range(40)]
    np.testing.assert_array_equal(result, decodable_by_linear_programs(values))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_frank_wolfe_proves_only_what_is_decodable(seed, kind):
    values = hard_values(kind, seed, 40, 4)
    whitened, to_white = module._whiten(values / np.abs(values).max())
    proved, rivals = module._frank_wolfe(whitened, to_white, np.arange(40))
    assert not (proved & ~decodable_by_linear_programs(values)).any()
    assert rivals.shape == (40, module._STEPS)
    if kind == "gaussian":
        assert proved.sum() > 20


def test_many_gaussian_values_need_no_linear_program(monkeypatch):
    monkeypatch.setattr(module, "_linear_program", None)
    assert decodable(gaussian_values(0, 2000, 64)).all()


@pytest.mark.parametrize("wrong", [-1, 7])
def test_rejects_wrong_ids(wrong):
    with pytest.raises(FactmemError, match=f"ids must be from 0 to 6, got {wrong}"):
        decodable(np.eye(7), np.array([3, wrong]))


def test_memory_does_not_grow_with_the_square_of_answers():
    values = gaussian_values(0, 8000, 16)
    tracemalloc.start()
    try:
        assert decodable(values, np.arange(0, 8000, 80)).any()
        assert decodable(4 * values / np.linalg.norm(values, axis=1, keepdims=True)).all()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8000**2 * 8 / 4
