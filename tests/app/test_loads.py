"""The data files that a load leaves behind: few, however small what landed, and none too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.delta import statistics as bounds
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write import append, rewrite
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.compaction.small_files import SMALLEST
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.landed import FileKind, Footer
from tests.app.zones import Zone

TINY, ROWS = 40, 10
"""Landed files of a load, and rows in each."""
MOST = 100
"""Rows of a data file, where a test says so."""


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    zone = Zone(tmp_path / "root")
    zone.table("t", "id")
    return zone


def land(zone: Zone, number: int, rows: range, *, last: bool = True) -> None:
    """A file of a load, as our capture writes them."""
    footer = Footer("s", FileKind.LOAD, "0/1:0", "0/1:0", complete=last)
    file = pa.table({"id": pa.array(rows, pa.int64())}).replace_schema_metadata(footer.encode())
    pq.write_table(file, zone.folder("t") / f"{number:020d}.parquet")


def files(zone: Zone) -> list[Any]:
    return list(TableLog(zone.root / "Tables/s/t").snapshot().files.values())


def sizes(zone: Zone) -> list[int]:
    """The rows of each data file, the largest first."""
    return sorted((bounds.records(file) or 0 for file in files(zone)), reverse=True)


def rows(count: int) -> list[tuple[int]]:
    return sorted(((n,) for n in range(count)), key=repr)


@pytest.mark.clause("CF-156")
@pytest.mark.parametrize("batch", [TINY, 7, 1], ids=["one batch", "some batches", "many"])
def test_tiny_landed_files_are_few_data_files_when_the_load_is_done(zone: Zone, batch: int) -> None:
    for number in range(TINY):
        land(zone, number + 1, range(number * ROWS, (number + 1) * ROWS), last=number == TINY - 1)
    zone.settings = MirrorSettings(limits=BatchLimits(files=batch))
    zone.apply()
    assert zone.rows("t") == rows(TINY * ROWS)
    assert len(files(zone)) < SMALLEST


def test_they_are_written_together_and_yet_told_of_one_by_one(zone: Zone) -> None:
    counts = [ROWS + number for number in range(5)]
    for number, count in enumerate(counts):
        first = sum(counts[:number])
        land(zone, number + 1, range(first, first + count), last=number == len(counts) - 1)
    zone.settings = MirrorSettings(compaction=False)
    zone.apply()
    assert sizes(zone) == [sum(counts)]
    log = TableLog(zone.root / "Tables/s/t")
    (info,) = [action["commitInfo"] for action in log.actions(0) if "commitInfo" in action]
    said = json.loads(info["userMetadata"])
    assert said["rows"]["insert"] == sum(counts)
    assert [(run[0], run[2]) for run in said["read"]] == [*enumerate(counts, start=1)]


def test_a_large_landed_file_becomes_data_files_of_bounded_size(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "ROWS_PER_FILE", MOST)
    land(zone, 1, range(9 * MOST + MOST // 2))
    zone.apply()
    assert sizes(zone) == [MOST] * 9 + [MOST // 2]
    assert zone.rows("t") == rows(sum(sizes(zone)))


def test_so_does_a_large_text(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "ROWS_PER_FILE", MOST)
    monkeypatch.setattr(append, "ROWS_PER_FILE", MOST)
    text = "id\n" + "".join(f"{n}\n" for n in range(9 * MOST + MOST // 2))
    (zone.folder("t") / f"{1:020d}.csv").write_text(text)
    zone.apply()
    assert sizes(zone) == [MOST] * 9 + [MOST // 2]
