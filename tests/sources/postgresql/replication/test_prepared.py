"""Transactions that are sent when they are prepared, by messages that are put together by hand."""

from __future__ import annotations

import pytest

from mirrorlake.errors import SourceGap
from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.replication.prepared import TwoPhase
from mirrorlake.sources.postgresql.replication.spool import Spools
from tests.sources.postgresql.replication.test_in_progress import block, of, row, whole
from tests.sources.postgresql.wire import (
    begin_prepare,
    commit_prepared,
    in_block,
    insert,
    prepare,
    relation,
    rollback_prepared,
    stream_abort,
    stream_commit,
    stream_prepare,
    truncate,
)

APPLES, PEARS = 100, 200
ONE, TWO = 700, 710
DESCRIBED = relation("apples", APPLES)


def reader(since: int = 0) -> TwoPhase:
    return TwoPhase(Spools(100), Lsn(since))


def taken(two_phase: TwoPhase, *messages: bytes) -> list[bytes]:
    """What is left for the decoder."""
    found = []
    for each in messages:
        assert two_phase.takes(each[0])
        found += [message for _, message in two_phase.take(1, each) or ()]
    return found


def prepared(xid: int, lsn: int, *messages: bytes) -> list[bytes]:
    return [begin_prepare(xid, lsn), *messages, prepare(xid, lsn)]


def test_a_prepared_transaction_comes_whole_when_it_is_committed() -> None:
    found = taken(
        reader(),
        *prepared(ONE, 10, DESCRIBED, row(1)),
        *whole(5, 20, row(9)),
        *prepared(TWO, 30, row(2)),
        rollback_prepared(TWO, 40),
        rollback_prepared(999, 41),
        *whole(6, 50, row(8)),
        commit_prepared(ONE, 60, 61, 5),
    )
    assert found == [
        *whole(5, 20, DESCRIBED, row(9)),
        *whole(6, 50, row(8)),
        *whole(ONE, 60, DESCRIBED, row(1)),
    ]


def test_a_transaction_may_be_streamed_and_then_prepared() -> None:
    found = taken(
        reader(),
        *block(ONE, in_block(ONE, DESCRIBED), *of(ONE, 1), *of(ONE + 1, 2)),
        *block(TWO, in_block(TWO, DESCRIBED), *of(TWO, 3)),
        stream_abort(ONE, ONE + 1),
        stream_prepare(ONE, 10),
        stream_prepare(TWO, 12),
        *whole(5, 20, DESCRIBED, row(9)),
        rollback_prepared(TWO, 25),
        commit_prepared(ONE, 30, 31, 5),
    )
    assert found == [*whole(5, 20, DESCRIBED, row(9)), *whole(ONE, 30, DESCRIBED, row(1))]


def test_a_description_that_waits_stands_in_front_of_the_next_change_of_its_table() -> None:
    pears = relation("pears", PEARS)
    newer = relation("apples", APPLES, identity=b"f")
    two_phase = reader()
    assert taken(two_phase, *prepared(ONE, 10, DESCRIBED, row(1))) == []
    assert taken(two_phase, *prepared(TWO, 12, pears, insert(PEARS, ["1", "p"]))) == []
    found = taken(two_phase, *whole(5, 20, truncate(PEARS, APPLES)), *whole(6, 30, row(9)))
    assert found == [
        *whole(5, 20, pears, DESCRIBED, truncate(PEARS, APPLES)),
        *whole(6, 30, row(9)),
    ]
    taken(two_phase, *prepared(ONE + 1, 32, DESCRIBED, row(1)))
    assert taken(two_phase, *whole(7, 40, newer, row(2))) == whole(7, 40, newer, row(2))


def test_a_partition_stays_behind_its_table() -> None:
    leaf = relation("apples_1", PEARS)
    two_phase = reader()
    taken(two_phase, *prepared(ONE, 10, DESCRIBED, leaf, row(1)))
    assert taken(two_phase, *whole(5, 20, row(2))) == whole(5, 20, DESCRIBED, leaf, row(2))


def test_what_is_durable_is_left_out_when_it_comes_again() -> None:
    found = taken(
        reader(since=51),
        *prepared(ONE, 10, DESCRIBED, row(1)),
        *prepared(TWO, 12, row(2)),
        *whole(5, 20, row(3)),
        commit_prepared(TWO, 30, 31),
        *block(8, *of(8, 4)),
        stream_commit(8, 40, 41),
        commit_prepared(999, 45, 46),
        *whole(6, 50, row(5)),
        *whole(7, 51, row(6)),
        commit_prepared(ONE, 60, 61, 5),
    )
    assert found == [*whole(7, 51, DESCRIBED, row(6)), *whole(ONE, 60, DESCRIBED, row(1))]


def test_nothing_behind_a_prepare_is_acknowledged_until_its_commit_is_durable() -> None:
    two_phase = reader(since=15)
    assert two_phase.acknowledgeable(Lsn(15), Lsn(14)) == Lsn(0)  # what was prepared may come
    taken(two_phase, begin_prepare(ONE, 10))
    assert two_phase.acknowledgeable(Lsn(15), Lsn(15)) == Lsn(10)
    taken(two_phase, row(1), prepare(ONE, 10), *block(TWO, *of(TWO, 2)), stream_prepare(TWO, 20))
    taken(two_phase, *whole(5, 30, row(9)))
    assert two_phase.acknowledgeable(Lsn(31), Lsn(31)) == Lsn(10)
    taken(two_phase, commit_prepared(ONE, 40, 41))
    assert two_phase.acknowledgeable(Lsn(31), Lsn(41)) == Lsn(10)
    assert two_phase.acknowledgeable(Lsn(41), Lsn(41)) == Lsn(20)
    taken(two_phase, rollback_prepared(TWO, 50))
    assert two_phase.acknowledgeable(Lsn(41), Lsn(50)) == Lsn(41)


def test_a_commit_whose_changes_went_to_another_reader_is_a_gap() -> None:
    with pytest.raises(SourceGap, match="an id"):
        taken(reader(since=5), commit_prepared(ONE, 10, 11, gid="an id"))
