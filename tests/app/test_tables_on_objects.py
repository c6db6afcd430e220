"""A mirror whose tables lie on objects, while files are landed below its root."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import read_feed, root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta import tables
from mirrorlake.delta.file_cache import cache
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import ForeignTable, LeaseHeld
from mirrorlake.landing import Publisher
from mirrorlake.mirror.compaction import clustering, small_files
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.faults import UnreachableTable
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.store import StorageFailed
from mirrorlake.storage.urls import StorageLocation
from tests.app.applying import Applying
from tests.delta.handmade import HandmadeTable
from tests.doubles.clock import SteppedClock
from tests.doubles.handmade_engine import in_process_engine
from tests.objects import CREDENTIALS, S3Server

ROWS = [{"id": n, "v": f"v{n}"} for n in range(5)]
APPLIED = [(0, "v0"), (1, "new"), (3, "v3"), (4, "v4"), (9, "x")]


class Kept(Applying):
    """A project with a bucket for its tables."""

    def __init__(self, root: Path, s3: S3Server) -> None:
        tables = StorageLocation(f"{s3.new_bucket()}/shop", s3.options)
        super().__init__(Project("p", root / "lake", tables=tables))

    def publish(self, action: Callable[[Publisher], Any]) -> None:
        with Publisher(LocalStore(self.project.root)) as publisher:
            action(publisher)

    def filled(self) -> Kept:
        self.publish(lambda publisher: publisher.load("s.t", ROWS, key="id"))
        self.apply()
        self.publish(_change)
        return self

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(HandmadeTable(self.store.location("Tables/s/t")).rows())

    def forget(self) -> None:
        """As on another machine: nothing of the table is here."""
        tempfile.tempdir = str(Path(tempfile.gettempdir(), "other"))
        Path(tempfile.tempdir).mkdir()
        cache.cache_clear()


def _change(publisher: Publisher) -> None:
    publisher.publish("s.t", [{"id": 1, "v": "new"}, {"id": 9, "v": "x"}], operation="upsert")
    publisher.publish("s.t", [{"id": 2}], operation="delete")


@pytest.fixture
def kept(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Kept:
    s3.described(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache.cache_clear()
    return Kept(tmp_path, s3)


def test_what_was_landed_below_the_root_is_in_the_table(kept: Kept) -> None:
    assert not kept.filled().apply().errors
    assert kept.rows() == APPLIED
    assert not (kept.project.root / "Tables").exists()
    assert not kept.apply().errors
    assert kept.rows() == APPLIED


@pytest.mark.full
def test_another_machine_goes_on_with_the_tables(kept: Kept) -> None:
    kept.filled().forget()
    assert not kept.apply().errors
    assert kept.rows() == APPLIED


def test_a_file_that_is_gone_stops_its_table_and_is_named(kept: Kept) -> None:
    kept.filled()
    (part,) = [f.name for f in kept.store.list("Tables/s/t").files if f.name.startswith("part-")]
    kept.store.delete(f"Tables/s/t/{part}")
    kept.forget()
    (error,) = kept.apply().errors
    assert isinstance(error, ForeignTable)
    assert f"{part} is missing" in error.what


@pytest.mark.full
@pytest.mark.clause("CF-095", "CF-156")
def test_files_in_a_bucket_are_clustered(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "SMALLEST", 1_000)
    monkeypatch.setattr(clustering, "CLASSES", (1, 1, 1))
    monkeypatch.setattr(clustering, "FILE_ROWS", 5)
    kept.filled()
    for number in range(2, 14):
        rows = [{"id": key, "v": str(number)} for key in (1, number, 100)]
        kept.publish(partial(Publisher.publish, table="s.t", rows=rows, operation="upsert"))
        assert not kept.apply().errors
    location, store = kept.store.location("Tables/s/t"), kept.store
    rows, feed = kept.rows(), fed(kept)
    kept.forget()  # a machine that has none of the files
    engine = in_process_engine(store)
    step = engine.clustering("Tables/s/t")
    assert step is not None
    version = engine.progress("Tables/s/t").version
    (outcome,) = engine.compact([step], lambda: None)
    assert isinstance(outcome, Applied)
    assert outcome.version == version + 1
    assert engine.clustering("Tables/s/t") is None
    kept.forget()
    assert (kept.rows(), fed(kept)) == (rows, feed)
    added = [
        add["path"]
        for add in TableLog(location, store.options("Tables/s/t")).snapshot().files.values()
    ]
    assert {*added} <= {file.name for file in store.list("Tables/s/t").files}


def fed(kept: Kept) -> list[dict[str, Any]]:
    """The change feed of the table."""
    location, options = kept.store.location("Tables/s/t"), kept.store.options("Tables/s/t")
    return read_feed(location, from_beginning=True, options=options).to_arrow().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.full
@pytest.mark.parametrize("action", ["fetch", "upload"])
def test_a_storage_that_fails_is_told_as_that_and_tried_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def fail(*_args: object) -> None:
        raise StorageFailed(errno.EREMOTEIO, "the network is gone")

    kept.filled().forget()
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, action, fail)
        (error,) = kept.apply().errors
    assert isinstance(error, UnreachableTable)
    assert "the network is gone" in error.what
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(error)
    assert not kept.apply().errors
    assert kept.rows() == APPLIED


def test_status_files_and_plan_are_told_without_a_jvm(kept: Kept) -> None:
    kept.filled()
    mirror = Mirror(kept.project)
    assert mirror.status().facts()["tables"][0]["state"] == "Replicating"
    told = [tuple(file.values())[1:3] for file in mirror.files("s.t").facts()["files"]]
    assert told == [(1, "applied"), (2, "waiting"), (3, "waiting")]
    (planned,) = mirror.plan()
    assert "files 2 to 3" in " ".join(map(str, planned.steps))


@pytest.mark.full
@pytest.mark.clause("LZ-231")
def test_a_table_goes_when_its_publisher_drops_its_folder(kept: Kept) -> None:
    kept.filled().apply()
    kept.publish(lambda publisher: publisher.drop("s.t"))
    kept.clock = SteppedClock()
    loop = kept.loop(drop_after=MirrorSettings().drop_after / 10)
    loop._lease._renewed = kept.clock.now()
    loop.open()
    for _ in range(10):
        kept.clock.advance(10)  # type: ignore[attr-defined]
        loop.cycle(None)
    loop.close()
    assert kept.store.list("Tables/s").folders == ()
    aside = HandmadeTable(kept.store.location(f"{root.DROPPED}/Tables/s/t"))
    assert sorted(aside.rows()) == APPLIED


@pytest.mark.full
def test_a_reset_table_is_applied_again(kept: Kept) -> None:
    kept.filled().apply()
    plan_reset(kept.project, ["s.t"]).execute()
    assert kept.store.list("Tables/s").folders == ()
    kept.apply()
    assert kept.rows() == APPLIED


def test_a_key_that_stands_for_a_folder_is_in_the_way_of_nothing(kept: Kept, s3: S3Server) -> None:
    """Delta lets Hadoop make one for each table, below its log, which our client cannot remove."""
    kept.filled().apply()
    table = kept.store.location("Tables/s/t").removeprefix("s3://")
    s3.send("PUT", f"{table}/_delta_log/_staged_commits/")
    aside = f"{root.DROPPED}/Tables/s/t"
    tables.put_aside(kept.store, "Tables/s/t", aside)
    tables.put_aside(kept.store, "Tables/s/t", aside)
    assert list(tables.delta_tables(kept.store)) == []
    assert sorted(HandmadeTable(kept.store.location(aside)).rows()) == APPLIED
    plan_reset(kept.project, ["s.t"]).execute()
    assert not kept.apply().errors
    assert list(tables.delta_tables(kept.store)) == ["Tables/s/t"]
    (told,) = Mirror(kept.project).status().tables
    assert (str(told.state), told.last_file) == ("Replicating", 3)


def test_the_right_to_apply_lies_with_the_tables(kept: Kept, tmp_path: Path) -> None:
    other = Project("q", tmp_path / "elsewhere", tables=kept.project.tables)
    Lease(kept.store, "mirror", WallClock()).take()
    with pytest.raises(LeaseHeld):
        Lease(store_of(other), "mirror", WallClock()).take()


@pytest.mark.full
@pytest.mark.parametrize("tables", [1, 4])
def test_an_idle_cycle_asks_the_same_however_many_tables_there_are(
    kept: Kept, s3: S3Server, tables: int
) -> None:
    def fill(publisher: Publisher) -> None:
        for number in range(tables):
            publisher.load(f"s.t{number}", ROWS, key="id")

    kept.publish(fill)
    kept.clock = SteppedClock(datetime.now(UTC))
    loop = kept.loop(cleanup_seconds=0)
    loop.open()
    for _cycle in range(3):
        loop.cycle(None)
    s3.requests.clear()
    loop.cycle(None)
    asked = list(s3.requests)
    loop.close()
    lease = f"shop/{root.STATE}/leases/mirror"
    held = f"GET /{kept.project.tables.url.removeprefix('s3://')[:-5]}/{lease}/{1:020d}.json"  # type: ignore[union-attr]
    assert asked == [f"LIST {lease}/", held, "LIST shop/"]
