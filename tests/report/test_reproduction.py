"""Everything at once, of figures and claims that cost nothing."""

import pytest
from tests.paper.here import Here
from tests.paper.made import simple_plot
from tests.report import made

from factmem.experiments import Experiment, IndependentTasks, Store, Task
from factmem.paper import Claim, Finding, PaperFigure, Verdict
from factmem.paper.claim import between
from factmem.paper.figure_2 import figure_2
from factmem.plotting.plot import Axis, Chart, DataTable, Line, Slope, Span
from factmem.report.reproduction import key_numbers, reproduce, reproduction_of

# ---- the three numbers ---------------------------------------------------------------------------

COLUMNS = ("line", "facts", "parameters", "possible")


def slope(name="trained", value=1.0, counts=True):
    ends = (None, None) if value is None else (value - 0.1, value + 0.1)
    return Slope(name, "law", value, *ends, (0.85, 1.15), counts)


def scaling(rows, *slopes):
    return simple_plot(name="4-left", data=DataTable.of(COLUMNS, rows), slopes=slopes)


ROWS = [
    ["trained", 10, 100, 1.0],
    ["trained", 30, 200, 1.0],
    ["trained", 80, 400, 1.0],
    ["trained", 1, 100, 0.5],
    ["trained", None, 50, 1.0],
    ["compiled", 500, 100, None],
]


def test_facts_per_parameter_are_the_median_of_what_embeddings_do_not_limit():
    """0.1, 0.15 and 0.2 of the lines that count; the slope is the last that does."""
    slopes = (slope(value=0.9), slope("trained, sizes that embeddings do not limit", 1.02),
              slope("compiled", 2.0, counts=False))  # fmt: skip
    (number,) = key_numbers([scaling(ROWS, *slopes)])
    assert number.problem == "How many?"
    assert number.value == "0.15 facts per parameter"
    assert "to the power 1.02 (0.92 to 1.12). Figure 4, left." in number.told


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
def test_without_facts_or_a_slope_there_is_no_such_number(rows, slopes):
    assert key_numbers([scaling(rows, *slopes)]) == ()


def shapes(*rows):
    header = ("heads", "width", "seed", "attention", "mlp", "parameters", "best_accuracy")
    return simple_plot(name="4-right", data=DataTable.of(header, rows))


def test_where_facts_are_is_the_share_of_the_smallest_shape_that_stores_them():
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
    assert (number.problem, number.value) == ("Where?", "50 % in the MLP")
    assert "has 200 parameters" in number.told
    assert key_numbers([shapes([1, 1, 0, 100, 20, 120, 0.98])]) == ()


def stages(*spans):
    line = Line("total", (0.0, 8000.0), (3.0, 0.1), kind="curve")
    chart = Chart(Axis("steps"), Axis("loss"), (line,), spans=spans)
    return simple_plot(name="5-left", panels=(chart,))


def test_when_facts_are_learned_is_the_share_of_hallucination():
    spans = (Span("initialization", 0.0, 1000.0), Span("hallucination", 1000.0, 5000.0))
    last = Span("convergence", 5000.0, 8000.0)
    (number,) = key_numbers([stages(*spans, last)])
    assert (number.problem, number.value) == ("When?", "80 % of the time")
    assert "Of the 5,000 steps" in number.told
    assert key_numbers([stages()]) == ()
    assert key_numbers([stages(*spans)]) == ()


def test_numbers_come_in_one_order_and_other_figures_have_none():
    spans = [Span(str(k), float(k), k + 1.0) for k in range(3)]
    plots = [
        stages(*spans),
        shapes([1, 9, 0, 100, 100, 200, 1.0]),
        simple_plot(name="7"),
        scaling(ROWS, slope()),
    ]
    assert [n.problem for n in key_numbers(plots)] == ["How many?", "Where?", "When?"]
    assert key_numbers([]) == key_numbers([simple_plot(name="7")]) == ()


# ---- all of it -----------------------------------------------------------------------------------


def double(*, number):
    double.calls += 1
    return {"twice": 2.0 * number}


double.calls = 0
KEPT = Experiment("double", 1, double)


def tasks(*numbers):
    return IndependentTasks(tuple(Task(KEPT, {"number": number}) for number in numbers))


def doubled(name, *numbers):
    def plot(results):
        twice = tuple(found["twice"] for found in results)
        return simple_plot(Line("a", tuple(map(float, numbers)), twice), name=name)

    return PaperFigure(name, "Doubled", f"What {name} shows.", tasks(*numbers), plot)


def claim(name, least, *numbers):
    def judge(results):
        return Finding.of([between("sum", sum(r["twice"] for r in results), least)])

    return Claim(name, "It is so.", "nowhere", "By doubling.", tasks(*numbers), judge)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as kept:
        yield kept


def test_figures_and_claims_share_what_both_need(store):
    before, reports = double.calls, []
    found = reproduce(
        [figure_2(), doubled("x", 1, 2)],
        [claim("good", 6, 2, 3), claim("bad", 100, 1)],
        store,
        Here(),
        report=reports.append,
    )
    assert double.calls == before + 3
    assert [plot.name for plot in found.plots] == ["2", "x"]
    assert found.plots[1].panels[0].lines[0].y == (2, 4)
    assert [each.finding.verdict for each in found.claims] == [Verdict.HOLDS, Verdict.FAILS]
    assert [each.as_expected for each in found.claims] == [True, False]
    assert (reports[0].done, reports[0].running) == (0, 4), "of six that are wanted, two are shared"
    again = reproduce(found.figures, [claim("good", 6, 2, 3)], store, Here())
    assert double.calls == before + 3, "all of it is in the store"
    assert again.plots == found.plots


def test_fresh_measures_all_of_it_again(store):
    reproduce([doubled("x", 1)], [claim("good", 0, 1)], store, Here())
    before = double.calls
    reproduce([doubled("x", 1)], [claim("good", 0, 1)], store, Here(), fresh=True)
    assert double.calls == before + 1


def test_slow_measurements_of_claims_are_made_where_they_are_asked_for(store):
    slow = Claim("it", "It is so.", "nowhere", "By doubling.", tasks(1),
                 claim("it", 0).judge, at_length=tasks(7, 8))  # fmt: skip
    whole = reproduction_of([], [slow], store, at_length=True)
    assert [task.config["number"] for task in whole.pending({}).needed] == [7, 8]
    quick = reproduction_of([], [slow], store)
    assert [task.config["number"] for task in quick.pending({}).needed] == [1]


def test_the_report_tells_what_was_run_on_what(store):
    found = reproduce(
        [doubled("x", 1), doubled("y", 2)], [claim("good", 0, 1), claim("bad", 9, 1)], store, Here()
    )
    report = found.report("quick", 1234.4, "two friends")
    assert [section.plot.name for section in report.sections] == ["x", "y"]
    assert [section.told for section in report.sections] == ["What x shows.", "What y shows."]
    assert [each.claim.id for each in report.claims] == ["good", "bad"]
    run = dict(report.run)
    assert run["Scale"].startswith("quick")
    assert run["Figures"].startswith("2,")
    assert run["Claims"] == "2 checked, 1 as expected"
    assert run["Measured in"].startswith("1,234 s")
    assert run["Workers"] == "two friends"
    assert "jax " in run["Software"]
    assert dict(found.report("paper", 1.0, "w").run)["Scale"].startswith("paper")


def test_figures_of_any_name_are_reproduced(store):
    hostile = PaperFigure("x", made.SCRIPT, made.IMAGE, tasks(1), lambda _: made.hostile())
    found = reproduce([hostile], [], store, Here())
    assert found.report("quick", 1.0, made.SCRIPT).sections[0].told == made.IMAGE
