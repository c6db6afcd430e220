"""Timestamp mode: batches are counted, and the names of their files recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mirrorlake.landing.metadata import BY_TIME
from mirrorlake.mirror.engine import AlreadyApplied, Applied, Conflicted, MirrorEngine
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import NamedBatch
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored, Reader
from tests.histories import Shape

NewEngine = Callable[[], MirrorEngine]
SHAPE = Shape.of(["id"], id=types.LONG, note=types.STRING)
ODD = "注文 2026'\"`%\n.parquet"


def row(number: int, note: str = "x") -> list[tuple[int, tuple[Any, ...]]]:
    return [(Marker.UPSERT, (number, note))]


class ByTimeContract:
    """Which files a table holds is in its commits, as long as it has them."""

    @pytest.fixture
    def by_time(self, new_engine: NewEngine, store: LocalStore, reader: Reader) -> Mirrored:
        """A table in timestamp mode."""
        table = Mirrored(new_engine(), store, reader, SHAPE, "Tables/by_time")
        return table.create(detection=BY_TIME)

    def test_a_table_remembers_how_its_files_are_found(
        self, by_time: Mirrored, new_engine: NewEngine
    ) -> None:
        assert new_engine().progress(by_time.path).detection == BY_TIME

    @pytest.mark.clause("LZ-258")
    def test_rows_number_and_names_are_one_commit(
        self, by_time: Mirrored, new_engine: NewEngine
    ) -> None:
        before = by_time.engine.progress(by_time.path)
        step = by_time.named_step({"z.parquet": row(1, "a"), ODD: row(1, "b")})
        outcome = by_time.run(step)
        assert isinstance(outcome, Applied)
        for engine in (by_time.engine, new_engine()):
            after = engine.progress(by_time.path)
            assert (after.version, after.recorded) == (before.version + 1, 1)
            assert engine.named_batches(by_time.path, 0) == [
                NamedBatch(1, outcome.version, ("z.parquet", ODD))
            ]
        assert by_time.rows() == [(1, "b")]

    def test_batches_are_told_beyond_a_number(self, by_time: Mirrored) -> None:
        for number in (1, 2, 3):
            by_time.run(by_time.named_step({f"{number}.parquet": row(number)}))
        told = [
            [(batch.number, batch.names) for batch in by_time.engine.named_batches(by_time.path, n)]
            for n in range(4)
        ]
        all_three = [(n, (f"{n}.parquet",)) for n in (1, 2, 3)]
        assert told == [all_three, all_three[1:], all_three[2:], []]

    def test_a_batch_that_was_applied_is_not_applied_again(self, by_time: Mirrored) -> None:
        step = by_time.named_step({"a.parquet": row(1)})
        by_time.run(step)
        assert by_time.run(step) == AlreadyApplied(1)
        assert by_time.rows() == [(1, "x")]

    def test_of_two_batches_with_one_number_one_is_applied_and_named(
        self, by_time: Mirrored, new_engine: NewEngine
    ) -> None:
        one = by_time.named_step({"a.parquet": row(1)})
        other = by_time.named_step({"b.parquet": row(1), "c.parquet": row(2)})
        rival = new_engine()
        outcome = by_time.run(one, lambda: rival.apply([other], lambda: None))
        assert isinstance(outcome, Conflicted)
        assert by_time.run(one) == AlreadyApplied(1)
        (batch,) = by_time.engine.named_batches(by_time.path, 0)
        assert batch.names == ("b.parquet", "c.parquet")

    @pytest.mark.parametrize("first", [1, 3], ids=["overlap", "gap"])
    def test_a_batch_that_does_not_follow_is_refused(self, by_time: Mirrored, first: int) -> None:
        by_time.run(by_time.named_step({"a.parquet": row(1)}))
        by_time.recorded = first - 1
        outcome = by_time.run(by_time.named_step({"b.parquet": row(2)}))
        assert isinstance(outcome, AlreadyApplied if first == 1 else Conflicted)
        assert by_time.rows() == [(1, "x")]

    def test_a_file_that_is_another_than_was_listed_is_not_applied(self, by_time: Mirrored) -> None:
        step = by_time.named_step({"a.parquet": row(1), "b.parquet": row(2)})
        by_time.write("b.parquet", row(2, "written again"))
        outcome = by_time.run(step)
        assert isinstance(outcome, Conflicted)
        assert "b.parquet" in outcome.reason
        assert (by_time.rows(), by_time.engine.named_batches(by_time.path, 0)) == ([], [])

    @pytest.mark.clause("LZ-258")
    def test_the_commit_says_which_files_it_holds(self, by_time: Mirrored) -> None:
        outcome = by_time.run(by_time.named_step({"b.parquet": row(1), "a.parquet": row(2)}))
        assert isinstance(outcome, Applied)
        said = json.loads(by_time.reader.commit(by_time.path, outcome.version)["userMetadata"])
        assert (said["files"], said["names"]) == ([1, 1], ["b.parquet", "a.parquet"])
