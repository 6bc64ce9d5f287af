"""Reproductions of cheap figures and claims, and the key numbers."""

import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.plotting import samples

from factmem.experiments import Experiment, IndependentTasks, Store, Task
from factmem.paper import Claim, Finding, PaperFigure, Verdict, get_figure
from factmem.paper.claim import check_between
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Slope, Span
from factmem.report.reproduction import key_numbers, reproduce, reproduction_measurement

# ---- key numbers ---------------------------------------------------------------------------------

COLUMNS = ("line", "facts", "parameters", "possible")


def slope(name="trained", value=1.0, counts=True):
    ends = (None, None) if value is None else (value - 0.1, value + 0.1)
    return Slope(name, "law", value, *ends, (0.85, 1.15), counts)


def scaling(rows, *slopes):
    return samples.plot(name="4-left", data=DataTable.of(COLUMNS, rows), slopes=slopes)


ROWS = [
    ["trained", 10, 100, 1.0],
    ["trained", 30, 200, 1.0],
    ["trained", 80, 400, 1.0],
    ["trained", 1, 100, 0.5],
    ["trained", None, 50, 1.0],
    ["compiled", 500, 100, None],
]


def test_facts_per_parameter_are_the_median_where_embeddings_do_not_limit():
    """The ratios are 0.1, 0.15 and 0.2; the slope is the last one that counts."""
    slopes = (slope(value=0.9), slope("trained, sizes that embeddings do not limit", 1.02),
              slope("compiled", 2.0, counts=False))  # fmt: skip
    (number,) = key_numbers([scaling(ROWS, *slopes)])
    assert number.question == "How many?"
    assert number.value == "0.15 facts per parameter"
    assert "to the power 1.02 (0.92 to 1.12). Figure 4, left." in number.description


@pytest.mark.parametrize(
    ("rows", "slopes"),
    [
        (ROWS, []),
        (ROWS, [slope(value=None)]),
        (ROWS, [slope(counts=False)]),
        (ROWS[3:], [slope()]),
        ([], [slope()]),
    ],
)
def test_there_is_no_number_without_facts_or_a_slope(rows, slopes):
    assert key_numbers([scaling(rows, *slopes)]) == ()


def shapes(*rows):
    header = ("heads", "width", "seed", "attention", "mlp", "parameters", "best_accuracy")
    return samples.plot(name="4-right", data=DataTable.of(header, rows))


def test_the_mlp_fraction_is_that_of_the_smallest_shape_that_stores_the_table():
    (number,) = key_numbers(
        [
            shapes(
                [1, 1, 0, 100, 20, 120, 0.98],
                [1, 9, 0, 100, 100, 200, 1.0],
                [1, 9, 1, 100, 100, 200, 0.995],
                [1, 9, 2, 100, 100, 200, 0.1],
                [2, 9, 0, 200, 100, 300, 1.0],
            )
        ]
    )
    assert (number.question, number.value) == ("Where?", "50% in the MLP")
    assert "has 200 parameters" in number.description
    assert key_numbers([shapes([1, 1, 0, 100, 20, 120, 0.98])]) == ()


def stages(*spans):
    line = Line("total", (0.0, 8000.0), (3.0, 0.1), kind="curve")
    chart = Chart(Axis("steps"), Axis("loss"), (line,), spans=spans)
    return samples.plot(chart, name="5-left")


def test_the_time_is_the_fraction_of_the_hallucination_stage():
    spans = (Span("initialization", 0.0, 1000.0), Span("hallucination", 1000.0, 5000.0))
    last = Span("convergence", 5000.0, 8000.0)
    (number,) = key_numbers([stages(*spans, last)])
    assert (number.question, number.value) == ("When?", "80% of the time")
    assert "after 5,000 steps" in number.description
    assert key_numbers([stages()]) == ()
    assert key_numbers([stages(*spans)]) == ()


def test_numbers_have_a_fixed_order_and_other_figures_have_none():
    spans = [Span(str(k), float(k), k + 1.0) for k in range(3)]
    plots = [
        stages(*spans),
        shapes([1, 9, 0, 100, 100, 200, 1.0]),
        samples.plot(name="7"),
        scaling(ROWS, slope()),
    ]
    assert [n.question for n in key_numbers(plots)] == ["How many?", "Where?", "When?"]
    assert key_numbers([]) == key_numbers([samples.plot(name="7")]) == ()


# ---- reproductions -------------------------------------------------------------------------------


def double(*, number):
    double.calls += 1
    return {"twice": 2.0 * number}


double.calls = 0
DOUBLE = Experiment("double", 1, double)


def tasks(*numbers):
    return IndependentTasks(tuple(Task(DOUBLE, {"number": number}) for number in numbers))


def figure(name, *numbers):
    def plot(results):
        twice = tuple(result["twice"] for result in results)
        line = Line("a", tuple(map(float, numbers)), twice)
        return samples.plot(samples.chart(line), name=name)

    return PaperFigure(name, "Doubled", f"Description of {name}.", tasks(*numbers), plot)


def claim(name, minimum, *numbers):
    def judge(results):
        total = sum(result["twice"] for result in results)
        return Finding.from_checks([check_between("sum", total, minimum)])

    return Claim(name, "It is so.", "nowhere", "By doubling.", tasks(*numbers), judge)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def test_figures_and_claims_share_runs(store):
    before, reports = double.calls, []
    result = reproduce(
        [get_figure("2"), figure("x", 1, 2)],
        [claim("good", 6, 2, 3), claim("bad", 100, 1)],
        store,
        InlineWorkers(),
        report=reports.append,
    )
    assert double.calls == before + 3
    assert [plot.name for plot in result.plots] == ["2", "x"]
    assert result.plots[1].panels[0].lines[0].y == (2, 4)
    assert [claim.finding.verdict for claim in result.claims] == [Verdict.HOLDS, Verdict.FAILS]
    assert [claim.as_expected for claim in result.claims] == [True, False]
    assert (reports[0].done, reports[0].running) == (0, 4), "two of six runs are shared"
    again = reproduce(result.figures, [claim("good", 6, 2, 3)], store, InlineWorkers())
    assert double.calls == before + 3, "all runs are in the store"
    assert again.plots == result.plots


def test_fresh_repeats_all_runs(store):
    reproduce([figure("x", 1)], [claim("good", 0, 1)], store, InlineWorkers())
    before = double.calls
    reproduce([figure("x", 1)], [claim("good", 0, 1)], store, InlineWorkers(), fresh=True)
    assert double.calls == before + 1


def test_slow_measurements_of_claims_are_made_at_paper_scale(store):
    slow = Claim("it", "It is so.", "nowhere", "By doubling.", tasks(1),
                 claim("it", 0).judge, paper_measurement=tasks(7, 8))  # fmt: skip
    paper = reproduction_measurement([], [slow], store, claims_scale="paper")
    assert [task.config["number"] for task in paper.pending({}).needed] == [7, 8]
    quick = reproduction_measurement([], [slow], store)
    assert [task.config["number"] for task in quick.pending({}).needed] == [1]


def test_the_report_describes_the_run(store):
    result = reproduce(
        [figure("x", 1), figure("y", 2)],
        [claim("good", 0, 1), claim("bad", 9, 1)],
        store,
        InlineWorkers(),
    )
    report = result.report("quick", 1234.4, "two friends")
    assert [section.plot.name for section in report.sections] == ["x", "y"]
    assert [section.text for section in report.sections] == [
        "Description of x.",
        "Description of y.",
    ]
    assert [checked.claim.id for checked in report.claims] == ["good", "bad"]
    run = dict(report.run)
    assert run["Scale"].startswith("quick")
    assert run["Figures"].startswith("2,")
    assert run["Claims"] == "2 checked, 1 as expected"
    assert run["Duration"].startswith("1,234 s")
    assert run["Workers"] == "two friends"
    assert "jax " in run["Software"]
    assert dict(result.report("paper", 1.0, "w").run)["Scale"].startswith("paper")


def test_hostile_names_are_kept_as_they_are(store):
    hostile = PaperFigure("x", samples.SCRIPT, samples.IMAGE, tasks(1), lambda _: samples.hostile())
    result = reproduce([hostile], [], store, InlineWorkers())
    assert result.report("quick", 1.0, samples.SCRIPT).sections[0].text == samples.IMAGE
