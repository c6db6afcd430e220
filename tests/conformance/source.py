"""The contract of `sources/base.py` as a suite that every source passes."""

from __future__ import annotations

import pytest

from mirrorlake.errors import PrerequisiteMissing, SourceGap
from mirrorlake.model.change import Marker
from mirrorlake.sources.base import Severity
from tests.conformance.delivery import DeliveryContract, SchemaContract
from tests.conformance.scene import (
    Scene,
    changes_now,
    established,
    events,
    keys_of,
    loaded,
    named,
    prepared,
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

    def test_the_check_of_a_prepared_source_finds_no_error(self, scene: Scene) -> None:
        scene.create("apples")
        findings = scene.source().check()
        assert [f for f in findings if f.severity is Severity.ERROR] == []
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


class PlaceContract:
    """The place in the log: made, found again, lost, removed."""

    def test_nothing_stands_where_nothing_was_built(self, scene: Scene) -> None:
        scene.create("apples")
        assert scene.source().occupied() is None

    def test_what_stands_after_establishing_is_named(self, scene: Scene) -> None:
        prepared(scene, "apples")
        assert scene.source().occupied()

    def test_establishing_again_begins_anew(self, scene: Scene) -> None:
        prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        source = scene.source()
        tables = established(source)
        with scene.transaction() as write:
            write.insert("apples", (2, "after"))
        assert told(changes_now(source, tables)) == [(Marker.INSERT, 2, "after")]

    def test_a_place_that_nothing_was_taken_from_is_resumed(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        with_snapshot = source.establish(source.discover())
        with_snapshot.snapshot.close()
        scene.source().resume(with_snapshot.snapshot.point)

    def test_a_lost_place_is_a_gap(self, scene: Scene) -> None:
        source, _ = prepared(scene, "apples")
        scene.lose_place()
        with pytest.raises(SourceGap):
            scene.source().resume(source.current())

    def test_a_source_that_forgot_more_than_the_zone_holds_is_a_gap(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        held = source.current()
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        with streaming(source, tables) as reader:
            (event,) = events(reader.read_to(source.current()))
            reader.stream.acknowledge(event.end)
            until(lambda: scene.acknowledged() > held)
        with pytest.raises(SourceGap):
            scene.source().resume(held)

    def test_detaching_removes_what_was_made(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        made = source.establish(source.discover())
        made.snapshot.close()
        assert sorted(scene.source().detach(made.made)) == sorted(made.made)
        assert scene.source().occupied() is None

    def test_detaching_leaves_what_was_not_made(self, scene: Scene) -> None:
        _, tables = prepared(scene, "apples")
        assert scene.source().detach([]) == []
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        assert len(changes_now(scene.source(), tables)) == 1

    def test_a_prepared_source_has_nothing_to_watch_for(self, scene: Scene) -> None:
        scene.create("apples")
        scene.create("log", keyed=False)
        source = scene.source()
        tables = established(source)
        assert [f for f in source.watch(tables) if f.severity is Severity.ERROR] == []


class HandOverContract:
    """Snapshot and stream meet without gap and without overlap."""

    def test_the_snapshot_holds_what_was_committed_before(self, scene: Scene) -> None:
        scene.create("apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, None))
        source = scene.source()
        tables = source.discover()
        snapshot = source.establish(tables).snapshot
        with scene.transaction() as write:
            write.insert("apples", (3, "later"))
        assert loaded(snapshot, tables[0]) == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
        snapshot.close()

    def test_the_snapshot_of_an_empty_table_has_no_rows(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        tables = source.discover()
        snapshot = source.establish(tables).snapshot
        assert loaded(snapshot, tables[0]) == []
        snapshot.close()

    def test_the_stream_begins_where_the_first_snapshot_ends(self, scene: Scene) -> None:
        scene.create("apples")
        source = scene.source()
        tables = source.discover()
        with scene.busy("apples") as committed:
            snapshot = source.establish(tables).snapshot
            rows = loaded(snapshot, tables[0])
        snapshot.close()
        found = changes_now(source, tables)
        assert all(event.end > snapshot.point for event in found)
        both = [row["id"] for row in rows] + [event.row["id"] for event in found]
        assert sorted(both) == sorted(committed)

    def test_a_later_snapshot_holds_exactly_what_ended_at_or_before_it(self, scene: Scene) -> None:
        if not scene.admits_tables:
            pytest.skip("no table can join")
        source, tables = prepared(scene, "apples")
        scene.create("pears")
        tables = source.discover()
        pears = named(tables, "pears")
        with scene.busy("pears") as committed:
            source.include([pears])
            snapshot = source.snapshot()
            rows = loaded(snapshot, pears)
        snapshot.close()
        later = [e for e in changes_now(source, tables) if e.end > snapshot.point]
        both = [row["id"] for row in rows] + [event.row["id"] for event in later]
        assert sorted(both) == sorted(committed)

    def test_an_included_table_without_a_key_is_streamed(self, scene: Scene) -> None:
        if not scene.admits_tables:
            pytest.skip("no table can join")
        source, _ = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
        scene.create("log", keyed=False)
        tables = source.discover()
        source.include(tables)
        with scene.transaction() as write:
            write.insert("log", (7, "line"))
        found = changes_now(source, tables)
        assert told(found) == [(Marker.INSERT, 1, "before"), (Marker.INSERT, 7, "line")]


class SourceContract(
    DiscoveryContract,
    PlaceContract,
    HandOverContract,
    StreamContract,
    DeliveryContract,
    SchemaContract,
):
    """Every source passes these; a subclass supplies the fixture `scene`."""
