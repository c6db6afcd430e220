"""Compaction: other files, the same table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mirrorlake.errors import LeaseLost
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied, Conflicted
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape, counted

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE


class CompactionContract:
    """Rows, feed and progress are what they were (CF-095, CF-156)."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two small files are many."""
        monkeypatch.setattr(compaction, "FANOUT", 2)
        monkeypatch.setattr(compaction, "SMALLEST", 2)

    @pytest.mark.clause("CF-095", "CF-156")
    def test_rows_and_feed_and_progress_stay(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x")), (INSERT, (2, "b", "y"))])
        orders.apply([(UPDATE, (1, "a", "new")), (INSERT, (3, None, None))])
        feed = orders.reader.feed(orders.path)
        before = orders.engine.progress(orders.path)
        outcome = orders.compact()
        assert isinstance(outcome, Applied)
        assert counted(orders.rows()) == counted([(1, "a", "new"), (2, "b", "y"), (3, None, None)])
        assert orders.reader.feed(orders.path) == feed
        after = orders.engine.progress(orders.path)
        assert (after.recorded, after.version) == (before.recorded, outcome.version)
        assert after.version == before.version + 1

    def test_changes_go_on_afterwards(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x")), (INSERT, (2, "b", "y"))])
        orders.apply([(DELETE, (1, None, None))])
        orders.apply([(INSERT, (3, "c", "z"))])
        orders.compact()
        orders.apply([(UPDATE, (2, "b", "new")), (DELETE, (3, None, None))])
        assert orders.rows() == [(2, "b", "new")]

    def test_a_table_with_nothing_to_do_is_left_alone(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        assert orders.compact() is None

    def test_so_is_one_that_is_gone(self, orders: Mirrored) -> None:
        """Between its last batch and its turn a table may be dropped."""
        gone = replace(orders, path="Tables/gone")
        assert gone.engine.compaction(gone.path) is None
        assert gone.compact() is None

    def test_a_table_without_a_key_is_compacted_too(self, make: Callable[..., Mirrored]) -> None:
        log = make(Shape.of([], line=types.STRING))
        for line in ("b", "a", "a"):
            log.apply([(INSERT, (line,))])
        assert isinstance(log.compact(), Applied)
        assert sorted(log.rows()) == [("a",), ("a",), ("b",)]

    def test_a_table_that_changes_meanwhile_is_left_alone(self, orders: Mirrored) -> None:
        for number in (1, 2):
            orders.apply([(INSERT, (number, "a", "x"))])
        outcome = orders.compact(lambda: orders.apply([(UPDATE, (1, "a", "new"))]) and None)
        assert isinstance(outcome, Conflicted)
        assert counted(orders.rows()) == counted([(1, "a", "new"), (2, "a", "x")])

    def test_who_may_not_commit_does_not_compact(self, orders: Mirrored) -> None:
        def refuse() -> None:
            raise LeaseLost("another process took over")

        for number in (1, 2):
            orders.apply([(INSERT, (number, "a", "x"))])
        before = orders.engine.progress(orders.path).version
        with pytest.raises(LeaseLost):
            orders.compact(refuse)
        assert orders.engine.progress(orders.path).version == before
