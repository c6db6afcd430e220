"""A standby of an embedded server, which can take over from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import psycopg

from mirrorlake.demo.server import EmbeddedServer, binaries
from tests.older_postgres import RELEASES, install_of

PATIENCE = 120.0
SLOT = "standby1"
SYNCHRONIZED = {"synchronized_standby_slots": SLOT}
"""The primary sends nothing to a mirror that the standby does not have yet."""

HAS_REPLAYED = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
_IS_COPIED = """
    select coalesce(bool_and(synced and not temporary and invalidation_reason is null
                             and confirmed_flush_lsn >= %s::pg_lsn), false)
    from pg_replication_slots where slot_name like %s
"""

NO_SMALLER = {"max_prepared_transactions"}
"""Settings that a standby needs no smaller than its primary."""


class Standby(EmbeddedServer):
    """Made by `pg_basebackup`, and connected through a physical slot of the primary."""

    def __init__(self, primary: EmbeddedServer, settings: Mapping[str, str]) -> None:
        self._primary = primary
        conninfo = f"host={primary.folder} user=postgres password={primary.password}"
        follows = {
            "primary_conninfo": f"{conninfo} dbname=postgres",
            "primary_slot_name": SLOT,
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1",
        }
        super().__init__(primary.version, {**settings, **follows}, install=primary._install)
        self.password = primary.password

    def _make(self) -> None:
        data, install = str(self.folder / "data"), self._install
        if not (install / "bin/pg_basebackup").exists():
            self._install = self._reachable(binaries(18))  # which copies older servers, too
        self._run(
            "pg_basebackup", "-d", self._primary.url, "-D", data, "-X", "stream", "-c", "fast"
        )
        self._install = install
        (self.folder / "data" / "standby.signal").touch()

    def promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as sql:
            assert sql.execute("select pg_promote()").fetchone() == (True,)


@contextmanager
def pair(version: int, primary: Mapping[str, str]) -> Iterator[tuple[EmbeddedServer, Standby]]:
    """A primary with settings of its own, and its standby."""
    copies = {"sync_replication_slots": "on"} if version >= 17 else {}
    copies |= {name: value for name, value in primary.items() if name in NO_SMALLER}
    install = install_of(version) if version in RELEASES else None
    with EmbeddedServer(version, {"wal_sender_timeout": "2s", **primary}, install) as first:
        with psycopg.connect(first.url, autocommit=True) as sql:
            sql.execute("select pg_create_physical_replication_slot(%s)", [SLOT])
        with Standby(first, copies) as second:
            yield first, second


def either(first: EmbeddedServer, second: EmbeddedServer) -> str:
    """The URL of whichever of the two takes writes."""
    hosts = f"{first.folder},{second.folder}"
    user = f"postgres:{first.password}"
    return f"postgresql://{user}@/postgres?host={hosts}&target_session_attrs=read-write"


def wait_for(
    server: EmbeddedServer,
    query: str,
    *values: object,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Until a query of the server returns true."""
    until = time.monotonic() + PATIENCE
    with psycopg.connect(server.url, autocommit=True) as sql:
        while sql.execute(query, values).fetchone() != (True,):
            assert time.monotonic() < until, query
            meanwhile()
            time.sleep(0.05)


def end_of(server: EmbeddedServer) -> str:
    """The position of a server, as text."""
    with psycopg.connect(server.url, autocommit=True) as sql:
        ((end,),) = sql.execute("select pg_current_wal_lsn()::text").fetchall()
    return str(end)


def until_copied(
    first: EmbeddedServer,
    second: EmbeddedServer,
    slots: str = "mirrorlake%",
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Until the standby has copies of the slots that cover what the primary has now. A new slot is
    copied when what it keeps of the catalog is no older than what the standby keeps. slots: a
    pattern of their names."""
    end = end_of(first)
    with psycopg.connect(first.url, autocommit=True) as sql:

        def log() -> None:
            sql.execute("select pg_log_standby_snapshot()")
            meanwhile()

        wait_for(second, _IS_COPIED, end, slots, meanwhile=log)
