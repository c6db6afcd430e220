"""Which file was applied when: told by the commits, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirrorlake.app.mirror import Mirror
from mirrorlake.cli.main import app
from mirrorlake.config import Project
from mirrorlake.errors import ForeignTable, UsageError
from tests.app.operated import Operated


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    """Files 1 and 2 in one commit, file 3 in another a minute later, file 4 waits."""
    mirror = Operated(tmp_path / "root")
    mirror.table("t", "a", "b")
    mirror.once()
    mirror.clock.advance(60)
    mirror.zone.land("t", 3, {"id": [1, 2, 9], "v": ["x", "y", "z"], "__rowMarker__": [2, 1, 4]})
    mirror.once()
    mirror.write_log("t")
    mirror.land("t", 4)
    return mirror


def project(mirror: Operated) -> Project:
    return Project(name="p", root=mirror.root)


def rows(*counts: int) -> dict[str, int]:
    return dict(zip(("insert", "update", "delete", "upsert"), counts, strict=True))


def test_each_file_has_its_version_time_and_rows_by_marker(mirror: Operated) -> None:
    found = Mirror(project(mirror)).files("s.t").facts()
    assert (found["table"], found["applied_to"]) == ("s.t", 3)
    told = [tuple(file.values()) for file in found["files"]]
    early, late = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:00.000000Z"
    assert told == [
        (1, 1, "applied", rows(1, 0, 0, 0), 1, early),
        (2, 2, "applied", rows(1, 0, 0, 0), 1, early),
        (3, 3, "applied", rows(0, 1, 1, 1), 2, late),
        (4, 4, "waiting", None, None, None),
    ]


def test_a_table_that_does_not_exist_yet_has_files_that_wait(tmp_path: Path) -> None:
    mirror = Operated(tmp_path)
    mirror.table("t", "a")
    found = Mirror(project(mirror)).files("s.t")
    assert (found.recorded, [file.version for file in found.files]) == (0, [None])


def test_an_unknown_table_is_wrong_use(mirror: Operated) -> None:
    with pytest.raises(UsageError, match="there is no table"):
        Mirror(project(mirror)).files("s.nothing")


def test_a_damaged_log_says_so(mirror: Operated) -> None:
    log = mirror.root / "Tables/s/t/_delta_log"
    (log / f"{1:020d}.json").write_text("garbage")
    with pytest.raises(ForeignTable, match="its Delta log cannot be read"):
        Mirror(project(mirror)).files("s.t")


class TestTheCommand:
    def run(self, mirror: Operated, *arguments: str) -> str:
        done = CliRunner().invoke(app, ["files", "s.t", "--root", str(mirror.root), *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    def test_it_prints_what_the_library_says(self, mirror: Operated) -> None:
        expected: dict[str, Any] = Mirror(project(mirror)).files("s.t").facts()
        assert json.loads(self.run(mirror, "--json")) == expected

    def test_it_shows_the_last_ones(self, mirror: Operated) -> None:
        shown = json.loads(self.run(mirror, "--json", "--last", "2"))["files"]
        assert [file["first"] for file in shown] == [3, 4]

    def test_people_get_a_table(self, mirror: Operated) -> None:
        lines = self.run(mirror).splitlines()
        assert lines[0].split() == [
            *["file", "state", "inserts", "updates", "deletes", "upserts", "version", "time"]
        ]
        assert lines[4].split() == ["4", "waiting"]
        assert lines[5] == "s.t: all files up to number 3 have been applied."


@pytest.mark.clause("LZ-309")
def test_the_status_command_and_the_status_file_say_the_same(mirror: Operated) -> None:
    done = CliRunner().invoke(app, ["status", "--root", str(mirror.root), "--json"])
    (facts,) = json.loads(done.stdout)["tables"]
    entry = mirror.shown("t")
    assert facts["status"] == entry["status"] == "Stopped"
    assert facts["processed_rows"] == entry["metrics"]["processedRowCount"] == 5
    assert facts["processed_bytes"] == entry["metrics"]["processedByte"] > 0
    assert facts["last_sync"] == entry["metrics"]["lastSyncTimeUtc"]
    assert (facts["source_time"], entry["metrics"]["lastSourceCommitTimeUtc"][:4]) == (None, "0001")
