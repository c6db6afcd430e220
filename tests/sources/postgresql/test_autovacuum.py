"""An autovacuum is in the way of a change of a publication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.sources.postgresql import autovacuum, connect
from tests.older_postgres import install_of
from tests.standby import wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.long]

SETTINGS = {"autovacuum": "on", "autovacuum_naptime": "1s"}
SLOW = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
IS_VACUUMED = "select exists (select from pg_stat_progress_vacuum)"


@pytest.fixture(params=[14, 18])
def vacuuming(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A server with a table that is vacuumed for minutes."""
    install = install_of(14) if request.param == 14 else None
    with EmbeddedServer(request.param, SETTINGS, install) as server:
        with psycopg.connect(server.url, autocommit=True) as sql:
            sql.execute("create role plain login password 'plain'")
            sql.execute("grant create on database postgres to plain")
            sql.execute(f"create table t (id int, note text) with ({SLOW})")
            sql.execute("alter table t owner to plain")
            sql.execute("insert into t select g, repeat('x', 500) from generate_series(1, 50000) g")
            sql.execute("delete from t where id % 2 = 0")
            sql.execute("set role plain; create publication p")
        yield server


@pytest.mark.parametrize("is_superuser", [True, False])
def test_an_autovacuum_gives_way(vacuuming: EmbeddedServer, *, is_superuser: bool) -> None:
    plain = vacuuming.url.replace(f"postgres:{vacuuming.password}@", "plain:plain@")
    wait_for(vacuuming, IS_VACUUMED)
    with closing(connect.connect(vacuuming.url if is_superuser else plain)) as ours:
        with pytest.raises(psycopg.errors.LockNotAvailable), ours.transaction():
            ours.execute("set local lock_timeout = '200ms'; alter publication p add table t")
        with ours.transaction():
            autovacuum.let_end(ours)
            ours.execute("alter publication p add table t")
