"""A mirror whose root is a URL: all that it has lies on objects."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.config import Project
from mirrorlake.delta.file_cache import cache
from mirrorlake.errors import LeaseHeld, LeaseLost, UsageError
from mirrorlake.landing import Publisher
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG, STRING
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.storage.lease import TERM, Lease
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import StorageLocation, open_store
from tests.app.applying import Applying
from tests.delta.handmade import HandmadeTable
from tests.doubles.clock import SteppedClock
from tests.objects import S3Server

ROWS = [{"id": n, "v": f"v{n}"} for n in range(5)]
APPLIED = [(0, "v0"), (1, "new"), (3, "v3"), (4, "v4"), (9, "x")]
NEVER = ObjectOptions(endpoint="http://127.0.0.1:1", region="us-east-1")


class OnObjects(Applying):
    """A project with a bucket, and nothing else."""

    def __init__(self, s3: S3Server, **settings: Any) -> None:
        self.url = f"{s3.new_bucket()}/shop"
        super().__init__(Project("p", StorageLocation(self.url, s3.options), **settings))

    def publish(self, action: Callable[[Publisher], Any]) -> None:
        with Publisher(self.store) as publisher:
            action(publisher)

    def filled(self) -> OnObjects:
        self.publish(_fill)
        return self

    def rows(self, table: str = "Tables/s/t") -> list[tuple[Any, ...]]:
        return sorted(HandmadeTable(self.store.location(table)).rows())

    def read(self, path: str) -> Any:
        return json.loads(self.store.read(path))


def _fill(publisher: Publisher) -> None:
    publisher.load("s.t", ROWS, key="id")
    publisher.publish("s.t", [{"id": 1, "v": "new"}, {"id": 9, "v": "x"}], operation="upsert")
    publisher.publish("s.t", [{"id": 2}], operation="delete")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the process works in, which has nothing in it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "here"


@pytest.fixture
def mirror(here: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> OnObjects:
    s3.described(monkeypatch)
    cache.cache_clear()
    return OnObjects(s3)


def test_files_tables_leases_and_status_files_lie_at_the_url(mirror: OnObjects, here: Path) -> None:
    assert not mirror.filled().apply().errors
    assert mirror.rows() == APPLIED
    assert not mirror.apply().errors
    assert mirror.rows() == APPLIED
    assert mirror.read(f"{root.MONITORING}/replicator.json")["status"] == "Stopped"
    (table,) = mirror.read(f"{root.MONITORING}/tables.json")["tables"]
    assert (table["normalizedTableName"], table["errorCode"]) == ("s.t", "")
    assert mirror.store.list(f"{root.LEASES}/mirror").files
    assert not list(here.iterdir())


def test_status_files_and_plan_are_told_without_a_jvm(mirror: OnObjects) -> None:
    mirror.filled()
    looking = Mirror(mirror.project)
    assert len(looking.plan()) == 1
    mirror.apply()
    status = looking.status().facts()
    assert status["landing_zone"] == f"{mirror.url}/{root.LANDING}"
    assert status["tables"][0]["state"] == "Replicating"
    told = [tuple(file.values())[1:3] for file in looking.files("s.t").facts()["files"]]
    assert told == [(1, "applied"), (2, "applied"), (3, "applied")]


@pytest.mark.full
def test_rows_of_a_source_get_there_through_capture(
    mirror: OnObjects, s3: S3Server, here: Path
) -> None:
    database = MemoryDatabase(SteppedClock(datetime.now(UTC)))
    database.create("shop.orders", Schema.of([Column("id", LONG), Column("v", STRING)]), ["id"])
    captured = OnObjects(s3, source=MemorySettings(database))

    def write(first: int) -> None:
        with database.transaction() as transaction:
            for number in range(first, first + 3):
                transaction.insert("shop.orders", id=number, v=f"v{number}")

    write(1)
    Mirror(captured.project).capture_once()
    assert not captured.apply().errors
    write(4)
    Mirror(captured.project).capture_once()
    Mirror(captured.project).capture_once()
    assert not captured.apply().errors
    assert captured.rows("Tables/shop/orders") == [(n, f"v{n}") for n in range(1, 7)]
    assert Mirror(captured.project).status().facts()["tables"][0]["applied"]["insert"] == 6
    assert not list(here.iterdir())


@pytest.mark.full
def test_files_found_by_time_are_applied_once_with_their_record_on_objects(
    mirror: OnObjects,
) -> None:
    folder = f"{root.LANDING}/s.schema/t"
    described = {"keyColumns": ["id"], "fileDetectionStrategy": "LastUpdateTimeFileDetection"}
    mirror.store.replace(f"{folder}/_metadata.json", json.dumps(described).encode())
    for number, name in enumerate(("b.csv", "a.csv")):
        mirror.store.replace(f"{folder}/{name}", f"id,v\n{number},{name}\n".encode())
        assert not mirror.apply().errors
        assert not mirror.apply().errors
    assert len(mirror.rows()) == 2
    assert mirror.store.list(f"{root.STATE}/processed/Tables/s/t").folders


def test_a_reset_table_is_applied_again(mirror: OnObjects) -> None:
    mirror.publish(lambda publisher: publisher.load("s.t", ROWS, key="id"))
    mirror.apply()
    plan_reset(mirror.project, ["s.t"]).execute()
    assert mirror.store.list("Tables/s").folders == ()
    assert not mirror.apply().errors
    assert len(mirror.rows()) == len(ROWS)


def test_one_mirror_applies_and_one_that_lost_its_lease_writes_nothing(mirror: OnObjects) -> None:
    """Two machines: neither can see whether the process of the other lives."""
    mirror.filled()
    mirror.clock = clock = SteppedClock(datetime.now(UTC))
    first, second = mirror.loop(), mirror.loop()
    first.open()
    first._lease._record = lambda **_released: _elsewhere(clock)  # type: ignore[method-assign]
    first._lease._renewed = clock.now() - TERM
    first._lease.check()
    with pytest.raises(LeaseHeld, match="process 17 on elsewhere"):
        second.open()
    clock.advance(TERM.total_seconds() + 1)
    second = mirror.loop()
    second._lease._holder = "another"
    second.open()
    with pytest.raises(LeaseLost, match="another process took over"):
        first.once()
    assert mirror.store.list("Tables").folders == ()
    assert not second.once().errors
    second.close()
    assert mirror.rows() == APPLIED


def _elsewhere(clock: SteppedClock) -> bytes:
    record = {"holder": "m", "host": "elsewhere", "pid": 17, "started": "", "released": False}
    return json.dumps({**record, "renewed": clock.now().isoformat()}).encode()


def test_of_processes_that_take_a_lease_at_once_one_gets_it(mirror: OnObjects) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def taken(number: int) -> bool:
        try:
            Lease(open_store(mirror.url), "mirror", WallClock(), holder=str(number)).take()
        except LeaseHeld:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(taken, range(8))) == 1


@pytest.mark.full
@pytest.mark.parametrize("tables", [1, 4])
def test_an_idle_cycle_asks_the_same_however_many_tables_there_are(
    mirror: OnObjects, s3: S3Server, tables: int
) -> None:
    def fill(publisher: Publisher) -> None:
        for number in range(tables):
            publisher.load(f"s.t{number}", ROWS, key="id")

    mirror.publish(fill)
    mirror.clock = SteppedClock(datetime.now(UTC))
    loop = mirror.loop(cleanup_seconds=0)
    loop.open()
    for _cycle in range(3):
        loop.cycle(None)
    s3.requests.clear()
    loop.cycle(None)
    asked = [request.rpartition("shop/")[2] for request in s3.requests]
    mirror.clock.advance(5)
    s3.requests.clear()
    loop.cycle(None)
    later = list(s3.requests)
    loop.close()
    lease = f"{root.LEASES}/mirror"
    assert asked == [f"{lease}/", f"{lease}/{1:020d}.json", f"{root.LANDING}/"]
    # The lease is renewed; status files tell that the mirror lives.
    assert f"PUT /{mirror.url.removeprefix('s3://')}/{lease}/{1:020d}.json" in later
    assert len(later) == 19


class TestWrongRoots:
    """A wrong URL is refused before anything is made."""

    @pytest.mark.parametrize("act", [Mirror.plan, Mirror.apply_once, Mirror.apply_run])
    def test_a_place_that_holds_other_things_is_refused(
        self, mirror: OnObjects, act: Callable[[Mirror], object]
    ) -> None:
        mirror.store.replace("photos/one.jpg", b"")
        with pytest.raises(UsageError, match="holds other things, such as photos"):
            act(Mirror(mirror.project))
        assert mirror.store.list("").folders == ("photos",)

    def test_tables_without_a_landing_zone_are_refused(self, mirror: OnObjects) -> None:
        mirror.store.replace("Tables/s/t/_delta_log/00000000000000000000.json", b"")
        with pytest.raises(UsageError, match=r"there are tables, such as Tables/s/t"):
            Mirror(mirror.project).plan()

    @pytest.mark.parametrize("url", ["{}/inner", "{}"])
    def test_roots_inside_each_other_are_refused(
        self, mirror: OnObjects, s3: S3Server, url: str
    ) -> None:
        mirror.filled().apply()
        inside = url.format(mirror.url)
        other = inside if inside != mirror.url else mirror.url.rpartition("/")[0]
        said = "lies inside" if inside != mirror.url else "inside this root"
        with pytest.raises(UsageError, match=said) as error:
            Mirror(Project("q", StorageLocation(other, s3.options))).plan()
        assert mirror.url in str(error.value)

    def test_a_landing_zone_of_another_mirror_is_not_its_root(
        self, mirror: OnObjects, s3: S3Server, tmp_path: Path
    ) -> None:
        inner = StorageLocation(f"{mirror.url}/landed", s3.options)
        other = Project("q", tmp_path / "lake", landing=inner)
        with Publisher(open_store(inner.url, inner.options)) as publisher:
            _fill(publisher)
        Applying(other).apply()
        mirror.filled()
        assert len(Mirror(mirror.project).plan()) == 1


class TestByUrlAlone:
    """`--root URL`, without a project file."""

    def test_a_landing_zone_at_a_url_is_mirrored(self, mirror: OnObjects) -> None:
        mirror.filled()
        opened = Mirror.open(root=mirror.url)
        assert opened.project.name == "shop"
        assert len(opened.plan()) == 1
        assert opened.status().facts()["tables"][0]["table"] == "s.t"

    def test_a_url_with_nothing_is_refused(self, mirror: OnObjects) -> None:
        with pytest.raises(UsageError, match="there is nothing at this URL"):
            Mirror.open(root=mirror.url)

    def test_a_storage_that_holds_no_tables_is_refused(self) -> None:
        with pytest.raises(UsageError, match="only in a folder or on S3"):
            Mirror.open(root="gs://bucket/shop")

    def test_a_secret_in_a_url_is_refused_and_not_repeated(self) -> None:
        for url in ("s3://key:hunter2@bucket/shop", "s3://bucket/shop?token=hunter2"):
            with pytest.raises(UsageError) as error:
                Mirror.open(root=url)
            assert "hunter2" not in str(error.value)


def test_the_log_of_a_run_on_a_terminal_is_in_the_state_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mirrorlake.cli import run_view

    monkeypatch.setattr(run_view, "is_live", lambda: True)
    monkeypatch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path))
    project = Project("../shop", StorageLocation("s3://bucket/shop", NEVER))
    file = run_view.log_file(project)
    assert file is not None
    assert file.resolve().is_relative_to(tmp_path / "mirrorlake")
