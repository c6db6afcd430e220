"""A destination that is added to a stream under way, while tables are altered, and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from psycopg.rows import dict_row

from mirrorlake import root
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.sink import EventsSink
from mirrorlake.capture.landing.sink import LandingSink
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.errors import TableRecreated
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.events.values import decoded

pytestmark = [pytest.mark.postgres, pytest.mark.full]

Destination = Literal["landing zone", "event files"]

SETTINGS = CaptureSettings(load_workers=1, one_thread=True, roll_seconds=0.0)

ROW = "update apples set id = id where id = 2"
NEW = "insert into apples (id) values (9)"
ADDED = "alter table apples add column size int default 7"
RENAMED = "alter table apples rename note to remark"
RETYPED = "alter table apples alter note type bytea using note::bytea"
CHANGES = {
    "added": [ADDED],
    "added before a row": [ADDED, NEW],
    "added between rows": [ROW, ADDED, NEW],
    "renamed": [RENAMED],
    "renamed between rows": [ROW, RENAMED, NEW],
    "retyped before a row": [RETYPED, NEW],
    "retyped between rows": [ROW, RETYPED, NEW],
    "dropped between rows": [ROW, "alter table apples drop column note", NEW],
    "added and renamed": [ROW, ADDED, NEW, RENAMED, ROW],
}


@dataclass
class Destinations:
    evolving: EvolvingDatabase
    folder: Path
    settings: CaptureSettings = SETTINGS

    def capture(self, *destinations: Destination) -> None:
        """One process of capture into these, which takes everything."""
        with closing(self._new_capture(destinations)) as capture:
            capture.open()
            capture.once()

    def reset(self) -> None:
        """As `mirrorlake reset` does."""
        for sink in self._sinks(self._source()).values():
            sink.drop(TableId("public", "apples"))
        self._records.forget("public.apples")
        self.evolving.store.delete_folder("Tables/public/apples")

    def _new_capture(self, destinations: Sequence[Destination]) -> Capture:
        source = self._source()
        sinks = self._sinks(source)
        chosen = [sinks[one] for one in destinations]
        return Capture(source, self._records, chosen, self.settings, WallClock(), holder="c")

    def _source(self) -> PostgresSource:
        name = self.evolving.made
        return PostgresSource(self.evolving.database.settings(slot=name, publication=name))

    @property
    def _records(self) -> Records:
        return Records(self.evolving.store, root.LANDING)

    def _sinks(self, source: PostgresSource) -> dict[Destination, Sink]:
        events, store = EventsSettings("apples", self.folder), LocalStore(self.folder)
        records = self._records
        return {
            "landing zone": LandingSink(source, records, self.settings),
            "event files": EventsSink(source, records, self.settings, events, store, WallClock()),
        }

    def check_events(self) -> None:
        """The last event of each key has the row of the table."""
        found = [
            event for path in self.folder.rglob("*.avro") for event in decoded(path.read_bytes())
        ]
        found.sort(key=lambda event: event["sort_keys"])
        last = {event["payload"]["id"]: event["payload"] for event in found}
        with psycopg.connect(self.evolving.database.url, row_factory=dict_row) as connection:
            rows: Sequence[dict[str, Any]] = connection.execute("select * from apples").fetchall()
        assert {row["id"]: row for row in rows} == last


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("first", ["landing zone", "event files"])
def test_both_follow_what_was_altered_before_the_second_was_there(
    database: Database,
    store: LocalStore,
    tmp_path: Path,
    first: Destination,
    changes: Sequence[str],
) -> None:
    """The second is loaded with the columns as they are, and the first still has to get there."""
    evolving = EvolvingDatabase(database, store)
    destinations = Destinations(evolving, tmp_path / "events")
    evolving.run(
        "create table apples (id int primary key, note text)",
        "insert into apples values (1, 'a'), (2, 'b')",
    )
    destinations.capture(first)
    evolving.apply()
    evolving.run(*changes)
    for number in (20, 21):
        destinations.capture("landing zone", "event files")
        evolving.run(f"insert into apples (id) values ({number})")
    destinations.capture("landing zone", "event files")
    evolving.apply()
    if first == "event files" and RENAMED in changes:
        assert "columns were renamed" in evolving.stopped()["public.apples"]
        destinations.reset()
        destinations.capture("landing zone", "event files")
        evolving.apply()
    evolving.check("apples")
    if first == "landing zone":  # else no event tells what became of rows that were not changed
        destinations.check_events()


@pytest.mark.parametrize(
    ("chosen", "kinds"),
    [
        (["event files"], set()),
        (["event files"], {SchemaChangeKind.TABLE_DROPPED}),
        (["landing zone", "event files"], set()),
    ],
)
def test_events_of_a_dropped_table_stay_and_another_of_its_name_waits_for_a_person(
    database: Database,
    store: LocalStore,
    tmp_path: Path,
    chosen: Sequence[Destination],
    kinds: set[SchemaChangeKind],
) -> None:
    """No event deletes its rows, so that those of both would be mixed."""
    evolving = EvolvingDatabase(database, store)
    settings = replace(SETTINGS, drop_after_seconds=0.0, ignores=frozenset(kinds))
    destinations = Destinations(evolving, tmp_path / "events", settings)
    evolving.run(
        "create table log (id int primary key)",
        "create table apples (id int primary key, note text)",
        "insert into apples values (1, 'a'), (2, 'b')",
    )
    destinations.capture(*chosen)
    written = sorted(destinations.folder.rglob("*apples*/**/*.avro"))
    assert written
    evolving.run("drop table apples")
    records = Records(store, root.LANDING)
    for number in range(3):
        evolving.run(f"insert into log values ({number})")
        destinations.capture(*chosen)
        assert (records.failed(), [*records.dropped()]) == ({}, ["public.apples"])
    assert sorted(destinations.folder.rglob("*apples*/**/*.avro")) == written
    assert not (store.root / root.LANDING / "public.schema/apples").exists()
    evolving.run("create table apples (id int primary key)", "insert into apples values (7)")
    for _ in range(2):
        destinations.capture(*chosen)
        assert {n: e["code"] for n, e in records.failed().items()} == {
            "public.apples": TableRecreated.code
        }
    destinations.reset()
    destinations.capture(*chosen)
    assert not records.stopped()
    assert len(sorted(destinations.folder.rglob("*apples*/**/*.avro"))) == len(written) + 1
