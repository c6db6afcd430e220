"""Event files of a landing zone have every landed change of a key, in order."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import Mirror, Project, config
from mirrorlake.app.changes.convert import ConvertedTable, convert
from mirrorlake.landing.parquet.unchanged import packed
from mirrorlake.landing.scan import Scanner
from mirrorlake.model.change import (
    ROW_COMMIT_TIME,
    ROW_POSITION,
    ROW_TRANSACTION,
    UNCHANGED_COLUMN,
)
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk, FileKind, Footer
from tests.app.changes.test_convert import CRASHES, Died, dying
from tests.app.zones import MARKER, Zone
from tests.events.values import decoded
from tests.profiles import tries

Landed = tuple[int, int, str | None]
"""Marker, key, value."""
Shown = tuple[str, int, str | None]
"""Change type, key, value."""


class Converted:
    """A table of a landing zone, and a bucket."""

    def __init__(self, folder: Path) -> None:
        self.zone, self.bucket = Zone(folder / "zone"), folder / "bucket"
        self.zone.table("t", "id")
        self.number = 0

    def land(self, *rows: Landed, **more: Any) -> Path:
        self.number += 1
        markers, keys, values = zip(*rows, strict=True)
        columns = {
            "id": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.string()),
            **more,
            MARKER: pa.array(markers, pa.int32()),
        }
        return self.zone.land("t", self.number, columns)

    def convert(
        self, reached: CrashHook = no_crash, project: Project | None = None
    ) -> ConvertedTable:
        assert not self.zone.apply().errors
        with Mirror(project or Project.of_root(self.zone.root)) as mirror:
            found = list(convert(mirror, self.bucket, reached=reached))
        assert len(found) == min(self.number, 1)
        return found[0] if found else ConvertedTable("s.t")

    def written(self) -> list[dict[str, Any]]:
        files = [path for path in self.bucket.rglob("*") if path.is_file()]
        return [one for file in files for one in decoded(file.read_bytes())]

    def events(self) -> list[dict[str, Any]]:
        """Of changes, in their order."""
        changes = [one for one in self.written() if one["read_method"] == "postgres-cdc-wal"]
        return sorted(changes, key=lambda one: place(one["source_metadata"]["lsn"]))

    def loaded(self) -> int:
        """How many rows were written before the changes."""
        return len(self.written()) - len(self.events())

    def shown(self) -> list[Shown]:
        return [
            (one["source_metadata"]["change_type"], one["payload"]["id"], one["payload"]["v"])
            for one in self.events()
        ]


def place(lsn: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in lsn.split("/"))


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    found = Converted(tmp_path)
    found.land((0, 1, "a"), (0, 2, "b"))
    assert found.convert().snapshot == 2
    return found


EVERY: list[Shown] = [
    ("UPDATE", 1, "a2"),
    ("UPDATE", 1, "a3"),
    ("INSERT", 3, "c"),
    ("UPDATE", 3, "c2"),
    ("DELETE", 2, "b"),
    ("INSERT", 2, "new"),
    ("DELETE", 3, "c2"),
]


def several(converted: Converted) -> None:
    converted.land((1, 1, "a2"), (1, 1, "a3"), (0, 3, "c"))
    converted.land((4, 3, "c2"), (2, 2, None), (4, 2, "new"), (2, 3, None))


def test_each_change_of_a_key_in_one_commit_is_an_event(converted: Converted) -> None:
    several(converted)
    done = converted.convert()
    assert (done.commits, done.changes, done.lost) == (1, len(EVERY), ())
    assert converted.shown() == EVERY


def test_a_commit_whose_changes_cancel_out_is_carried(converted: Converted) -> None:
    converted.land((0, 3, "c"), (2, 3, None))
    done = converted.convert()
    assert (done.commits, done.changes) == (1, 2)
    assert converted.shown() == [("INSERT", 3, "c"), ("DELETE", 3, "c")]
    assert converted.convert().commits == 0


def test_values_that_were_not_sent_are_those_of_the_row_before(converted: Converted) -> None:
    masks = [None, *(packed(np.array([[False, True, False]])).to_pylist() * 2)]
    more = {"w": pa.array(["x", "y", "z"]), UNCHANGED_COLUMN: pa.array(masks, pa.binary())}
    converted.land((1, 1, "a2"), (1, 1, None), (1, 2, None), **more)
    assert not converted.convert().error
    found = [
        (one["payload"]["id"], one["payload"]["v"], one["payload"]["w"])
        for one in converted.events()
    ]
    assert found == [(1, "a2", "x"), (1, "a2", "y"), (2, "b", "z")]


def test_transactions_and_times_are_those_of_the_metadata_columns(converted: Converted) -> None:
    moments = [datetime(2030, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2, 1)]
    more = {
        ROW_POSITION: pa.array(["1/1:1", "1/2:1", "1/3:1"]),
        ROW_TRANSACTION: pa.array(["700", "701", None]),
        ROW_COMMIT_TIME: pa.array(moments, pa.timestamp("us", "UTC")),
    }
    converted.land((1, 1, "a2"), (2, 2, None), (0, 3, "c"), **more)
    assert not converted.convert().error
    found = [
        (one["source_metadata"]["tx_id"], one["source_timestamp"]) for one in converted.events()
    ]
    version = converted.events()[2]["source_metadata"]["tx_id"]
    # The order of events is that of their times, which do not go back.
    assert [tx for tx, _time in found] == ["700", "701", version]
    seconds = [moment.timestamp() for moment in moments]
    assert [time / 1_000 for _tx, time in found] == [seconds[0], seconds[1], seconds[1]]


def test_without_the_landed_files_the_net_changes_are_written_and_it_is_told(
    converted: Converted,
) -> None:
    several(converted)
    converted.zone.apply()
    for file in converted.zone.folder("t").rglob("*.parquet"):
        file.unlink()
    done = converted.convert()
    assert converted.shown() == [("UPDATE", 1, "a3"), ("UPDATE", 2, "new")]
    (lost,) = done.lost
    assert lost.what == "earlier changes of keys, or their transactions, in 1 commits"


def test_net_changes_follow_what_an_attempt_with_all_files_has_written(
    converted: Converted,
) -> None:
    several(converted)
    with pytest.raises(Died):
        converted.convert(dying(CrashPoint.EVENTS_WRITTEN_ONE, 1))
    written = converted.events()
    converted.zone.apply()
    for file in converted.zone.folder("t").rglob("*.parquet"):
        file.unlink()
    converted.convert()
    last, first = written[-1], converted.events()[0]
    assert place(first["source_metadata"]["lsn"]) > place(last["source_metadata"]["lsn"])
    assert first["source_timestamp"] >= last["source_timestamp"]
    assert not {one["uuid"] for one in converted.events()} & {one["uuid"] for one in written}


def truncate(converted: Converted) -> None:
    converted.number += 1
    footer = Footer("s", FileKind.TRUNCATE, "0/1", "0/1", complete=True)
    path = converted.zone.folder("t") / f"{converted.number:020d}.parquet"
    empty = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    pq.write_table(empty.replace_schema_metadata(footer.encode()), path)


def test_a_truncation_becomes_deletions(converted: Converted) -> None:
    truncate(converted)
    converted.zone.apply()
    done = converted.convert()
    assert (done.changes, done.lost) == (2, ())
    assert sorted(converted.shown()) == [("DELETE", 1, "a"), ("DELETE", 2, "b")]


def test_a_zone_that_was_never_applied_is_carried_as_a_whole(tmp_path: Path) -> None:
    converted = Converted(tmp_path)
    converted.land((0, 1, "a"), (1, 1, "b"))
    converted.land((2, 1, None), (0, 2, "c"))
    done = converted.convert()
    assert (done.snapshot, done.commits, done.changes) == (0, 1, 4)
    assert converted.shown() == [
        ("INSERT", 1, "a"),
        ("UPDATE", 1, "b"),
        ("DELETE", 1, "b"),
        ("INSERT", 2, "c"),
    ]


def test_the_changes_of_earlier_commits_are_carried(tmp_path: Path) -> None:
    converted = Converted(tmp_path)
    for rows in ([(0, 1, "a")], [(1, 1, "b"), (1, 1, "c")], [(2, 1, None)]):
        converted.land(*rows)
        converted.zone.apply()
    done = converted.convert()
    assert (done.snapshot, done.commits, done.changes) == (1, 2, 3)
    assert converted.shown() == [("UPDATE", 1, "b"), ("UPDATE", 1, "c"), ("DELETE", 1, "c")]


def test_what_is_older_than_the_landed_files_comes_with_the_rows(tmp_path: Path) -> None:
    converted = Converted(tmp_path)
    for rows in ([(0, 1, "a")], [(1, 1, "b"), (1, 1, "c")], [(1, 1, "d"), (1, 1, "e")]):
        path = converted.land(*rows)
        converted.zone.apply()
        if converted.number == 2:
            path.unlink()
    done = converted.convert()
    assert (done.snapshot, done.commits, done.lost) == (1, 1, ())
    assert converted.shown() == [("UPDATE", 1, "d"), ("UPDATE", 1, "e")]


def test_a_column_that_is_added_meanwhile_is_carried(converted: Converted) -> None:
    converted.land((1, 1, "a2"), (1, 1, "a3"))
    converted.zone.apply()
    converted.land((1, 1, "a4"), w=pa.array([5], pa.int64()))
    done = converted.convert()
    assert (done.error, done.commits, done.changes) == (None, 2, 3)
    assert [one["payload"].get("w") for one in converted.events()] == [None, None, 5]


def test_a_file_that_was_moved_after_the_look_is_read(converted: Converted) -> None:
    several(converted)
    folder = converted.zone.folder("t")

    def moving(point: CrashPoint) -> None:
        if point is CrashPoint.SUBSCRIPTION_READ:
            (folder / "_FilesReadyToDelete").mkdir(exist_ok=True)
            for file in folder.glob("*.parquet"):
                file.rename(folder / "_FilesReadyToDelete" / file.name)

    done = converted.convert(moving)
    assert (done.error, done.lost) == (None, ())
    assert converted.shown() == EVERY


def test_a_table_whose_files_were_removed_early_begins_with_its_present_rows(
    tmp_path: Path,
) -> None:
    converted = Converted(tmp_path)
    for rows in ([(0, 1, "a"), (0, 2, "b")], [(1, 1, "c")], [(2, 2, None)]):
        converted.land(*rows)
        converted.zone.apply()
    table = converted.zone.root / "Tables/s/t"
    for file in (table / "_change_data").glob("*"):
        file.unlink()
    done = converted.convert()
    assert (done.error, done.snapshot, done.commits) == (None, 1, 0)


def test_what_is_read_first_is_held_from_the_beginning(tmp_path: Path) -> None:
    converted, held = Converted(tmp_path), list[str]()
    converted.land((0, 1, "a"))

    def reached(point: CrashPoint) -> None:
        if point is CrashPoint.EVENTS_ASSIGNED:
            folder = converted.zone.root / "Files/Mirrorlake"
            held.extend(str(found) for found in folder.rglob("*event*files*"))

    assert converted.convert(reached).snapshot == 1
    assert held


def test_changes_before_a_truncation_in_one_commit_are_told(converted: Converted) -> None:
    converted.land((1, 1, "a2"), (1, 1, "a3"), (0, 5, "e"))
    truncate(converted)
    converted.land((0, 3, "c"))
    done = converted.convert()
    assert [one.what for one in done.lost] == [
        "earlier changes of keys, or their transactions, in 1 commits"
    ]
    last = {key: kind for kind, key, _value in converted.shown()}
    assert last == {1: "DELETE", 2: "DELETE", 3: "INSERT"}


def test_changes_without_effect_that_the_feed_leaves_out_are_told(tmp_path: Path) -> None:
    converted = Converted(tmp_path)
    file = tmp_path / "zone.yaml"
    file.write_text("name: z\nroot: ./zone\nmirror: {tables: {s.t: {suppress_unchanged: true}}}\n")
    project = config.load(file)
    converted.zone.settings = project.mirror
    converted.land((0, 1, "a"), (0, 2, "b"))
    converted.convert(project=project)
    converted.land((1, 1, "a"), (1, 2, "c"))
    done = converted.convert(project=project)
    assert (done.changes, len(done.lost)) == (1, 1)
    assert converted.shown() == [("UPDATE", 2, "c")]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_backfill_is_the_changes_that_it_makes(converted: Converted, *, is_gone: bool) -> None:
    chunk = BackfillChunk("one", 1, KeyRange())
    footer = Footer("s", FileKind.BACKFILL, "0/1", "0/1", complete=True, backfill=chunk)
    path = converted.land((4, 1, "a"), (4, 2, "other"))
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata(footer.encode()), path)
    converted.zone.apply()
    if is_gone:
        for file in converted.zone.folder("t").rglob("*.parquet"):
            file.unlink()
    done = converted.convert()
    assert (done.changes, done.lost) == (1, ())
    assert converted.shown() == [("UPDATE", 2, "other")]


def test_commits_whose_files_are_gone_cause_no_scans(
    converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        path = converted.land((1, 1, f"x{number}"), (1, 1, f"y{number}"))
        converted.zone.apply()
        path.unlink()
    scans: list[str] = []
    scan, one = Scanner.scan, Scanner.scan_table
    monkeypatch.setattr(Scanner, "scan", lambda self: scans.append("zone") or scan(self))
    monkeypatch.setattr(
        Scanner, "scan_table", lambda self, folder: scans.append("table") or one(self, folder)
    )
    done = converted.convert()
    assert done.commits == 20
    assert scans.count("table") <= 2
    assert scans.count("zone") < 10


@given(st.data())
@settings(max_examples=tries(15, long=300), deadline=None)
def test_every_landed_change_is_carried_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    converted, rows = Converted(tmp_path_factory.mktemp("convert")), dict[int, str | None]()
    expected: list[Shown] = []
    if data.draw(st.booleans()):
        converted.land((0, 0, "first"))
        converted.convert()
        expected.append(("INSERT", 0, "first"))
    is_late = data.draw(st.booleans())
    for _round in range(data.draw(st.integers(1, 3))):
        for _file in range(data.draw(st.integers(0, 3))):
            landed: list[Landed] = []
            for key in data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)):
                value = data.draw(st.sampled_from([None, "x", "y"]))
                marker = data.draw(st.sampled_from([1, 2, 4])) if key in rows else 0
                landed.append((marker, key, value))
                if marker == 2:
                    expected.append(("DELETE", key, rows.pop(key)))
                else:
                    expected.append(("UPDATE" if key in rows else "INSERT", key, value))
                    rows[key] = value
            converted.land(*landed)
        if is_late:
            converted.zone.apply()
            continue
        with suppress(Died):
            converted.convert(dying(data.draw(st.none() | st.sampled_from(CRASHES)), 1))
    converted.convert()
    # The first commit is written as rows if it has each key once.
    assert converted.shown() == expected[converted.loaded() :]
