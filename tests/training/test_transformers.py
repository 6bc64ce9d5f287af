"""Training of transformers: evaluations, statuses, groups, interruptions."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError, TensorFileError
from factmem._core.tensor_files import load_tensors, save_tensors
from factmem.facts import FactTable, PromptDistribution
from factmem.training import (
    Evaluation,
    Protocol,
    TrainingResult,
    TrainingRun,
    TrainingStatus,
    best_run,
    runs_for_learning_rates,
    train,
    train_transformers,
    transformers,
)
from factmem.training.hyperparameters import Hyperparameters
from factmem.training.protocol import StepConfig
from factmem.training.stack import advance, evaluate, init_stack
from factmem.transformer import Shape, Transformer

SHAPE = Shape(12, 3, 4, 10)
PROMPTS = PromptDistribution.from_table(FactTable.random(6, 5, 3, seed=0), length=8)
# Three rates throughout, so that few programs are compiled: too small, right, much too large.
PROTOCOL = Protocol(
    (1e-6, 2e-2, 1e30), steps=120, evaluations=12, batch_size=64, test_prompts=256, criterion=0.8
)
KEY = jr.key(11)


def make_start(seed=0, shape=SHAPE):
    return Transformer.draw(shape, PROMPTS.vocabulary, key=jr.key(seed))


START = make_start()


def train_runs(protocol=PROTOCOL, runs=None, key=KEY, **options):
    runs = runs_for_learning_rates(START, PROMPTS, protocol) if runs is None else runs
    return train_transformers(runs, protocol, key=key, **options)


def separate_runs(protocol=PROTOCOL):
    """One run for each learning rate, in different groups."""
    rates = enumerate(protocol.learning_rates)
    return [TrainingRun(START, PROMPTS, rate, group) for group, rate in rates]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        # As text, in which NaN equals NaN.
        assert repr((one.evaluations, one.status)) == repr((other.evaluations, other.status))
        for left, right in zip(
            jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True
        ):
            np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def separate_results():
    return train_runs(runs=separate_runs())


def test_runs_end_with_their_own_status(separate_results):
    slow, good, diverging = separate_results
    assert slow.status is TrainingStatus.STEP_LIMIT
    assert slow.steps == 120
    assert good.status is TrainingStatus.CRITERION_REACHED
    assert diverging.status is TrainingStatus.DIVERGED
    assert diverging.steps == 10
    assert [run.learning_rate for run in separate_results] == [1e-6, 2e-2, 1e30]


def test_checks_are_evenly_spaced_and_begin_before_the_first_step(separate_results):
    slow, good, diverging = separate_results
    assert [evaluation.steps for evaluation in slow.evaluations] == list(range(0, 121, 10))
    assert [evaluation.steps for evaluation in diverging.evaluations] == [0, 10]
    assert slow.evaluations[0] == good.evaluations[0] == diverging.evaluations[0]


def test_run_ends_at_first_check_above_criterion(separate_results):
    *before, last = [evaluation.accuracy for evaluation in separate_results[1].evaluations]
    assert last > 0.8 >= max(before)
    assert separate_results[1].best_accuracy == last


def test_best_accuracy_is_the_maximum_over_checks(separate_results):
    accuracies = [evaluation.accuracy for evaluation in separate_results[0].evaluations]
    assert separate_results[0].best_accuracy == max(accuracies)


def test_model_has_the_accuracy_of_the_last_evaluation(separate_results):
    """On the test prompts, which are drawn with the second key."""
    _, test_key = jr.split(KEY)
    prompts = PROMPTS.sample_batch(256, form="counts", key=test_key)
    for run in separate_results[:2]:
        logits = eqx.filter_jit(Transformer.logits)(run.model, prompts.content)
        correct = np.argmax(logits, axis=1) == np.asarray(prompts.answers)
        assert correct.mean() == pytest.approx(run.evaluations[-1].accuracy)


def test_diverged_run_returns_its_last_finite_model(separate_results):
    diverged = separate_results[2]
    assert np.isnan(diverged.evaluations[-1].loss) or diverged.evaluations[-1].accuracy < 0.8
    for trained, initial in zip(
        jax.tree.leaves(diverged.model), jax.tree.leaves(START), strict=True
    ):
        np.testing.assert_array_equal(trained, initial)


def test_diverging_run_does_not_affect_others(separate_results):
    results = train_runs(runs=[*separate_runs()[:2], TrainingRun(START, PROMPTS, 1e-3, 2)])
    assert_same(separate_results[:2], results[:2])


def test_first_success_ends_the_other_runs_of_its_group(separate_results):
    slow, good, diverging = train_runs()
    assert slow.status is TrainingStatus.GROUP_SUCCEEDED
    assert slow.steps == good.steps == separate_results[1].steps
    assert diverging.status is TrainingStatus.DIVERGED
    assert good.evaluations == separate_results[1].evaluations
    mixed = train_runs(
        runs=[replace(run, group=number // 2) for number, run in enumerate(separate_runs())]
    )
    assert mixed[0].status is TrainingStatus.GROUP_SUCCEEDED


def test_runs_may_have_different_tables_of_one_size(separate_results):
    other = PromptDistribution.from_table(FactTable.random(6, 5, 3, seed=1), length=8)
    runs = [
        TrainingRun(START, prompts, 2e-2, group)
        for group, prompts in enumerate((PROMPTS, other, PROMPTS))
    ]
    results = train_runs(runs=runs)
    assert_same([results[0]], [separate_results[1]])
    assert_same([results[2]], [separate_results[1]])
    assert results[1].evaluations[0].accuracy != results[0].evaluations[0].accuracy
    assert results[1].status is TrainingStatus.CRITERION_REACHED


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_training_does_the_steps_of_the_protocol(optimizer):
    """Bitwise equal to one call with all steps and explicit hyperparameters."""
    protocol = Protocol(
        (1e-2, 3e-3),
        steps=30,
        evaluations=4,
        batch_size=48,
        stratified=True,
        optimizer=optimizer,
        schedule="cosine",
        momentum=0.8,
        beta2=0.7,
    )
    results = train_runs(protocol)
    hyperparameters = Hyperparameters(
        *(jnp.asarray(pair) for pair in ([1e-2, 3e-3], [0.8] * 2, [0.7] * 2, [30.0] * 2))
    )
    config = StepConfig(optimizer, "cosine", 48, True)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), START)
    stack = init_stack(models, hyperparameters, jnp.stack([PROMPTS.fact_answers] * 2), config)
    batch_key, _ = jr.split(KEY)
    steps = jnp.asarray(0, jnp.int32), jnp.asarray(30, jnp.int32)
    stack = advance(
        stack, PROMPTS, *steps, jnp.ones(2, bool), config, vectorize=False, key=batch_key
    )
    for run, trained in enumerate(results):
        assert [evaluation.steps for evaluation in trained.evaluations] == [0, 7, 15, 22, 30]
        for left, right in zip(
            jax.tree.leaves(trained.model), jax.tree.leaves(stack.models), strict=True
        ):
            np.testing.assert_array_equal(left, right[run])


def patch_accuracies(monkeypatch, *accuracies, finite=True):
    """Make the evaluations of three runs return the given accuracies."""
    remaining = iter(accuracies)

    def evaluate(*_, **__):
        return [np.array(part) for part in ([0.5] * 3, next(remaining), [finite] * 3)]

    monkeypatch.setattr(transformers, "evaluate", evaluate)


def test_accuracy_at_the_criterion_is_not_success(monkeypatch):
    patch_accuracies(monkeypatch, [0.1, 0.1, 0.1], [0.8, 0.8001, 0.1], *[[0.8, 0.1, 0.1]] * 11)
    statuses = [run.status for run in train_runs(runs=separate_runs())]
    expected = (
        TrainingStatus.STEP_LIMIT,
        TrainingStatus.CRITERION_REACHED,
        TrainingStatus.STEP_LIMIT,
    )
    assert statuses == list(expected)


def make_undecodable(model, answer):
    """Move an answer's embedding to the mean of the others, where no output decodes to it."""
    answers = model.embeddings.answers
    middle = jnp.mean(jnp.delete(answers, answer, axis=0), axis=0)
    return eqx.tree_at(
        lambda model: model.embeddings.answers, model, answers.at[answer].set(middle)
    )


def test_undecodable_answers_stop_runs_before_the_first_step():
    protocol = replace(PROTOCOL, criterion=0.95, early_stopping=((0.5, 1e-9),))
    frequent = int(np.bincount(PROMPTS.fact_answers).argmax())
    limited_start = make_undecodable(START, frequent)
    runs = [
        TrainingRun(START, PROMPTS, 2e-2),
        TrainingRun(limited_start, PROMPTS, 2e-2),
        TrainingRun(START, PROMPTS, 1e-6),
    ]
    free, limited, slow = train_runs(protocol, runs)
    assert (limited.status, limited.steps) == (TrainingStatus.STOPPED_EARLY, 0)
    assert len(limited.evaluations) == 1
    assert free.status is not TrainingStatus.STOPPED_EARLY
    assert slow.status is TrainingStatus.STEP_LIMIT
    # Exactly the prompts with another answer can be correct.
    (max_accuracy,) = transformers._max_accuracies([runs[1]], jnp.arange(PROMPTS.facts), protocol)
    assert max_accuracy == pytest.approx(np.mean(np.asarray(PROMPTS.fact_answers) != frequent))
    below = replace(protocol, criterion=max_accuracy - 0.15)  # test prompts are a sample
    _, full, _ = train_runs(replace(below, early_stopping=()), runs)
    _, allowed, _ = train_runs(below, runs)
    assert (allowed.evaluations, allowed.status) == (full.evaluations, full.status)
    assert allowed.steps > 0


def test_max_accuracy_is_computed_only_if_runs_stop_early(monkeypatch):
    monkeypatch.setattr(transformers, "decodable", lambda values: np.zeros(len(values), bool))
    assert transformers._max_accuracies(separate_runs(), jnp.arange(3), PROTOCOL) == [1.0] * 3
    stopping = replace(PROTOCOL, early_stopping=((0.5, 0.5),))
    assert transformers._max_accuracies(separate_runs(), jnp.arange(3), stopping) == [0.0] * 3


def test_report_shows_the_best_run_at_the_last_evaluation(monkeypatch):
    reports = []
    patch_accuracies(monkeypatch, [0.1, 0.3, 0.2], [0.5, 0.4, 0.7], [0.9, 0.9, 0.9])
    train_runs(
        replace(PROTOCOL, steps=2, evaluations=2),
        report=lambda steps, **metrics: reports.append((steps, metrics["accuracy"])),
    )
    assert reports == [(0, 0.3), (1, 0.3), (1, 0.7), (2, 0.7), (2, 0.9)]


def test_all_runs_may_diverge(monkeypatch):
    patch_accuracies(monkeypatch, [0.95, 0.1, 0.1], finite=False)
    results = train_runs()
    assert {run.status for run in results} == {TrainingStatus.DIVERGED}
    assert not best_run(results).success


def test_overflow_in_the_optimizer_state_is_divergence(tmp_path):
    """Squares of gradients overflow long before weights do."""
    runs = [TrainingRun(START, PROMPTS, rate, n) for n, rate in enumerate((1e9, 2e-2, 1e-6))]
    results = train_runs(runs=runs, checkpoint=tmp_path / "training")
    assert results[0].status is TrainingStatus.DIVERGED
    assert results[1].status is TrainingStatus.CRITERION_REACHED


@pytest.mark.parametrize(("backend", "vectorize"), [("cpu", False), ("gpu", True)])
def test_runs_are_vectorized_on_accelerators_only(monkeypatch, backend, vectorize):
    calls = []

    def advance(stack, *_, **options):
        calls.append(options["vectorize"])
        return stack

    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(transformers, "advance", advance)
    train_runs(replace(PROTOCOL, steps=1, evaluations=1, criterion=0.999))
    assert calls == [vectorize]


def test_runs_without_group_do_not_compete(separate_results):
    alone = train_runs(runs=[replace(run, group=None) for run in separate_runs()])
    assert_same(alone, separate_results)
    both = [
        *runs_for_learning_rates(START, PROMPTS, PROTOCOL)[:2],
        *runs_for_learning_rates(make_start(1), PROMPTS, PROTOCOL)[:1],
    ]
    assert [run.status for run in train_runs(runs=both)] == [
        TrainingStatus.GROUP_SUCCEEDED,
        TrainingStatus.CRITERION_REACHED,
        TrainingStatus.STEP_LIMIT,
    ]


def test_prompts_depend_on_the_key(separate_results):
    assert (
        train_runs(runs=separate_runs(), key=jr.key(12))[1].evaluations
        != separate_results[1].evaluations
    )


def test_reports_progress(separate_results):
    reports = []
    train_runs(
        runs=separate_runs(), report=lambda steps, **metrics: reports.append((steps, metrics))
    )
    steps = [number for number, _ in reports]
    assert steps == sorted(steps)
    assert steps[-1] == 120
    assert steps[0] == 0
    # The best run at the last evaluation.
    assert reports[0][1] == {
        "loss": separate_results[0].evaluations[0].loss,
        "accuracy": separate_results[0].evaluations[0].accuracy,
    }


def test_best_run_ranks_success_then_accuracy_then_steps():
    def run(rate, *accuracies, status=TrainingStatus.STEP_LIMIT):
        evaluations = tuple(
            Evaluation(10 * n, 1.0, accuracy) for n, accuracy in enumerate(accuracies)
        )
        return TrainingResult(
            model=START, status=status, learning_rate=rate, evaluations=evaluations
        )

    runs = [run(1.0, 0.1, 0.6, 0.2), run(2.0, 0.1, 0.6), run(3.0, 0.5)]
    assert best_run(runs).learning_rate == 2.0
    assert best_run(runs[:1] + runs[2:]).learning_rate == 1.0
    winner = run(4.0, 0.2, status=TrainingStatus.CRITERION_REACHED)
    assert best_run([*runs, winner]) is winner


def test_train_returns_the_best_run_from_a_random_start(tmp_path):
    start_key, prompt_key = jr.split(KEY)
    start = Transformer.draw(SHAPE, PROMPTS.vocabulary, key=start_key)
    runs = runs_for_learning_rates(start, PROMPTS, PROTOCOL)
    expected = best_run(train_runs(runs=runs, key=prompt_key))
    reports, path = [], tmp_path / "training"
    options = {"key": KEY, "report": lambda steps, **_: reports.append(steps), "checkpoint": path}
    for _ in ("trained", "loaded from the checkpoint"):
        result = train(PROMPTS, SHAPE, PROTOCOL, **options)
        assert_same([result], [expected])
        assert result.learning_rate == expected.learning_rate == 2e-2
    assert reports[-1] == result.steps
    assert result.metrics == {
        "learning_rate": 2e-2,
        "steps": result.steps,
        "best_accuracy": result.best_accuracy,
        "success": True,
    }


# ---- interruptions -------------------------------------------------------------------------------


class Stop(KeyboardInterrupt):
    pass


def interrupted_at(steps):
    def report(done, **_):
        if done >= steps:
            raise Stop

    return report


@pytest.mark.parametrize("steps", [1, 35, 110])
def test_resumed_training_gives_the_same_results(tmp_path, separate_results, steps):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train_runs(runs=separate_runs(), checkpoint=path, report=interrupted_at(steps))
    reports = []
    results = train_runs(
        runs=separate_runs(), checkpoint=path, report=lambda steps, **_: reports.append(steps)
    )
    assert_same(results, separate_results)
    assert reports[0] > (steps - 1) // 10 * 10  # steps before an evaluation are not repeated


def test_finished_training_is_loaded_from_its_checkpoint(tmp_path, separate_results, monkeypatch):
    path = tmp_path / "training"
    train_runs(runs=separate_runs(), checkpoint=path)
    monkeypatch.setattr(transformers, "advance", None)
    monkeypatch.setattr(transformers, "evaluate", None)
    monkeypatch.setattr(transformers.Checkpoint, "save", None)
    assert_same(train_runs(runs=separate_runs(), checkpoint=path), separate_results)


def test_writes_checkpoints_during_training(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    path, versions = tmp_path / "training", set()

    def report(steps, **_):
        versions.add(path.read_bytes() if path.exists() else None)

    train_runs(runs=separate_runs(), checkpoint=path, report=report)
    assert len(versions) >= 12


@pytest.mark.parametrize(
    "other",
    [
        {"key": jr.key(12)},
        {"protocol": replace(PROTOCOL, criterion=0.7)},
        {"protocol": replace(PROTOCOL, learning_rates=(1e-6, 2e-2, 3.0))},
        {"runs": [replace(run, group=0) for run in separate_runs()]},
        {"runs": [replace(run, initial_model=make_start(1)) for run in separate_runs()]},
        {
            "runs": [
                replace(
                    run,
                    prompts=PromptDistribution.from_table(
                        FactTable.random(6, 5, 3, seed=1), length=8
                    ),
                )
                for run in separate_runs()
            ]
        },
    ],
    ids=["key", "criterion", "rates", "groups", "start", "table"],
)
def test_rejects_checkpoint_of_another_training(tmp_path, other):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train_runs(runs=separate_runs(), checkpoint=path, report=interrupted_at(1))
    before = path.read_bytes()
    options = {"runs": separate_runs(other.get("protocol", PROTOCOL))} | other
    with pytest.raises(FactmemError, match="belongs to another training"):
        train_runs(checkpoint=path, **options)
    assert path.read_bytes() == before


def test_rejects_damaged_checkpoint_and_keeps_the_file(tmp_path):
    path = tmp_path / "training"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(TensorFileError, match="not a complete safetensors file"):
        train_runs(checkpoint=path)
    assert path.read_bytes() == b"no checkpoint"


@pytest.mark.parametrize(
    "records",
    [None, [], [{"status": None}] * 3, [{"status": "WON", "evaluations": [[0, 1.0, 0.5]]}] * 3]
    + [
        [{"status": None, "evaluations": evaluations}] * 3
        for evaluations in ([], [[0]], [["x", 1, 1]], 5)
    ],
    ids=str,
)
def test_rejects_invalid_records(tmp_path, records):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train_runs(runs=separate_runs(), checkpoint=path, report=interrupted_at(1))
    config, tensors = load_tensors(path, "training")
    save_tensors(path, "training", config | {"records": records}, tensors)
    with pytest.raises(TensorFileError, match="damaged"):
        train_runs(runs=separate_runs(), checkpoint=path)


@pytest.mark.parametrize("defect", ["extra", "wrong steps", "missing"])
def test_rejects_checks_that_do_not_fit_the_protocol(tmp_path, defect):
    path = tmp_path / "training"
    with pytest.raises(Stop):
        train_runs(runs=separate_runs(), checkpoint=path, report=interrupted_at(35))
    config, tensors = load_tensors(path, "training")
    evaluations = config["records"][0]["evaluations"]
    if defect == "extra":
        evaluations += [[number, 1.0, 0.5] for number in range(40, 141, 10)]
    elif defect == "wrong steps":
        evaluations[1][0] = 11
    else:
        evaluations.pop()
    save_tensors(path, "training", config, tensors)
    with pytest.raises(TensorFileError, match="damaged"):
        train_runs(runs=separate_runs(), checkpoint=path)


def test_interruption_at_a_check_leaves_a_consistent_checkpoint(
    tmp_path, separate_results, monkeypatch
):
    """Interrupted in the evaluation, and when statuses are computed."""
    for name in ("evaluate", "_statuses"):
        path, real, calls = tmp_path / name, getattr(transformers, name), []

        def interrupt_eighth_call(*args, real=real, calls=calls, **options):
            calls.append(args)
            if len(calls) == 8:
                raise Stop
            return real(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(transformers, name, interrupt_eighth_call)
            with pytest.raises(Stop):
                train_runs(runs=separate_runs(), checkpoint=path)
        assert_same(train_runs(runs=separate_runs(), checkpoint=path), separate_results)


def test_full_disk_does_not_hide_an_interruption(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(transformers.Checkpoint, "save", fail)
        with pytest.raises(OSError, match="No space"):
            train_runs(runs=separate_runs(), checkpoint=tmp_path / "training")

    def report(steps, **_):
        if steps >= 35:
            monkeypatch.setattr(transformers.Checkpoint, "save", fail)
            raise Stop

    with pytest.raises(Stop):
        train_runs(runs=separate_runs(), checkpoint=tmp_path / "training", report=report)
    assert (tmp_path / "training").exists()


def test_writes_nothing_before_the_first_evaluation(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise Stop

    monkeypatch.setattr(transformers, "evaluate", interrupt)
    with pytest.raises(Stop):
        train_runs(checkpoint=tmp_path / "training")
    assert not list(tmp_path.iterdir())


# ---- invalid runs --------------------------------------------------------------------------------


def test_rejects_runs_that_cannot_be_stacked():
    longer = PromptDistribution.from_table(FactTable.random(6, 5, 3, seed=0), length=9)
    zipf = PromptDistribution.from_table(
        FactTable.random(6, 5, 3, seed=0), length=8, subject_power=1.0
    )
    with pytest.raises(FactmemError, match="at least one run"):
        train_runs(runs=[])
    with pytest.raises(FactmemError, match="same shape"):
        train_runs(
            runs=[
                TrainingRun(START, PROMPTS, 0.1),
                TrainingRun(make_start(shape=Shape(12, 2, 4, 10)), PROMPTS, 0.1),
            ]
        )
    for other in (longer, zipf):
        with pytest.raises(FactmemError, match="same prompts"):
            train_runs(runs=[TrainingRun(START, PROMPTS, 0.1), TrainingRun(START, other, 0.1)])


def test_rejects_start_with_another_vocabulary():
    larger = PromptDistribution.from_table(FactTable.random(7, 5, 3, seed=0), length=8)
    with pytest.raises(FactmemError, match="same vocabulary"):
        train_runs(runs=[TrainingRun(START, larger, 0.1)])


def test_rejects_start_that_is_not_finite():
    for part in (lambda model: model.weights.key, lambda model: model.embeddings.tokens):
        broken = eqx.tree_at(part, START, part(START) * jnp.nan)
        with pytest.raises(FactmemError, match="NaN"):
            train_runs(runs=[TrainingRun(broken, PROMPTS, 0.1)])


def test_evaluation_is_compiled_once(separate_results):
    before = evaluate._cache_size()
    train_runs(
        runs=[TrainingRun(make_start(seed), PROMPTS, 0.1, seed) for seed in range(3)], key=jr.key(5)
    )
    assert evaluate._cache_size() == before > 0
