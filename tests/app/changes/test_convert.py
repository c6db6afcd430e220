"""A landing zone is converted to event files and back: the same tables, whatever dies."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import Mirror, Project, config
from mirrorlake.app.changes.convert import ConvertedTable, convert, general_losses
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.errors import UsageError
from mirrorlake.events.paths import EventExtension
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from tests.app.zones import MARKER, Zone
from tests.apply.events.bucket import event
from tests.events.values import decoded
from tests.profiles import tries

CRASHES = [
    CrashPoint.EVENTS_ASSIGNED,
    CrashPoint.EVENTS_WRITTEN_ONE,
    CrashPoint.SUBSCRIPTION_READ,
    CrashPoint.SUBSCRIPTION_STORED,
    CrashPoint.BATCH_PUBLISHED_ONE,
    CrashPoint.BATCH_RECORDED,
]


class Died(Exception):
    pass


def dying(point: CrashPoint | None, times: int) -> CrashHook:
    left = [times]

    def reached(now: CrashPoint) -> None:
        left[0] -= now is point
        if not left[0]:
            raise Died

    return reached


class Places:
    """A landing zone with its tables, a bucket, and a second zone that is made of the bucket."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = Zone(folder / "first"), Zone(folder / "second")
        self.bucket = folder / "bucket"
        file = folder / "events.yaml"
        file.write_text("name: t\nroot: ./tables\nsource: {type: events, url: ./bucket}\n")
        self.project = config.load(file)

    def there(self, reached: CrashHook = no_crash, **options: Any) -> list[ConvertedTable]:
        """Zone to events. Its tables are applied without a JVM."""
        self.first.apply()
        with Mirror(Project.of_root(self.first.root)) as mirror:
            return list(convert(mirror, self.bucket, reached=reached, **options))

    def back(self, reached: CrashHook = no_crash) -> list[ConvertedTable]:
        """Events to the other zone."""
        with Mirror(self.project) as mirror:
            return list(convert(mirror, self.second.root, reached=reached))

    def events(self) -> list[dict[str, Any]]:
        files = sorted(path for path in self.bucket.rglob("*") if path.is_file())
        return [one for file in files for one in decoded(file.read_bytes())]


def columns(rows: list[tuple[int, int, str | None]]) -> dict[str, Any]:
    """Rows of a landed file: marker, key, value, of which the other columns are made."""
    markers, keys, values = zip(*rows, strict=True)
    moments = [datetime(2026, 1, 2, 3, 4, 5, key, tzinfo=UTC) for key in keys]
    return {
        "id": pa.array(keys, pa.int64()),
        "v": pa.array(values, pa.string()),
        "d": pa.array([Decimal(key) / 100 for key in keys], pa.decimal128(20, 4)),
        "f": pa.array([key / 3 for key in keys], pa.float64()),
        "b": pa.array([None if v is None else v.encode() for v in values], pa.binary()),
        "ok": pa.array([v == "x" for v in values], pa.bool_()),
        "day": pa.array([date(2026, 1, 1 + key) for key in keys], pa.date32()),
        "at": pa.array(moments, pa.timestamp("us", "UTC")),
        MARKER: pa.array(markers, pa.int32()),
    }


@given(st.data())
@settings(max_examples=tries(10, long=300), deadline=None)
def test_a_zone_as_events_and_back_is_the_same_table_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    places, live = Places(tmp_path_factory.mktemp("convert")), set[int]()
    places.first.table("t", "id")
    number = 0
    for _round in range(data.draw(st.integers(1, 3))):
        for _file in range(data.draw(st.integers(0, 2))):
            rows = []
            for key in data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)):
                marker = data.draw(st.sampled_from([1, 2, 4])) if key in live else 0
                (live.discard if marker == 2 else live.add)(key)
                rows.append((marker, key, data.draw(st.sampled_from([None, "", "x", "ÿ"]))))
            places.first.land("t", number := number + 1, columns(rows))
            places.first.apply()  # a commit for each file
        for step in (places.there, places.back):
            point = data.draw(st.none() | st.sampled_from(CRASHES))
            with suppress(Died):
                step(dying(point, data.draw(st.integers(1, 3))))
    places.there()
    before = places.events()
    assert not any(one.commits or one.snapshot for one in places.there())
    assert places.events() == before
    if number:
        places.back()
        places.second.apply()
        assert places.second.rows("t") == places.first.rows("t")
        assert not any(one.commits or one.snapshot for one in places.back())


def test_what_events_cannot_carry_is_listed(tmp_path: Path) -> None:
    places = Places(tmp_path)
    for name, key in (("t", ["id"]), ("none", [])):
        places.first.table(name, *key)
        places.first.land(name, 1, {"id": [1.5], "small": pa.array([1], pa.int16())})
    found = {one.table: one for one in places.there(extension=EventExtension.JSON)}
    told = {name: {(lost.column, lost.what) for lost in one.lost} for name, one in found.items()}
    small = ("small", "short becomes INTEGER, which is read as integer")
    keyless = ("", "a table without a key: each event is read as a row")
    assert told["s.t"] == {small, ("id", "tables of events have no key of type double")}
    assert told["s.none"] == {small, keyless}
    assert [one.snapshot for one in found.values()] == [1, 1]
    files = list(places.bucket.rglob("*.jsonl"))
    said = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [one["read_method"] for one in said] == ["postgresql-backfill"] * 2
    assert len(general_losses(Project.of_root(places.first.root))) == 2


def test_a_table_without_a_key_becomes_its_events(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t")
    places.first.land("t", 1, {"v": ["a"]})
    places.there()
    places.first.land("t", 2, {"v": ["b"]})
    (done,) = places.there()
    assert (done.commits, done.changes) == (1, 1)
    assert sorted(one["payload"]["v"] for one in places.events()) == ["a", "b"]
    (done,) = places.back()
    assert not done.error
    places.second.apply()
    rows = places.second.rows("t")
    # With what is told of each event, of which whether it deletes is the last.
    assert sorted((row[0], row[-1]) for row in rows) == [("a", False), ("b", False)]


@pytest.mark.parametrize("is_changed", [False, True])
def test_no_row_without_a_key_is_written_twice_after_a_kill(
    tmp_path: Path, *, is_changed: bool
) -> None:
    places = Places(tmp_path)
    places.first.table("t")
    places.first.land("t", 1, {"v": ["a"]})
    with pytest.raises(Died):
        places.there(dying(CrashPoint.EVENTS_WRITTEN_ONE, 1))
    if is_changed:
        places.first.land("t", 2, {"v": ["b"]})
    (done,) = places.there()
    assert (done.error, done.snapshot, done.commits) == (None, 1, is_changed)
    found = sorted(one["payload"]["v"] for one in places.events())
    assert found == (["a", "b"] if is_changed else ["a"])


def test_rows_without_a_key_that_are_no_longer_kept_are_not_written_twice(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t")
    places.first.land("t", 1, {"v": ["a"]})
    with pytest.raises(Died):
        places.there(dying(CrashPoint.EVENTS_WRITTEN_ONE, 1))
    (record,) = (places.first.root / "Files/Mirrorlake/converted").iterdir()
    kept = json.loads(record.read_text())
    version, _, table = kept["position"].partition("@")
    record.write_text(json.dumps({**kept, "position": f"{int(version) + 7}@{table}"}))
    (done,) = places.there()
    assert [one["payload"]["v"] for one in places.events()] == ["a"]
    assert done.error is not None
    assert "no key" in done.error["message"]
    assert str(record) in done.error["hint"]


@pytest.mark.clause("ST-040")
def test_no_two_events_have_one_uuid_whatever_dies(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t", "id")
    for number in (1, 2):
        places.first.land("t", number, {"id": [number]})
        with pytest.raises(Died):
            places.there(dying(CrashPoint.EVENTS_WRITTEN_ONE, 1))
    places.there()
    found = places.events()
    assert {one["source_metadata"]["change_type"] for one in found} == {"INSERT"}
    assert {one["read_method"] for one in found} == {"postgresql-backfill", "postgres-cdc-wal"}
    assert len({one["uuid"] for one in found}) == len(found)


def test_a_table_is_not_written_in_two_formats(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t", "id")
    places.first.land("t", 1, {"id": [1]})
    places.there(extension=EventExtension.JSON)
    (done,) = places.there(extension=EventExtension.AVRO)
    assert done.error is not None
    assert "as .jsonl files before" in done.error["message"]


def test_one_process_writes_a_table(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t", "id")
    places.first.land("t", 1, {"id": [1]})
    found: list[ConvertedTable] = []

    def reached(point: CrashPoint) -> None:
        if point is CrashPoint.EVENTS_ASSIGNED:
            found.extend(places.there())

    (first,) = places.there(reached)
    assert (first.error, first.snapshot) == (None, 1)
    (second,) = found
    assert second.error is not None
    assert second.error["code"] == "lease_held"


def test_a_damaged_table_does_not_stop_the_others(tmp_path: Path) -> None:
    places = Places(tmp_path)
    for name in ("a", "b"):
        places.first.table(name, "id")
        places.first.land(name, 1, {"id": [1]})
    places.there()
    log = places.first.root / "Tables/s/a/_delta_log" / f"{0:020d}.json"
    log.write_text("{")
    places.first.land("b", 2, {"id": [2]})
    found = {one.table: one for one in places.there()}
    assert found["s.a"].error is not None
    assert (found["s.b"].error, found["s.b"].commits) == (None, 1)


def test_names_with_dots_stay_apart(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("a.b", "id")
    places.first.land("a.b", 1, {"id": [1]})
    places.there()
    (written,) = places.events()
    metadata = written["source_metadata"]
    assert (metadata["schema"], metadata["table"]) == ("s", "a.b")


def test_what_a_zone_cannot_carry_is_listed(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.bucket.mkdir()
    lines = [event(1, {"id": 1, "t": {"a": 1}}), event(2, {"id": 2}, "UNKNOWN")]
    (places.bucket / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    (done,) = places.back()
    assert (done.snapshot, done.changes) == (0, 1)
    assert {(one.column, one.what) for one in done.lost} == {
        ("datastream_metadata", "uuid and time of the event of each row"),
        ("t", "JSON becomes string"),
    }
    assert "1 events that could not be applied" in general_losses(places.project)[-1]
    assert done.facts()["not_carried"]


def test_a_target_within_the_root_or_around_it_is_refused(tmp_path: Path) -> None:
    places = Places(tmp_path)
    for target in (places.first.root, places.first.root / "Files/x", tmp_path):
        with Mirror(Project.of_root(places.first.root)) as mirror, pytest.raises(UsageError):
            list(convert(mirror, target))


def test_a_target_among_event_files_that_are_there_is_refused(tmp_path: Path) -> None:
    places = Places(tmp_path)
    bucket = places.bucket
    written = EventsSettings("t", bucket, "stream")
    lands = replace(Project.of_root(places.first.root), destinations=(written,))
    for project, targets in (
        (places.project, [bucket, str(bucket / "x/.."), bucket / "zone"]),
        (lands, [bucket, bucket / "stream", bucket / "stream/x"]),
    ):
        for target in targets:
            with Mirror(project) as mirror, pytest.raises(UsageError, match="event files"):
                list(convert(mirror, target))
    with Mirror(lands) as mirror:
        assert not list(convert(mirror, bucket / "other"))


@pytest.mark.parametrize("extension", EventExtension)
def test_values_and_names_of_every_kind_come_back(
    tmp_path: Path, extension: EventExtension
) -> None:
    places = Places(tmp_path)
    moments = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
    landed = {
        "id": ["a'b", ""],
        "1x y": pa.array([float("nan"), float("-inf")]),
        "uuid": pa.array([b"\x00\xff", None]),
        "payload": pa.array([2**63 - 1, -(2**63)]),
        "at": pa.array(moments, pa.timestamp("us")),
        "n": pa.array([Decimal("9" * 38), None], pa.decimal128(38, 0)),
    }
    places.first.table("T t~%", "id")
    places.first.land("T t~%", 1, landed)
    (done,) = places.there(extension=extension)
    assert [(one.column, one.what) for one in done.lost] == [
        ("1x y", "it is _1x_y in a table that is made of the events")
    ]
    places.back()
    places.second.apply()
    assert repr(places.second.rows("T t~%")) == repr(places.first.rows("T t~%"))


def test_a_table_that_cannot_be_continued_says_what_to_delete(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.first.table("t", "id")
    places.first.land("t", 1, {"id": [1]})
    places.there()
    shutil.rmtree(places.first.root / "Tables")
    shutil.rmtree(places.first.root / "Files/Mirrorlake/tables", ignore_errors=True)
    places.first.apply()
    (done,) = places.there()
    assert done.error is not None
    (record,) = (places.first.root / "Files/Mirrorlake/converted").iterdir()
    assert str(record) in done.error["hint"]
    record.unlink()
    shutil.rmtree(places.bucket)
    (done,) = places.there()
    assert (done.error, done.snapshot) == (None, 1)


def test_tables_that_are_stopped_are_listed(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.bucket.mkdir()
    stopped, other = event(1, {"id": 1, "a b": 1, "a-b": 1}), event(2, {"id": 2}, table="others")
    (places.bucket / "a.jsonl").write_text(json.dumps(stopped))
    (places.bucket / "b.jsonl").write_text(json.dumps(other))
    found = {one.table: one for one in places.back()}
    assert found["public.others"].error is None
    error = found["public.orders"].error
    assert error is not None
    assert error["code"] == "event_table_error"


def test_rows_that_are_marked_as_deleted_become_deletions(tmp_path: Path) -> None:
    places = Places(tmp_path)
    file = tmp_path / "zone.yaml"
    file.write_text("name: z\nroot: ./first\nmirror: {deletes: soft}\n")
    places.first.settings = MirrorSettings(soft_deletes=True)
    places.first.table("t", "id")
    for number, rows in enumerate([[(0, 1), (0, 2), (0, 3)], [(2, 2)], [(2, 3), (0, 2)]], start=1):
        markers, keys = zip(*rows, strict=True)
        landed = {"id": pa.array(keys), MARKER: pa.array(markers, pa.int32())}
        places.first.land("t", number, landed)
        places.first.apply()
        with Mirror(config.load(file)) as mirror:
            (done,) = convert(mirror, places.bucket)
        assert done.error is None
    places.back()
    places.second.apply()
    assert places.second.rows("t") == [(1,), (2,)]
