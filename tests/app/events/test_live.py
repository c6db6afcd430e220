"""A database as event files, and these as tables: the tables are the database's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from tests.apply.events.drawn_files import rows_of
from tests.azure_blobs import AzureBlobs
from tests.capture.test_event_files import FIRST, TYPES, project
from tests.conftest import Database
from tests.doubles.google_storage import GoogleStorage
from tests.profiles import some

KEYED = "create table a.keyed (id int primary key, v text)"
ROUNDS = [
    "insert into a.keyed select g, 'v' || g from generate_series(1, 400) g;",
    """
    begin;
    insert into a.keyed values (1000, 'new');
    update a.keyed set v = 'changed' where id % 3 = 0;
    update a.keyed set v = v || '!' where id % 6 = 0;
    update a.keyed set id = id + 5000 where id between 20 and 25;
    commit;
    delete from a.keyed where id % 7 = 0;
    """,
    """
    alter table a.keyed add late int;
    update a.keyed set late = id where id < 10;
    insert into a.keyed values (7, 'again', 7);
    """,
    """
    begin;
    insert into a.keyed values (9000, 'before');
    truncate a.keyed;
    insert into a.keyed values (7, 'after', 7), (9000, 'after', 9000);
    commit;
    """,
]


def projects(
    folder: Path, database: Database, form: str, url: str = "./bucket", access: str = ""
) -> tuple[Mirror, Mirror]:
    """What writes the files, and what makes tables of them. access: settings of the bucket."""
    files = f"  format: {form}\n{access}"
    schema = "  schema_file: true\n" if form == "json" else ""
    writes = project(folder, database, f"{files}  truncations: true\n{schema}", url)
    reads = folder / "reads.yaml"
    reads.write_text(f"name: t\nroot: ./lake\nsource:\n  type: events\n  url: {url}\n{files}")
    return Mirror(writes), Mirror(config.load(reads))


def table(folder: Path, name: str) -> dict[int, dict[str, Any]]:
    rows = rows_of(folder / "lake/Tables/a" / name)
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    for row in rows:
        assert row.pop("datastream_metadata")["UUID"]
    return found


def live(database: Database, writes: Mirror, reads: Mirror) -> None:
    """The changes, each written and read by itself."""
    for changes in ["", *ROUNDS]:
        if changes:
            database.execute(changes)
        writes.capture_once()
        reads.apply_once()


def assert_equal(database: Database, folder: Path) -> None:
    """The keyed table is the one of the database."""
    with psycopg.connect(database.url) as connection:
        wanted = connection.execute("select id, v, late from a.keyed").fetchall()
    assert {(r["id"], r["v"], r["late"]) for r in table(folder, "keyed").values()} == set(wanted)


@pytest.mark.postgres
@pytest.mark.clause("ST-256")
@pytest.mark.parametrize("form", some(["avro", "json"]))
def test_tables_of_the_events_of_a_database_are_the_tables_of_the_database(
    database: Database, tmp_path: Path, form: str
) -> None:
    database.execute(TYPES, KEYED)
    writes, reads = projects(tmp_path, database, form)
    live(database, writes, reads)
    assert_equal(database, tmp_path)
    assert reads.apply_once().tables == {}
    first, second = (table(tmp_path, "types")[number] for number in (1, 2))
    assert second["tags"] == "[]"
    as_told = (
        "small",
        "big",
        "num",
        "dec",
        "cash",
        "real",
        "double",
        "yes",
        "bytes",
        "bits",
        "mood",
    )
    same = {name: FIRST[name] for name in as_told} | {
        "tm": "24:00:00.000000",
        "tz": "08:15:30.500000-03:30",
        "span": "P-14MT68H-306.700000S",
        "tags": '["a", null, "b,\\"c"]',
        "grid": "[[1, 2], [3, 4]]",
        "raw": '["AP8=", null]',
    }
    assert {name: first[name] for name in same} == same
    assert f"{first['day']:%Y-%m-%d}" == "2026-01-02"
    assert first["ts"].isoformat() == "2026-01-02T03:04:05.678901+00:00"
    assert first["tstz"].isoformat() == "2026-01-02T01:04:05+00:00"
    assert first["js"].replace(" ", "") == '{"a":[1,2.50]}'


@pytest.mark.postgres
@pytest.mark.clause("ST-135")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_values_that_postgresql_takes_for_json_stay_as_they_are(
    database: Database, tmp_path: Path, form: str
) -> None:
    """A name twice, and an escape of half a character. As changes and as loaded rows."""
    values = ['{"a":1,"a":2}', '"\\ud800"', '["\\udc00\u00e9",{"b":1e400,"b":[]}]']
    database.execute("create schema a", "create table a.docs (id int primary key, doc json)")
    writes, reads = projects(tmp_path, database, form)
    with psycopg.connect(database.url, autocommit=True) as connection:
        for added in (0, 10):
            for number, value in enumerate(values, added):
                connection.execute("insert into a.docs values (%s, %s)", [number, value])
            writes.capture_once()
            assert not reads.apply_once().errors
    found = {number: row["doc"] for number, row in table(tmp_path, "docs").items()}
    assert found == dict(enumerate(values)) | dict(enumerate(values, 10))


@pytest.mark.postgres
@pytest.mark.full
@pytest.mark.parametrize("form", ["avro", "json"])
def test_event_files_may_be_on_azure(
    database: Database, tmp_path: Path, azure: AzureBlobs, form: str
) -> None:
    access = f"  endpoint: {azure.endpoint}\n  account: {azure.options.account}\n"
    through_a_bucket(database, tmp_path, form, azure.new_container(), access)


@pytest.mark.postgres
@pytest.mark.full
@pytest.mark.parametrize("form", ["avro", "json"])
def test_event_files_may_be_on_google_cloud_storage(
    database: Database, tmp_path: Path, google: GoogleStorage, form: str
) -> None:
    through_a_bucket(
        database, tmp_path, form, google.new_bucket(), f"  endpoint: {google.endpoint}\n"
    )


def through_a_bucket(database: Database, folder: Path, form: str, bucket: str, access: str) -> None:
    """Write the files of a database into a bucket, and make tables of them."""
    database.execute(TYPES, KEYED)
    writes, reads = projects(folder, database, form, f"{bucket}/shop", access)
    live(database, writes, reads)
    assert_equal(database, folder)
    assert reads.apply_once().tables == {}
