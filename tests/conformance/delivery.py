"""The contract of a source, as far as it is about delivery, and about tables that change."""

from __future__ import annotations

from itertools import pairwise

from mirrorlake.errors import TableError
from mirrorlake.model.change import Marker
from mirrorlake.sources.chunk import SchemaChange
from tests.conformance.scene import (
    Scene,
    changes_now,
    established,
    events,
    faults,
    named,
    prepared,
    reached,
    streaming,
    told,
    until,
)


class DeliveryContract:
    """At least once: what was not acknowledged comes again, in the same order."""

    def test_what_was_not_acknowledged_comes_again_the_same(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
            write.insert("pears", (1, "p"))
            write.rekey("apples", 1, 2)
        with scene.transaction() as write:
            write.delete("pears", 1)
        first = changes_now(source, tables, since)
        assert len(first) == 5
        assert changes_now(scene.source(), tables, since) == first

    def test_what_was_acknowledged_does_not_come_again(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        for key in (1, 2, 3):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"))
        with streaming(source, tables, since) as reader:
            found = events(reader.read_to(source.current()))
            reader.stream.acknowledge(found[1].through)
        assert changes_now(scene.source(), tables, found[1].through) == found[2:]

    def test_a_transaction_that_is_larger_than_a_chunk_goes_on_in_the_next(
        self, scene: Scene
    ) -> None:
        source, tables, since = prepared(scene, "apples", chunk_rows=10)
        with scene.transaction() as write:
            write.insert("apples", *((key, "a") for key in range(35)))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        found = events(chunks)
        assert [(e.row["id"], e.ordinal) for e in found] == [(n, n + 1) for n in range(35)]
        assert len({event.end for event in found}) == 1
        assert len(chunks) > 3
        # Its beginning is known from the first chunk on, its end at the latest in the last.
        ours = [chunk for chunk in chunks if chunk.transactions.end]
        assert len({chunk.transactions.after[0] for chunk in ours}) == 1
        assert [chunk.transactions.is_open for chunk in ours] == [True] * (len(ours) - 1) + [False]
        assert {chunk.transactions.end[-1] for chunk in ours} <= {None, found[0].end}
        assert [chunk.opens for chunk in ours] == [False] + [True] * (len(ours) - 1)

    def test_what_is_open_at_the_end_of_a_chunk_opens_the_next(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", chunk_rows=1)
        for key in (0, 10, 20):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"), (key + 1, "b"))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        for chunk, following in pairwise(chunks):
            is_open = chunk.transactions.is_open
            assert following.opens == is_open
            assert following.idle is None or not is_open

    def test_half_a_transaction_that_was_read_comes_again_whole(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", chunk_rows=5)
        with scene.transaction() as write:
            write.insert("apples", *((key, "a") for key in range(20)))
        with streaming(source, tables, since) as reader:
            until(lambda: (chunk := reader.stream.read(0.2)) and chunk.parts)
        assert [e.ordinal for e in changes_now(source, tables, since)] == list(range(1, 21))

    def test_what_happens_elsewhere_brings_the_stream_on(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        scene.write_elsewhere()
        target = source.current()
        assert not since.covers(target)
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(target)
            assert events(chunks) == []
            reader.stream.acknowledge(reached(chunks[-1])[-1])

    def test_reading_while_nothing_happens_ends_with_nothing(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with streaming(source, tables, since) as reader:
            reader.read_to(source.current())
            assert reader.stream.read(0.0) is None


class SchemaContract:
    """Tables that change while they are captured."""

    def test_a_column_that_was_added_is_in_the_changes_after(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.add_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        rows = [event.row for event in changes_now(source, tables, since)]
        assert rows == [{"id": 1, "note": "a"}, {"id": 2, "note": "b", "colour": None}]

    def test_a_column_that_was_dropped_is_not_in_the_changes_after(self, scene: Scene) -> None:
        scene.create("apples")
        scene.add_column("apples", "colour")
        source = scene.source()
        tables, since = established(source)
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.drop_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        rows = [event.row for event in changes_now(source, tables, since)]
        assert rows == [{"id": 1, "note": "a", "colour": None}, {"id": 2, "note": "b"}]

    def test_a_column_that_was_renamed_stops_the_table_or_comes_under_its_new_name(
        self, scene: Scene
    ) -> None:
        scene.create("apples")
        scene.add_column("apples", "colour")
        source = scene.source()
        tables, since = established(source)
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.rename_column("apples", "colour", "shade")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        if stopped := faults(chunks):
            assert [fault.error.code for fault in stopped] == ["table_altered"]
            return
        rows = [list(event.row) for event in events(chunks)]
        assert rows == [["id", "note", "colour"], ["id", "note", "shade"]]

    def test_changes_tell_the_columns_that_the_table_had_then(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        scene.add_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        with streaming(source, tables, since) as reader:
            told, part = [p for chunk in reader.read_to(source.current()) for p in chunk.parts]
        assert isinstance(told, SchemaChange)
        assert told.table == part.table
        assert part.table.schema.names == part.rows.schema.names == ["id", "note", "colour"]

    def test_a_table_is_what_was_asked_for_until_a_change_of_its_columns(
        self, scene: Scene
    ) -> None:
        source, tables, since = prepared(scene, "apples", "pears", chunk_rows=1)
        for turn in range(3):
            with scene.transaction() as write:
                write.insert("apples", (turn, "a"))
                write.insert("pears", (turn, "p"))
            scene.add_column("apples", f"more{turn}")
        with scene.transaction() as write:
            write.insert("apples", (9, "a"))
        known = {table.table: table for table in tables}
        changed = 0
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        for chunk in chunks:
            for part in chunk.parts:
                if isinstance(part, SchemaChange):
                    assert part.table != known[part.table.table]
                    known[part.table.table] = part.table
                    changed += 1
                else:
                    assert part.table == known[part.table.table]
        assert changed == 3

    def test_a_recreated_table_stops_and_the_others_go_on(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        scene.recreate("apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "of another table"))
            write.insert("pears", (2, "p"))
        with scene.transaction() as write:
            write.insert("apples", (3, "of another table"))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        (fault,) = faults(chunks)
        assert fault.table == named(tables, "apples").table
        assert isinstance(fault.error, TableError)
        assert fault.error.code == "table_recreated"
        assert told(events(chunks)) == [(Marker.INSERT, 2, "p")]
