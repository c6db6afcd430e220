"""Transactions in progress, by messages that are put together by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.sources.chunk import SchemaChange
from mirrorlake.sources.postgresql.replication.in_progress import (
    InProgress,
    protocol_version,
    streaming_option,
)
from mirrorlake.sources.postgresql.replication.spool import Spools
from tests.conformance.scene import events
from tests.sources.postgresql.wire import (
    COLUMNS,
    INT4,
    begin,
    commit,
    decoder,
    delete,
    in_block,
    insert,
    message,
    origin,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    stream_stop,
    table,
    truncate,
    type_,
    update,
)

APPLES = 100
TOP, SUB, OTHER = 700, 701, 710


def handed_on(*messages: bytes, memory: int = 1 << 20) -> list[bytes]:
    """What is left for the decoder, in the order in which it gets it."""
    streamed, found = InProgress(Spools(memory)), []
    for number, each in enumerate(messages):
        if streamed.takes(each[0]):
            found += [message for _, message in streamed.take(number, each) or ()]
        else:
            found.append(each)
    streamed.close()
    return found


def block(top: int, *messages: bytes) -> list[bytes]:
    return [stream_start(top), *messages, stream_stop()]


def row(number: int) -> bytes:
    return insert(APPLES, [str(number), None])


def of(xid: int, *numbers: int) -> list[bytes]:
    return [in_block(xid, row(number)) for number in numbers]


def whole(xid: int, lsn: int, *messages: bytes) -> list[bytes]:
    return [begin(lsn, 5, xid), *messages, commit(lsn, lsn + 1, 5)]


@pytest.mark.parametrize(
    ("server", "version", "option"),
    [
        (130_011, 1, None),
        (140_010, 2, "on"),
        (150_004, 3, "on"),
        (160_000, 4, "parallel"),
        (180_001, 4, "parallel"),
    ],
)
def test_the_server_decides_on_the_protocol(server: int, version: int, option: str | None) -> None:
    assert (protocol_version(server), streaming_option(server)) == (version, option)


def test_a_committed_transaction_comes_as_if_it_had_come_whole() -> None:
    changes = [
        relation("apples", APPLES),
        type_(),
        row(1),
        update(APPLES, ["2", "a"], key=["1", None]),
        delete(APPLES, key=["2", None]),
        truncate(APPLES),
    ]
    found = handed_on(
        *block(TOP, *(in_block(TOP, change) for change in changes[:3])),
        *block(TOP, *(in_block(TOP, change) for change in changes[3:])),
        stream_commit(TOP, 10, 11, 5),
    )
    assert found == whole(TOP, 10, *changes)


def test_messages_stand_in_the_log_where_they_stood() -> None:
    streamed = InProgress(Spools(1))
    streamed.take(1, stream_start(TOP))
    streamed.take(2**63, in_block(TOP, row(1)))
    streamed.take(3, in_block(TOP, row(2)))
    streamed.take(3, stream_stop())
    committed = streamed.take(9, stream_commit(TOP, 10, 11))
    assert committed is not None
    assert [lsn for lsn, _ in committed] == [9, 2**63, 3, 9]


def test_transactions_come_in_the_order_of_their_commits() -> None:
    found = handed_on(
        *block(TOP, *of(TOP, 1)),
        *whole(5, 3, row(9)),
        *block(OTHER, *of(OTHER, 2)),
        *block(TOP, *of(TOP, 3)),
        stream_commit(OTHER, 10, 11, 5),
        *whole(6, 20, row(8)),
        stream_commit(TOP, 30, 31, 5),
    )
    assert found == [
        *whole(5, 3, row(9)),
        *whole(OTHER, 10, row(2)),
        *whole(6, 20, row(8)),
        *whole(TOP, 30, row(1), row(3)),
    ]


@pytest.mark.parametrize("more", [(), (25, 0)], ids=["version 2", "version 4"])
def test_what_is_taken_back_is_gone(more: tuple[int, ...]) -> None:
    found = handed_on(
        *block(TOP, *of(TOP, 1), *of(SUB, 2, 3)),
        stream_abort(TOP, SUB, *more),
        *block(TOP, *of(TOP, 4), *of(SUB + 1, 5)),
        *block(OTHER, *of(OTHER, 6)),
        stream_abort(OTHER, OTHER, *more),
        stream_commit(TOP, 10, 11, 5),
    )
    assert found == whole(TOP, 10, row(1), row(4), row(5))


def test_a_subtransaction_takes_those_below_it_with_it() -> None:
    found = handed_on(
        *block(TOP, *of(SUB, 1), *of(SUB + 1, 2), *of(SUB, 3), *of(SUB + 2, 4)),
        stream_abort(TOP, SUB + 1),
        stream_abort(TOP, SUB + 2),
        stream_abort(TOP, SUB),
        *block(TOP, *of(SUB + 3, 5)),
        stream_abort(TOP, SUB + 9),
        stream_abort(OTHER, OTHER),
        stream_abort(OTHER, SUB),
        stream_commit(TOP, 10, 11, 5),
    )
    assert found == whole(TOP, 10, row(5))


def test_a_description_that_was_taken_back_is_not_valid() -> None:
    wider = relation("apples", APPLES, [*COLUMNS, ("size", INT4)])
    described = [in_block(TOP, relation("apples", APPLES)), *of(TOP, 1)]
    altered = [in_block(SUB, wider), in_block(SUB, insert(APPLES, ["2", None, "3"]))]
    found = handed_on(
        *block(TOP, *described, *altered),
        stream_abort(TOP, SUB),
        *block(TOP, *described),
        stream_commit(TOP, 10, 11, 5),
    )
    chunk = decoder(table("apples", APPLES)).decode(found)
    assert [event.row for event in events([chunk])] == [{"id": 1, "note": None}] * 2
    assert not [part for part in chunk.parts if isinstance(part, SchemaChange)]


def test_a_description_in_progress_leaves_other_transactions_alone() -> None:
    wider = relation("apples", APPLES, [*COLUMNS, ("size", INT4)])
    found = handed_on(
        *block(TOP, in_block(TOP, wider), in_block(TOP, insert(APPLES, ["1", None, "3"]))),
        *whole(5, 3, relation("apples", APPLES), row(2)),
        stream_commit(TOP, 10, 11, 5),
        *whole(6, 20, insert(APPLES, ["4", None, "5"])),
    )
    told = events([decoder(table("apples", APPLES)).decode(found)])
    assert [list(event.row.values()) for event in told] == [
        [2, None],
        [1, None, 3],
        [4, None, 5],
    ]


def test_origins_and_messages_of_others_mean_nothing() -> None:
    found = handed_on(
        *block(TOP, origin(), in_block(TOP, message()), *of(TOP, 1)),
        stream_commit(TOP, 10, 11, 5),
    )
    assert found == whole(TOP, 10, row(1))


def test_a_transaction_that_was_taken_back_to_its_beginning_is_empty() -> None:
    found = handed_on(
        *block(TOP, *of(SUB, 1)), stream_abort(TOP, SUB), stream_commit(TOP, 10, 11, 5)
    )
    assert found == whole(TOP, 10)


def test_memory_is_bounded_however_many_transactions_there_are() -> None:
    memory = 100_000
    spools = Spools(memory)
    streamed = InProgress(spools)
    large = insert(APPLES, ["1", "x" * 900])
    for number in range(2_000):
        xid = number % 50
        for each in block(xid, in_block(xid, large)):
            streamed.take(number, each)
        assert spools.in_memory <= memory
    committed = streamed.take(0, stream_commit(7, 1, 2))
    assert committed is not None
    assert [message for _, message in committed][1:-1] == [large] * 40
    streamed.close()


Node = tuple[str, list["Node"]] | int
"""A row, or what stands behind a savepoint and whether it is rolled back."""

NODES = st.recursive(
    st.integers(0, 99),
    lambda inner: st.tuples(st.sampled_from(["kept", "back"]), st.lists(inner, max_size=4)),
    max_leaves=20,
)


@given(st.lists(st.lists(NODES, max_size=6), min_size=1, max_size=3), st.data())
def test_interleaved_transactions_with_savepoints_equal_what_stands(
    transactions: list[list[Node]], data: st.DataObject
) -> None:
    """Each is cut into blocks anywhere, and these come in any order."""
    scripts, expected = [], {}
    for number, nodes in enumerate(transactions):
        top = 1000 * (number + 1)
        steps, stands = _script(top, nodes)
        scripts.append([*steps, [stream_commit(top, top, top + 1, 5)]])
        expected[top] = whole(top, top, *map(row, stands))
    order = data.draw(
        st.permutations([n for n, script in enumerate(scripts) for _ in script]), label="order"
    )
    stream, ends, at = [], [], [iter(script) for script in scripts]
    for number in order:
        step = next(at[number])
        stream += step
        if step[0][:1] == b"c":
            ends.append(1000 * (number + 1))
    found = handed_on(*stream, memory=data.draw(st.sampled_from([1, 200, 1 << 20])))
    assert found == [each for top in ends for each in expected[top]]


def _script(top: int, nodes: Sequence[Node]) -> tuple[list[list[bytes]], list[int]]:
    """The steps of a transaction, and the rows that stand at its end."""
    steps: list[list[bytes]] = [block(top)]
    next_xid = top

    def play(xid: int, inner: Sequence[Node]) -> tuple[list[int], list[int]]:
        nonlocal next_xid
        rows, below = [], []
        for node in inner:
            if isinstance(node, int):
                rows.append(node)
                steps.append(block(top, *of(xid, node)))
                continue
            next_xid += 1
            mine = next_xid
            kept, subs = play(mine, node[1])
            if node[0] == "kept":
                rows += kept
                below += [*subs, mine]
            else:
                steps.extend([stream_abort(top, sub)] for sub in [*subs, mine])
        return rows, below

    return steps, play(top, nodes)[0]
