"""The figures of the first page are those of the docs, and the plot is that of the bench."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench import plot

from tests.docs.generate import DOCS

README = (DOCS.parent / "README.md").read_text()
PERFORMANCE = (DOCS / "performance.md").read_text()
ROW = re.compile(r"^\| (1,000|60,000|1,000,000) \|.*$", re.MULTILINE)


def test_the_table_of_the_readme_is_that_of_the_page() -> None:
    rows = [match[0] for match in ROW.finditer(README)]
    assert len(rows) == 3
    assert rows == [match[0] for match in ROW.finditer(PERFORMANCE)]


@pytest.mark.parametrize("path", plot.pictures(), ids=lambda path: path.name)
def test_the_plot_is_that_of_the_bench(path: Path) -> None:
    assert path.read_text() == plot.pictures()[path], "run `python -m bench.plot`"
    ET.parse(path)
    assert path.name in README


def test_the_plot_shows_what_the_table_says() -> None:
    for row, sides in zip(ROW.finditer(PERFORMANCE), plot.seconds().values(), strict=True):
        told = [plot.told(value) for value in sides.values()]
        cells = [cell.partition(",")[0].strip() for cell in row[0].split("|")[2:5]]
        assert sorted(told) == sorted(cells)


def test_the_readme_has_two_screens() -> None:
    assert len(README.splitlines()) <= 125
