"""The filter of a publication is compared with the row condition of the project."""

from __future__ import annotations

from itertools import pairwise

import psycopg
import pytest

from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.publishing import left_out
from tests.conftest import Database

pytestmark = pytest.mark.postgres

CONDITIONS = (
    "id > 5",
    "id in (1, 2)",
    "v = 'a'",
    "c in ('x', 'yy') or c is null",
    "n > 5.0 and not b",
    "at > '2020-01-01 00:00+02'",
    "coalesce(t, '') like 'a%'",
    "case when id > 3 then v else t end = 'q'",
    "lower(v) = 'é'",
    "substring(t from 2 for 3) = 'abc'",
    "(id, n) > (3, 4)",
)


def compared(database: Database, published: str, condition: str) -> bool | None:
    oid = database.sql.execute("select 'kept'::regclass::oid").fetchone()
    assert oid is not None
    database.execute(f"create publication filtered for table kept where ({published})")
    try:
        return left_out.is_filtered_otherwise(
            database.sql, "filtered", oid[0], TableId("public", "kept"), condition
        )
    finally:
        database.execute("drop publication filtered")


@pytest.fixture
def kept(database: Database) -> Database:
    database.execute(
        "create table kept (id int primary key, v varchar(9), c char(3), n numeric(9, 2), b bool, "
        "at timestamptz, t text)",
        "alter table kept replica identity full",
    )
    return database


def test_a_filter_is_the_condition_of_which_it_was_made_however_it_is_written(
    kept: Database,
) -> None:
    for condition in CONDITIONS:
        assert compared(kept, condition, condition) is False, condition
    assert compared(kept, "id > 5", "(ID>5 )") is False


def test_a_filter_is_another_one_than_all_other_conditions(kept: Database) -> None:
    for before, condition in pairwise(CONDITIONS):
        assert compared(kept, before, condition) is True, condition
    assert compared(kept, "id > 5", "id > 6") is True


def test_a_filter_is_not_compared_while_the_table_is_locked_or_lacks_a_column(
    kept: Database,
) -> None:
    assert compared(kept, "id > 5", "gone > 5") is None
    kept.execute("create publication filtered for table kept where (id > 5)")
    (oid,) = kept.sql.execute("select 'kept'::regclass::oid").fetchone() or (0,)
    with psycopg.connect(kept.url) as other:
        other.execute("lock table kept")
        table = TableId("public", "kept")
        assert left_out.is_filtered_otherwise(kept.sql, "filtered", oid, table, "id > 6") is None
