"""A transaction is in the log before it is visible: with a synchronous standby long before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import SourceUnavailable
from mirrorlake.sources.postgresql.recognition.catalog_look import is_visible
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import database_on
from tests.profiles import some

APPLES = (
    "create table apples (id int primary key, x int)",
    "insert into apples select i, i * 10 from generate_series(1, 4) i",
)
ALTERED = {
    "another column": "alter table apples drop x; alter table apples add y int",
    "another with a default": "alter table apples drop x; alter table apples add y int default 5",
    "the column again": "alter table apples drop x; alter table apples add x int default 5",
    "one more": "alter table apples add y int default 5",
}


@pytest.mark.parametrize(
    ("snapshot", "transaction", "expected"),
    [
        ("10:20:", 9, True),
        ("10:20:12,15", 12, False),
        ("10:20:12,15", 13, True),
        ("10:20:", 19, True),
        ("10:20:", 20, False),
        ("10:20:", 25, False),
        (f"{2**32 - 2}:{2**32 + 5}:{2**32 - 1},{2**32 + 3}", 2**32 - 1, False),
        (f"{2**32 - 2}:{2**32 + 5}:{2**32 - 1},{2**32 + 3}", 2**32 - 2, True),
        (f"{2**32 - 2}:{2**32 + 5}:{2**32 - 1},{2**32 + 3}", 3, False),
        (f"{2**32 - 2}:{2**32 + 5}:{2**32 - 1},{2**32 + 3}", 4, True),
        (f"{2**32 - 2}:{2**32 + 5}:", 5, False),
    ],
)
def test_which_transactions_a_snapshot_shows(
    snapshot: str, transaction: int, *, expected: bool
) -> None:
    assert is_visible(transaction, snapshot) is expected


@pytest.fixture(scope="module")
def replicated() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(18, {}) as server:
        yield server


@pytest.mark.postgres
@pytest.mark.parametrize("change", some(list(ALTERED)))
def test_the_catalog_is_never_older_than_the_stream(
    replicated: EmbeddedServer, tmp_path: Path, change: str
) -> None:
    for database in database_on(replicated):
        evolving = EvolvingDatabase(database, LocalStore(tmp_path))
        evolving.begin(*APPLES)
        _await_standby(evolving, "missing")
        writer = threading.Thread(target=_write, args=(database.url, ALTERED[change]))
        try:
            writer.start()
            _wait_for_commit(evolving)
            with pytest.raises(SourceUnavailable, match="not visible yet"):
                evolving.capture()
        finally:
            _await_standby(evolving, "")
            writer.join()
        evolving.capture()
        evolving.apply()
        evolving.capture()
        evolving.apply()
        evolving.check("apples", columns=", ".join(_columns(database.url)))


def _write(url: str, altering: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(f"{altering}; insert into apples values (10, 6)")


def _await_standby(evolving: EvolvingDatabase, name: str) -> None:
    """Let commits wait for a standby of this name, or for none."""
    evolving.run(
        f"alter system set synchronous_standby_names = '{name}'", "select pg_reload_conf()"
    )
    query = "select current_setting('synchronous_standby_names') = %s"
    until(lambda: _is_true(evolving, query, name))


def _wait_for_commit(evolving: EvolvingDatabase) -> None:
    query = "select exists (select from pg_stat_activity where wait_event = %s)"
    until(lambda: _is_true(evolving, query, "SyncRep"))


def _is_true(evolving: EvolvingDatabase, query: str, value: str) -> bool:
    ((found,),) = evolving.database.sql.execute(query, [value]).fetchall()
    return bool(found)


def _columns(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [column.name for column in connection.execute("table apples").description or ()]
