"""What is done to a table while capture is stopped, or between two of its looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.records.names import KNOWN
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.landing import layout
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.scan import data_files
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.recognition.recognition import PUT_BACK
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, size int, note text)"
LOG = "create table log (id int primary key)"
PARTS = (
    "create table parts (id int primary key) partition by range (id)",
    "create table parts_low partition of parts for values from (0) to (10)",
    "create table parts_high partition of parts for values from (10) to (20)",
    "insert into parts values (1), (11)",
)


@dataclass
class Zone:
    """A landing zone that is filled from a database, by one process after another."""

    database: Database
    store: LocalStore
    stops_at: frozenset[SchemaChangeKind] = frozenset()

    def run(self, *statements: str) -> None:
        self.database.execute(*statements)

    def capture(self) -> Capture:
        source = PostgresSource(self.database.settings())
        settings = CaptureSettings(
            load_workers=1, one_thread=True, roll_seconds=0.0, stops_at=self.stops_at
        )
        return landing_capture(source, self.store, settings, WallClock())

    def once(self, *statements: str) -> None:
        """Run the statements, then land everything in a process of its own."""
        self.run(*statements)
        with closing(self.capture()) as capture:
            capture.open()
            capture.once()

    @property
    def records(self) -> Records:
        return Records(self.store, root.LANDING)

    def stopped(self) -> dict[str, str]:
        return {name: str(facts["message"]) for name, facts in self.records.stopped().items()}

    def read_again(self, table: str) -> str:
        """Why a table was read again, to its end."""
        (job,) = BackfillRecords(self.records).jobs()
        assert (job.request.table, job.state) == (table, BackfillJobState.COMPLETED)
        assert table not in self.stopped()
        return job.request.reason

    def loses_additions(self) -> bool:
        return publication.loses_additions(self.database.sql.info.server_version)

    def rows(self, table: str) -> int:
        """How many changes of a table are landed."""
        folder = layout.folder_of(root.LANDING, TableId("public", table))
        total = 0
        for file in data_files(folder, self.store.list(folder)):
            with self.store.open(file.path) as handle:
                found = parquet.inspect(handle, file.size, table=table, file=str(file.name))
            assert found.footer is not None
            total += sum(found.footer.rows.values())
        return total


@pytest.fixture
def zone(any_database: Database, store: LocalStore) -> Iterator[Zone]:
    return Zone(any_database, store)


UNPUBLISHED = (
    "alter publication {pub} drop table apples",
    "insert into apples (id) values (2)",
    "alter publication {pub} add table apples",
)


@pytest.mark.full
@pytest.mark.parametrize("row", [False, True], ids=["quiet", "with a row"])
def test_what_happens_while_capture_is_stopped_is_found(zone: Zone, *, row: bool) -> None:
    zone.once(APPLES, LOG, "insert into apples values (0, 0, 'a')")
    landed = zone.rows("apples")
    name = zone.database.settings().publication
    zone.run(*(statement.format(pub=name) for statement in UNPUBLISHED))
    if row:
        zone.run("insert into apples (id) values (12)")
    zone.once("insert into log values (1)")
    if zone.loses_additions():
        assert PUT_BACK in zone.stopped()["public.apples"]
        assert zone.rows("apples") == landed
    else:
        assert PUT_BACK in zone.read_again("public.apples")
        assert zone.rows("apples") > landed
    assert ("public.log" in zone.stopped(), zone.rows("log")) == (False, 1)


DIFFERENT = {
    "again": (
        "apples",
        ["alter table apples drop column note", "alter table apples add column note text"],
        "was dropped and added again",
    ),
    "volatile": (
        "apples",
        ["alter table apples add column c float default random()"],
        "the table rewritten",
    ),
    "truncated": ("parts", ["truncate parts_low"], "parts_low was truncated"),
    "detached": ("parts", ["alter table parts detach partition parts_low"], "was detached"),
}


@pytest.mark.parametrize(("table", "statements", "what"), some(DIFFERENT.values()), ids=DIFFERENT)
def test_a_table_that_differs_since_capture_was_stopped_is_read_again(
    zone: Zone, table: str, statements: Sequence[str], what: str
) -> None:
    zone.once(APPLES, LOG, *PARTS, "insert into apples values (0, 0, 'a')")
    zone.run(*statements)
    zone.once(f"insert into {table} (id) values (12)", "insert into log values (1)")
    assert what in zone.read_again(f"public.{table}")
    assert zone.rows("log") == 1


def test_what_happens_between_two_looks_is_found_before_the_next_row(zone: Zone) -> None:
    zone.once(APPLES, LOG)
    name = zone.database.settings().publication
    with closing(zone.capture()) as capture:
        capture.open()
        zone.run(
            f"alter publication {name} drop table apples",
            "insert into apples (id) values (2)",
            f"alter publication {name} add table apples",
            "insert into apples (id) values (3)",
            "insert into log values (1)",
        )
        capture.once()
    if zone.loses_additions():
        assert PUT_BACK in zone.stopped()["public.apples"]
    else:
        assert PUT_BACK in zone.read_again("public.apples")
    assert (zone.rows("apples") > 0, zone.rows("log")) == (not zone.loses_additions(), 1)


def test_a_table_that_was_reset_is_known_anew(zone: Zone) -> None:
    zone.once(APPLES, "insert into apples values (0, 0, 'a')")
    name = zone.database.settings().publication
    zone.run(f"comment on publication {name} is 'of others'")
    zone.stops_at = frozenset({SchemaChangeKind.PUBLICATION_CHANGED})
    zone.once(*(statement.format(pub=name) for statement in UNPUBLISHED[:2]))
    reason = "can lose changes" if zone.loses_additions() else "no longer contains"
    assert reason in zone.stopped()["public.apples"]
    zone.run(UNPUBLISHED[2].format(pub=name))
    zone.records.forget("public.apples")
    zone.store.delete_folder(layout.folder_of(root.LANDING, TableId("public", "apples")))
    zone.once("insert into apples values (1, 1, 'b')")
    zone.once("insert into apples values (3, 3, 'c')")
    assert (zone.stopped(), zone.rows("apples")) == ({}, 4)


def test_a_column_that_was_added_while_it_ran_is_known_at_the_next_start(zone: Zone) -> None:
    zone.once(APPLES)
    zone.once("alter table apples add column c int", "insert into apples (id) values (1)")
    assert zone.records.known()["public.apples"]["columns"]["4"] == "c"
    zone.once("alter table apples rename c to d", "insert into apples (id) values (2)")
    assert zone.records.known()["public.apples"]["columns"]["4"] == "d"
    assert zone.stopped() == {}


def test_changes_that_all_are_in_the_log_are_lived_through(zone: Zone) -> None:
    zone.once(APPLES, *PARTS)
    zone.once(
        "insert into apples (id) values (1)",
        "alter table apples drop column note",
        "insert into apples (id) values (2)",
        "alter table apples add column c int",
        "insert into apples (id) values (3)",
        "truncate parts",
        "insert into parts values (3)",
        "create table parts_more partition of parts for values from (20) to (30)",
        "insert into parts values (21)",
    )
    zone.once("vacuum full apples", "insert into apples (id) values (4)")
    zone.once("alter table apples add column d int", "insert into parts values (4)")
    assert (zone.stopped(), zone.rows("apples")) == ({}, 4)


def test_a_schema_that_was_put_back_into_the_publication_is_read_again(zone: Zone) -> None:
    if zone.database.sql.info.server_version < 150_000:
        pytest.skip("there are no publications of schemas")
    name = zone.database.settings().publication
    zone.run(APPLES, f"create publication {name} for tables in schema public")
    zone.once(f"alter publication {name} set (publish_via_partition_root = true)")
    zone.once("insert into apples (id) values (1)")
    assert zone.stopped() == {}
    zone.once(
        f"alter publication {name} drop tables in schema public",
        "insert into apples (id) values (2)",
        f"alter publication {name} add tables in schema public",
    )
    if zone.loses_additions():
        assert PUT_BACK in zone.stopped()["public.apples"]
    else:
        assert PUT_BACK in zone.read_again("public.apples")


def test_a_table_of_a_publication_of_all_goes_on(zone: Zone) -> None:
    name = zone.database.settings().publication
    zone.run(APPLES, f"create publication {name} for all tables")
    zone.once(f"alter publication {name} set (publish_via_partition_root = true)")
    zone.once("insert into apples (id) values (1)")
    assert (zone.stopped(), zone.rows("apples")) == ({}, 1)


@pytest.mark.parametrize("renamed", [False, True])
def test_what_an_earlier_release_loaded_is_taken_as_it_is_if_its_columns_agree(
    zone: Zone, *, renamed: bool
) -> None:
    zone.once(APPLES)
    zone.store.delete(f"{zone.records.folder}/{KNOWN}")
    if renamed:
        zone.run("alter table apples rename note to remark")
    zone.once("insert into apples (id) values (1)")
    if renamed:
        assert "by an earlier release" in zone.stopped()["public.apples"]
    else:
        assert (zone.stopped(), zone.rows("apples")) == ({}, 1)
        assert zone.records.known()["public.apples"]["columns"]["3"] == "note"
