"""Figure 2: sampled prompts, with the names of any table."""

import pytest
from tests.paper.stand_ins import column, draw
from tests.plotting import samples as made

from factmem.facts import FactTable
from factmem.paper.figure_2 import figure_2, measure_prompts
from factmem.plotting.matplotlib_backend import draw_matplotlib

NAMES = ("$x$", "<b>bold</b>", made.SCRIPT, "%{text}", 'a, "b"', "ünïcode ∝", "noise 0", "EOS")
RECORDS = [[f"{name} s", f"{name} r", f"{name} a"] for name in NAMES]


@pytest.mark.parametrize("seed", [0, 1])
def test_every_prompt_contains_the_subject_and_relation_of_its_answer(seed):
    result = measure_prompts(records=RECORDS, prompts=8, length=6, seed=seed)
    answers = {(subject, relation): answer for subject, relation, answer in RECORDS}
    for tokens, kinds, answer in zip(*result.values(), strict=True):
        assert len(tokens) == len(kinds) == 6
        assert kinds.count(0) == kinds.count(1) == kinds.count(3) == 1
        assert kinds[-1] == 3
        assert tokens[-1] == "EOS"
        subject, relation = tokens[kinds.index(0)], tokens[kinds.index(1)]
        assert answers[subject, relation] == answer
        noise = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 2]
        assert len(noise) == 3
        assert all(token.startswith("noise ") for token in noise)
    assert len(set(result["answers"])) == 8, "every fact once"


def test_seed_determines_the_prompts():
    first, again, other = (
        measure_prompts(records=RECORDS, prompts=4, length=6, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again != other


def test_names_of_a_table_are_shown_unchanged():
    plot = draw(figure_2(table=FactTable.from_records(RECORDS), seed=5))
    (cells,) = plot.panels
    shown = {text for row in cells.texts for text in row}
    named = {name for record in RECORDS for name in record}
    kinds = ("subject", "relation", "answer")
    rows = list(zip(column(plot, "kind"), column(plot, "token"), strict=True))
    assert len([kind for kind, _ in rows if kind in kinds]) == 12
    assert all(token in named for kind, token in rows if kind in kinds)
    assert shown == {token for _, token in rows}
    drawn_texts = {text.get_text() for text in draw_matplotlib(plot).axes[0].texts}
    assert drawn_texts == shown


def test_cells_and_data_agree_with_the_first_prompt_on_top():
    plot = draw(figure_2())
    (cells,) = plot.panels
    assert cells.categories == ("subject", "relation", "noise", "EOS", "answer")
    assert (len(cells.values), len(cells.values[0])) == (4, 10)
    assert [name for _, name in cells.y.ticks] == ["prompt 4", "prompt 3", "prompt 2", "prompt 1"]
    for prompt, position, kind, token in plot.data.rows:
        y, x = 4 - prompt, position - 1
        assert cells.categories[int(cells.values[y][x])] == kind
        assert cells.texts[y][x] == token
        assert cells.hover_texts[y][x] == f"{kind}: {token}"
    assert column(plot, "prompt") == [p for p in (1, 2, 3, 4) for _ in range(10)]
    assert plot.caption.startswith("4 prompts of 9 tokens")


def test_answers_about_the_three_countries_are_correct():
    plot = draw(figure_2())
    capitals = {"France": "Paris", "Japan": "Tokyo", "Peru": "Lima"}
    currencies = {"France": "euro", "Japan": "yen", "Peru": "sol"}
    for prompt in (1, 2, 3, 4):
        tokens = {kind: token for row, _, kind, token in plot.data.rows if row == prompt}
        expected = {"capital": capitals, "currency": currencies}[tokens["relation"]]
        assert tokens["answer"] == expected[tokens["subject"]]
