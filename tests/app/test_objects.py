"""A mirror whose files are landed on objects, while its tables stay below its root."""

from __future__ import annotations

import errno
import io
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.errors import LeaseHeld
from mirrorlake.landing import Publisher, TextFormat, layout
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.storage import objects
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import StorageFailed, Store
from mirrorlake.storage.urls import StorageLocation
from tests.app.applying import Applying
from tests.delta.handmade import HandmadeTable
from tests.doubles.clock import SteppedClock
from tests.objects import S3Server

ROWS = [{"id": n, "v": f"v{n}"} for n in range(5)]
FOLDER = "Files/LandingZone/s.schema/t"


class Landed(Applying):
    """A project with a bucket, filled by a publisher that knows the bucket alone."""

    def __init__(self, root: Path, s3: S3Server) -> None:
        url = f"{s3.new_bucket()}/shop"
        super().__init__(Project("p", root / "lake", landing=StorageLocation(url, s3.options)))

    @property
    def bucket(self) -> Store:
        return self.store._elsewhere  # type: ignore[attr-defined,no-any-return]

    def publish(self, action: Callable[[Publisher], Any]) -> None:
        with Publisher(self.bucket) as publisher:
            action(publisher)

    def filled(self) -> Landed:
        def fill(publisher: Publisher) -> None:
            publisher.load("s.t", ROWS, key="id")
            publisher.publish(
                "s.t", [{"id": 1, "v": "new"}, {"id": 9, "v": "x"}], operation="upsert"
            )
            publisher.publish("s.t", [{"id": 2}], operation="delete")

        self.publish(fill)
        return self

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(HandmadeTable(self.project.root / "Tables/s/t").rows())


APPLIED = [(0, "v0"), (1, "new"), (3, "v3"), (4, "v4"), (9, "x")]


@pytest.fixture
def landed(tmp_path: Path, s3: S3Server) -> Landed:
    return Landed(tmp_path, s3)


@pytest.mark.clause("LZ-327")
def test_what_was_published_onto_objects_is_in_the_table(landed: Landed) -> None:
    report = landed.filled().apply()
    assert not report.errors
    assert landed.rows() == APPLIED
    assert not (landed.project.root / root.LANDING).exists()


@pytest.mark.clause("LZ-248", "LZ-243")
def test_applied_files_are_moved_aside_where_they_lie(landed: Landed) -> None:
    landed.filled().apply()
    listing = landed.bucket.list(FOLDER)
    numbered = [file.name for file in listing.files if not file.name.startswith("_")]
    assert numbered == [f"{3:020d}.parquet"]
    aside = landed.bucket.list(f"{FOLDER}/{layout.CLEANUP}")
    moved = [file.name for file in aside.files if not file.name.startswith("_")]
    assert moved == [f"{n:020d}.parquet" for n in (1, 2)]


def test_a_second_apply_has_nothing_to_do(landed: Landed) -> None:
    landed.filled().apply()
    landed.publish(lambda p: p.publish("s.t", [{"id": 7, "v": "y"}], operation="insert"))
    landed.apply()
    assert landed.rows() == sorted([*APPLIED, (7, "y")])
    assert not landed.apply().errors
    assert landed.rows() == sorted([*APPLIED, (7, "y")])


def test_a_folder_below_the_root_is_no_landing_zone_then(landed: Landed) -> None:
    with Publisher(LocalStore(landed.project.root)) as publisher:
        publisher.load("s.other", ROWS, key="id")
    landed.filled().apply()
    assert not (landed.project.root / "Tables/s/other").exists()


def test_a_file_that_is_no_file_stops_its_table_alone(landed: Landed) -> None:
    landed.filled()
    landed.bucket.replace(f"{root.LANDING}/s.schema/bad/{1:020d}.parquet", b"PAR1")
    landed.bucket.replace(f"{root.LANDING}/s.schema/bad/_metadata.json", b"{}")
    report = landed.apply()
    assert [error.table for error in report.errors] == ["s.bad"]
    assert landed.rows() == APPLIED


@pytest.mark.full
@pytest.mark.parametrize("reads", [0, 3])
@pytest.mark.parametrize("text", [None, TextFormat()], ids=["parquet", "text"])
def test_a_storage_that_fails_while_a_file_is_read_is_no_fault_of_the_file(
    landed: Landed, monkeypatch: pytest.MonkeyPatch, reads: int, text: TextFormat | None
) -> None:
    """reads: how many of the file's bytes arrive, by readers in the mirror and in tasks."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if next(count) >= reads:
                raise StorageFailed(errno.EREMOTEIO, "the network is gone")
            return super().read(size)

    count = itertools.count()
    landed.publish(lambda publisher: publisher.load("s.t", ROWS, key="id", text=text))
    landed.clock = SteppedClock(datetime.now(UTC))
    loop = landed.loop()
    loop.open()
    with monkeypatch.context() as patch:
        real = objects.opened
        patch.setattr(objects, "opened", lambda *of: Failing(real(*of).read()))
        loop.cycle(None)
    assert loop.report.errors or reads > 2
    landed.clock.advance(60)  # type: ignore[attr-defined]
    loop.once()
    loop.close()
    assert len(landed.rows()) == len(ROWS)


def test_a_storage_that_fails_while_files_are_moved_aside_costs_no_row(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise StorageFailed(errno.EREMOTEIO, "the network is gone")

    with monkeypatch.context() as patch:
        patch.setattr(objects.ObjectStore, "move", fail)
        assert not landed.filled().apply().errors
    assert not landed.apply().errors
    assert landed.rows() == APPLIED
    assert len(landed.bucket.list(f"{FOLDER}/{layout.CLEANUP}").files) == 3  # and their record


@pytest.mark.full
def test_status_and_files_are_told_without_a_jvm(landed: Landed) -> None:
    landed.filled().apply()
    mirror = Mirror(landed.project)
    status = mirror.status().facts()
    assert status["tables"][0]["state"] == "Replicating"
    assert mirror.status().landing_zone == f"{landed.project.landing.url}/{root.LANDING}"  # type: ignore[union-attr]
    told = [tuple(file.values())[1:3] for file in mirror.files("s.t").facts()["files"]]
    assert told == [(1, "applied"), (2, "applied"), (3, "applied")]


@pytest.mark.clause("LZ-231")
def test_a_table_goes_when_its_publisher_drops_its_folder(landed: Landed) -> None:
    landed.filled().apply()
    landed.publish(lambda publisher: publisher.drop("s.t"))
    landed.clock = SteppedClock()
    loop = landed.loop(drop_after=MirrorSettings().drop_after / 10)
    loop._lease._renewed = landed.clock.now()
    loop.open()
    for _ in range(10):
        landed.clock.advance(10)  # type: ignore[attr-defined]
        loop.cycle(None)
    loop.close()
    assert not (landed.project.root / "Tables/s/t").exists()


def test_a_reset_table_is_applied_again_from_its_objects(landed: Landed) -> None:
    landed.publish(lambda publisher: publisher.load("s.t", ROWS, key="id"))
    landed.apply()
    plan_reset(landed.project, ["s.t"]).execute()
    assert not (landed.project.root / "Tables/s/t").exists()
    landed.apply()
    assert len(landed.rows()) == len(ROWS)


def test_the_right_to_land_lies_with_the_zone(landed: Landed, tmp_path: Path) -> None:
    other = Project("q", tmp_path / "elsewhere", landing=landed.project.landing)
    Lease(landed.store, "capture", WallClock()).take()
    with pytest.raises(LeaseHeld):
        Lease(store_of(other), "capture", WallClock()).take()


def test_the_right_to_apply_lies_with_the_tables(landed: Landed, tmp_path: Path) -> None:
    other = Project("q", tmp_path / "elsewhere", landing=landed.project.landing)
    Lease(landed.store, "mirror", WallClock()).take()
    Lease(store_of(other), "mirror", WallClock()).take()


class TestWhatACycleAsks:
    """Requests of an idle mirror: it lists what may have changed, and nothing else."""

    @pytest.fixture
    def requests(self, landed: Landed, s3: S3Server) -> Callable[[int], list[str]]:
        """What a later cycle asks, of so many tables that were applied and tidied."""

        def requests(tables: int, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
            def fill(publisher: Publisher) -> None:
                for number in range(tables):
                    publisher.load(f"s.t{number}", ROWS, key="id")
                    publisher.publish(f"s.t{number}", [{"id": 1}], operation="delete")

            landed.publish(fill)
            landed.clock = SteppedClock(datetime.now(UTC))
            loop = landed.loop(cleanup_seconds=0)
            loop.open()
            for _cycle in range(3):
                loop.cycle(None)
            meanwhile()
            s3.requests.clear()
            loop.cycle(None)
            asked = list(s3.requests)
            loop.close()
            return asked

        return requests

    @pytest.mark.full
    @pytest.mark.parametrize("tables", [1, 8])
    def test_an_idle_cycle_asks_once_however_many_tables_there_are(
        self, requests: Callable[[int], list[str]], tables: int
    ) -> None:
        assert requests(tables) == ["LIST shop/Files/LandingZone/"]

    def test_what_was_processed_long_ago_costs_one_request_more(
        self, landed: Landed, s3: S3Server, requests: Callable[..., list[str]]
    ) -> None:
        location = landed.bucket.location(f"{root.LANDING}/s.schema/t0/{layout.CLEANUP}")
        asked = requests(2, lambda: s3.fill(location, 2_500))
        assert asked == ["LIST shop/Files/LandingZone/"] * 2
