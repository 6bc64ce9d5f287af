"""The lists of figures and claims, and how they are extended."""

from importlib import import_module
from pathlib import Path

import pytest

from factmem._core.errors import FactmemError
from factmem.experiments import IndependentTasks, Measurement
from factmem.paper import (
    Claim,
    all_claims,
    all_figures,
    claim_ids,
    figure_names,
    get_claim,
    get_figure,
    register_claim,
    register_figure,
    registry,
)

FIGURES = ["1-left", "1-right", "2", "3", "4-left", "4-right", "5-left", "5-right"]
FIGURES += ["6", "7", "8", "9"]
CLAIMS = ["theorem-1a", "theorem-1b", "orthonormal", "exact-matching", "shared-answers"]
CLAIMS += ["one-gradient-step", "linear-limit", "theorem-2", "tangents-learned"]
CLAIMS += ["tangents-share-answers", "few-outputs", "quantization", "superposed-tokens"]
CLAIMS += ["theorem-3", "theorem-4", "repeated-answers", "partial-tables"]
CLAIMS += ["attention-against-mlp", "facts-per-parameter", "invariant", "theorem-5", "theorem-6"]
CLAIMS += ["plateau", "softmax-stages", "without-many-subjects", "theorem-7", "scaling-law"]
CLAIMS += ["bound-met", "theorem-8", "cubic-capacity"]
DOCS = Path(__file__).parents[2] / "docs"


# ---- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_all_figures_are_listed_in_the_order_of_the_paper(scale):
    figures = all_figures(scale)
    assert [figure.name for figure in figures] == FIGURES == list(figure_names())
    for figure in figures:
        number = figure.name.split("-")[0]
        assert figure.title.startswith(f"Figure {number}")
        assert len(figure.description) > 80
        assert figure.description.endswith((".", "?"))
        assert isinstance(figure.measurement, Measurement)
        needed = figure.measurement.pending({}).needed
        assert needed
        assert all(task.experiment.stored for task in needed), "drawing again takes seconds"


def test_titles_name_the_part_of_a_figure():
    for figure in all_figures():
        part = figure.name.partition("-")[2]
        assert (f", {part}:" in figure.title) is bool(part)


def test_gets_figure_by_name_and_scale():
    assert get_figure("4-right").name == "4-right"
    quick, paper = (get_figure("4-right", scale).measurement.tasks for scale in ("quick", "paper"))
    assert len(paper) == 13 * 13
    assert len(quick) < len(paper)


@pytest.mark.parametrize("name", ["5", "10", "", "4-Left", "figure 2", "2\n"])
def test_rejects_unknown_figure(name):
    with pytest.raises(
        FactmemError, match=r"unknown figure '.*'; choose from 1-left, 1-right, 2"
    ) as info:
        get_figure(name)
    assert "\n" not in str(info.value)


def test_figures_without_training_are_the_same_at_both_scales():
    for name in ("2", "3"):
        quick, paper = (get_figure(name, scale).measurement for scale in ("quick", "paper"))
        assert [t.identity for t in quick.tasks] == [t.identity for t in paper.tasks]


def test_quick_figures_have_three_seeds_and_paper_figures_those_of_the_authors():
    def seeds(name, scale):
        return {task.seed for task in get_figure(name, scale).measurement.pending({}).needed}

    for name in ("1-left", "1-right", "6"):
        assert seeds(name, "quick") == {0, 1, 2}
        assert seeds(name, "paper") == {0, 1, 11, 111, 42}
    assert seeds("7", "quick") == {0, 1, 2}
    assert seeds("7", "paper") == {64}


# ---- claims --------------------------------------------------------------------------------------


def test_all_claims_are_complete_and_in_the_order_of_the_paper():
    claims = all_claims(5)
    assert [claim.id for claim in claims] == CLAIMS == list(claim_ids())
    for claim in claims:
        assert claim.id == claim.id.lower().replace(" ", "-")
        assert claim.statement.endswith(".")
        assert claim.method.endswith(".")
        assert claim.reference
        tasks = claim.measurement.pending({}).needed
        assert {task.seed for task in tasks} <= {5, 6, 7}
        assert tasks


def test_only_the_misreading_should_fail():
    assert [claim.id for claim in all_claims() if claim.refuted] == ["cubic-capacity"]


def test_every_claim_has_a_test_that_breaks_it():
    paths = Path(__file__).parent.glob("test_*.py")
    modules = [import_module(f"tests.paper.{path.stem}") for path in paths if path.stem != __name__]
    broken = [name for module in modules for name in getattr(module, "BROKEN", ())]
    assert sorted(broken) == sorted(CLAIMS)


def test_gets_claim_by_id():
    assert get_claim("theorem-8").id == "theorem-8"
    with pytest.raises(FactmemError, match=r"unknown claim 'theorem-9'; choose from theorem-1a"):
        get_claim("theorem-9")


def test_docs_list_all_claims():
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `{}` | {} ({}) | {} |".format(
            *(
                text.replace("|", "\\|")
                for text in (claim.id, claim.statement, claim.reference, claim.method)
            )
        )
        for claim in all_claims()
    ]


def test_docs_list_all_figures():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert list(dict.fromkeys(name for name in rows if name in FIGURES)) == FIGURES


# ---- registration --------------------------------------------------------------------------------


@pytest.fixture
def restored_registry(monkeypatch):
    """Restore the registry after the test."""
    for names in (registry.FIGURES, registry.CLAIMS):
        len(names)  # imports all modules
        monkeypatch.setattr(names, "_entries", dict(names._entries))


def build_claim(seeds):
    return Claim("new", "It is so.", "nowhere", "By looking.", IndependentTasks(()), lambda _: None)


@pytest.mark.usefixtures("restored_registry")
def test_other_packages_can_register_claims_and_figures():
    seeds = []

    @register_claim("new")
    def new_claim(given):
        seeds.extend(given)
        return build_claim(given)

    register_figure("2-new", order=(2, 5))(lambda scale: get_figure("2", scale))
    assert claim_ids() == (*CLAIMS, "new")
    assert get_claim("new", seed=7).id == "new"
    assert seeds == [7, 8, 9]
    index = figure_names().index("2-new")
    assert figure_names()[index - 1 : index + 2] == ("2", "2-new", "3")


@pytest.mark.usefixtures("restored_registry")
def test_rejects_a_name_that_is_registered():
    with pytest.raises(FactmemError, match="claim 'theorem-8' is already registered"):
        register_claim("theorem-8")(build_claim)
    with pytest.raises(FactmemError, match="figure '2' is already registered"):
        register_figure("2")(build_claim)


@pytest.mark.usefixtures("restored_registry")
def test_a_reloaded_module_may_register_again():
    register_claim("new")(build_claim)
    register_claim("new", order=(3, 1))(build_claim)
    assert claim_ids()[0] == "new"
    assert len(claim_ids()) == len(CLAIMS) + 1
