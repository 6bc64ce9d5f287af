"""Hard noise: what the mixed prompts contain, in every form, and that runs stay independent."""

from collections import Counter
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution, TokenPrompts, Vocabulary
from factmem.training import (
    BEST,
    PaddedSizes,
    Protocol,
    runs_for_learning_rates,
    train_transformers,
)
from factmem.training.hard_noise import add_hard_noise, hard_noise_patterns
from factmem.training.stack import advance, evaluate
from factmem.training.transformers import _stack_runs
from factmem.transformer import Shape, Transformer, cross_entropy, sample_prompts

SHAPE = Shape(12, 3, 4, 10)
BATCH = 64
ADAM = Protocol((1e-2, 3e-3), steps=24, evaluations=4, batch_size=48, test_prompts=64)
HARD = replace(ADAM, hard_noise=0.5)
MUON = replace(BEST, steps=24, evaluations=4, batch_size=48, test_prompts=64, hard_noise=0.25)


def make_prompts(noise=9, length=8, sizes=(6, 5, 3)):
    return PromptDistribution.from_table(FactTable.random(*sizes), noise=noise, length=length)


PROMPTS = make_prompts()


def make_model(prompts=PROMPTS, seed=0):
    return Transformer.draw(SHAPE, prompts.vocabulary, key=jr.key(seed))


def mix(prompts, model, fraction, form, seed):
    batch = sample_prompts(prompts, BATCH, form, key=jr.key(seed))
    return add_hard_noise(batch, model, prompts, jnp.asarray(fraction), key=jr.key(seed + 1))


def ranked_noise(model, head):
    """Sort the noise tokens by a head's scores, the strongest first."""
    vocabulary = model.vocabulary
    scores = np.asarray(model.scores())[vocabulary.first_noise : vocabulary.eos, head]
    return (np.argsort(-scores, kind="stable") + vocabulary.first_noise).tolist()


def run_steps(stack, prompts, protocol, steps=5, vectorize=False, form=None):
    active = jnp.ones(stack.answers.shape[0], bool)
    numbers = (jnp.asarray(number, jnp.int32) for number in (0, steps))
    config = protocol.step_config
    return advance(stack, prompts, *numbers, active, config, vectorize, form, key=jr.key(3))


def make_stack(protocol, prompts=PROMPTS, padding=None, seed=0):
    runs = runs_for_learning_rates(make_model(prompts, seed), prompts, protocol)
    return _stack_runs(runs, protocol, padding)


def assert_close(first, second, rtol=1e-3, atol=1e-5):
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@given(
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from([(9, 8), (2, 8), (40, 4), (1, 5)]),
    fraction=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_mixed_prompts_hold_subject_relation_and_eos_once(seed, sizes, fraction):
    prompts = make_prompts(*sizes)
    model, vocabulary = make_model(prompts, seed % 3), prompts.vocabulary
    batch = mix(prompts, model, fraction, "counts", seed)
    counts = np.asarray(batch.content)
    plain = np.asarray(sample_prompts(prompts, BATCH, "counts", key=jr.key(seed)).content)
    assert (counts.sum(axis=1) == prompts.length).all()
    known = np.r_[: vocabulary.first_noise, vocabulary.eos]
    assert np.array_equal(counts[:, known], plain[:, known])
    positions, patterns = prompts.length - 3, set()
    for head in range(SHAPE.heads):
        ranked = ranked_noise(model, head)
        patterns.add(((ranked[0], positions),))
        filling = Counter(ranked[i % len(ranked)] for i in range(positions))
        patterns.add(tuple(sorted(filling.items())))
    changed = 0
    for row, before in zip(counts, plain, strict=True):
        if np.array_equal(row, before) and fraction < 1:
            continue
        noise = [z for z in np.flatnonzero(row) if vocabulary.first_noise <= z < vocabulary.eos]
        assert tuple((int(z), int(row[z])) for z in noise) in patterns
        changed += 1
    assert changed == BATCH if fraction == 1 else changed < BATCH
    assert changed == 0 or fraction > 0


def test_patterns_follow_the_scores_of_the_heads():
    model = make_model()
    patterns = np.asarray(hard_noise_patterns(model, PROMPTS))
    assert patterns.shape == (2 * SHAPE.heads, PROMPTS.length - 3)
    for head in range(SHAPE.heads):
        ranked = ranked_noise(model, head)
        assert patterns[2 * head].tolist() == ranked[:1] * 5
        assert patterns[2 * head + 1].tolist() == ranked[:5]


@pytest.mark.parametrize("form", ["split", "tokens"])
@pytest.mark.parametrize("length", [3, 4, 8])
def test_all_forms_hold_the_same_prompts(form, length):
    prompts = make_prompts(length=length)
    model = make_model(prompts)
    counts = np.asarray(mix(prompts, model, 0.5, "counts", 7).content)
    content = mix(prompts, model, 0.5, form, 7).content
    if isinstance(content, TokenPrompts):
        plain = sample_prompts(prompts, BATCH, "tokens", key=jr.key(7)).content.tokens
        assert np.array_equal(content.tokens[:, -1], plain[:, -1])
        rows = [np.bincount(row, minlength=counts.shape[1]) for row in content.tokens]
        assert np.array_equal(counts, rows)
    else:
        assert np.array_equal(counts[:, prompts.vocabulary.first_noise :], content.shared)


def test_fraction_is_the_share_of_changed_prompts():
    prompts, model = make_prompts(noise=40), make_model(make_prompts(noise=40))
    batch = sample_prompts(prompts, 4000, "counts", key=jr.key(0))
    changed = add_hard_noise(batch, model, prompts, jnp.asarray(0.3), key=jr.key(1)).content
    share = float(np.mean(np.any(np.asarray(changed) != np.asarray(batch.content), axis=1)))
    assert share == pytest.approx(0.3, abs=0.03)
    noise = np.asarray(changed)[:, prompts.vocabulary.first_noise : prompts.vocabulary.eos]
    single = noise.max(axis=1) == prompts.length - 3
    tokens = Counter(noise[single].argmax(axis=1).tolist())
    strongest = {ranked_noise(model, h)[0] - prompts.vocabulary.first_noise for h in range(3)}
    assert set(tokens) == strongest


def test_no_hard_noise_is_bitwise_the_same_training():
    assert make_stack(ADAM).hyperparameters.hard_noise is None
    runs = runs_for_learning_rates(make_model(), PROMPTS, ADAM)
    plain, zero = (
        train_transformers(runs, protocol, key=jr.key(1))
        for protocol in (ADAM, replace(HARD, hard_noise=0.0))
    )
    for one, other in zip(plain, zero, strict=True):
        assert eqx.tree_equal(one.model, other.model)
        assert one.evaluations == other.evaluations


def test_traced_fraction_of_zero_changes_no_prompt():
    zero = make_stack(HARD)
    zero = eqx.tree_at(lambda s: s.hyperparameters.hard_noise, zero, jnp.zeros(2))
    plain = run_steps(make_stack(ADAM), PROMPTS, ADAM).models.weights
    assert_close(run_steps(zero, PROMPTS, HARD).models.weights, plain)


def test_evaluation_counts_hard_noise():
    stack = make_stack(replace(HARD, hard_noise=1.0))
    batch = sample_prompts(PROMPTS, BATCH, "counts", key=jr.key(0))
    key = jr.key(1)
    evaluation = evaluate(stack, batch, PROMPTS, noise_key=key)
    for run in range(2):
        model = jax.tree.map(lambda leaf, run=run: leaf[run], stack.models)
        hard = add_hard_noise(batch, model, PROMPTS, jnp.asarray(1.0), key=key)
        expected = cross_entropy(model, hard.content, batch.answers)
        assert float(evaluation.loss[run]) == pytest.approx(float(expected), rel=1e-5)


def test_training_is_the_same_in_every_form_and_vectorized():
    expected = run_steps(make_stack(HARD), PROMPTS, HARD).models.weights
    plain = run_steps(make_stack(ADAM), PROMPTS, ADAM).models.weights
    assert np.abs(expected.query - plain.query).max() > 1e-3
    for options in ({"form": "split"}, {"form": "tokens"}, {"vectorize": True}):
        assert_close(run_steps(make_stack(HARD), PROMPTS, HARD, **options).models.weights, expected)


def test_every_run_has_the_hard_noise_of_its_own_heads():
    """A run goes through the same numbers whatever runs beside it."""
    models = [make_model(seed=seed) for seed in (0, 1)]
    runs = [run for m in models for run in runs_for_learning_rates(m, PROMPTS, HARD)]
    together = run_steps(_stack_runs(runs, HARD), PROMPTS, HARD).models.weights
    alone = run_steps(_stack_runs(runs[2:], HARD), PROMPTS, HARD).models.weights
    assert_close(jax.tree.map(lambda leaf: leaf[2:], together), alone, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("protocol", [HARD, MUON], ids=["adam", "muon"])
def test_padded_training_gives_the_same_results(protocol):
    padding = PaddedSizes(Vocabulary(8, 7, 15, 30), 50, heads=5, width=16)
    runs = runs_for_learning_rates(make_model(), PROMPTS, protocol)
    plain, padded = (
        train_transformers(runs, protocol, key=jr.key(1), padding=sizes)
        for sizes in (None, padding)
    )
    for one, other in zip(plain, padded, strict=True):
        assert_close(one.model, other.model)


def test_resumed_training_is_the_same(tmp_path):
    runs = runs_for_learning_rates(make_model(), PROMPTS, HARD)
    expected = train_transformers(runs, HARD, key=jr.key(1))
    path = tmp_path / "training.safetensors"

    def interrupt(steps, **_):
        if steps >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_transformers(runs, HARD, key=jr.key(1), checkpoint=path, report=interrupt)
    resumed = train_transformers(runs, HARD, key=jr.key(1), checkpoint=path)
    assert_close([r.model for r in resumed], [r.model for r in expected], rtol=1e-5, atol=1e-7)
    with pytest.raises(FactmemError, match="another training run"):
        train_transformers(runs, ADAM, key=jr.key(1), checkpoint=path)


def test_criterion_of_1_ends_no_run_early():
    prompts = make_prompts(sizes=(1, 1, 1))
    runs = runs_for_learning_rates(make_model(prompts), prompts, ADAM)
    for early_stopping in ((), ((0.5, 0.1),)):
        protocol = replace(HARD, criterion=1.0, early_stopping=early_stopping)
        for result in train_transformers(runs, protocol, key=jr.key(1)):
            assert (result.steps, result.status.label) == (HARD.steps, "step_limit")
            assert result.best_accuracy == 1


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_rejects_fractions_outside_0_and_1(fraction):
    with pytest.raises(FactmemError, match="hard_noise must be between 0 and 1"):
        replace(ADAM, hard_noise=fraction)
