"""The documentation says what the code does."""

from __future__ import annotations

import copy
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirrorlake.config.sections import ProjectFile
from mirrorlake.config.sources import SECTIONS
from mirrorlake.sources.section import Section
from tests.docs.generate import DOCS, FINDINGS, pages

ROOT = DOCS.parent
WRITTEN = [*ROOT.glob("*.md"), *(p for p in DOCS.rglob("*.md") if p.parent.name != "spec")]


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text() == pages()[path], "run `make docs`"


def test_every_page_of_a_finding_belongs_to_a_rule() -> None:
    assert set(FINDINGS.iterdir()) == {path for path in pages() if path.parent == FINDINGS}


def test_every_setting_is_documented() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    sources = [name for section in SECTIONS.values() for name in _fields(section, "source.")]
    for field in [*_fields(ProjectFile, ""), *sources]:
        assert f"`{field}`" in page, field


def test_every_default_is_what_its_page_says() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    needed: dict[str, Any] = {
        "name": "a",
        "root": {"url": "b"},
        "source": {"type": "postgresql", "url": "postgresql://c"},
    }
    said = copy.deepcopy(needed)
    rows = re.findall(r"^\| `([\w.]+)` \| `([^`<]+)` \|", page, re.MULTILINE)
    assert len(rows) > 20
    for name, default in rows:
        *parts, last = name.split(".")
        location = reduce(lambda some, part: some.setdefault(part, {}), parts, said)
        location[last] = yaml.safe_load(default)
    assert ProjectFile.model_validate(said) == ProjectFile.model_validate(needed)


def _fields(model: type, prefix: str) -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        parts = [inner, *getattr(inner, "__args__", ())]
        part = next((p for p in parts if isinstance(p, type) and issubclass(p, Section)), None)
        found += _fields(part, f"{prefix}{name}.") if part else [prefix + name]
    return found


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", ["test_simulation", "test_by_time"])
def test_the_seeds_of_the_simulator_are_those_that_are_told(name: str) -> None:
    source = (ROOT / "tests" / "sim" / f"{name}.py").read_text()
    (found,) = re.findall(r"SEEDS = tries\(([\d_]+), long=([\d_]+)\)", source)
    seeds, longer = (int(number) for number in found)
    page = (DOCS / "exactly-once.md").read_text()
    told = (f"{seeds:,} seeds", f"({seeds // 4:,}", f"{longer:,}")
    assert [one for one in told if one not in page] == []


@pytest.mark.clause("LZ-274")
def test_what_a_reset_is_and_a_stop_is_not_stands_in_the_first_places() -> None:
    said = "Only `mirrorlake reset`\nrebuilds a table"
    assert said in (ROOT / "README.md").read_text()
    assert "(docs/exactly-once.md#stop-start-reset)" in (ROOT / "README.md").read_text()
    sections = re.findall(r"^## (.+)$", (DOCS / "exactly-once.md").read_text(), re.MULTILINE)
    assert sections.index("Stop, start, reset") <= 1


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_named_files_exist(path: Path) -> None:
    """Paths of the repository that a page names in code marks."""
    for name in re.findall(r"`((?:src|tests|docs|bench|scripts)/[\w./-]+)`", path.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_every_page_installs_from_the_clone(path: Path) -> None:
    """As long as no registry has the package."""
    if path.name != "CHANGELOG.md":
        assert re.findall(r"pip install \"?mirrorlake", path.read_text()) == []
