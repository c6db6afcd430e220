"""Tables that get a key, and go from one publication of ours to the other."""

from __future__ import annotations

import pytest

from mirrorlake.sources.postgresql.recognition.recognition import PUT_BACK
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

KEYLESS = "create table apples (id int not null, a text); insert into apples values (1, 'a')"


def given_key(evolving: EvolvingDatabase, row: str) -> None:
    """The stream brings the row, if there is one, before capture moves the table."""
    evolving.begin(KEYLESS)
    with evolving.capturing() as capture:
        evolving.run(f"alter table apples add primary key (id){row}")
        capture.once()
        assert has_moved(evolving.database, evolving.made)
        evolving.run("update apples set a = 'c' where id = 1")
        capture.once()


def has_moved(database: Database, publication: str) -> bool:
    query = "select from pg_publication_tables where pubname = %s and tablename = 'apples'"
    return bool(database.sql.execute(query, [publication]).fetchall())


def put_back(evolving: EvolvingDatabase) -> int:
    """How often the table was read again because of its publication."""
    return sum(PUT_BACK in job.request.reason for job in evolving.jobs())


@pytest.mark.parametrize("row", ["", "; insert into apples values (2, 'b')"])
def test_a_table_that_was_moved_is_not_taken_for_put_back(
    evolving: EvolvingDatabase, row: str
) -> None:
    given_key(evolving, row)
    for _ in range(2):
        evolving.capture()
        evolving.apply()
        evolving.check("apples")
    assert put_back(evolving) == 0


def test_a_moved_table_that_is_put_back_is_read_again(evolving: EvolvingDatabase) -> None:
    given_key(evolving, "; insert into apples values (2, 'b')")
    evolving.capture()
    evolving.run(
        f"alter publication {evolving.made} drop table apples",
        "update apples set a = 'lost' where id = 1",
        f"alter publication {evolving.made} add table apples",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    assert put_back(evolving) == 1
