"""The contract of a source, as far as it is about the stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mirrorlake.model.change import Marker
from mirrorlake.sources.chunk import Changes, Truncation
from tests.conformance.scene import (
    TRUNCATE,
    Scene,
    changes_now,
    named,
    passed,
    prepared,
    streaming,
    told,
)

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE


class Abandoned(Exception):
    """The application gives its transaction up."""


class StreamContract:
    """What happened, in the order in which transactions committed, until it is acknowledged."""

    def test_changes_come_with_what_they_do_and_with_ordinals_from_one(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, None))
            write.update("apples", 1, "b")
            write.delete("apples", 2)
        found = changes_now(source, tables, since)
        assert told(found) == [
            (INSERT, 1, "a"),
            (INSERT, 2, None),
            (UPDATE, 1, "b"),
            (DELETE, 2),
        ]
        assert [event.ordinal for event in found] == [1, 2, 3, 4]

    def test_transactions_come_in_the_order_of_their_commits(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as late:
            late.insert("apples", (1, "begun first"))
            with scene.transaction() as early:
                early.insert("apples", (2, "committed first"))
        found = changes_now(source, tables, since)
        assert [event.row["id"] for event in found] == [2, 1]
        assert found[1].through.covers(found[0].through)
        assert [event.ordinal for event in found] == [1, 1]

    def test_what_was_rolled_back_does_not_come(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with pytest.raises(Abandoned):
            _insert_and_give_up(scene)
        assert changes_now(source, tables, since) == []

    def test_a_transaction_ends_after_a_point_that_all_before_it_reach(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        for key in range(5):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        after = [point for c in chunks for point in c.transactions.after[1 if c.opens else 0 :]]
        ends = [point for c in chunks for point in c.transactions.end if point is not None]
        through = [point for c in chunks for point in passed(c.transactions)]
        assert len(set(ends)) == len(through) == 5
        for index, begin in enumerate(after):
            assert [begin.covers(end) for end in ends] == [True] * index + [False] * (5 - index)
            assert through[index] == begin.join(ends[index])
            assert begin.covers(since)

    def test_points_are_read_as_they_were_printed(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        (event,) = changes_now(source, tables, since)
        for point in (since, event.end, event.through, source.current()):
            assert scene.source().parse_point(str(point)) == point
            assert str(point)
            assert "@" not in str(point)

    def test_changes_of_a_transaction_tell_it_and_those_of_another_do_not(
        self, scene: Scene
    ) -> None:
        source, tables, since = prepared(scene, "apples", chunk_rows=1)
        for keys in ((1, 2), (3, 4)):
            with scene.transaction() as write:
                write.insert("apples", *((key, "a") for key in keys))
        found = [event.transaction for event in changes_now(source, tables, since)]
        assert found[0] == found[1] != found[2] == found[3]

    def test_the_log_s_own_words_on_a_row_come_when_they_are_asked_for(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, "b"))
            write.rekey("apples", 1, 3)
        for asked in (False, True):
            with streaming(source, tables, since, metadata=asked) as reader:
                chunks = reader.read_to(source.current())
            parts = [p for chunk in chunks for p in chunk.parts if isinstance(p, Changes)]
            assert sum(len(part.marker) for part in parts) == 4
            for part in parts:
                assert (part.metadata is not None) == asked
                assert part.metadata is None or part.metadata.num_rows == len(part.marker)
                assert part.metadata is None or part.metadata.num_columns > 0

    def test_commit_times_are_instants_around_now(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
        (event,) = changes_now(source, tables, since)
        assert event.time is None or abs(event.time - datetime.now(UTC)) < timedelta(hours=1)

    def test_a_change_of_the_key_is_a_deletion_and_an_insert_of_one_ordinal(
        self, scene: Scene
    ) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"), (2, "b"))
            write.rekey("apples", 1, 9)
            write.update("apples", 9, "c")
        found = changes_now(source, tables, since)
        assert told(found[2:]) == [(DELETE, 1), (INSERT, 9, "a"), (UPDATE, 9, "c")]
        assert [event.ordinal for event in found] == [1, 2, 3, 3, 4]

    def test_a_key_that_is_written_again_has_not_changed(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
            write.rekey("apples", 1, 1)
        assert told(changes_now(source, tables, since)) == [(INSERT, 1, "a"), (UPDATE, 1, "a")]

    def test_a_truncation_stands_between_the_changes_around_it(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples")
        with scene.transaction() as write:
            write.insert("apples", (1, "before"))
            write.truncate("apples")
            write.insert("apples", (2, "after"))
        found = changes_now(source, tables, since)
        assert told(found) == [(INSERT, 1, "before"), (TRUNCATE,), (INSERT, 2, "after")]
        assert [event.ordinal for event in found] == [1, 2, 3]

    def test_tables_that_are_truncated_together_are_each_truncated(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        with scene.transaction() as write:
            write.insert("pears", (1, "before"))
            write.truncate("apples", "pears")
        found = changes_now(source, tables, since)
        assert sorted(e.table for e in found if e.kind == TRUNCATE) == ["apples", "pears"]

    def test_the_parts_of_a_table_stand_in_order(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        for key in range(3):
            with scene.transaction() as write:
                write.insert("apples", (key, "a"))
                write.truncate("pears")
                write.insert("pears", (key, "p"))
                write.truncate("apples")
                write.insert("apples", (key, "b"))
        with streaming(source, tables, since) as reader:
            chunks = reader.read_to(source.current())
        for chunk in chunks:
            for table in tables:
                indexes = [
                    index
                    for part in chunk.parts
                    if isinstance(part, Changes | Truncation) and part.table.table == table.table
                    for index in _places(part)
                ]
                assert indexes == sorted(indexes)

    def test_changes_of_several_tables_share_the_ordinals_of_a_transaction(
        self, scene: Scene
    ) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
            write.insert("pears", (2, "p"))
            write.update("apples", 1, "b")
        found = changes_now(source, tables, since)
        assert [(e.table, e.ordinal) for e in found] == [("apples", 1), ("pears", 2), ("apples", 3)]

    def test_only_the_tables_that_were_asked_for_come(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "apples", "pears")
        with scene.transaction() as write:
            write.insert("apples", (1, "a"))
            write.insert("pears", (2, "p"))
        assert told(changes_now(source, [named(tables, "pears")], since)) == [(INSERT, 2, "p")]

    def test_of_a_table_without_a_key_inserts_and_truncations_come(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "log", keyed=False)
        with scene.transaction() as write:
            write.insert("log", (1, "a"), (1, "a"))
            write.truncate("log")
        assert told(changes_now(source, tables, since)) == [(INSERT, 1, "a")] * 2 + [(TRUNCATE,)]

    def test_a_table_without_a_key_is_updated_and_deleted_from_as_ever(self, scene: Scene) -> None:
        source, tables, since = prepared(scene, "log", keyed=False)
        with scene.transaction() as write:
            write.insert("log", (1, "a"), (2, "b"))
            write.update("log", 1, "c")
            write.delete("log", 2)
        assert {event.kind for event in changes_now(source, tables, since)} == {INSERT}


def _insert_and_give_up(scene: Scene) -> None:
    with scene.transaction() as write:
        write.insert("apples", (1, "never"))
        raise Abandoned


def _places(part: Changes | Truncation) -> list[tuple[int, int]]:
    if isinstance(part, Truncation):
        return [(part.transaction, part.ordinal)]
    return list(zip(part.transaction.tolist(), part.ordinal.tolist(), strict=True))
