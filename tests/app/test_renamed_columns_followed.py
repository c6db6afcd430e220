"""What is made of the changes of a table whose columns are renamed by column mapping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable

from mirrorlake import Project, history, read_feed, subscribe
from mirrorlake.app.changes.event_files import write_events
from mirrorlake.app.changes.landing_zone import land, name_of
from mirrorlake.app.landed_files import LandedFiles
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, SourceColumnsChanged
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.app.test_schema_changes_live import APPLES, EXCHANGE
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

RENAMED = "alter table apples rename note to remark"
REUSED = f"{RENAMED}; alter table apples add column note text"
KEY = """
    alter table apples rename id to other;
    alter table apples rename weight to id;
    alter table apples rename other to weight
"""


@dataclass
class Followed:
    """A table, and copies of it that know its columns by name. number: of the steps so far."""

    evolving: EvolvingDatabase
    folder: Path
    number: int = 0
    location: str = field(init=False)

    def __post_init__(self) -> None:
        self.location = self.evolving.store.location("Tables/public/apples")

    def run(self, *statements: str) -> None:
        """Each is applied by itself."""
        for statement in statements:
            self.number += 1
            self.evolving.run(statement, f"insert into log values ({self.number})")
            self.evolving.capture()
            self.evolving.apply()

    def land(self) -> int:
        return sum(one.rows for one in land(self.location, self.folder / "zone"))

    def write_events(self) -> int:
        settings = EventsSettings("s", self.folder / "events")
        key = key_columns(TableLog(self.location).snapshot().properties)
        target = LocalStore(self.folder / "events")
        name = name_of(self.location)
        landed = LandedFiles(Project.of_root(self.evolving.store.root), name)
        written = write_events(self.location, name, key, settings, target, landed=landed)
        return sum(one.events for one in written)

    @property
    def copies(self) -> tuple[Callable[[], int], ...]:
        return self.land, self.write_events


@pytest.fixture
def followed(database: Database, store: LocalStore, tmp_path: Path) -> Followed:
    evolving = EvolvingDatabase(database, store, renames=True)
    evolving.begin(*APPLES)
    found = Followed(evolving, tmp_path)
    assert [copy() for copy in found.copies] == [3, 3]
    return found


@pytest.mark.parametrize("change", [EXCHANGE, RENAMED, REUSED])
def test_copies_by_name_stop_at_a_renamed_column(followed: Followed, change: str) -> None:
    followed.run(
        "update apples set weight = 5 where id = 1", f"{change}; insert into apples (id) values (7)"
    )
    for copy in followed.copies:
        for _attempt in range(2):
            with pytest.raises(FeedError, match="renamed column") as refused:
                copy()
            assert refused.value.reason == "schema_changed"
            assert refused.value.hint.startswith("Delete")


def test_copies_by_name_go_on_where_columns_are_added(followed: Followed) -> None:
    followed.run(
        "alter table apples add column c int default 7; insert into apples (id) values (7)",
        "delete from apples where id = 2",
    )
    assert [copy() for copy in followed.copies] == [5, 5]


def test_changes_before_the_key_was_renamed_are_read_by_its_former_name(
    followed: Followed,
) -> None:
    rows = "insert into apples (id, weight) values (50, 1), (40, 2), (60, 3)"
    after = "update apples set size = 3 where weight = 50"
    followed.run(rows, f"{KEY}; {after}")
    feed = read_feed(followed.location, from_version=0, pair_updates=True, sort=True)
    assert feed.key == ("weight",)
    loaded, inserted, updated = feed
    assert inserted.rows["id"].to_pylist() == [40, 50, 60]
    assert [loaded.rows.num_rows, updated.rows.num_rows] == [3, 2]
    with subscribe("q", followed.location, start=0, pair_updates=True) as changes:
        assert [one.rows.num_rows for one in changes] == [3, 3, 2]
    for copy in followed.copies:
        with pytest.raises(FeedError, match="renamed column"):
            copy()


def test_a_history_says_that_its_key_was_renamed(followed: Followed) -> None:
    target = followed.folder / "history"
    history(followed.location, target)
    followed.run(KEY, "insert into apples (weight) values (9)")
    with pytest.raises(SourceColumnsChanged, match="changed column id: it was renamed"):
        history(followed.location, target)


def test_copies_by_name_go_on_where_the_log_of_their_last_version_is_gone(
    followed: Followed,
) -> None:
    log = Path(followed.location) / "_delta_log"
    followed.run("update apples set weight = 5 where id = 1", "delete from apples where id = 2")
    for copy in followed.copies:
        copy()
    version = TableLog(followed.location).snapshot().version
    followed.run("insert into apples (id) values (8)")
    DeltaTable(followed.location).create_checkpoint()
    for old in range(version + 1):
        for path in log.glob(f"{old:020d}*"):
            path.unlink()
    assert [copy() for copy in followed.copies] == [1, 1]
