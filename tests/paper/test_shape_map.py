"""The map of heads and neurons: its shapes, and how each is trained."""

import pytest

from factmem.paper.shape_map import PAPER_MAP, QUICK_MAP, ShapeMap
from factmem.training import PAPER, QUICK

SMALL = ShapeMap(4, 2, 3, (1, 2), (1, 5), (0,), "quick")


def test_parameters_are_four_matrices_a_head_and_two_of_the_mlp():
    assert SMALL.parameters(2, 5) == 4 * 2 * 4 * 2 + 2 * 5 * 4
    assert PAPER_MAP.parameters(8, 32) == 4 * 8 * 32 * 8 + 2 * 32 * 32


def test_every_place_learns_the_same_table():
    for heads, width, seed in ((1, 5, 0), (2, 1, 0)):
        config = SMALL.task(heads, width, seed).config
        assert (config["heads"], config["width"], config["seed"]) == (heads, width, seed)
        assert (config["dim"], config["head_dim"]) == (4, 2)
        assert (config["subjects"], config["relations"], config["answers"]) == (3, 3, 8)
        assert config["noise"] == 6
    every = [SMALL.task(h, w, s).identity for h in (1, 2) for w in (1, 5) for s in (0, 1)]
    assert len(set(every)) == 8


@pytest.mark.parametrize("places", [QUICK_MAP, PAPER_MAP, SMALL])
def test_training_is_carried_to_its_end(places):
    config = places.task(places.heads[0], places.widths[0], places.seeds[0]).config
    assert config["training"]["hopeless"] == ()


def test_the_quick_map_has_four_programs_with_room_for_each_of_its_shapes():
    rooms = {}
    for heads in QUICK_MAP.heads:
        for width in QUICK_MAP.widths:
            task = QUICK_MAP.task(heads, width, 0)
            room = task.config["room"]
            assert heads <= room["heads"] <= 16
            assert width <= room["width"] <= 112
            sizes = [room[name] for name in ("subjects", "relations", "noise", "answers", "facts")]
            assert sizes == [15, 15, 30, 120, 225], "as large as the table, and no larger"
            rooms.setdefault((room["heads"], room["width"]), set()).add(task.shape)
    assert set(rooms) == {(6, 32), (6, 112), (16, 32), (16, 112)}
    assert all(len(shapes) == 1 for shapes in rooms.values()), "workers know them as one program"
    assert len(set.union(*rooms.values())) == 4


def test_the_authors_map_is_compiled_for_nothing_larger():
    assert "room" not in PAPER_MAP.task(8, 32, 64).config


def test_the_authors_map_has_one_rate_and_their_protocol_otherwise():
    training = PAPER_MAP.task(8, 32, 64).config["training"]
    assert tuple(training["learning_rates"]) == (1e-2,)
    assert (training["steps"], training["batch"]) == (PAPER.steps, PAPER.batch) == (2**14, 1024)


def test_the_quick_map_trains_as_quick_searches_do():
    training = QUICK_MAP.task(6, 32, 0).config["training"]
    assert tuple(training["learning_rates"]) == tuple(QUICK.learning_rates)
    assert training["steps"] == QUICK.steps


def test_the_authors_grid():
    attention = [heads * PAPER_MAP.dim * PAPER_MAP.head_dim for heads in PAPER_MAP.heads]
    mlp = [width * PAPER_MAP.dim for width in PAPER_MAP.widths]
    assert (min(attention), max(attention)) == (256, 8192)
    assert (min(mlp), max(mlp)) == (32, 4096)
    assert len(attention) == len(mlp) == 13
    assert PAPER_MAP.subjects**2 == 1024
    for sizes in (PAPER_MAP.heads, PAPER_MAP.widths, QUICK_MAP.heads, QUICK_MAP.widths):
        assert list(sizes) == sorted(set(sizes))
