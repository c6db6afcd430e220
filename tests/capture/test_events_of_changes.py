"""What a live database makes of changes: one event for each that was committed, and no other."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.events.envelope import FIELDS
from tests.capture.test_event_files import events, project
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = """
create schema a;
create table a.keyed (id int primary key, v text);
create table a.named (code text not null, v text);
create unique index named_code on a.named (code);
alter table a.named replica identity using index named_code;
create table a.plain (v text);
create table public.others (v text);
"""
CHANGES = """
insert into a.keyed select g, 'v' || g from generate_series(1, 3) g;
begin; insert into a.keyed values (9, 'never'); rollback;
begin;
update a.keyed set v = 'changed' where id = 2;
savepoint s; delete from a.keyed; rollback to s;
commit;
alter table a.keyed add late int;
update a.keyed set late = 7 where id = 3;
alter table a.keyed drop v;
delete from a.keyed where id = 1;
insert into a.named values ('x', 'one'), ('y', 'two');
update a.named set v = 'three' where code = 'x';
insert into a.plain values ('p');
"""


@pytest.mark.clause("ST-003", "ST-007", "ST-180", "ST-255", "ST-258", "ST-349", "ST-350", "ST-351")
def test_each_committed_change_is_one_event_under_the_columns_of_its_time(
    database: Database, tmp_path: Path
) -> None:
    database.execute(TABLES)
    mirror = Mirror(project(tmp_path, database))
    mirror.capture_once()
    for statement in filter(str.strip, CHANGES.split("\n")):
        database.execute(statement)
    mirror.capture_once()
    found = sorted(events(tmp_path / "bucket"), key=lambda event: event["sort_keys"])
    told = [
        (
            event["source_metadata"]["table"],
            event["source_metadata"]["change_type"],
            *event["payload"].values(),
        )
        for event in found
        if event["source_metadata"]["change_type"] != "DELETE"
    ]
    assert told == [
        *[("keyed", "INSERT", g, f"v{g}") for g in (1, 2, 3)],
        ("keyed", "UPDATE", 2, "changed"),
        ("keyed", "UPDATE", 3, "v3", 7),
        ("named", "INSERT", "x", "one"),
        ("named", "INSERT", "y", "two"),
        ("named", "UPDATE", "x", "three"),
        ("plain", "INSERT", "p"),
    ]
    (deletion,) = (one for one in found if one["source_metadata"]["change_type"] == "DELETE")
    assert (deletion["payload"]["id"], "v" in deletion["payload"]) == (1, False)
    keys = {one["object"]: one["source_metadata"]["primary_keys"] for one in found}
    assert keys == {"a_keyed": ["id"], "a_named": ["code"], "a_plain": []}
    assert len({one["schema_key"] for one in found if one["object"] == "a_keyed"}) == 3
    for one in found:
        assert list(one) == list(FIELDS)
        assert None not in [one[name] for name in FIELDS]

    # What happens elsewhere is acknowledged too, so that the log does not grow.
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("insert into public.others select 'o' from generate_series(1, 1000)")
        ((before,),) = connection.execute("select pg_current_wal_lsn()").fetchall()
        mirror.capture_once()
        slots = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots"
        own = f"{slots} where database = current_database()"
        assert connection.execute(own, [before]).fetchall() == [(True,)]
        # Tables of which only inserts are logged have a second publication.
        publications = "select count(*) from pg_publication where pubupdate"
        assert connection.execute(publications).fetchone() == (1,)
