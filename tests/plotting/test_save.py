"""Writing figures to files."""

import pytest
from matplotlib.figure import Figure

from factmem._core.errors import FactmemError
from factmem.plotting import check_format, save_figure


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("b.PDF", b"%PDF")])
def test_writes_the_format_of_the_file_name(tmp_path, name, start):
    save_figure(Figure(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "png", "a", "a.png.exe"])
def test_rejects_other_formats(tmp_path, name):
    with pytest.raises(FactmemError, match=r"must end in \.png, \.pdf or \.svg, got"):
        check_format(tmp_path / name)
