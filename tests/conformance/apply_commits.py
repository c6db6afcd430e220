"""Commits: each batch once, with what it records."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mirrorlake.errors import LeaseLost
from mirrorlake.mirror.engine import AlreadyApplied, Conflicted, Counts, Failed, MirrorEngine
from mirrorlake.model.applied import FileRows, Totals
from mirrorlake.model.change import Marker
from tests.conformance.mirrored import GENERATION, Mirrored

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
NewEngine = Callable[[], MirrorEngine]


class CommitContract:
    """A batch is in the table exactly once, with its number."""

    def test_a_batch_that_was_applied_is_not_applied_again(self, orders: Mirrored) -> None:
        step = orders.step([(INSERT, (1, "a", "x"))])
        orders.run(step)
        assert orders.run(step) == AlreadyApplied(1)
        assert orders.rows() == [(1, "a", "x")]

    @pytest.mark.clause("CF-150")
    def test_another_engine_knows_what_was_applied(
        self, orders: Mirrored, new_engine: NewEngine
    ) -> None:
        step = orders.step([(INSERT, (1, "a", "x"))])
        orders.run(step)
        orders.engine = new_engine()
        assert orders.run(step) == AlreadyApplied(1)

    @pytest.mark.parametrize("first", [1, 3], ids=["overlap", "gap"])
    def test_a_batch_that_does_not_follow_is_refused(self, orders: Mirrored, first: int) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        orders.recorded = first - 1
        step = orders.step([(INSERT, (1, "a", "x"))], [(INSERT, (2, "b", "y"))])
        assert isinstance(orders.run(step), Conflicted)
        assert orders.rows() == [(1, "a", "x")]

    def test_of_two_engines_with_one_batch_one_applies_it(
        self, orders: Mirrored, new_engine: NewEngine
    ) -> None:
        step = orders.step([(INSERT, (1, "a", "x"))])
        rival = new_engine()
        outcome = orders.run(step, lambda: rival.apply([step], lambda: None))
        assert isinstance(outcome, Conflicted)
        assert orders.run(step) == AlreadyApplied(1)
        assert orders.rows() == [(1, "a", "x")]

    def test_who_may_not_commit_does_not(self, orders: Mirrored) -> None:
        def refuse() -> None:
            raise LeaseLost("another process took over")

        outcome = orders.run(orders.step([(INSERT, (1, "a", "x"))]), refuse)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, LeaseLost)
        assert (orders.rows(), orders.engine.progress(orders.path).recorded) == ([], 0)

    # -- what is recorded ---------------------------------------------------------------------

    @pytest.mark.clause("LZ-258")
    def test_rows_and_number_are_one_commit(self, orders: Mirrored) -> None:
        before = orders.engine.progress(orders.path)
        applied = orders.apply([(INSERT, (1, "a", "x"))], [(INSERT, (2, "b", "y"))])
        after = orders.engine.progress(orders.path)
        assert (after.version, after.recorded) == (before.version + 1, 2)
        assert applied.version == after.version

    @pytest.mark.clause("CF-151")
    def test_a_batch_without_net_change_records_its_number(self, orders: Mirrored) -> None:
        applied = orders.apply([(INSERT, (1, "a", "x")), (DELETE, (1, None, None))])
        assert orders.engine.progress(orders.path).recorded == 1
        assert orders.feed(applied.version) == {}

    @pytest.mark.clause("LZ-141")
    def test_a_file_without_rows_is_applied(self, orders: Mirrored) -> None:
        orders.apply([])
        assert (orders.engine.progress(orders.path).recorded, orders.rows()) == (1, [])

    def test_a_truncation_alone_is_applied(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        applied = orders.apply(truncated=True)
        assert applied.counts == Counts(delete=1)
        assert (orders.engine.progress(orders.path).recorded, orders.rows()) == (2, [])

    def test_rows_are_counted_by_what_became_of_them(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (n, "a", "x")) for n in range(4)])
        applied = orders.apply(
            [
                *[(INSERT, (9, "b", "")), (UPSERT, (8, "b", "")), (UPDATE, (7, "b", ""))],
                *[(UPDATE, (0, "b", "")), (UPSERT, (1, "b", ""))],
                *[(DELETE, (2, "", "")), (DELETE, (6, "", ""))],
            ]
        )
        assert applied.counts == Counts(insert=3, update=2, delete=1)

    @pytest.mark.clause("CF-055")
    def test_the_commit_says_which_files_and_positions_it_holds(self, orders: Mirrored) -> None:
        files = [[(INSERT, (1, "a", "x"))], [(UPDATE, (1, "b", "y"))]]
        applied = orders.apply(*files, positions=("0/10:1", "0/20:3"), cut=7, landed_bytes=99)
        said = orders.reader.commit(orders.path, applied.version)["userMetadata"]
        assert json.loads(said) == {
            "mirrorlake": 1,
            "files": [1, 2],
            "on": applied.version - 1,
            "positions": ["0/10:1", "0/20:3"],
            "cut": 7,
            "rows": {"insert": 1, "update": 0, "delete": 0},
            "read": [[1, 1, 1, 0, 0, 0], [2, 2, 0, 1, 0, 0]],
            "total": {"insert": 1, "update": 0, "delete": 0, "duplicates": 0, "bytes": 99},
        }

    def test_the_commit_says_what_each_file_held(self, orders: Mirrored) -> None:
        files = [[(INSERT, (1, "a", "x")), (UPSERT, (2, "a", "x"))], [(DELETE, (1, "", ""))], []]
        orders.apply(*files)
        batch = orders.engine.progress(orders.path).batch
        assert batch is not None
        assert batch.files == (
            FileRows(1, 1, (1, 0, 0, 1)),
            FileRows(2, 2, (0, 0, 1, 0)),
            FileRows(3, 3, (0, 0, 0, 0)),
        )

    def test_files_before_a_truncation_are_not_read(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (2, "b", "y"))], truncated=True)
        batch = orders.engine.progress(orders.path).batch
        assert batch is not None
        assert batch.files == (FileRows(1, 1, None), FileRows(2, 2, (1, 0, 0, 0)))

    @pytest.mark.clause("LZ-266")
    def test_totals_go_on_in_another_engine(self, orders: Mirrored, new_engine: NewEngine) -> None:
        orders.apply([(INSERT, (n, "a", "x")) for n in range(4)], landed_bytes=10)
        orders.engine = new_engine()
        orders.apply([(UPDATE, (0, "b", "")), (DELETE, (1, "", ""))], landed_bytes=5)
        batch = new_engine().progress(orders.path).batch
        assert batch is not None
        assert batch.total == Totals(insert=4, update=1, delete=1, bytes=15)
        assert batch.total.rows == 6

    @pytest.mark.clause("LZ-088", "LZ-089")
    def test_rows_that_had_one_key_are_counted(
        self, orders: Mirrored, new_engine: NewEngine
    ) -> None:
        orders.apply([(INSERT, (n, "a", "x")) for n in (1, 1, 1, 2, 2)])
        orders.apply([(DELETE, (1, "", "")), (UPDATE, (2, "b", ""))])
        batch = new_engine().progress(orders.path).batch
        assert batch is not None
        assert (batch.duplicates, batch.total.duplicates) == (3, 3)
        assert orders.rows() == [(2, "b", "")]

    @pytest.mark.clause("CF-153")
    def test_progress_is_read_from_the_table(self, orders: Mirrored, new_engine: NewEngine) -> None:
        applied = orders.apply([(INSERT, (1, "a", "x"))])
        progress = new_engine().progress(orders.path)
        assert (progress.generation, progress.recorded) == (GENERATION, 1)
        assert (progress.schema, progress.key) == (orders.shape.schema, ("id",))
        assert (progress.version, progress.restored) == (applied.version, None)
        assert progress.unsupported == ""

    def test_a_table_that_is_not_there_has_no_progress(self, engine: MirrorEngine) -> None:
        progress = engine.progress("Tables/nothing")
        assert (progress.exists, progress.recorded) == (False, 0)

    def test_a_version_is_settled_after_its_commit(self, orders: Mirrored) -> None:
        applied = orders.apply([(INSERT, (1, "a", "x"))])
        orders.engine.make_durable(orders.path, applied.version)
