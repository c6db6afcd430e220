"""Texts of the catalog that are not UTF-8, which only a database without encoding can hold.

The server would refuse to send them, and one of them, of whatever table, would stop all. Here they
come with `\\xe9` in the place of such a byte, and are known as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

Connection = psycopg.Connection[tuple[Any, ...]]

_TYPES = (0, "text", "name", "varchar", "bpchar", '"char"')
"""Of which the values are texts; 0 is for those that are not known."""


class ForeignText(str):
    """Not as it is in the database, where it is not UTF-8."""

    __slots__ = ()


class TextLoader(Loader):
    """Reads texts of any encoding."""

    def load(self, data: Buffer) -> str:
        return text_of(bytes(data))


def text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ForeignText(data.decode(errors="backslashreplace"))


def has_no_encoding(connection: Connection) -> bool:
    return connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"


def has_other_bytes(connection: Connection) -> bool:
    """Whether a text has other bytes in the database than in the mirror, and another order."""
    encoding = connection.pgconn.parameter_status(b"server_encoding")
    return encoding not in {b"UTF8", b"SQL_ASCII"}


def prepare(connection: Connection) -> None:
    """Let `foreign_texts` do its work on a new connection."""
    if has_no_encoding(connection):
        for kind in _TYPES:
            connection.adapters.register_loader(kind, TextLoader)


@contextmanager
def foreign_texts(connection: Connection) -> Iterator[None]:
    """Let texts of any encoding come. For queries of ASCII characters."""
    if not has_no_encoding(connection):
        yield
        return
    connection.execute("set client_encoding to 'SQL_ASCII'")
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # the connection is lost, or what was set is rolled back
            connection.execute("set client_encoding to 'UTF8'")
