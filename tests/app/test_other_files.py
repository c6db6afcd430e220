"""Files that are no data files: they are no error, and they are told where they stand alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from tests.app.zones import Zone


@pytest.mark.clause("LZ-023")
@pytest.mark.parametrize(
    ("metadata", "names", "told"),
    [
        ("{}", ["1.parquet"], "1.parquet is not named as a data file (20 digits and an extension)"),
        (
            "{}",
            ["b.csv", "a.csv", "_c.csv"],
            "a.csv and 1 more are not named as data files (20 digits",
        ),
        (
            '{"fileDetectionStrategy": "LastUpdateTimeFileDetection"}',
            ["a.txt"],
            "a.txt is not named as a data file (its extension)",
        ),
    ],
)
def test_files_of_other_names_are_no_error_and_are_told(
    tmp_path: Path, metadata: str, names: list[str], told: str
) -> None:
    zone = Zone(tmp_path / "root")
    zone.table("t")
    (zone.folder("t") / "_metadata.json").write_text(metadata)
    for name in names:
        (zone.folder("t") / name).write_bytes(b"x")
    report = zone.apply()
    assert not report.errors
    (table,) = report.tables.values()
    assert told in table.waiting
    (shown,) = mirror_status.read(Project.of_root(zone.root)).tables
    assert told in shown.waiting
