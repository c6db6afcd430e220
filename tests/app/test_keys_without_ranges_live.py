"""Tables whose key has a floating point number or an array are read again by hashes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.app.test_large_whole_rows_live import AGAIN, ask, changed, chunks
from tests.conftest import Database
from tests.profiles import some, tries

pytestmark = pytest.mark.postgres

ODD = "(0, 'NaN'), (0, '-Infinity'), (0, 'Infinity'), (0, '-0'), (1, '1e-300')"
KEYS = {
    "float8": (("k float8 primary key",), f"select k::float8 from (values {ODD}) v (n, k)", "{0}"),
    "float4": (
        ("d date", "k float4", "primary key (d, k)"),
        "values (date '2026-01-01', float4 'NaN'), ('0001-01-01', '0.5')",
        "'2026-01-01', {0}",
    ),
    "int[]": (("k int[] primary key",), "select '{1,null}'::int[]", "array[{0}, {0}]"),
}
"""By kind: the columns of the key, some unusual ones, and that with a number."""


@pytest.fixture
def divided(database: Database, store: LocalStore) -> EvolvingDatabase:
    limits = ChunkLimits(whole=20_000, seconds=0.0)
    return EvolvingDatabase(
        database, store, backfill=BackfillSettings(limits, look_seconds=0.0, retry_seconds=0.05)
    )


def alike(value: Any) -> Any:
    """As the mirror has it: an array as JSON; and every NaN equal."""
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    return "NaN" if value != value else value  # noqa: PLR0124


def begin(divided: EvolvingDatabase, kind: str) -> None:
    columns, odd, numbered = KEYS[kind]
    divided.begin(
        f"create table apples ({', '.join(columns)}, n int, note text)",
        f"insert into apples select {numbered.format('g')}, g, repeat('x', g % 9)"
        " from generate_series(2, 2000) g",
        f"insert into apples {odd}",
        "create table log (id int primary key)",
    )


def changes(kind: str, seed: int) -> Iterator[str]:
    """Also of keys that become other ones, and exchange them."""
    chance, numbered = random.Random(seed), KEYS[kind][2]
    columns = "(d, k)" if kind == "float4" else "(k)"
    while True:
        one, other = (f"({numbered.format(chance.randrange(2, 3000))})" for _ in range(2))
        yield chance.choice(
            [
                f"delete from apples where {columns} = {one}",
                f"update apples set note = note || 'y' where {columns} = {one}",
                f"update apples set {columns} = row{other} where {columns} = {one}",
                f"insert into apples values ({one[1:-1]}) on conflict do nothing",
                f"delete from apples where {columns} = {one}; insert into apples values {other}",
            ]
        )


@pytest.mark.parametrize("kind", some(list(KEYS), 1))
def test_equal_rows_leave_no_trace(divided: EvolvingDatabase, kind: str) -> None:
    begin(divided, kind)
    before = changed(divided)
    ask(divided)
    divided.capture()
    divided.apply()
    assert chunks(divided) > 3
    assert changed(divided) == before
    divided.check("apples", alike)


@pytest.mark.full
@pytest.mark.parametrize("seed", some(range(tries(4, long=40)), 2))
@pytest.mark.parametrize("kind", list(KEYS))
def test_it_is_read_again_while_rows_change_and_processes_die(
    divided: EvolvingDatabase, kind: str, seed: int
) -> None:
    begin(divided, kind)
    chance, own = random.Random(seed), changes(kind, seed)
    alterations = [
        "alter table apples add column added float8 default random()",
        "alter table apples alter n type text using 'a' || n",
        "truncate apples",
        "alter table apples rename note to text",
        "alter table apples drop column n",
    ]
    for alteration in chance.sample(alterations, 3):
        divided.run(alteration)
        divided.capture(Dying(chance.choice(AGAIN), chance.randint(1, 4)))
        divided.apply()
        for _ in range(8):
            with suppress(psycopg.errors.UniqueViolation, psycopg.errors.UndefinedColumn):
                divided.run(next(own))
    divided.capture()
    divided.apply()
    divided.check("apples", alike)


@pytest.mark.full
def test_a_key_that_gets_ranges_meanwhile_is_read_from_the_beginning(
    divided: EvolvingDatabase,
) -> None:
    begin(divided, "float8")
    divided.run("alter table apples add column added float8 default random()")
    assert divided.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3))
    divided.apply()
    divided.run(
        "delete from apples where n is null",
        "alter table apples drop constraint apples_pkey, alter n set not null, add primary key (n)",
        "insert into apples (k, n) values ('NaN', 0)",
    )
    divided.capture()
    divided.apply()
    divided.check("apples", alike)


@pytest.mark.full
def test_there_are_no_ranges_of_it(divided: EvolvingDatabase) -> None:
    begin(divided, "float8")
    request = BackfillRequest(
        "asked", "public.apples", keys=("1", "2"), requested="2026-01-01T00:00:00Z"
    )
    records = BackfillRecords(Records(divided.store, LANDING))
    records.request(request)
    divided.capture()
    (job,) = records.jobs()
    assert job.state is BackfillJobState.UNSUPPORTED
    assert "the key column k has no order that is the same here" in job.message
