"""Zones that mean harm, linted: nothing outside is read, nothing is written, nothing hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirrorlake.lint import lint, of_path
from tests.app.test_hostile import NAMES
from tests.landing.files import encoded
from tests.lint.zones import ROWS, Zone, clean, keys, tree

SECRET = "secret-value"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with what looks like a table in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "_metadata.json").write_text('{"keyColumns": ["' + SECRET + '"]}')
    (folder / f"{1:020d}.parquet").write_bytes(encoded({SECRET: [1]}))
    return folder


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return clean(tmp_path / "root")


def said(zone: Zone) -> str:
    """All that the linter says of a zone, which it leaves as it is."""
    before = tree(zone.root)
    result = zone.lint()
    assert tree(zone.root) == before
    assert result.tables >= 3  # those of the clean zone
    return "\n".join(str(finding.facts()) for finding in result.findings)


class TestNames:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_folder_of_any_name_is_checked_and_named_on_one_line(
        self, zone: Zone, name: str
    ) -> None:
        zone.describe(name, keyColumns=["id"])
        zone.land(name, 1, ROWS)
        result = zone.lint()
        assert result.tables == 4
        assert keys(result) <= {"LZ-006/control-character", "LZ-006/names-alike"}
        for finding in result.findings:
            assert finding.found.isprintable()

    def test_names_that_differ_only_in_case_are_reported(self, zone: Zone) -> None:
        for name in ("twin", "TWIN"):
            zone.describe(name, keyColumns=["id"])
            zone.land(name, 1, ROWS)
        assert keys(zone.lint()) == {"LZ-006/names-alike"}

    @pytest.mark.parametrize("schema", ["..", "."])
    def test_a_schema_that_would_lead_upwards_leads_nowhere(
        self, zone: Zone, outside: Path, schema: str
    ) -> None:
        path = f"{schema}.schema/bad"
        zone.describe(path, keyColumns=["id"])
        zone.land(path, 1, ROWS)
        assert SECRET not in said(zone)

    @pytest.mark.parametrize("table", ["../../outside", "/etc", "a/../../b", "\\\\host\\share"])
    def test_a_true_name_in_the_metadata_is_not_a_path(
        self, zone: Zone, outside: Path, table: str
    ) -> None:
        ours = {"format": "1", "generation": "g", "table": table, "source": {"schema": "../.."}}
        zone.describe("bad", keyColumns=["id"], mirrorlake=ours)
        zone.land("bad", 1, ROWS)
        assert SECRET not in said(zone)


class TestLinks:
    def test_links_out_of_the_zone_are_reported_and_not_followed(
        self, zone: Zone, outside: Path
    ) -> None:
        (zone.path / "folder").symlink_to(outside)
        (zone.path / "Linked.schema").symlink_to(outside.parent)
        zone.describe("file", keyColumns=["id"])
        (zone.path / "file" / f"{1:020d}.parquet").symlink_to(outside / f"{1:020d}.parquet")
        (zone.path / "described").mkdir()
        (zone.path / "described/_metadata.json").symlink_to(outside / "_metadata.json")
        found = said(zone)
        assert SECRET not in found
        assert "a link that leads out of the root" in found

    def test_a_loop_of_links_ends(self, zone: Zone) -> None:
        (zone.path / "loop").symlink_to(zone.path)
        zone.describe("t", keyColumns=["id"])
        (zone.path / "t" / "self").symlink_to(zone.path / "t")
        assert "a link" in said(zone)


class TestFiles:
    def test_a_pipe_is_not_a_file_and_nobody_waits_for_it(self, zone: Zone) -> None:
        zone.describe("t", keyColumns=["id"])
        for name in (f"{1:020d}.parquet", f"{2:020d}.csv"):
            os.mkfifo(zone.path / "t" / name)
        result = lint(of_path(zone.root))
        assert "LZ-275/no-data-file" in keys(result)

    def test_very_many_empty_files_are_reported_in_few_words(self, zone: Zone) -> None:
        zone.describe("t", keyColumns=["id"])
        for number in range(1, 5_001):
            (zone.path / "t" / f"{number:020d}.parquet").touch()
        result = zone.lint()
        assert keys(result) == {"LZ-276/zero-bytes"}
        assert len(result.findings) < 100

    def test_the_largest_number_costs_nothing(self, zone: Zone) -> None:
        zone.describe("t", keyColumns=["id"])
        for number in (1, 10**20 - 1):
            zone.land("t", number, ROWS)
        assert "LZ-117/number-missing" in keys(zone.lint())
