"""The output of a COPY: the same from the socket itself and by libpq, to the byte."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from mirrorlake.sources.postgresql.connect import Connection, OpenConnections, connect
from mirrorlake.sources.postgresql.reading import copy
from mirrorlake.sources.postgresql.reading.copy import cancel, copied
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres


@pytest.fixture
def connection(captured: Captured) -> Iterator[Connection]:
    with closing(connect(captured.settings.url)) as found:
        yield found


@pytest.fixture(params=[1, 8 << 20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(copy, "BLOCK", request.param)
    return int(request.param)


def output(connection: Connection, query: str) -> list[bytes]:
    """The rows, each with its number of fields."""
    whole = f"copy ({query}) to stdout with (format binary)"
    return [
        block.content[begin:end].tobytes()
        for block in copied(connection, whole.encode())
        for begin, end in zip(block.begins, block.ends, strict=True)
    ]


def row(*fields: bytes) -> bytes:
    sized = (len(field).to_bytes(4, "big") + field for field in fields)
    return len(fields).to_bytes(2, "big") + b"".join(sized)


def by_libpq(monkeypatch: pytest.MonkeyPatch, connection: Connection, query: str) -> list[bytes]:
    with monkeypatch.context() as patched:
        patched.setattr(copy, "can_read", lambda _pgconn: False)
        return output(connection, query)


def value(connection: Connection) -> Any:
    return connection.execute("select 7").fetchall()


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    "query",
    [
        "select where false",
        "select from generate_series(1, 3)",
        "select null::text from generate_series(1, 3)",
        "select n, repeat('x', n % 300) from generate_series(1, 40000) n",
        # Values and lengths whose bytes look like the beginning of a row, or are most of zero.
        "select decode(repeat('64000000090001', n), 'hex') || 'abc' from generate_series(1, 900) n",
        "select n, decode('64000000080002', 'hex') || 'd' from generate_series(1, 40000) n",
        "select 100, 1::int8 << 56, n from generate_series(1, 40000) n",
        "select repeat('x', n) from unnest(array[25595, 681979, 16777210, 65530, 1]) n",
        "select 'Z' || n from generate_series(1, 5000) n",
    ],
)
def test_rows_are_the_same_by_libpq(
    connection: Connection,
    query: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = output(connection, query)
    assert found == by_libpq(monkeypatch, connection, query)
    assert value(connection) == [(7,)]


SPEAKING = """
create function speak(n int, what text) returns int language plpgsql as $$
begin
    if n % 1000 = 0 and what = 'notice' then raise notice 'row %', n; end if;
    if n = 7000 and what = 'error' then raise exception 'no row %', n; end if;
    return n;
end $$
"""


@pytest.mark.usefixtures("block")
def test_notices_between_rows_are_heard(captured: Captured, connection: Connection) -> None:
    captured.run(SPEAKING)
    heard: list[str | None] = []
    connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    found = output(connection, "select speak(n, 'notice') from generate_series(1, 9000) n")
    assert found == [row(n.to_bytes(4, "big")) for n in range(1, 9001)]
    assert heard == [f"row {n}" for n in range(1000, 9001, 1000)]
    assert value(connection) == [(7,)]


@pytest.mark.usefixtures("block")
def test_errors_between_rows_are_raised(captured: Captured) -> None:
    captured.run(SPEAKING)
    for query, error in {
        "select speak(n, 'error') from generate_series(1, 9000) n": psycopg.errors.RaiseException,
        "select * from nothing": psycopg.errors.UndefinedTable,
        "select 1 / (n - 1) from generate_series(1, 9) n": psycopg.errors.DivisionByZero,
    }.items():
        with closing(connect(captured.settings.url)) as connection, pytest.raises(error):
            output(connection, query)


@pytest.mark.usefixtures("block")
def test_a_connection_whose_output_is_given_up_can_be_used_again(connection: Connection) -> None:
    query = b"copy (select n, repeat('x', 99) from generate_series(1, 3000000) n) to stdout"
    blocks = copied(connection, query + b" with (format binary)")
    next(blocks)
    blocks.close()
    cancel(connection)
    assert value(connection) == [(7,)]


def test_rows_that_come_slowly_are_handed_on(connection: Connection) -> None:
    # Larger than what the server sends together, so that a part of it comes before the rest.
    query = "select repeat('x', 9000), pg_sleep(0.1)::text from generate_series(1, 3)"
    assert output(connection, query) == [row(b"x" * 9000, b"")] * 3


def test_a_connection_that_is_cut_while_rows_come_ends(connection: Connection) -> None:
    opened = OpenConnections()
    opened.add(connection)
    query = b"copy (select repeat('x', 9999) from generate_series(1, 100000)) to stdout"
    blocks = copied(connection, query + b" with (format binary)")
    next(blocks)
    opened.cut()
    with pytest.raises(psycopg.OperationalError):
        list(blocks)


def test_a_connection_that_is_cut_while_bytes_are_handed_back_ends(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenConnections()
    opened.add(connection)
    pair = socket.socketpair

    def cut_behind() -> tuple[socket.socket, socket.socket]:
        made = pair()
        replace = os.dup2

        def replaced(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(os, "dup2", replace)
            found = replace(*args, **kwargs)
            opened.cut()
            return found

        monkeypatch.setattr(os, "dup2", replaced)
        return made

    monkeypatch.setattr(socket, "socketpair", cut_behind)
    with pytest.raises(psycopg.OperationalError):
        output(connection, "select n from generate_series(1, 1000000) n")
