"""The figures of the docs are those that the bench has kept."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench import figures, plot, scenarios
from bench.catalog import CATALOG

from tests.docs.generate import DOCS

README = (DOCS.parent / "README.md").read_text()
PERFORMANCE = (DOCS / "performance.md").read_text()


@pytest.mark.parametrize("path", plot.pictures(), ids=lambda path: path.name)
def test_the_readme_shows_the_plot(path: Path) -> None:
    ET.parse(path)
    assert path.name in README


def test_the_plot_shows_what_the_table_says() -> None:
    rows = re.findall(r"^\| [\d,]+ changes into .*$", README, re.MULTILINE)
    for row, sides in zip(rows, plot.seconds().values(), strict=False):
        cells = [cell.partition(",")[0].strip() for cell in row.split("|")[2:5]]
        assert sorted(map(figures.seconds, sides.values())) == sorted(cells)


def test_each_line_names_its_rounds_and_what_was_warm(tmp_path: Path) -> None:
    """What was kept on a later day stands for what was kept before."""
    told = {
        "date": "2099-01-01",
        "machine": "a fast one",
        "ours_seconds": 1.0,
        "peer": "a peer",
        "peer_seconds": 2.0,
        "ratio": 2.0,
        "equal": True,
        **dict.fromkeys([f"{age}_seconds" for age in AGES], 3.0),
        "requests": 3,
        "service_percent": 1,
        "captures_percent": 2,
        "service_mebibytes": 3,
        "captures_mebibytes": 4,
    }
    lines = [
        told
        | {"name": name, "what": f"what {name} does", "warm": "the oven", "rounds": "7 after 8"}
        for name in CATALOG
    ]
    file = tmp_path / "history.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in [told | lines[0], *lines]))
    readme, page = (figures.filled(text, file) for text in (README, PERFORMANCE))
    for name in CATALOG:
        note = f" ({CATALOG[name].note})" if CATALOG[name].note else ""
        shown = [row for row in page.splitlines() if f"what {name} does{note} |" in row]
        assert len(shown) == 1, name
        assert "| 7 after 8 | the oven |" in shown[0]
    assert all("7 after 8" in row for row in readme.splitlines() if "what apply" in row)
    assert "what freshness does; rounds: 7 after 8; warm: the oven" in readme


def test_lines_whose_sides_were_not_compared_say_so() -> None:
    silent = [
        line
        for lines in figures.last().values()
        for line in lines
        if line["peer"] and line["equal"] is None
    ]
    rows = PERFORMANCE.splitlines()
    told = {line["what"] for line in silent if any(_is_marked(row, line) for row in rows)}
    assert told == {line["what"] for line in silent}
    assert PERFORMANCE.count("(not compared)") == len(silent)


def _is_marked(row: str, line: figures.Line) -> bool:
    return line["what"] in row and f"{line['peer']}: " in row and "(not compared)" in row


def test_what_peers_take_for_ready_objects_is_beside_their_figure() -> None:
    for name in ("events-avro", "events-json"):
        (line,) = figures.last()[name]
        (row,) = [row for row in PERFORMANCE.splitlines() if line["what"] in row]
        assert figures.seconds(line["peer_seconds_of_objects"]) in row


def test_each_comparison_is_in_the_catalog() -> None:
    found = set()
    for path in Path(scenarios.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Result" and node.args:
                first = node.args[0]
                found |= {first.value} if isinstance(first, ast.Constant) else set()
    assert len(found) > 15
    assert found <= CATALOG.keys()


AGES = ("p50", "p99", "max", "first_p50", "last_p50")


def test_the_readme_has_two_screens() -> None:
    assert len(README.splitlines()) <= 125
