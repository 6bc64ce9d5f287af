"""The test suite that all memories share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.experiments.memory_methods import MEMORY_METHODS, build_memory
from factmem.memories import Associations, hebbian, rounded, tangent_memory

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
PARAMETERS = {
    "hebbian": DIM**2,
    "low-rank": 2 * DIM * 12,
    "hermite": 2 * DIM * 128,
    "tangent": 2 * DIM * 2 * 96,
    "optimal": DIM**2,
    "fitted-features": 2 * DIM * 24,
    "fitted-relu": 2 * DIM * 6,
    "fitted-bilinear": 3 * DIM * 4,
    "trained-linear": DIM**2,
    "trained-mlp": 2 * DIM * 16 + 16,
    "tangent model": 3 * DIM * 96,
}
PAIRS = Associations.draw(FACTS, DIM, outputs=15, target="permutation", key=jr.key(0))


def build(name):
    """Build the memory of PAIRS with a method, or the tangent memory itself."""
    if name == "tangent model":
        return tangent_memory(PAIRS, width=96, key=jr.key(1))
    return build_memory(name, PAIRS, key=jr.key(1), **SIZES.get(name, {})).model


@pytest.fixture(scope="module", params=[*MEMORY_METHODS, "tangent model"])
def named_memory(request):
    """The name of a method and its memory of PAIRS."""
    return request.param, build(request.param)


@eqx.filter_jit
def call(memory, key):
    return memory(key)


def by_definition(memory):
    """Compute scores, margins and relative margins by their definitions, in float64."""
    values, target = np.asarray(PAIRS.values, float), np.asarray(PAIRS.target)
    outputs = np.stack([np.asarray(call(memory, key), float) for key in np.asarray(PAIRS.keys)])
    differences = values[target][:, None, :] - values[None, :, :]
    margins = np.einsum("xyd,xd->xy", differences, outputs)
    lengths = np.linalg.norm(outputs, axis=1)[:, None] * np.linalg.norm(differences, axis=2)
    own = np.arange(PAIRS.outputs)[None, :] == target[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = margins / lengths
    return outputs @ values.T, np.where(own, np.inf, margins), np.where(own, np.inf, relative)


def test_recall_is_the_argmax_of_the_scores(named_memory):
    _, memory = named_memory
    scores, _, _ = by_definition(memory)
    np.testing.assert_array_equal(memory.recall(PAIRS.keys, PAIRS.values), scores.argmax(axis=1))


def test_margins_match_their_definition(named_memory):
    _, memory = named_memory
    _, margins, relative = by_definition(memory)
    scale = np.abs(margins[np.isfinite(margins)]).max()
    np.testing.assert_allclose(memory.margins(PAIRS), margins, rtol=1e-4, atol=1e-5 * scale)
    smallest = memory.smallest_margins(PAIRS)
    np.testing.assert_allclose(smallest.margin, margins.min(axis=1), rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(smallest.relative, relative.min(axis=1), rtol=1e-3, atol=1e-5)


def test_score_matches_the_margins(named_memory):
    name, memory = named_memory
    score = memory.score(PAIRS)
    _, margins, relative = by_definition(memory)
    recalled = memory.recall(PAIRS.keys, PAIRS.values) == PAIRS.target
    assert score.accuracy == pytest.approx(np.mean(margins.min(axis=1) > 0))
    assert score.accuracy == pytest.approx(np.mean(recalled))
    assert score.min_margin == pytest.approx(margins.min(), rel=1e-3, abs=1e-4)
    assert score.min_relative_margin == pytest.approx(relative.min(), rel=1e-3, abs=1e-5)
    assert score.parameters == memory.parameters == PARAMETERS[name]
    assert score.bits_per_parameter == pytest.approx(
        np.sum(recalled) * np.log2(15) / PARAMETERS[name]
    )


def test_recalls_few_associations(named_memory):
    name, memory = named_memory
    minimum = 0.8 if name in ("low-rank", "tangent", "tangent model", "hermite") else 1.0
    assert memory.score(PAIRS).accuracy >= minimum


def test_outputs_match_single_calls(named_memory):
    _, memory = named_memory
    outputs = memory.outputs(PAIRS.keys)
    assert outputs.shape == PAIRS.keys.shape
    assert outputs.dtype == jnp.float32
    output = call(memory, PAIRS.keys[3])
    np.testing.assert_allclose(outputs[3], output, rtol=1e-3, atol=1e-4 * np.abs(output).max())


def test_order_of_keys_and_values_does_not_matter(named_memory):
    _, memory = named_memory
    rows, columns = np.random.default_rng(0).permutation(FACTS), np.arange(15)[::-1]
    permuted = Associations(
        PAIRS.keys[rows],
        PAIRS.values[columns],
        jnp.asarray(np.argsort(columns))[PAIRS.target][rows],
    )
    score, same = memory.score(PAIRS), memory.score(permuted)
    assert same.accuracy == score.accuracy
    assert same.min_margin == pytest.approx(score.min_margin, rel=1e-3)


def test_relative_margin_is_scale_free(named_memory):
    _, memory = named_memory
    keys, values = PAIRS.keys, 3.0 * PAIRS.values
    score = memory.score(PAIRS)
    larger = memory.score(Associations(keys, values, PAIRS.target))
    assert larger.min_relative_margin == pytest.approx(
        score.min_relative_margin, rel=1e-3, abs=1e-6
    )
    assert larger.min_margin == pytest.approx(3 * score.min_margin, rel=1e-3)


def test_parameters_are_finite_float32_arrays(named_memory):
    name, memory = named_memory
    leaves = jax.tree.leaves(eqx.filter(memory, eqx.is_array))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
    assert sum(leaf.size for leaf in leaves) == PARAMETERS[name]


@pytest.mark.parametrize("mode", ["x64", "strict"])
@pytest.mark.parametrize("name", MEMORY_METHODS)
def test_methods_work_in_64_bit_and_strict_promotion_mode(name, mode):
    context = jax.enable_x64(True) if mode == "x64" else jax.numpy_dtype_promotion("strict")
    with context:
        pairs = Associations.draw(FACTS, DIM, outputs=15, target="permutation", key=jr.key(0))
        result = build_memory(name, pairs, key=jr.key(1), **SIZES.get(name, {}))
        score = result.model.score(pairs)
    assert score.accuracy > 0.8
    assert not jax.config.jax_enable_x64


def test_a_tie_is_not_recalled():
    pairs = Associations(jnp.eye(2), jnp.ones((2, 2)), jnp.arange(2))
    assert hebbian(pairs).score(pairs).accuracy == 0


def test_16_bit_weights_have_the_same_accuracy(named_memory):
    _, memory = named_memory
    assert rounded(memory, 16).score(PAIRS).accuracy == memory.score(PAIRS).accuracy


def test_methods_are_deterministic(named_memory):
    name, memory = named_memory
    jax.tree.map(np.testing.assert_array_equal, memory, build(name))
