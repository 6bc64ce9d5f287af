"""Figure 3: both constructions, at a size that is built in seconds."""

import numpy as np
import pytest

from factmem.facts import FactTable
from factmem.paper.figure_3 import figure_3, measure_constructions
from factmem.plotting.matplotlib_backend import printed

SMALL = {
    "subjects": 4, "relations": 3, "answers": 2, "length": 7, "dim": 128, "head_dim": 64,
    "width": 512, "block": 2, "seed": 0,
}  # fmt: skip
BOTH = ("attention", "mlp")


@pytest.fixture(scope="module")
def found():
    return measure_constructions(**SMALL)


@pytest.fixture(scope="module")
def plot(found):
    return figure_3().plot([found])


def asked(found):
    """Places of subject and relation in the prompt, and which they are."""
    (s,) = [place for place, token in enumerate(found["prompt"]) if token.startswith("s")]
    (r,) = [place for place, token in enumerate(found["prompt"]) if token.startswith("r")]
    return s, int(found["prompt"][s][1:]) - 1, r, int(found["prompt"][r][1:]) - 1


def test_the_prompt_asks_for_the_answer_that_is_told(found):
    _, subject, _, relation = asked(found)
    table = FactTable.random(4, 3, 2, seed=0)
    assert table.answer_of[subject, relation] == found["answer"]
    assert len(found["prompt"]) == 7
    assert found["prompt"][-1] == "EOS"
    assert all(token[0] == "n" for token in found["prompt"][:-1] if token[0] not in "sr")


@pytest.mark.parametrize("name", BOTH)
def test_heads_look_at_what_their_block_holds_and_else_at_eos(found, name):
    s, subject, r, relation = asked(found)
    looks = np.array(found[name]["attention"])
    np.testing.assert_allclose(looks.sum(axis=1), 1, atol=1e-5)
    expected = np.zeros((4, 7))  # two blocks of two subjects, two of the three relations
    expected[:, -1] = 1
    for head, place in ((subject // 2, s), (2 + relation // 2, r)):
        expected[head] = 0
        expected[head, place] = 1
    np.testing.assert_allclose(looks, expected, atol=0.05)


@pytest.mark.parametrize("name", BOTH)
def test_the_right_answer_has_the_largest_score(found, name):
    assert int(np.argmax(found[name]["scores"])) == found["answer"]
    assert len(found[name]["scores"]) == 6
    assert found[name]["accuracy"] == 1


def test_with_attention_alone_what_heads_write_adds_up_to_the_scores(found):
    each = found["attention"]
    np.testing.assert_allclose(np.sum(each["written"], axis=0), each["scores"], atol=1e-3)
    np.testing.assert_allclose(each["before"], each["scores"], atol=1e-4)
    _, subject, _, relation = asked(found)
    silent = [h for h in range(4) if h not in (subject // 2, 2 + relation // 2)]
    assert np.abs(np.array(each["written"])[silent]).max() < 0.1, "from EOS nothing is read"


def test_with_an_mlp_heads_pass_on_and_the_mlp_decides(found):
    each = found["mlp"]
    np.testing.assert_allclose(np.sum(each["written"], axis=0), each["before"], atol=1e-3)
    assert np.abs(np.subtract(each["before"], each["scores"])).max() > 0.1


def test_panels_and_rows_show_what_was_found(plot, found):
    looks3, scores3, looks4, scores4 = plot.panels
    for panel, name in ((looks3, "attention"), (looks4, "mlp")):
        np.testing.assert_array_equal(panel.values, found[name]["attention"])
        assert [token for _, token in panel.x.ticks] == found["prompt"]
    assert scores3.values[0] == tuple(found["attention"]["scores"])
    assert scores3.values[1:] == tuple(map(tuple, found["attention"]["written"][::-1]))
    assert scores4.values == (tuple(found["mlp"]["scores"]), tuple(found["mlp"]["before"]))
    assert [name for _, name in scores4.y.ticks] == ["with MLP", "heads together"]
    for panel in (scores3, scores4):
        assert -panel.low == panel.high == np.abs(panel.values).max()
        assert (float(found["answer"]), str(found["answer"] + 1)) in panel.x.ticks
        assert panel.x.label == f"answer (right: {found['answer'] + 1})"
    cells = 2 * 4 * 7 + (5 + 2) * 6
    assert len(plot.data.rows) == cells
    assert f"{found['answer'] + 1} is right" in plot.caption
    assert f"Theorem 3: 4 heads, {found['attention']['parameters']:,} parameters" in plot.caption


def test_it_is_drawn(plot):
    assert len([axes for axes in printed(plot).axes if axes.get_title()]) == 4


def test_both_scales_measure_once():
    (quick,), (paper,) = (figure_3(scale).measured.tasks for scale in ("quick", "paper"))
    assert quick.identity == paper.identity
