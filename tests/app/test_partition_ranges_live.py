"""Of a table by ranges of one column, only the range of a partition that changed is read again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from mirrorlake.capture.capture import Capture
from mirrorlake.model.keys import ColumnBounds
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int, at {kind}, note text, primary key (id, at))"
PART = "create table apples_{n} partition of apples for values from ({a}) to ({b})"
KINDS = {
    "bigint": ("0", "100", "200", "300"),
    "date": ("'2026-01-01'", "'2026-02-01'", "'2026-03-01'", "'2026-04-01'"),
    "timestamp": (
        "'2026-01-01'",
        "'2026-02-01 00:00:00.5'",
        "'2026-03-01 12:00'",
        "'2026-04-01'",
    ),
    "timestamptz": (
        "'2026-01-01 00:00+02'",
        "'2026-02-01 00:00+02'",
        "'2026-03-01 00:00+02'",
        "'2026-04-01 00:00+02'",
    ),
}


@pytest.fixture
def evolving(any_database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(any_database, store)


def begin(evolving: EvolvingDatabase, kind: str, last: str = "MAXVALUE") -> tuple[str, ...]:
    """The table has the first three ranges of this type, and two rows at the start of each."""
    ends = KINDS[kind]
    bounds = [*ends[:3], last]
    parts = [PART.format(n=n, a=bounds[n], b=bounds[n + 1]) for n in range(3)]
    rows = [f"({10 * n + row}, {ends[n]}, 'a')" for n in range(3) for row in (1, 2)]
    evolving.begin(
        f"{APPLES.format(kind=kind)} partition by range (at)",
        *parts,
        "create table log (id int primary key)",
        f"insert into apples values {', '.join(rows)}",
    )
    return ends


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and not value.tzinfo else value


def look(capture: Capture) -> None:
    """As happens after some time."""
    capture._check_source(capture._source.discover())


def live(evolving: EvolvingDatabase, *statements: str, looks: bool) -> None:
    """The mirror is equal after these. looks: the catalog is looked at before the stream comes to
    them."""
    with evolving.capturing() as capture:
        capture.once()
        evolving.run(*statements)
        if looks:
            look(capture)
        capture.once()
    evolving.apply()
    evolving.check("apples")


def read_rows(evolving: EvolvingDatabase) -> list[int]:
    """How many rows each backfill has read."""
    return [job.rows for job in evolving.jobs()]


def is_limited(evolving: EvolvingDatabase) -> bool:
    """Whether the server tells of partitions that are attached and detached."""
    with psycopg.connect(evolving.database.url) as connection:
        return connection.info.server_version >= 150_000


@pytest.mark.full
@pytest.mark.parametrize("kind", some(KINDS, 2))
def test_only_the_range_is_read_again(evolving: EvolvingDatabase, kind: str) -> None:
    _first, second, third, _last = begin(evolving, kind)
    evolving.live(
        [
            f"insert into apples values (3, {second}, 'new')",
            "truncate apples_1",
            f"insert into apples values (4, {second}, 'newer')",
            "alter table apples detach partition apples_1",
            f"insert into apples values (5, {third}, 'x'); delete from apples where id = 21",
            f"delete from apples_1; insert into apples_1 values (7, {second}, 'back')",
            f"alter table apples attach partition apples_1 for values from ({second}) to ({third})",
            "update apples set note = 'last' where id in (1, 7)",
        ],
        each=True,
    )
    evolving.check("apples", _in_utc)
    found = [job.request.within for job in evolving.jobs()]
    if not is_limited(evolving):
        assert not any(found)
        return
    assert len({*found}) == 1
    (within,) = {*found}
    assert within is not None
    assert within.column == "at"
    assert within.least is not None
    assert within.below is not None
    assert max(read_rows(evolving)) == 1  # and of the other partitions none


@pytest.mark.full
def test_a_partition_without_an_end_is_a_range(evolving: EvolvingDatabase) -> None:
    begin(evolving, "date")
    evolving.live(["truncate apples_2"], each=True)
    evolving.check("apples")
    (job,) = evolving.jobs()
    expected = ColumnBounds("at", "2026-03-01", None)
    assert job.request.within == (expected if is_limited(evolving) else None)


OTHERWISE = {
    "by another column": (
        "create table apples (id int, n int, note text, primary key (id, n)) partition by list (n)",
        "create table apples_1 partition of apples for values in (1)",
        "create table apples_2 partition of apples for values in (2)",
        "insert into apples values (1, 1, 'a'), (2, 2, 'b')",
    ),
    "by texts": (
        "create table apples (id text primary key, note text) partition by range (id)",
        "create table apples_1 partition of apples for values from ('a') to ('m')",
        "create table apples_2 partition of apples for values from ('m') to ('z')",
        "insert into apples values ('b', 'a'), ('n', 'b')",
    ),
    "by an expression": (
        "create table apples (id int, note text) partition by range ((id + 1))",
        "create table apples_1 partition of apples for values from (0) to (10)",
        "create table apples_2 partition of apples for values from (10) to (20)",
        *(f"alter table {one} replica identity full" for one in ("apples", "apples_1", "apples_2")),
        "insert into apples values (1, 'a'), (12, 'b')",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERWISE)
def test_of_other_partitions_the_table_is_read_again(evolving: EvolvingDatabase, name: str) -> None:
    evolving.begin(*OTHERWISE[name], "create table log (id int)")
    evolving.live(["truncate apples_1", "update apples set note = 'c'"], each=True)
    evolving.check("apples")
    (job,) = evolving.jobs()
    assert job.request.within is None


LOOSE = "create table loose (id int not null, at bigint not null, note text, primary key (id, at))"
ATTACH, AGAIN = (
    f"alter table apples attach partition loose for values from ({least}) to ({least + 100})"
    for least in (300, 400)
)
DETACH = "alter table apples detach partition loose"
FIRST = "insert into apples values (40, 350, 'of the first bounds')"
MOVED = "update loose set at = 450; insert into loose values (41, 451, 'not logged')"
SECOND = "insert into apples values (42, 452, 'of the second bounds')"
PAIRS = (
    "create table apples (a bigint, b bigint, note text, primary key (a, b)) partition by range (b)"
)
OTHER_BOUNDS = {
    "one by one": [LOOSE, ATTACH, FIRST, DETACH, MOVED, AGAIN, SECOND],
    "in one transaction": [LOOSE, "; ".join([ATTACH, FIRST, DETACH, MOVED, AGAIN, SECOND])],
    "of partitions below": [
        f"{LOOSE} partition by hash (id)",
        "create table loose_0 partition of loose for values with (modulus 2, remainder 0)",
        "create table loose_1 partition of loose for values with (modulus 2, remainder 1)",
        *(ATTACH, FIRST, DETACH, MOVED, AGAIN, SECOND),
    ],
    "emptied": [LOOSE, ATTACH, FIRST, DETACH, "delete from loose", AGAIN],
}


@pytest.mark.full
@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("name", OTHER_BOUNDS)
def test_rows_of_other_bounds_that_a_partition_had_are_found(
    evolving: EvolvingDatabase, name: str, *, looks: bool
) -> None:
    """It was attached with other bounds, and rows came, before capture looked first. looks: the
    catalog is looked at before the stream comes to that."""
    begin(evolving, "bigint", last="300")
    live(evolving, *OTHER_BOUNDS[name], looks=looks)


@pytest.mark.full
@pytest.mark.parametrize("looks", [True, False])
def test_a_transaction_that_began_before_all_of_it_attaches_again(
    evolving: EvolvingDatabase, *, looks: bool
) -> None:
    """Numbers of transactions say nothing about the order of what they did."""
    begin(evolving, "bigint", last="300")
    with evolving.capturing() as capture:
        capture.once()
        with psycopg.connect(evolving.database.url) as other:
            other.execute("select pg_current_xact_id()")
            evolving.run(LOOSE, ATTACH, FIRST)
            for statement in (DETACH, MOVED, AGAIN):
                other.execute(statement)
            other.commit()
        evolving.run(SECOND)
        if looks:
            look(capture)
        capture.once()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_what_is_known_of_a_new_partition_survives_a_restart(evolving: EvolvingDatabase) -> None:
    begin(evolving, "bigint", last="300")
    with evolving.capturing() as capture:
        capture.once()
        evolving.run(*OTHER_BOUNDS["one by one"])
        look(capture)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize("looks", [True, False])
def test_rows_outside_of_two_ranges_come_as_they_are(
    evolving: EvolvingDatabase, *, looks: bool
) -> None:
    """An update that leaves a large value out is not landed while its row is still to be read."""
    begin(evolving, "bigint")
    large = "select string_agg(md5(g::text), '') from generate_series(1, 300) g"
    evolving.run("alter table apples add large text", f"update apples set large = ({large})")
    evolving.capture()
    evolving.apply()
    update = "update apples set note = 'changed' where id = 21"
    live(evolving, "truncate apples_0", "truncate apples_1", update, looks=looks)


@pytest.mark.full
@pytest.mark.parametrize("looks", [True, False])
def test_names_that_are_exchanged_meanwhile_read_the_whole_table(
    evolving: EvolvingDatabase, *, looks: bool
) -> None:
    evolving.begin(
        PAIRS,
        *(
            f"create table apples_{n} partition of apples for values from ({n}00) to ({n + 1}00)"
            for n in range(3)
        ),
        "create table log (id int primary key)",
        "insert into apples values (500, 1, 'x'), (501, 101, 'y'), (502, 201, 'z')",
    )
    exchanges = "; ".join(
        f"alter table apples rename {one} to {other}" for one, other in ("ac", "ba", "cb")
    )
    with evolving.capturing() as capture:
        capture.once()
        evolving.run("drop table apples_0")
        if looks:
            look(capture)
        evolving.run(exchanges, "insert into apples (a, b, note) values (103, 600, 'n')")
        capture.once()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_another_key_reads_the_whole_table(evolving: EvolvingDatabase) -> None:
    """A range that is still to be read is one of the former key."""
    begin(evolving, "bigint")
    with evolving.capturing() as capture:
        capture.once()
        evolving.run(
            "truncate apples_1",
            "alter table apples add other int not null default 7, drop constraint apples_pkey",
            "alter table apples add primary key (at, other, id)",
            "insert into apples values (77, 250, 'x', 1)",
        )
        capture.once()
    evolving.apply()
    evolving.check("apples")
