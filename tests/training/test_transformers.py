"""Training from start to end: checks, outcomes, contests, interruptions."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError, TensorFileError
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts import FactTable, PromptDistribution
from factmem.training import (
    Check,
    Protocol,
    Run,
    TrainedTransformer,
    TrainingOutcome,
    best_run,
    runs_for_learning_rates,
    train_transformers,
    transformers,
)
from factmem.training.optimizers import Settings
from factmem.training.protocol import Recipe
from factmem.training.stack import advance, begin, measure
from factmem.transformer import Shape, Transformer

SHAPE = Shape(12, 3, 4, 10)
ASKED = PromptDistribution.of(FactTable.random(6, 5, 3, seed=0), length=8)
# Three rates throughout, so that few programs are compiled: too small, right, much too large.
PROTOCOL = Protocol((1e-6, 2e-2, 1e30), steps=120, checks=12, batch=64, prompts=256, criterion=0.8)
KEY = jr.key(11)


def start(seed=0, asked=ASKED, shape=SHAPE):
    return Transformer.draw(jr.key(seed), shape, asked.vocabulary)


START = start()


def train(protocol=PROTOCOL, runs=None, key=KEY, **options):
    runs = runs_for_learning_rates(START, ASKED, protocol) if runs is None else runs
    return train_transformers(runs, protocol, key, **options)


def contests(protocol=PROTOCOL):
    """The same runs, without a contest between them."""
    rates = enumerate(protocol.learning_rates)
    return [Run(START, ASKED, rate, contest) for contest, rate in rates]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        # As text, in which NaN is NaN.
        assert repr((one.checks, one.outcome)) == repr((other.checks, other.outcome))
        for left, right in zip(
            jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True
        ):
            np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def undisturbed():
    return train(runs=contests())


def test_every_run_ends_in_its_own_way(undisturbed):
    slow, good, wild = undisturbed
    assert slow.outcome is TrainingOutcome.STEPS
    assert slow.steps == 120
    assert good.outcome is TrainingOutcome.REACHED
    assert wild.outcome is TrainingOutcome.DIVERGED
    assert wild.steps == 10
    assert [run.learning_rate for run in undisturbed] == [1e-6, 2e-2, 1e30]


def test_checks_come_before_the_start_and_then_evenly(undisturbed):
    slow, good, wild = undisturbed
    assert [check.steps for check in slow.checks] == list(range(0, 121, 10))
    assert [check.steps for check in wild.checks] == [0, 10]
    assert slow.checks[0] == good.checks[0] == wild.checks[0]


def test_a_run_ends_at_the_first_check_above_the_criterion(undisturbed):
    *before, last = [check.accuracy for check in undisturbed[1].checks]
    assert last > 0.8 >= max(before)
    assert undisturbed[1].best_accuracy == last


def test_the_best_accuracy_is_the_largest_at_any_check(undisturbed):
    found = [check.accuracy for check in undisturbed[0].checks]
    assert undisturbed[0].best_accuracy == max(found)


def test_the_model_is_that_of_the_last_check(undisturbed):
    """Measured again on the fixed prompts, which a second key gives."""
    _, test_key = jr.split(KEY)
    prompts = ASKED.sample(test_key, 256, form="counts")
    for run in undisturbed[:2]:
        logits = eqx.filter_jit(Transformer.logits)(run.model, prompts.content)
        right = np.argmax(logits, axis=1) == np.asarray(prompts.answers)
        assert right.mean() == pytest.approx(run.checks[-1].accuracy)


def test_a_run_that_diverged_is_given_as_it_was_last_seen_well(undisturbed):
    wild = undisturbed[2]
    assert np.isnan(wild.checks[-1].loss) or wild.checks[-1].accuracy < 0.8
    for found, begun in zip(jax.tree.leaves(wild.model), jax.tree.leaves(START), strict=True):
        np.testing.assert_array_equal(found, begun)


def test_neighbors_do_not_feel_a_run_that_diverges(undisturbed):
    calm = train(runs=[*contests()[:2], Run(START, ASKED, 1e-3, 2)])
    assert_same(undisturbed[:2], calm[:2])


def test_the_first_to_reach_the_criterion_ends_its_contest(undisturbed):
    slow, good, wild = train()
    assert slow.outcome is TrainingOutcome.OVERTAKEN
    assert slow.steps == good.steps == undisturbed[1].steps
    assert wild.outcome is TrainingOutcome.DIVERGED
    assert good.checks == undisturbed[1].checks
    mixed = train(runs=[replace(run, contest=number // 2) for number, run in enumerate(contests())])
    assert mixed[0].outcome is TrainingOutcome.OVERTAKEN


def test_tables_of_one_size_are_trained_together(undisturbed):
    other = PromptDistribution.of(FactTable.random(6, 5, 3, seed=1), length=8)
    runs = [Run(START, asked, 2e-2, contest) for contest, asked in enumerate((ASKED, other, ASKED))]
    found = train(runs=runs)
    assert_same([found[0]], [undisturbed[1]])
    assert_same([found[2]], [undisturbed[1]])
    assert found[1].checks[0].accuracy != found[0].checks[0].accuracy
    assert found[1].outcome is TrainingOutcome.REACHED


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_training_is_the_protocols_steps_in_their_order(optimizer):
    """Bit for bit what one piece of all steps gives, with the numbers written out."""
    protocol = Protocol(
        (1e-2, 3e-3),
        steps=30,
        checks=4,
        batch=48,
        evenly=True,
        optimizer=optimizer,
        schedule="cosine",
        momentum=0.8,
        memory=0.7,
    )
    found = train(protocol)
    settings = Settings(
        *(jnp.asarray(pair) for pair in ([1e-2, 3e-3], [0.8] * 2, [0.7] * 2, [30.0] * 2))
    )
    recipe = Recipe(optimizer, "cosine", 48, True)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), START)
    stack = begin(models, settings, jnp.stack([ASKED.fact_answers] * 2), recipe)
    batch_key, _ = jr.split(KEY)
    zero, all_steps = jnp.asarray(0, jnp.int32), jnp.asarray(30, jnp.int32)
    stack = advance(stack, ASKED, batch_key, zero, all_steps, jnp.ones(2, bool), recipe)
    for run, trained in enumerate(found):
        assert [check.steps for check in trained.checks] == [0, 7, 15, 22, 30]
        for left, right in zip(
            jax.tree.leaves(trained.model), jax.tree.leaves(stack.models), strict=True
        ):
            np.testing.assert_array_equal(left, right[run])


def shown(monkeypatch, *accuracies, finite=True):
    """Lets the checks of three runs show these accuracies, one after the other."""
    looks = iter(accuracies)

    def measure(stack, prompts):
        share = next(looks)
        return [np.array(part) for part in ([0.5] * 3, share, [finite] * 3)]

    monkeypatch.setattr(transformers, "measure", measure)


def test_success_is_above_the_criterion_and_not_at_it(monkeypatch):
    shown(monkeypatch, [0.1, 0.1, 0.1], [0.8, 0.8001, 0.1], *[[0.8, 0.1, 0.1]] * 11)
    outcomes = [run.outcome for run in train(runs=contests())]
    expected = (TrainingOutcome.STEPS, TrainingOutcome.REACHED, TrainingOutcome.STEPS)
    assert outcomes == list(expected)


def muted(model, answer):
    """The same with one answer in the middle of all others, where nothing decodes to it."""
    answers = model.embeddings.answers
    middle = jnp.mean(jnp.delete(answers, answer, axis=0), axis=0)
    return eqx.tree_at(
        lambda model: model.embeddings.answers, model, answers.at[answer].set(middle)
    )


def test_what_embeddings_do_not_allow_is_hopeless_before_the_first_step():
    protocol = replace(PROTOCOL, criterion=0.95, hopeless=((0.5, 1e-9),))
    asked_often = int(np.bincount(ASKED.fact_answers).argmax())
    mute = muted(START, asked_often)
    runs = [Run(START, ASKED, 2e-2), Run(mute, ASKED, 2e-2), Run(START, ASKED, 1e-6)]
    free, limited, slow = train(protocol, runs)
    assert (limited.outcome, limited.steps) == (TrainingOutcome.HOPELESS, 0)
    assert len(limited.checks) == 1
    assert free.outcome is not TrainingOutcome.HOPELESS
    assert slow.outcome is TrainingOutcome.STEPS
    # As many prompts may be right as have another answer, whatever is trained: not one more.
    (share,) = transformers._allowed([runs[1]], jnp.arange(ASKED.facts), protocol)
    assert share == pytest.approx(np.mean(np.asarray(ASKED.fact_answers) != asked_often))
    below = replace(protocol, criterion=share - 0.15)  # prompts are drawn
    _, patient, _ = train(replace(below, hopeless=()), runs)
    _, allowed, _ = train(below, runs)
    assert (allowed.checks, allowed.outcome) == (patient.checks, patient.outcome)
    assert allowed.steps > 0


def test_a_protocol_without_an_end_for_the_hopeless_asks_nothing_of_embeddings(monkeypatch):
    monkeypatch.setattr(transformers, "decodable", lambda values: np.zeros(len(values), bool))
    assert transformers._allowed(contests(), jnp.arange(3), PROTOCOL) == [1.0] * 3
    hopeless = replace(PROTOCOL, hopeless=((0.5, 0.5),))
    assert transformers._allowed(contests(), jnp.arange(3), hopeless) == [0.0] * 3


def test_what_is_told_is_the_best_run_at_the_last_check(monkeypatch):
    told = []
    shown(monkeypatch, [0.1, 0.3, 0.2], [0.5, 0.4, 0.7], [0.9, 0.9, 0.9])
    train(
        replace(PROTOCOL, steps=2, checks=2),
        report=lambda steps, **figures: told.append((steps, figures["accuracy"])),
    )
    assert told == [(0, 0.3), (1, 0.3), (1, 0.7), (2, 0.7), (2, 0.9)]


def test_all_runs_may_diverge(monkeypatch):
    shown(monkeypatch, [0.95, 0.1, 0.1], finite=False)
    found = train()
    assert {run.outcome for run in found} == {TrainingOutcome.DIVERGED}
    assert not best_run(found).success


def test_an_optimizer_that_overflows_is_divergence(tmp_path):
    """Squares of gradients are infinite long before weights are."""
    runs = [Run(START, ASKED, rate, n) for n, rate in enumerate((1e9, 2e-2, 1e-6))]
    found = train(runs=runs, checkpoint=tmp_path / "training")
    assert found[0].outcome is TrainingOutcome.DIVERGED
    assert found[1].outcome is TrainingOutcome.REACHED


@pytest.mark.parametrize(("backend", "together"), [("cpu", False), ("gpu", True)])
def test_runs_go_together_on_an_accelerator(monkeypatch, backend, together):
    seen = []

    def advance(stack, *_, **options):
        seen.append(options["together"])
        return stack

    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(transformers, "advance", advance)
    train(replace(PROTOCOL, steps=1, checks=1, criterion=0.999))
    assert seen == [together]


def test_runs_without_a_contest_do_not_compete(undisturbed):
    alone = train(runs=[replace(run, contest=None) for run in contests()])
    assert_same(alone, undisturbed)
    both = [
        *runs_for_learning_rates(START, ASKED, PROTOCOL)[:2],
        *runs_for_learning_rates(start(1), ASKED, PROTOCOL)[:1],
    ]
    assert [run.outcome.name for run in train(runs=both)] == ["OVERTAKEN", "REACHED", "STEPS"]


def test_prompts_come_from_the_key(undisturbed):
    assert train(runs=contests(), key=jr.key(12))[1].checks != undisturbed[1].checks


def test_progress_is_reported(undisturbed):
    told = []
    train(runs=contests(), report=lambda steps, **figures: told.append((steps, figures)))
    steps = [number for number, _ in told]
    assert steps == sorted(steps)
    assert steps[-1] == 120
    # Of the last check before: the best run's.
    assert steps[0] == 0
    assert told[0][1] == {
        "loss": undisturbed[0].checks[0].loss,
        "accuracy": undisturbed[0].checks[0].accuracy,
    }


def test_the_best_run_succeeded_or_has_the_highest_accuracy_then_the_fewest_steps():
    def run(rate, *accuracies, outcome=TrainingOutcome.STEPS):
        checks = tuple(Check(10 * n, 1.0, share) for n, share in enumerate(accuracies))
        return TrainedTransformer(START, rate, outcome, checks)

    runs = [run(1.0, 0.1, 0.6, 0.2), run(2.0, 0.1, 0.6), run(3.0, 0.5)]
    assert best_run(runs).learning_rate == 2.0
    assert best_run(runs[:1] + runs[2:]).learning_rate == 1.0
    winner = run(4.0, 0.2, outcome=TrainingOutcome.REACHED)
    assert best_run([*runs, winner]) is winner


# ---- interruptions -------------------------------------------------------------------------------


class Stop(KeyboardInterrupt):
    pass


def interrupted_at(steps):
    def report(done, **_):
        if done >= steps:
            raise Stop

    return report


@pytest.mark.parametrize("steps", [1, 35, 110])
def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path, undisturbed, steps):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train(runs=contests(), checkpoint=path, report=interrupted_at(steps))
    told = []
    found = train(runs=contests(), checkpoint=path, report=lambda steps, **_: told.append(steps))
    assert_same(found, undisturbed)
    assert told[0] > (steps - 1) // 10 * 10  # what was done before a check is not done again


def test_a_finished_training_is_read_and_not_repeated(tmp_path, undisturbed, monkeypatch):
    path = tmp_path / "training"
    train(runs=contests(), checkpoint=path)
    monkeypatch.setattr(transformers, "advance", None)
    monkeypatch.setattr(transformers, "measure", None)
    monkeypatch.setattr(transformers.Checkpoint, "save", None)
    assert_same(train(runs=contests(), checkpoint=path), undisturbed)


def test_checkpoints_are_written_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    path, seen = tmp_path / "training", set()

    def report(steps, **_):
        seen.add(path.read_bytes() if path.exists() else None)

    train(runs=contests(), checkpoint=path, report=report)
    assert len(seen) >= 12


@pytest.mark.parametrize(
    "other",
    [
        {"key": jr.key(12)},
        {"protocol": replace(PROTOCOL, criterion=0.7)},
        {"protocol": replace(PROTOCOL, learning_rates=(1e-6, 2e-2, 3.0))},
        {"runs": [replace(run, contest=0) for run in contests()]},
        {"runs": [replace(run, start=start(1)) for run in contests()]},
        {
            "runs": [
                replace(
                    run, asked=PromptDistribution.of(FactTable.random(6, 5, 3, seed=1), length=8)
                )
                for run in contests()
            ]
        },
    ],
    ids=["key", "criterion", "rates", "contests", "start", "table"],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, other):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train(runs=contests(), checkpoint=path, report=interrupted_at(1))
    before = path.read_bytes()
    given = {"runs": contests(other.get("protocol", PROTOCOL))} | other
    with pytest.raises(FactmemError, match="holds another training"):
        train(checkpoint=path, **given)
    assert path.read_bytes() == before


def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path):
    path = tmp_path / "training"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(TensorFileError, match="not a whole safetensors file"):
        train(checkpoint=path)
    assert path.read_bytes() == b"no checkpoint"


@pytest.mark.parametrize(
    "records",
    [None, [], [{"outcome": None}] * 3, [{"outcome": "WON", "checks": [[0, 1.0, 0.5]]}] * 3]
    + [[{"outcome": None, "checks": checks}] * 3 for checks in ([], [[0]], [["x", 1, 1]], 5)],
    ids=str,
)
def test_records_that_are_none_are_refused(tmp_path, records):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train(runs=contests(), checkpoint=path, report=interrupted_at(1))
    config, tensors = load_tensors(path, "training")
    save_tensors(path, "training", config | {"records": records}, tensors)
    with pytest.raises(TensorFileError, match="damaged"):
        train(runs=contests(), checkpoint=path)


@pytest.mark.parametrize("steps", ["too many", "elsewhere", "fewer than the others'"])
def test_checks_that_no_protocol_makes_are_refused(tmp_path, steps):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train(runs=contests(), checkpoint=path, report=interrupted_at(35))
    config, tensors = load_tensors(path, "training")
    checks = config["records"][0]["checks"]
    if steps == "too many":
        checks += [[number, 1.0, 0.5] for number in range(40, 141, 10)]
    elif steps == "elsewhere":
        checks[1][0] = 11
    else:
        checks.pop()
    save_tensors(path, "training", config, tensors)
    with pytest.raises(TensorFileError, match="damaged"):
        train(runs=contests(), checkpoint=path)


def test_an_interruption_at_a_check_leaves_a_whole_training(tmp_path, undisturbed, monkeypatch):
    """While the check is being looked at, and while it is being put together."""
    for name in ("measure", "_outcomes"):
        path, real, calls = tmp_path / name, getattr(transformers, name), []

        def stopping(*given, real=real, calls=calls):
            calls.append(given)
            if len(calls) == 8:
                raise Stop
            return real(*given)

        with monkeypatch.context() as patched:
            patched.setattr(transformers, name, stopping)
            with pytest.raises(Stop):
                train(runs=contests(), checkpoint=path)
        assert_same(train(runs=contests(), checkpoint=path), undisturbed)


def test_a_full_disk_does_not_hide_an_interruption(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(transformers.Checkpoint, "save", full)
        with pytest.raises(OSError, match="No space"):
            train(runs=contests(), checkpoint=tmp_path / "training")

    def report(steps, **_):
        if steps >= 35:
            monkeypatch.setattr(transformers.Checkpoint, "save", full)
            raise Stop

    with pytest.raises(Stop):
        train(runs=contests(), checkpoint=tmp_path / "training", report=report)
    assert (tmp_path / "training").exists()


def test_nothing_is_kept_before_the_first_check(tmp_path, monkeypatch):
    def interrupt(*_):
        raise Stop

    monkeypatch.setattr(transformers, "measure", interrupt)
    with pytest.raises(Stop):
        train(checkpoint=tmp_path / "training")
    assert not list(tmp_path.iterdir())


# ---- what cannot be trained ----------------------------------------------------------------------


def test_runs_that_do_not_belong_together():
    longer = PromptDistribution.of(FactTable.random(6, 5, 3, seed=0), length=9)
    zipf = PromptDistribution.of(FactTable.random(6, 5, 3, seed=0), length=8, subject_power=1.0)
    with pytest.raises(FactmemError, match="at least one run"):
        train(runs=[])
    with pytest.raises(FactmemError, match="same shape"):
        train(runs=[Run(START, ASKED, 0.1), Run(start(shape=Shape(12, 2, 4, 10)), ASKED, 0.1)])
    for other in (longer, zipf):
        with pytest.raises(FactmemError, match="same questions"):
            train(runs=[Run(START, ASKED, 0.1), Run(START, other, 0.1)])


def test_a_start_and_questions_of_different_vocabularies():
    larger = PromptDistribution.of(FactTable.random(7, 5, 3, seed=0), length=8)
    with pytest.raises(FactmemError, match="vocabularies"):
        train(runs=[Run(START, larger, 0.1)])


def test_a_start_that_is_not_finite():
    for part in (lambda model: model.weights.key, lambda model: model.embeddings.tokens):
        broken = eqx.tree_at(part, START, part(START) * jnp.nan)
        with pytest.raises(FactmemError, match="NaN"):
            train(runs=[Run(broken, ASKED, 0.1)])


# ---- the pace ------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.floats(1e-5, 10), st.floats(0, 30))
def test_pieces_take_less_than_a_second_once_the_pace_is_known(steps, seconds, compiling):
    clock = [0.0]
    pace = transformers._Pace(clock=lambda: clock[0])
    lasted = []
    for number, piece in enumerate(pace.pieces(steps)):
        clock[0] += piece * seconds + (compiling if number == 0 else 0)
        lasted.append((piece, piece * seconds))
    assert sum(piece for piece, _ in lasted) == steps
    assert all(took < 1 or piece == 1 for piece, took in lasted)


def test_the_pace_grows_to_what_fits():
    clock = [0.0]
    pace, pieces = transformers._Pace(clock=lambda: clock[0]), []
    for piece in pace.pieces(3000):
        clock[0] += piece * 1e-3
        pieces.append(piece)
    assert pieces[:5] == [1, 8, 64, 400, 400]


def test_measuring_is_compiled_once(undisturbed):
    before = measure._cache_size()
    train(runs=[Run(start(seed), ASKED, 0.1, seed) for seed in range(3)], key=jr.key(5))
    assert measure._cache_size() == before > 0
