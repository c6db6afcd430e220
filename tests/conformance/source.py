"""The contract of `sources/base.py` as a suite that every source passes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from mirrorlake.errors import CannotBackfill, PrerequisiteMissing, SourceGap
from mirrorlake.model.change import Marker
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import CheckSeverity
from tests.conformance.delivery import DeliveryContract, SchemaContract
from tests.conformance.scene import (
    Event,
    Reader,
    Scene,
    begun,
    changes_now,
    established,
    events,
    included,
    keys_of,
    loaded,
    named,
    objects_of,
    prepared,
    reached,
    read_whole,
    resumed,
    streaming,
    told,
    until,
)
from tests.conformance.stream import StreamContract


class DiscoveryContract:
    """What a source says of itself and of its tables."""

    def test_tables_are_discovered_in_the_order_of_their_names(self, scene: Scene) -> None:
        scene.create("pears", "apples")
        assert [t.table.name for t in scene.source().discover()] == ["apples", "pears"]

    def test_a_table_tells_its_columns_and_its_key(self, scene: Scene) -> None:
        scene.create("apples")
        (table,) = scene.source().discover()
        assert [(c.name, str(c.type)) for c in table.schema] == [
            ("id", "integer"),
            ("note", "string"),
        ]
        assert (table.key, table.append_only) == (("id",), "")

    def test_a_table_without_a_key_is_append_only_and_says_why(self, scene: Scene) -> None:
        scene.create("log", keyed=False)
        (table,) = scene.source().discover()
        assert table.key == ()
        assert table.append_only

    def test_to_discover_nothing_is_an_error(self, scene: Scene) -> None:
        with pytest.raises(PrerequisiteMissing):
            scene.source().discover()

    def test_the_identity_is_the_same_after_a_restart(self, scene: Scene) -> None:
        assert dict(scene.source().identity()) == dict(scene.source().identity())

    def test_a_recreated_table_has_another_identity(self, scene: Scene) -> None:
        scene.create("apples")
        (before,) = scene.source().discover()
        scene.recreate("apples")
        (after,) = scene.source().discover()
        assert before.identity != after.identity

    def test_only_the_source_that_had_a_table_says_that_it_is_gone(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        (before,) = source.discover()
        scene.recreate("apples")
        (after,) = source.discover()
        both, former = [before.identity, after.identity], source.identity()
        assert {*source.gone(both, former)} == {before.identity}
        assert not source.gone(both, {**former, "type": "another"})

    def test_the_check_of_a_prepared_source_finds_no_error(self, scene: Scene) -> None:
        scene.create("apples")
        findings = scene.source().check()
        assert [f for f in findings if f.severity is CheckSeverity.ERROR] == []
        assert findings

    def test_a_point_of_the_log_is_read_as_it_was_printed(self, scene: Scene) -> None:
        source = scene.source()
        point = source.current()
        assert source.parse_point(str(point)) == point

    def test_rows_are_read_again_as_they_are_now(self, scene: Scene) -> None:
        scene.create("apples")
        (table,) = scene.source().discover()
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, None), (3, "c"))
        rows = scene.source().reread(table, keys_of([1, 2, 4]))
        assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "note": "a"},
            {"id": 2, "note": None},
        ]

    def test_rows_that_are_all_gone_are_read_again_as_none(self, scene: Scene) -> None:
        scene.create("apples")
        (table,) = scene.source().discover()
        rows = scene.source().reread(table, keys_of([1]))
        assert (rows.num_rows, rows.schema.names) == (0, ["id", "note"])


class LogContract:
    """The place in the log: found again, or lost."""

    def test_a_place_that_nothing_was_taken_from_is_resumed(self, scene: Scene) -> None:
        _, _, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        resumed(scene.source(), since)

    def test_what_the_log_has_lost_is_a_gap(self, scene: Scene) -> None:
        _, _, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.lose_place()
        with pytest.raises(SourceGap):
            resumed(scene.source(), since)

    def test_a_prepared_source_has_nothing_to_watch_for(self, scene: Scene) -> None:
        scene.create("apples")
        scene.create("log", keyed=False)
        source = scene.source()
        tables, _ = established(source)
        assert [f for f in source.watch(tables) if f.severity is CheckSeverity.ERROR] == []


class ManagedObjectsContract:
    """What is made in the server: named, found again, removed. For sources that have objects."""

    def test_nothing_stands_where_nothing_was_built(self, scene: Scene) -> None:
        scene.create("apples")
        assert objects_of(scene.source()).occupied() is None

    def test_what_stands_after_establishing_is_named(self, scene: Scene) -> None:
        prepared(scene, "apples")
        assert objects_of(scene.source()).occupied()

    def test_what_is_made_was_intended(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        intended = objects_of(source).intended()
        made = objects_of(source).establish(source.discover())
        made.snapshot.close()
        assert sorted(made.made) == sorted(intended)

    def test_establishing_again_begins_anew(self, scene: Scene) -> None:
        prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        source = scene.source()
        tables, since = established(source)
        with scene.transaction() as write:
            write.insert("apples", (2, "after"))
        assert told(changes_now(source, tables, since)) == [(Marker.INSERT, 2, "after")]

    def test_the_server_remembers_what_was_acknowledged(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        for key in (1, 2):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"))
        with streaming(source, tables, since) as reader:
            found = events(reader.read_to(source.current()))
            reader.stream.acknowledge(found[0].through)
            until(lambda: scene.acknowledged().covers(found[0].end))
        assert changes_now(scene.source(), tables, since) == found[1:]

    def test_an_idle_point_may_be_acknowledged(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        scene.write_elsewhere()
        target = source.current()
        assert not scene.acknowledged().covers(target)
        with streaming(source, tables, since) as reader:
            reader.stream.acknowledge(reached(reader.read_to(target)[-1])[-1])
            until(lambda: scene.acknowledged().covers(target))

    def test_a_source_that_forgot_more_than_the_zone_holds_is_a_gap(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        with streaming(source, tables, since) as reader:
            (event,) = events(reader.read_to(source.current()))
            reader.stream.acknowledge(event.through)
            until(lambda: scene.acknowledged().covers(event.end))
        with pytest.raises(SourceGap):
            resumed(scene.source(), since)

    def test_detaching_removes_what_was_made(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        made = objects_of(source).establish(source.discover())
        made.snapshot.close()
        assert sorted(objects_of(scene.source()).detach(made.made)) == sorted(made.made)
        assert objects_of(scene.source()).occupied() is None

    def test_detaching_leaves_what_was_not_made(self, scene: Scene) -> None:
        _, tables, since = prepared(scene, "apples")
        assert objects_of(scene.source()).detach([]) == []
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        assert len(changes_now(scene.source(), tables, since)) == 1


class HandOverContract:
    """Snapshot and stream meet without gap, and overlap only where the snapshot says so."""

    def test_the_snapshot_holds_what_was_committed_before(self, scene: Scene) -> None:
        scene.create("apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, None))
        source = scene.source()
        tables = source.discover()
        snapshot = begun(source, tables)
        assert loaded(snapshot, tables[0]) == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
        snapshot.close()

    def test_a_snapshot_waits_for_nothing_that_has_ended(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        tables = source.discover()
        begun(source, tables).close()
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        snapshot = source.snapshot_within(10)
        assert snapshot is not None
        assert loaded(snapshot, tables[0]) == [{"id": 1, "note": "a"}]
        snapshot.close()

    def test_a_snapshot_was_taken_between_what_is_in_it_and_what_is_not(self, scene: Scene) -> None:
        """By the clock that gives the times of transactions, so that both can be compared."""
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        snapshot = source.snapshot()
        with scene.transaction() as write:
            write.insert("apples", (2, "behind"))
        before, behind = (event.time for event in changes_now(source, tables, since))
        assert before is not None
        assert behind is not None
        assert before <= snapshot.taken <= behind
        snapshot.close()

    def test_the_snapshot_of_an_empty_table_has_no_rows(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        tables = source.discover()
        snapshot = begun(source, tables)
        assert loaded(snapshot, tables[0]) == []
        snapshot.close()

    def test_a_part_was_read_at_a_point_that_covers_the_snapshot_s(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        (table,) = source.discover()
        snapshot = begun(source, [table])
        with scene.transaction() as write:
            write.insert("apples", (3, "later"))
        rows, uptos = read_whole(snapshot, table)
        assert all(upto.covers(snapshot.point) for upto in uptos)
        assert not rows or any(upto != snapshot.point for upto in uptos)
        snapshot.close()

    def test_the_stream_begins_where_the_first_snapshot_ends(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        tables = source.discover()
        with scene.busy("apples") as committed:
            snapshot = begun(source, tables)
            rows, uptos = read_whole(snapshot, tables[0])
        snapshot.close()
        found = changes_now(source, tables, snapshot.point)
        assert not any(snapshot.point.covers(event.end) for event in found)
        check_joined(rows, uptos, found, committed)

    def test_changes_beyond_a_snapshot_come_apart_from_the_stream(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        snapshot = source.snapshot()
        with scene.transaction() as write:
            write.insert("apples", (2, "behind"))
            write.delete("apples", 1)
        reader = Reader(snapshot.point, lambda _point: source.beyond(snapshot, tables))
        found = reader.read_to(source.current())
        snapshot.close()
        assert told(events(found)) == [(Marker.INSERT, 2, "behind"), (Marker.DELETE, 1)]
        assert events(found) == changes_now(source, tables, since)[1:]

    def test_a_later_snapshot_holds_exactly_what_ended_at_or_before_it(self, scene: Scene) -> None:
        if not scene.admits_tables:
            pytest.skip("no table can join")
        source, _, since = prepared(scene, "apples")
        scene.create("pears")
        tables = source.discover()
        pears = named(tables, "pears")
        with scene.busy("pears") as committed:
            included(source, [pears])
            snapshot = source.snapshot()
            rows, uptos = read_whole(snapshot, pears)
        snapshot.close()
        found = changes_now(source, tables, since)
        later = [event for event in found if not snapshot.point.covers(event.end)]
        check_joined(rows, uptos, later, committed)

    def test_an_included_table_without_a_key_is_streamed(self, scene: Scene) -> None:
        if not scene.admits_tables:
            pytest.skip("no table can join")
        source, _, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        scene.create("log", keyed=False)
        tables = source.discover()
        included(source, tables)
        with scene.transaction() as write:
            write.insert("log", (7, "line"))
        found = changes_now(source, tables, since)
        assert told(found) == [(Marker.INSERT, 1, "before"), (Marker.INSERT, 7, "line")]


def check_joined(
    rows: Sequence[dict[str, Any]],
    uptos: Sequence[LogPoint],
    later: Sequence[Event],
    committed: Sequence[int],
) -> None:
    """Each key that was inserted is in the snapshot or comes later; in both, only if it was
    committed before a part of the snapshot was read."""
    loaded, streamed = [row["id"] for row in rows], [event.row["id"] for event in later]
    assert (len(set(loaded)), len(set(streamed))) == (len(loaded), len(streamed))
    assert sorted({*loaded, *streamed}) == sorted(committed)
    for event in later:
        if event.row["id"] in loaded:
            assert any(upto.covers(event.end) for upto in uptos)


class RangeContract:
    """Ranges of keys, read in the order of the keys."""

    def test_a_range_has_its_rows_in_the_order_of_their_keys(self, scene: Scene) -> None:
        scene.create("apples")
        with scene.transaction() as write:
            write.insert("apples", *((key, f"n{key}") for key in (3, 1, 10, 2, -4)))
        assert ranged(scene, KeyRange()) == [-4, 1, 2, 3, 10]
        assert ranged(scene, KeyRange(keys_of([1]), keys_of([3]))) == [2, 3]
        assert ranged(scene, KeyRange(keys_of([1]), None, is_closed=True)) == [1, 2, 3, 10]
        assert ranged(scene, KeyRange(None, keys_of([-5]))) == []

    def test_a_range_is_read_up_to_a_point_that_covers_the_snapshot_s(self, scene: Scene) -> None:
        scene.create("apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        source = scene.source()
        (table,) = source.discover()
        snapshot = begun(source, [table])
        with scene.transaction() as write:
            write.insert("apples", (2, "later"))
            write.delete("apples", 1)
        found = list(snapshot.ordered(table, KeyRange()))
        snapshot.close()
        assert all(upto.covers(snapshot.point) for _rows, upto in found)
        if all(upto == snapshot.point for _rows, upto in found):
            assert [row for rows, _upto in found for row in rows.to_pylist()] == [
                {"id": 1, "note": "before"}
            ]

    def test_a_table_without_a_key_is_read_whole(self, scene: Scene) -> None:
        scene.create("log", keyed=False)
        with scene.transaction() as write:
            write.insert("log", (2, "b"), (1, "a"), (2, "b"))
        with suppress(CannotBackfill):  # of a snapshot that is not one point
            assert sorted(ranged(scene, KeyRange())) == [1, 2, 2]


def ranged(scene: Scene, keys: KeyRange) -> list[int]:
    """The keys of a range of the only table, as they come."""
    source = scene.source()
    (table,) = source.discover()
    snapshot = source.snapshot()
    try:
        found = snapshot.ordered(table, keys)
        return [row["id"] for rows, _upto in found for row in rows.to_pylist()]
    finally:
        snapshot.close()


class SourceContract(
    DiscoveryContract,
    LogContract,
    HandOverContract,
    RangeContract,
    StreamContract,
    DeliveryContract,
    SchemaContract,
):
    """Every source passes these; a subclass supplies the fixture `scene`."""
