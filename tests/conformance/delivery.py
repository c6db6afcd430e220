"""The contract of a source, as far as it is about delivery, and about tables that change."""

from __future__ import annotations

from itertools import pairwise

from mirrorlake.errors import TableError
from mirrorlake.model.change import Marker
from tests.conformance.scene import (
    Scene,
    changes_now,
    established,
    events,
    faults,
    named,
    prepared,
    streaming,
    told,
    until,
)


class DeliveryContract:
    """At least once: what was not acknowledged comes again, in the same order."""

    def test_what_was_not_acknowledged_comes_again_the_same(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples", "pears")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
            write.insert("pears", (1, "p"))
            write.rekey("apples", 1, 2)
        with scene.transaction() as write:
            write.delete("pears", 1)
        first = changes_now(source, tables)
        assert len(first) == 5
        assert changes_now(scene.source(), tables) == first

    def test_what_was_acknowledged_does_not_come_again(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        for key in (1, 2, 3):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"))
        with streaming(source, tables) as reader:
            found = events(reader.read_to(source.current()))
            reader.stream.acknowledge(found[1].end)
        assert changes_now(scene.source(), tables) == found[2:]

    def test_a_transaction_that_is_larger_than_a_chunk_goes_on_in_the_next(
        self, scene: Scene
    ) -> None:
        source, tables = prepared(scene, "apples", chunk_rows=10)
        with scene.transaction() as write:
            write.insert("apples", *((key, "a") for key in range(35)))
        with streaming(source, tables) as reader:
            chunks = reader.read_to(source.current())
        found = events(chunks)
        assert [(e.row["id"], e.ordinal) for e in found] == [(n, n + 1) for n in range(35)]
        assert len({event.end for event in found}) == 1
        assert len(chunks) > 3
        # Its beginning is known from the first chunk on, its end only in the last.
        ours = [chunk for chunk in chunks if chunk.transactions.end]
        assert len({chunk.transactions.after[0] for chunk in ours}) == 1
        assert [chunk.transactions.end[-1] for chunk in ours[:-1]] == [None] * (len(ours) - 1)
        assert [chunk.opens for chunk in ours] == [False] + [True] * (len(ours) - 1)

    def test_what_is_open_at_the_end_of_a_chunk_opens_the_next(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples", chunk_rows=1)
        for key in (0, 10, 20):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"), (key + 1, "b"))
        with streaming(source, tables) as reader:
            chunks = reader.read_to(source.current())
        for chunk, following in pairwise(chunks):
            ends = chunk.transactions.end
            is_open = ends[-1] is None if ends else chunk.opens
            assert following.opens == is_open
            assert following.idle is None or not is_open

    def test_half_a_transaction_that_was_read_comes_again_whole(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples", chunk_rows=5)
        with scene.transaction() as write:
            write.insert("apples", *((key, "a") for key in range(20)))
        with streaming(source, tables) as reader:
            until(lambda: (chunk := reader.stream.read(0.2)) and chunk.parts)
        assert [e.ordinal for e in changes_now(source, tables)] == list(range(1, 21))

    def test_an_idle_point_is_told_and_may_be_acknowledged(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        scene.write_elsewhere()
        target = source.current()
        assert scene.acknowledged() < target
        with streaming(source, tables) as reader:
            chunks = reader.read_to(target)
            assert events(chunks) == []
            reader.stream.acknowledge(chunks[-1].idle)
            until(lambda: scene.acknowledged() >= target)

    def test_reading_while_nothing_happens_ends_with_nothing(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        with streaming(source, tables) as reader:
            reader.read_to(source.current())
            assert reader.stream.read(0.0) is None


class SchemaContract:
    """Tables that change while they are captured."""

    def test_a_column_that_was_added_is_in_the_changes_after(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.add_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        rows = [event.row for event in changes_now(source, tables)]
        assert rows == [{"id": 1, "note": "a"}, {"id": 2, "note": "b", "colour": None}]

    def test_a_column_that_was_dropped_is_not_in_the_changes_after(self, scene: Scene) -> None:
        scene.create("apples")
        scene.add_column("apples", "colour")
        source = scene.source()
        tables = established(source)
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.drop_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        rows = [event.row for event in changes_now(source, tables)]
        assert rows == [{"id": 1, "note": "a", "colour": None}, {"id": 2, "note": "b"}]

    def test_a_column_that_was_renamed_comes_under_its_new_name(self, scene: Scene) -> None:
        scene.create("apples")
        scene.add_column("apples", "colour")
        source = scene.source()
        tables = established(source)
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        scene.rename_column("apples", "colour", "shade")
        with scene.transaction() as write:
            write.insert("apples", (2, "b"))
        rows = [event.row for event in changes_now(source, tables)]
        assert [list(row) for row in rows] == [["id", "note", "colour"], ["id", "note", "shade"]]

    def test_changes_tell_the_columns_that_the_table_had_then(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples")
        scene.add_column("apples", "colour")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        with streaming(source, tables) as reader:
            (part,) = [p for chunk in reader.read_to(source.current()) for p in chunk.parts]
        assert part.table.schema.names == part.rows.schema.names == ["id", "note", "colour"]

    def test_a_recreated_table_stops_and_the_others_go_on(self, scene: Scene) -> None:
        source, tables = prepared(scene, "apples", "pears")
        scene.recreate("apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "of another table"))
            write.insert("pears", (2, "p"))
        with scene.transaction() as write:
            write.insert("apples", (3, "of another table"))
        with streaming(source, tables) as reader:
            chunks = reader.read_to(source.current())
        (fault,) = faults(chunks)
        assert fault.table == named(tables, "apples").table
        assert isinstance(fault.error, TableError)
        assert fault.error.code == "table_recreated"
        assert told(events(chunks)) == [(Marker.INSERT, 2, "p")]
