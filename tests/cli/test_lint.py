"""`mirrorlake lint`: exit codes, JSON, SARIF, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake.lint.markdown import clauses
from tests.cli.conftest import Run
from tests.lint.zones import Zone, clean, clean_v1, tree


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return clean(tmp_path / "shop")


def breaking(zone: Zone) -> Zone:
    zone.put(f"orders/{4:020d}.parquet")
    return zone


def test_a_clean_zone_ends_with_zero(run: Run, zone: Zone) -> None:
    done = run("lint", "shop")
    assert (done.code, done.out) == (0, "")
    assert done.error == "Nothing found in 3 tables and 5 data files.\n"


def test_the_root_may_be_named_as_for_other_commands(run: Run, zone: Zone) -> None:
    assert run("lint", "--root", "shop").error == "Nothing found in 3 tables and 5 data files.\n"
    assert run("lint", "shop", "--root", "shop").code == 2


def test_errors_end_with_one_and_say_where_what_and_how(run: Run, zone: Zone) -> None:
    breaking(zone)
    done = run("lint", "shop")
    assert done.code == 1
    path = f"Files/LandingZone/orders/{4:020d}.parquet"
    assert f"error   LZ-117  {path}" in done.out
    assert f"error   LZ-276  {path}" in done.out
    for said in ("3 missing; 1 later file waits", "Expected: numbers without a gap", "Publish the"):
        assert said in done.out
    assert "2 errors in 3 tables and 6 data files." in done.error


def test_warnings_end_with_zero(run: Run, zone: Zone) -> None:
    zone.put("orders/_metadata.json", '{"keyColumns": ["id"], }')
    done = run("lint", "shop")
    assert done.code == 0
    assert "warning LZ-053  Files/LandingZone/orders/_metadata.json:1:22" in done.out
    assert run("lint", "shop", "--strict").code == 1


def test_the_version_of_the_page_can_be_chosen(run: Run, tmp_path: Path) -> None:
    clean_v1(tmp_path / "old")
    assert run("lint", "old", "--version", "v1").out == ""
    assert "LZ-071" in run("lint", "old").out
    assert run("lint", "old", "--version", "v3").code == 2


def test_facts_are_json(run: Run, zone: Zone) -> None:
    breaking(zone)
    zone.write("notes", 3, "id,name,__rowMarker__", "7,Eva,0", "x,Finn,0")
    done = run("lint", "shop", "--json")
    facts = done.facts()
    assert done.code == 1
    assert (facts["ok"], facts["tables"], facts["files"]) == (False, 3, 7)
    assert facts["counts"] == {"error": 3, "warning": 0, "note": 0}
    assert facts["unread"] == dict.fromkeys(
        ("unopened", "footers", "partly", "vanished", "uncompared"), 0
    )
    found = next(f for f in facts["findings"] if f["id"] == "LZ-178")
    assert (found["severity"], found["table"]) == ("error", "notes")
    assert (found["file"], found["row"], found["column"]) == (f"{3:020d}.csv", 2, "id")
    assert all(found[name] for name in ("rule", "title", "found", "expected", "mend", "path"))


def test_sarif_is_written_beside_the_output(run: Run, zone: Zone, tmp_path: Path) -> None:
    breaking(zone)
    done = run("lint", "shop", "--sarif", "found.sarif")
    assert done.code == 1
    (logged,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert {result["level"] for result in logged["results"]} == {"error"}


def test_nothing_is_written_into_what_is_looked_at(run: Run, zone: Zone) -> None:
    before = tree(zone.root)
    done = run("lint", "shop", "--sarif", "shop/found.sarif")
    assert done.code == 2
    assert tree(zone.root) == before


def test_all_can_be_read(run: Run, zone: Zone) -> None:
    assert run("lint", "shop", "--read-all").code == 0


@pytest.mark.parametrize("arguments", [[], ["absent"], ["."]])
def test_a_path_without_a_zone_is_wrong_use(run: Run, arguments: list[str]) -> None:
    assert run("lint", *arguments).code == 2


@pytest.mark.full
@pytest.mark.parametrize("clause", clauses())
def test_every_finding_is_explained(run: Run, clause: str) -> None:
    done = run("lint", "--explain", clause.lower())
    assert done.code == 0
    assert done.out.startswith(f"# {clause}\n")
    assert "**How to fix it**" in done.out


def test_an_unknown_finding_is_wrong_use(run: Run) -> None:
    assert run("lint", "--explain", "LZ-999").code == 2


@pytest.mark.parametrize("path", ["shop", "nowhere/x.sarif", "file/x.sarif"])
def test_a_sarif_file_is_tested_before_the_lint(run: Run, tmp_path: Path, path: str) -> None:
    (tmp_path / "shop/Files/LandingZone/t").mkdir(parents=True)
    (tmp_path / "file").touch()
    done = run("lint", "shop/Files", "--sarif", path)
    assert (done.code, done.out) == (2, "")
    assert f"({path})" in done.error


def test_findings_are_printed_when_the_sarif_file_is_not_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop/Files/LandingZone/t").mkdir(parents=True)
    (tmp_path / "shop/Files/LandingZone/t/_metadata.json").write_text("{")
    done = run("lint", "shop", "--json", "--sarif", "/dev/full")
    assert (done.code, done.facts()["ok"]) == (3, False)
    assert "no space left" in done.error
