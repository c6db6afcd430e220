"""Values that are not read in the binary format in which they come, and come again as text."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mirrorlake.sources.postgresql.replication.value_format import BINARY_OFF
from tests.app.every_change import CAPTURING, FOLLOWING, DyingAtEach
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.profiles import BINARY, some

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not BINARY, reason="no values come in binary format"),
]

TABLES = ("create table things (id int primary key, note text)", "create table log (n int)")
LOGGED = "insert into log values ({0})"
FIRST = "insert into things values ({0}, 'a'); " + LOGGED
ODD = {
    "a column is added": (
        "alter table things add p point",
        "insert into things values ({0}, 'b', '(1,2)'); " + LOGGED,
    ),
    "a type without a binary format": (
        "alter table things add p aclitem[]",
        "insert into things values ({0}, 'b', '{{postgres=r/postgres}}'); " + LOGGED,
    ),
    "a type of an application": (
        "create type pair as (a int, b text); alter table things add p pair",
        "insert into things values ({0}, 'b', '(1,c)'); " + LOGGED,
    ),
}


@pytest.fixture
def evolving(any_database: Database, store) -> EvolvingDatabase:
    return EvolvingDatabase(any_database, store)


def reasons(logs) -> list[str]:
    """Why values had to come as text."""
    return [entry["reason"] for entry in logs if entry["event"] == BINARY_OFF]


def check(evolving: EvolvingDatabase) -> None:
    evolving.apply()
    evolving.check("things", columns="id, note")
    evolving.check("log")


@pytest.mark.full
@pytest.mark.parametrize("odd", ODD)
def test_a_type_that_comes_while_capture_runs_comes_as_text(
    evolving: EvolvingDatabase, odd: str
) -> None:
    alter, insert = ODD[odd]
    evolving.begin(*TABLES)
    with capture_logs() as logs, evolving.capturing() as capture:
        evolving.run(FIRST.format(1))
        capture.once()
        assert reasons(logs) == []
        evolving.run(f"{FIRST.format(2)}; {alter}; {insert.format(3)}", insert.format(4))
        capture.once()
        evolving.run(insert.format(5), "update things set note = 'c' where id in (1, 3)")
        capture.once()
        assert len(reasons(logs)) == 1
    check(evolving)
    with capture_logs() as logs:
        evolving.run(insert.format(6))
        evolving.capture()
        assert reasons(logs) == []  # it is known at once
    check(evolving)


@pytest.mark.parametrize("odd", some(ODD))
def test_rows_of_a_type_that_no_column_has_any_more_come_as_text_whatever_dies(
    evolving: EvolvingDatabase, odd: str
) -> None:
    """Each process begins with binary values, and comes to the same rows in the log."""
    alter, insert = ODD[odd]
    evolving.begin(*TABLES)
    evolving.run(FIRST.format(1), f"{FIRST.format(2)}; {alter}; {insert.format(3)}")
    evolving.run(insert.format(4), "alter table things drop column p", FIRST.format(5))
    dying, deaths = DyingAtEach({*CAPTURING, *FOLLOWING}), 0
    with capture_logs() as logs:
        while evolving.capture(dying):
            deaths += 1
    assert deaths
    assert reasons(logs)
    check(evolving)
    with capture_logs() as logs:
        evolving.run(FIRST.format(6))
        evolving.capture()
    assert reasons(logs) == []
    check(evolving)


@pytest.mark.full
def test_a_row_that_is_left_out_of_a_large_transaction_is_not_read_twice(
    evolving: EvolvingDatabase,
) -> None:
    """The rows of the transaction before the odd one were handed on when that comes."""
    evolving.begin(*TABLES)
    many = "insert into log select g from generate_series(1, 100000) g"
    alter, insert = ODD["a column is added"]
    with capture_logs() as logs, evolving.capturing() as capture:
        evolving.run(f"{many}; {alter}; {insert.format(1)}; {many}")
        capture.once()
    assert len(reasons(logs)) == 1
    check(evolving)
