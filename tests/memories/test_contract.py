"""The battery that every memory passes, however it was made."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.experiments.memory_methods import METHODS, build
from factmem.memories import Associations, rounded, tangent_memory

DIM, FACTS = 16, 12
SIZES = {
    "low-rank": {"rank": 12},
    "hermite": {"width": 128},
    "tangent": {"width": 96},
    "fitted-features": {"width": 24},
    "fitted-relu": {"width": 6},
    "fitted-bilinear": {"width": 4},
    "trained-mlp": {"width": 16},
}
NUMBERS = {
    "hebbian": DIM**2,
    "low-rank": 2 * DIM * 12,
    "hermite": 2 * DIM * 128,
    "tangent": 2 * DIM * 2 * 96,
    "maximal": DIM**2,
    "fitted-features": 2 * DIM * 24,
    "fitted-relu": 2 * DIM * 6,
    "fitted-bilinear": 3 * DIM * 4,
    "trained-linear": DIM**2,
    "trained-mlp": 2 * DIM * 16 + 16,
    "tangent model": 3 * DIM * 96,
}
PAIRS = Associations.draw(jr.key(0), FACTS, DIM, outputs=15, target="permutation")


@pytest.fixture(scope="module", params=[*METHODS, "tangent model"])
def made(request):
    """A method's name and its memory of PAIRS."""
    if request.param == "tangent model":
        return request.param, tangent_memory(jr.key(1), PAIRS, width=96)
    return request.param, build(
        request.param, jr.key(1), PAIRS, **SIZES.get(request.param, {})
    ).memory


def by_definition(memory):
    """Scores, margins and relative margins, one pair after the other, in float64."""
    values, target = np.asarray(PAIRS.values, float), np.asarray(PAIRS.target)
    outputs = np.stack([np.asarray(memory(key), float) for key in PAIRS.keys])
    differences = values[target][:, None, :] - values[None, :, :]
    margins = np.einsum("xyd,xd->xy", differences, outputs)
    lengths = np.linalg.norm(outputs, axis=1)[:, None] * np.linalg.norm(differences, axis=2)
    own = np.arange(PAIRS.outputs)[None, :] == target[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = margins / lengths
    return outputs @ values.T, np.where(own, np.inf, margins), np.where(own, np.inf, relative)


def test_recall_is_the_argmax_of_the_scores(made):
    _, memory = made
    scores, _, _ = by_definition(memory)
    np.testing.assert_array_equal(memory.recall(PAIRS.keys, PAIRS.values), scores.argmax(axis=1))


def test_margins_are_those_of_the_definition(made):
    _, memory = made
    _, margins, relative = by_definition(memory)
    scale = np.abs(margins[np.isfinite(margins)]).max()
    np.testing.assert_allclose(memory.margins(PAIRS), margins, rtol=1e-4, atol=1e-5 * scale)
    smallest = memory.smallest_margins(PAIRS)
    np.testing.assert_allclose(smallest.margin, margins.min(axis=1), rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(smallest.relative, relative.min(axis=1), rtol=1e-3, atol=1e-5)


def test_the_score_sums_the_margins_up(made):
    name, memory = made
    score = memory.score(PAIRS)
    _, margins, relative = by_definition(memory)
    recalled = memory.recall(PAIRS.keys, PAIRS.values) == PAIRS.target
    assert score.accuracy == pytest.approx(np.mean(margins.min(axis=1) > 0))
    assert score.accuracy == pytest.approx(np.mean(recalled))
    assert score.min_margin == pytest.approx(margins.min(), rel=1e-3, abs=1e-4)
    assert score.relative_margin == pytest.approx(relative.min(), rel=1e-3, abs=1e-5)
    assert score.parameters == memory.parameters == NUMBERS[name]
    assert score.bits_per_parameter == pytest.approx(np.sum(recalled) * np.log2(15) / NUMBERS[name])


def test_these_few_associations_are_recalled(made):
    name, memory = made
    least = 0.8 if name in ("low-rank", "tangent", "tangent model", "hermite") else 1.0
    assert memory.score(PAIRS).accuracy >= least


def test_one_key_and_all_keys_give_the_same(made):
    _, memory = made
    together = memory.outputs(PAIRS.keys)
    assert together.shape == PAIRS.keys.shape
    assert together.dtype == jnp.float32
    one = memory(PAIRS.keys[3])
    np.testing.assert_allclose(together[3], one, rtol=1e-3, atol=1e-4 * np.abs(one).max())


def test_the_order_of_keys_and_of_values_does_not_matter(made):
    _, memory = made
    rows, columns = np.random.default_rng(0).permutation(FACTS), np.arange(15)[::-1]
    moved = Associations(
        PAIRS.keys[rows],
        PAIRS.values[columns],
        jnp.asarray(np.argsort(columns))[PAIRS.target][rows],
    )
    score, same = memory.score(PAIRS), memory.score(moved)
    assert same.accuracy == score.accuracy
    assert same.min_margin == pytest.approx(score.min_margin, rel=1e-3)


def test_the_relative_margin_has_no_scale(made):
    _, memory = made
    keys, values = PAIRS.keys, 3.0 * PAIRS.values
    score = memory.score(PAIRS)
    larger = memory.score(Associations(keys, values, PAIRS.target))
    assert larger.relative_margin == pytest.approx(score.relative_margin, rel=1e-3, abs=1e-6)
    assert larger.min_margin == pytest.approx(3 * score.min_margin, rel=1e-3)


def test_weights_are_float32_arrays_and_nothing_else_counts(made):
    name, memory = made
    leaves = jax.tree.leaves(eqx.filter(memory, eqx.is_array))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
    assert sum(leaf.size for leaf in leaves) == NUMBERS[name]


@pytest.mark.parametrize("mode", ["x64", "strict"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_works_in_the_users_own_mode(name, mode):
    context = jax.enable_x64(True) if mode == "x64" else jax.numpy_dtype_promotion("strict")
    with context:
        pairs = Associations.draw(jr.key(0), FACTS, DIM, outputs=15, target="permutation")
        score = build(name, jr.key(1), pairs, **SIZES.get(name, {})).memory.score(pairs)
    assert score.accuracy > 0.8
    assert not jax.config.jax_enable_x64


def test_a_tie_is_no_recall():
    pairs = Associations(jnp.eye(2), jnp.ones((2, 2)), jnp.arange(2))
    assert build("hebbian", jr.key(0), pairs).memory.score(pairs).accuracy == 0


def test_sixteen_bits_a_weight_are_enough_here(made):
    _, memory = made
    assert rounded(memory, 16).score(PAIRS).accuracy == memory.score(PAIRS).accuracy


def test_making_it_again_gives_the_same_weights(made):
    name, memory = made
    if name == "tangent model":
        again = tangent_memory(jr.key(1), PAIRS, width=96)
    else:
        again = build(name, jr.key(1), PAIRS, **SIZES.get(name, {})).memory
    jax.tree.map(np.testing.assert_array_equal, memory, again)
