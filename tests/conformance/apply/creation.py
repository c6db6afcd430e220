"""A new table and the rows of its first batch, as tests that every engine passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import BadValue, LeaseLost
from mirrorlake.mirror.engine import AlreadyApplied, Applied, Conflicted, Failed, Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.conformance.apply.player import Subject
from tests.conformance.apply.scenario import ORDERS, delete, insert, update, upsert
from tests.conformance.mirrored import File, Mirrored
from tests.histories import KEYLESS, Shape, counted

MAPPED = Shape.of(["a b"], **{"a b": types.LONG, "note": types.STRING})


def refuse() -> None:
    raise LeaseLost("another process took over")


def first(table: Mirrored, *files: File, **more: Any) -> ApplyFiles:
    """The first batch of a table, which creates it."""
    return table.step(*files, creates=table.creation(), **more)


def in_the_feed(table: Mirrored) -> list[tuple[str, tuple[Any, ...]]]:
    """All changes, in no order."""
    versions = table.reader.feed(table.path)
    return [change for number in sorted(versions) for change in versions[number].elements()]


class CreationContract:
    """A table appears with its first rows, or is created before them."""

    @pytest.fixture
    def new(self, subject: Subject) -> Mirrored:
        """A table that does not exist, with the columns id, name and note, and the key id."""
        return subject.table(ORDERS)

    @pytest.mark.clause("CF-142", "CF-150")
    @pytest.mark.parametrize(
        ("shape", "files", "more", "rows"),
        [
            (ORDERS, [[insert(1, "a", "x")]], {}, [(1, "a", "x")]),
            (ORDERS, [[upsert(1, "a", "x"), update(1, "b", "x")]], {}, [(1, "b", "x")]),
            (ORDERS, [[insert(1, "a", "x")], [delete(1, "a", "x")]], {}, []),
            (ORDERS, [[insert(2, "b", "y")]], {"truncated": True}, [(2, "b", "y")]),
            (ORDERS, [], {"truncated": True}, []),
            (ORDERS, [ORDERS.arrow([(1, "a", "x")])], {"is_load": True}, [(1, "a", "x")]),
            (
                ORDERS,
                [ORDERS.arrow([(n, "a", "x")]) for n in range(3)],
                {"is_load": True},
                [(n, "a", "x") for n in range(3)],
            ),
            (KEYLESS, [[insert(1, "a"), insert(1, "a")]], {}, [(1, "a"), (1, "a")]),
            (MAPPED, [[insert(1, "x"), insert(2, "y")]], {}, [(1, "x"), (2, "y")]),
        ],
        ids=[
            "insert",
            "upsert",
            "delete",
            "truncation",
            "nothing",
            "load",
            "files",
            "keyless",
            "mapping",
        ],
    )
    def test_the_first_rows_of_a_table(
        self,
        subject: Subject,
        shape: Shape,
        files: Sequence[File],
        more: dict[str, Any],
        rows: Sequence[tuple[Any, ...]],
    ) -> None:
        table = subject.table(shape)
        together = table.engine.creates_with_batch(table.creation())
        outcome = table.run(first(table, *files, **more))
        assert isinstance(outcome, Applied), outcome
        assert together is False or outcome.version == 0
        table.engine.make_durable(table.path, outcome.version)
        progress = subject.new_engine().progress(table.path)
        assert (progress.version, progress.recorded) == (outcome.version, table.recorded)
        assert progress.key == shape.key
        assert counted(table.rows()) == counted(rows)
        assert counted(in_the_feed(table)) == counted([("insert", row) for row in rows])

    def test_later_batches_follow(self, new: Mirrored) -> None:
        assert isinstance(new.run(first(new, [insert(1, "a", "x"), insert(2, "b", "y")])), Applied)
        new.apply([update(1, "a", "z"), delete(2, "b", "y"), insert(3, "c", "x")])
        assert counted(new.rows()) == counted([(1, "a", "z"), (3, "c", "x")])

    def test_of_two_engines_that_create_a_table_one_does(
        self, new: Mirrored, subject: Subject
    ) -> None:
        step, rival, found = first(new, [insert(1, "a", "x")]), subject.new_engine(), []

        def meanwhile() -> None:
            if not found:
                found.extend(rival.apply([step], lambda: None))

        outcome = new.run(step, meanwhile)
        assert sorted([type(outcome), *map(type, found)], key=str) in (
            [Applied, Conflicted],
            [AlreadyApplied, Applied],
        )
        assert isinstance(new.run(step), AlreadyApplied | Conflicted)
        assert new.rows() == [(1, "a", "x")]

    def test_what_an_attempt_left_is_no_obstacle(self, new: Mirrored, subject: Subject) -> None:
        step = first(new, [insert(1, "a", "x")])
        for engine in (new.engine, subject.new_engine()):
            (outcome,) = engine.apply([step], refuse)
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, LeaseLost)
            assert engine.progress(new.path).recorded == 0
        assert isinstance(new.run(step), Applied)
        assert new.rows() == [(1, "a", "x")]

    @pytest.mark.clause("LZ-259")
    def test_a_first_batch_that_fails_leaves_its_number_to_the_next(
        self, new: Mirrored, subject: Subject
    ) -> None:
        shape = Shape.of(["a"], a=types.LONG)
        table = replace(new, shape=shape)
        bad = table.step(
            pa.table({"a": pa.array([2**63], pa.uint64())}),
            creates=table.creation(),
            default=Marker.INSERT,
        )
        outcome: Outcome = table.run(bad)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, BadValue)
        assert subject.new_engine().progress(table.path).recorded == 0
        outcome = table.run(first(table, [insert(1)]))
        assert isinstance(outcome, Applied)
        assert table.rows() == [(1,)]
