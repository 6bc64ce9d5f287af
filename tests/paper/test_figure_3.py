"""Figure 3: both constructions, at a small size."""

import numpy as np
import pytest

from factmem.facts import FactTable
from factmem.paper.figure_3 import figure_3, measure_constructions
from factmem.plotting.matplotlib_backend import draw_matplotlib

SMALL = {
    "subjects": 4, "relations": 3, "answers": 2, "length": 7, "dim": 128, "head_dim": 64,
    "width": 512, "block": 2, "seed": 0,
}  # fmt: skip
BOTH = ("attention", "mlp")


@pytest.fixture(scope="module")
def result():
    return measure_constructions(**SMALL)


@pytest.fixture(scope="module")
def plot(result):
    return figure_3().plot([result])


def subject_and_relation(result):
    """Return position and index of the subject and of the relation in the prompt."""
    (s,) = [i for i, token in enumerate(result["prompt"]) if token.startswith("s")]
    (r,) = [i for i, token in enumerate(result["prompt"]) if token.startswith("r")]
    return s, int(result["prompt"][s][1:]) - 1, r, int(result["prompt"][r][1:]) - 1


def test_prompt_asks_for_the_answer(result):
    _, subject, _, relation = subject_and_relation(result)
    table = FactTable.random(4, 3, 2, seed=0)
    assert table.answer_of[subject, relation] == result["answer"]
    assert len(result["prompt"]) == 7
    assert result["prompt"][-1] == "EOS"
    assert all(token[0] == "n" for token in result["prompt"][:-1] if token[0] not in "sr")


@pytest.mark.parametrize("name", BOTH)
def test_heads_attend_to_their_block_or_else_to_eos(result, name):
    s, subject, r, relation = subject_and_relation(result)
    attention = np.array(result[name]["attention"])
    np.testing.assert_allclose(attention.sum(axis=1), 1, atol=1e-5)
    expected = np.zeros((4, 7))  # two blocks of two subjects, two of the three relations
    expected[:, -1] = 1
    for head, position in ((subject // 2, s), (2 + relation // 2, r)):
        expected[head] = 0
        expected[head, position] = 1
    np.testing.assert_allclose(attention, expected, atol=0.05)


@pytest.mark.parametrize("name", BOTH)
def test_correct_answer_has_the_largest_score(result, name):
    assert int(np.argmax(result[name]["scores"])) == result["answer"]
    assert len(result[name]["scores"]) == 6
    assert result[name]["accuracy"] == 1


def test_heads_add_up_to_the_scores_without_an_mlp(result):
    model = result["attention"]
    np.testing.assert_allclose(np.sum(model["written"], axis=0), model["scores"], atol=1e-3)
    np.testing.assert_allclose(model["before"], model["scores"], atol=1e-4)
    _, subject, _, relation = subject_and_relation(result)
    other_heads = [h for h in range(4) if h not in (subject // 2, 2 + relation // 2)]
    assert np.abs(np.array(model["written"])[other_heads]).max() < 0.1, "nothing is read from EOS"


def test_mlp_changes_the_scores(result):
    model = result["mlp"]
    np.testing.assert_allclose(np.sum(model["written"], axis=0), model["before"], atol=1e-3)
    assert np.abs(np.subtract(model["before"], model["scores"])).max() > 0.1


def test_panels_and_data_show_the_result(plot, result):
    attention3, scores3, attention4, scores4 = plot.panels
    for panel, name in ((attention3, "attention"), (attention4, "mlp")):
        np.testing.assert_array_equal(panel.values, result[name]["attention"][::-1])
        assert [head for _, head in panel.y.ticks] == ["4", "3", "2", "1"], "head 1 is at the top"
        assert [row[0].split(" attends")[0] for row in panel.hover_texts] == [
            *("head 4", "head 3", "head 2", "head 1")
        ]
        assert [token for _, token in panel.x.ticks] == result["prompt"]
    assert scores3.values[0] == tuple(result["attention"]["scores"])
    assert scores3.values[1:] == tuple(map(tuple, result["attention"]["written"][::-1]))
    assert [name for _, name in scores3.y.ticks][1:] == ["head 4", "head 3", "head 2", "head 1"]
    assert scores4.values == (tuple(result["mlp"]["scores"]), tuple(result["mlp"]["before"]))
    assert [name for _, name in scores4.y.ticks] == ["with MLP", "all heads"]
    for panel in (scores3, scores4):
        assert -panel.low == panel.high == np.abs(panel.values).max()
        assert (float(result["answer"]), str(result["answer"] + 1)) in panel.x.ticks
        assert panel.x.label == f"answer (correct: {result['answer'] + 1})"
    cells = 2 * 4 * 7 + (5 + 2) * 6
    assert len(plot.data.rows) == cells
    assert f"{result['answer'] + 1} is correct" in plot.caption
    assert f"Theorem 3: 4 heads, {result['attention']['parameters']:,} parameters" in plot.caption


def test_matplotlib_draws_four_panels(plot):
    assert len([axes for axes in draw_matplotlib(plot).axes if axes.get_title()]) == 4


def test_both_scales_have_the_same_task():
    (quick,), (paper,) = (figure_3(scale).measurement.tasks for scale in ("quick", "paper"))
    assert quick.identity == paper.identity
