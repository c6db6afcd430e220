"""What tells the rows of a table apart changes at a live source, and the mirror goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import PATIENCE
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table pears (id int primary key, code int not null, note text)",
    "insert into pears values (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c'), (4, 40, null)",
    "create table log (id int primary key)",
)
BEFORE = "insert into pears values (5, 50); delete from pears where id = 3"
AFTER = """
    update pears set note = 'later' where code in (10, 20); delete from pears where code = 40;
    update pears set code = 60 where code = 50; insert into pears (id, code) values (7, 70);
    insert into log select count(*) from log
"""
FULL = "alter table pears drop constraint pears_pkey, replica identity full"
EXCHANGE = """
    alter table pears rename note to other; alter table pears rename size to note;
    alter table pears rename other to size
"""
AT_ONCE = """
    update pears set note = 'first' where id = 1;
    alter table pears drop constraint pears_pkey, add primary key (code);
    update pears set id = 8 where code = 10; insert into pears values (9, 90)
"""

CHANGES: dict[str, Sequence[str]] = {
    "another key": ["alter table pears drop constraint pears_pkey, add primary key (code)"],
    "another key, step by step": [
        "alter table pears drop constraint pears_pkey",
        "insert into pears values (5, 55)",
        "alter table pears add primary key (code)",
    ],
    "in one transaction with rows": [AT_ONCE],
    "more columns": ["alter table pears drop constraint pears_pkey, add primary key (code, id)"],
    "by an index": [
        "create unique index pears_code on pears (code)",
        "alter table pears replica identity using index pears_code",
    ],
    "logged whole": ["alter table pears replica identity full"],
    "whole rows": [FULL],
    "whole rows, later a unique index": [
        FULL,
        "insert into pears values (5, 55, 'twice')",
        "create unique index pears_code on pears (code)",
        "alter table pears replica identity full",
    ],
    "whole rows, later a key": [
        FULL,
        "insert into pears values (5, 55), (5, 55); update pears set note = 'd' where id = 5",
        "delete from pears where ctid = (select min(ctid) from pears where code = 55)",
        "alter table pears add primary key (code), replica identity default",
    ],
    "renamed": ["alter table pears rename id to number", "alter table pears rename number to id"],
    "exchanged": [
        """alter table pears rename id to other; alter table pears rename code to id;
        alter table pears rename other to code"""
    ],
    "dropped": [
        "alter table pears drop id, add primary key (code)",
        "alter table pears add id int",
    ],
    "dropped and added again": ["alter table pears drop id, add id serial primary key"],
    "wider": ["alter table pears alter id type bigint"],
    "to text and back": [
        "alter table pears alter id type text using 'k' || id",
        "insert into pears values ('k9', 90)",
        "alter table pears alter id type int using substr(id, 2)::int + 100",
    ],
    "deferrable and back": [
        """alter table pears drop constraint pears_pkey, add primary key (id) deferrable""",
        "insert into pears values (6, 55)",
        "alter table pears drop constraint pears_pkey, add primary key (id)",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "each"),
    some([(name, bool(number % 2)) for number, name in enumerate(CHANGES)], 4),
)
def test_a_table_is_equal_after_its_key_has_changed(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    evolving.live([BEFORE, *CHANGES[name], AFTER], each=each)
    for table in ("pears", "log"):
        evolving.check(table)
    evolving.run("update pears set note = 'last'")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")


KEYLESS = (
    "create table pears (id int, code int not null, note text)",
    "insert into pears values (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c'), (4, 40, null)",
    "create table log (id int primary key)",
)
ADDED = "alter table pears add primary key (code)"
GAINED: dict[str, Sequence[str]] = {
    "a key": [ADDED],
    "a key for a while": [
        ADDED,
        "update pears set note = 'x' where id = 1; delete from pears where id = 2",
        "alter table pears drop constraint pears_pkey",
        "insert into pears values (2, 20, 'again')",
        ADDED,
    ],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "each"), some([(name, each) for name in GAINED for each in (True, False)], 1)
)
def test_an_append_only_table_that_gets_a_key_is_read_again(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    """Updates and deletions that were not captured are made up for."""
    evolving.begin(*KEYLESS)
    evolving.live(
        ["insert into pears values (3, 31, 'c'); delete from pears where id = 1"], each=False
    )
    evolving.run("insert into pears values (1, 10, 'again'), (5, 50, null)")
    evolving.live([*GAINED[name], AFTER], each=each)
    assert any("changes may be missing" in request.reason for request in evolving.read_again())
    evolving.check("pears")


def test_a_table_whose_key_is_dropped_goes_on_append_only(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.live(["alter table pears drop constraint pears_pkey"], each=True)
    evolving.run("insert into pears values (5, 50), (5, 50)")
    with psycopg.connect(evolving.database.url) as connection:  # counted at its end
        connection.execute("update pears set note = 'missed' where id = 1")
    evolving.capture()
    evolving.apply()
    assert evolving.stopped() == {}
    assert Counter(row["id"] for row in evolving.mirrored("pears"))[5] == 2
    until = time.monotonic() + PATIENCE
    while not Records(evolving.store, root.LANDING).append_only()["public.pears"].differs:
        assert time.monotonic() < until
        evolving.capture()


FILLED = (
    "update pears set code = id * 10 where code is null",
    "alter table pears alter code set not null",
    "create unique index pears_code on pears (code)",
)
WITHOUT_CODES = """
    insert into pears values (6, null, 'e'); update pears set note = 'f' where id = 6;
    update pears set note = 'x' where id = 2; update pears set code = 70 where id = 7;
    delete from pears where id = 3
"""


@pytest.mark.parametrize(
    "statements",
    some([[WITHOUT_CODES, *FILLED], [*FILLED], [WITHOUT_CODES, "; ".join(FILLED)]]),
    ids=["changed", "filled", "at once"],
)
def test_the_columns_of_a_new_key_were_null_in_older_rows(
    evolving: EvolvingDatabase, statements: Sequence[str]
) -> None:
    evolving.begin(
        "create table pears (id int, code int, note text)",
        "alter table pears replica identity full",
        "insert into pears values (1, 10, 'a'), (2, null, 'b'), (3, null, 'c'), (4, null, null)",
        "insert into pears values (7, null, 'g'), (8, null, 'h'), (8, null, 'h')",
        "create table log (id int primary key)",
    )
    evolving.run("delete from pears where ctid = (select max(ctid) from pears)", *statements)
    evolving.run("update pears set note = 'later' where code in (10, 20)")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
    assert evolving.read_again()
    evolving.run("update pears set note = 'last'", "delete from pears where code = 40")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
