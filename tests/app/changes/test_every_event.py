"""A landing zone that is made of events has every change of a key, in order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import Mirror, config
from mirrorlake.app.changes.convert import ConvertedTable, convert
from mirrorlake.apply.events.batches import divided
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from tests.app.changes.test_convert import CRASHES, Died, dying
from tests.app.zones import MARKER, Zone
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.drawn_files import line, rows_of
from tests.apply.events.drawn_files import settings as drawn_settings
from tests.delta.handmade import HandmadeTable
from tests.mirror.event_order.drawn import SOURCES, arrivals
from tests.profiles import some, tries

Change = tuple[str, int, str | None]
"""Change type, key, value."""

POINTS = [*CRASHES, CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED]


class Converted:
    """A bucket with events of one table, and a landing zone that is made of it."""

    def __init__(self, folder: Path) -> None:
        self.bucket, self.zone = Bucket(folder), Zone(folder / "zone")
        file = folder / "events.yaml"
        file.write_text("name: t\nroot: ./tables\nsource: {type: events, url: ./bucket}\n")
        self.project = config.load(file)
        self.number, self.files = 0, 0

    def events(self, *changes: Change) -> list[dict[str, Any]]:
        found = []
        for change, key, value in changes:
            self.number += 1
            found.append(event(self.number, {"id": key, "v": value}, change, schema="s"))
        return found

    def put(self, *events: dict[str, Any]) -> None:
        self.files += 1
        self.bucket.put(f"{self.files}.jsonl", *events)

    def convert(self, reached: CrashHook = no_crash) -> ConvertedTable | None:
        with Mirror(self.project, reached=reached) as mirror:
            found = list(convert(mirror, self.zone.root, reached=reached))
        assert len(found) < 2
        return found[0] if found else None

    def run(self) -> None:
        """Apply what is there without converting it."""
        with Mirror(self.project) as mirror:
            mirror.apply_once()

    def landed(self) -> list[tuple[int, int, str | None]]:
        """The landed rows in their order: marker, key, value."""
        folder = self.zone.root / "Files/LandingZone/s.schema/orders"
        rows = [row for file in _numbered(folder) for row in pq.read_table(file).to_pylist()]
        return [(row[MARKER], row["id"], row["v"]) for row in rows]

    def table(self) -> list[tuple[int, str | None]]:
        """The rows of the table of events."""
        rows = rows_of(self.project.root / "Tables/s/orders")
        return sorted((row["id"], row["v"]) for row in rows)

    def kept(self) -> list[Path]:
        return list((self.project.root / "Files/Mirrorlake/events").rglob("changes/*.parquet"))


def _numbered(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob("*.parquet")))


def test_each_change_of_a_key_is_landed_in_order(tmp_path: Path) -> None:
    one = Converted(tmp_path)
    first = one.events(("INSERT", 1, "a"), ("INSERT", 2, "x"), ("UPDATE", 1, "b"))
    one.put(*first[::-1], *first)
    done = one.convert()
    assert done is not None
    assert (done.snapshot, done.commits, done.changes) == (0, 1, 3)
    assert one.landed() == [(0, 2, "x"), (0, 1, "a"), (1, 1, "b")]
    one.put(*one.events(("UPDATE", 1, "c"), ("DELETE", 1, None), ("INSERT", 1, "d")))
    one.put(*one.events(("INSERT", 3, "y"), ("DELETE", 3, None)), *first)
    done = one.convert()
    assert done is not None
    assert not [lost for lost in done.lost if "commits" in lost.what]
    assert sorted(one.landed()[3:], key=lambda row: row[1]) == [
        (1, 1, "c"),
        (2, 1, None),
        (0, 1, "d"),
        (0, 3, "y"),
        (2, 3, None),
    ]
    one.zone.apply()
    assert one.zone.rows("orders") == [(1, "d"), (2, "x")]


@pytest.mark.clause("ST-230")
@pytest.mark.parametrize("is_late", [False, True])
def test_a_deletion_that_names_the_row_alone_is_landed_with_its_key(
    tmp_path: Path, is_late: bool
) -> None:
    one = Converted(tmp_path)
    one.project = replace(one.project, events=drawn_settings("oracle", one.bucket.folder))
    row = {"tx_id": "t", "row_id": "R", "backfill": False, "uuid": None, "rs_id": "0x1.1.1"}
    row |= {"ssn": 1, "source_timestamp": 1, "read_timestamp": 1, "sort_keys": None}
    inserted = {**row, "scn": 1, "key": 2, "payload": 8, "deletion": False}
    deleted = {**row, "scn": 2, "key": None, "payload": 0, "deletion": True}
    again = {**row, "scn": 3, "key": 2, "payload": 9, "deletion": False, "row_id": "S"}
    parts = [[deleted], [inserted, again]] if is_late else [[inserted, deleted, again]]
    for number, part in enumerate(parts):
        one.bucket.put(f"{number}.jsonl", *(line("oracle", each) for each in part), minute="")
        one.convert()
    folder = one.zone.root / "Files/LandingZone/shop.schema/orders"
    landed = [row for file in _numbered(folder) for row in pq.read_table(file).to_pylist()]
    assert [(row[MARKER], row["id"]) for row in landed] == [(0, 2), (2, 2), (0, 2)]
    assert [row["v"] for row in landed][::2] == [8, 9]


def test_changes_that_came_before_are_not_landed_again(tmp_path: Path) -> None:
    """Those that arrive after a later one of their key, and copies."""
    one = Converted(tmp_path)
    early = one.events(("INSERT", 1, "a"), ("UPDATE", 1, "b"))
    one.put(*one.events(("UPDATE", 1, "c")))
    one.convert()
    one.put(*early, *one.events(("UPDATE", 1, "d")), *early)
    one.convert()
    assert one.landed() == [(0, 1, "c"), (1, 1, "d")]


def test_the_files_of_a_minute_are_applied_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "BATCH_FILES", 2)
    one = Converted(tmp_path)
    events = one.events(*(("UPDATE", 1, str(number)) for number in range(9)))
    for minute, part in (("05", events[:5]), ("06", events[5:])):
        for name, each in enumerate(reversed(part)):
            one.bucket.put(f"{name}.jsonl", each, minute=f"2026/11/20/10/{minute}")
    done = one.convert()
    assert done is not None
    assert done.commits == 2
    assert [value for _marker, _key, value in one.landed()] == [str(n) for n in range(9)]


def test_commits_of_another_command_have_the_net_change(tmp_path: Path) -> None:
    one = Converted(tmp_path)
    one.put(*one.events(("INSERT", 1, "a"), ("UPDATE", 1, "b")))
    one.run()
    one.put(*one.events(("UPDATE", 1, "c"), ("UPDATE", 1, "d")))
    done = one.convert()
    assert done is not None
    assert (done.snapshot, done.commits) == (1, 1)  # the rows of the last version without
    assert one.landed() == [(4, 1, "b"), (1, 1, "c"), (1, 1, "d")]
    assert not [lost for lost in done.lost if "commits" in lost.what]
    assert "earlier changes up to version 0, whose rows come first" in {
        lost.what for lost in done.lost
    }
    one.put(*one.events(("UPDATE", 1, "e"), ("UPDATE", 1, "f")))
    one.run()
    done = one.convert()
    assert done is not None
    assert one.landed()[3:] == [(1, 1, "f")]
    assert "earlier changes of keys, if any, in 1 commits of another command" in {
        lost.what for lost in done.lost
    }


def test_what_is_kept_is_removed_with_the_other_files_of_its_commit(tmp_path: Path) -> None:
    one = Converted(tmp_path)
    for value in ("a", "b"):
        one.put(*one.events(("INSERT", 1, value), ("DELETE", 1, None)))
        one.convert()
    old, new = sorted(one.kept(), key=lambda path: path.stat().st_mtime)
    long_ago = time.time() - 15 * 86_400
    os.utime(old, (long_ago, long_ago))
    one.convert()
    assert one.kept() == [new]


def test_a_file_of_stored_changes_that_is_gone_costs_only_these(tmp_path: Path) -> None:
    one = Converted(tmp_path)
    one.put(*one.events(("INSERT", 1, "a")))
    one.convert()
    with suppress(Died):
        one.put(*one.events(("UPDATE", 1, "b"), ("UPDATE", 1, "c")))
        one.convert(dying(CrashPoint.EVENTS_COMMITTED, 1))
    for path in one.kept():
        path.write_bytes(b"damaged")
    done = one.convert()
    assert done is not None
    assert one.landed() == [(0, 1, "a"), (1, 1, "c")]
    assert [lost.what for lost in done.lost if "1 commits" in lost.what]


@pytest.mark.parametrize("source", some(SOURCES, 2))
@settings(max_examples=tries(20, quick=3, long=300), deadline=None)
@given(data=st.data())
def test_a_mirror_of_the_zone_has_the_rows_of_the_table_of_each_source(
    tmp_path_factory: pytest.TempPathFactory, source: str, data: st.DataObject
) -> None:
    """Also of deletions that name the row alone, and of backfills."""
    one = Converted(tmp_path_factory.mktemp(source))
    one.project = replace(one.project, events=drawn_settings(source, one.bucket.folder))
    _events, batches = data.draw(arrivals(source))
    mirror = Zone(one.zone.root)
    for number, batch in enumerate(filter(None, batches)):
        one.bucket.put(f"{number}.jsonl", *(line(source, event) for event in batch), minute="")
        one.convert()
        mirror.apply()
        found = HandmadeTable(mirror.root / "Tables/shop/orders")
        rows = found.rows() if found.location.exists() else []
        expected = rows_of(one.project.root / "Tables/shop/orders")
        assert sorted(rows) == sorted((row["id"], row["v"]) for row in expected)


@given(st.data())
@settings(max_examples=tries(10, quick=4, long=300), deadline=None)
def test_a_mirror_of_the_zone_goes_through_every_change_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    one = Converted(tmp_path_factory.mktemp("events"))
    live: dict[int, str] = {}
    applied: list[tuple[int, str | None]] = []
    for _round in range(data.draw(st.integers(1, 3))):
        changes = list[Change]()
        for _change in range(data.draw(st.integers(1, 8))):
            key, value = data.draw(st.integers(1, 3)), str(one.number + len(changes))
            kinds = ["UPDATE", "DELETE"] if key in live else ["INSERT"]
            kind = data.draw(st.sampled_from(kinds))
            changes.append((kind, key, None if kind == "DELETE" else value))
            if kind == "DELETE":
                live.pop(key)
            else:
                live[key] = value
            applied.append((key, changes[-1][2]))
        events = one.events(*changes)
        again = data.draw(st.lists(st.sampled_from(events), max_size=4))
        arriving = data.draw(st.permutations([*events, *again]))
        cut = data.draw(st.integers(0, len(arriving)))
        for part in filter(None, (arriving[:cut], arriving[cut:])):
            one.put(*part)
        point = data.draw(st.none() | st.sampled_from(POINTS))
        with suppress(Died):
            one.convert(dying(point, data.draw(st.integers(1, 3))))
        one.convert()
    landed = [(key, None if marker == 2 else value) for marker, key, value in one.landed()]
    assert sorted(landed, key=lambda row: row[0]) == sorted(applied, key=lambda row: row[0])
    assert not any(lost.what for lost in one.convert().lost if "commits" in lost.what)
    one.zone.apply()
    assert one.zone.rows("orders") == one.table() == sorted(live.items())
