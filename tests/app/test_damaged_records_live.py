"""Records of capture of which the disk, or who restored them, left a part."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.app.own_root import of_root
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status.mirror_status import read as read_status
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.landing.load import MANIFEST
from mirrorlake.capture.records.names import APPEND_ONLY, KNOWN, LOADS, RETAINED, STREAM
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import RecordDamaged, SourceGap
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, load=("*.*", "!public.pears"))
    evolving.begin(
        "create table apples (id int primary key)",
        "insert into apples values (1)",
        "create table pears (id int primary key)",
        "create table log (id int)",
    )
    return evolving


@pytest.fixture
def records(evolving: EvolvingDatabase) -> Records:
    return Records(evolving.store, root.LANDING)


def damage(store: LocalStore, path: str) -> bytes:
    """Leave the first half. Returns what was there."""
    was = store.read(path)
    store.replace(path, was[: len(was) // 2])
    return was


def ids(evolving: EvolvingDatabase) -> list[int]:
    return sorted(row["id"] for row in evolving.mirrored("apples"))


@pytest.mark.parametrize("name", [STREAM, KNOWN, LOADS, APPEND_ONLY])
def test_a_damaged_record_of_capture_is_named(
    evolving: EvolvingDatabase, records: Records, name: str
) -> None:
    path = f"{records.folder}/{name}"
    was = damage(evolving.store, path)
    evolving.run("insert into apples values (2)")
    with pytest.raises(RecordDamaged, match=f"damaged .*{name}.*backup.*reset --all"):
        evolving.capture()
    evolving.store.replace(path, was)  # as from a backup
    evolving.capture()
    evolving.apply()
    assert ids(evolving) == [1, 2]


def test_a_record_that_capture_writes_anew_holds_up_nothing_when_it_is_damaged(
    evolving: EvolvingDatabase, records: Records
) -> None:
    damage(evolving.store, f"{records.folder}/{RETAINED}")
    evolving.run("insert into apples values (2)")
    evolving.capture()
    evolving.apply()
    assert ids(evolving) == [1, 2]
    assert records.retained() is not None


@pytest.mark.parametrize("name", [STREAM, KNOWN])
def test_a_reset_of_everything_forgets_damaged_records(
    evolving: EvolvingDatabase, records: Records, name: str
) -> None:
    damage(evolving.store, f"{records.folder}/{name}")
    evolving.run("insert into apples values (2)")
    with pytest.raises(RecordDamaged):
        plan_reset(of_root(evolving.store.root), ["public.apples"]).execute()
    reset = plan_reset(of_root(evolving.store.root), None)
    assert any(name in sentence for sentence in reset.sentences())
    reset.execute()
    evolving.run("insert into apples values (3)")
    evolving.capture()
    evolving.apply()
    assert ids(evolving) == [1, 2, 3]


def test_a_damaged_request_of_a_backfill_is_not_taken_for_none(
    evolving: EvolvingDatabase, records: Records
) -> None:
    jobs = BackfillRecords(records)
    job = requests.request(jobs, ["public.apples"], "public.apples", None, None, WallClock().now())
    damage(evolving.store, f"{jobs.folder}/{job.request.id}.request.json")
    with pytest.raises(RecordDamaged, match="delete it, and run `mirrorlake backfill`"):
        evolving.capture()
    with pytest.raises(RecordDamaged):
        read_status(of_root(evolving.store.root))


def test_a_damaged_cut_is_named_and_deleting_it_loses_nothing_silently(
    evolving: EvolvingDatabase, records: Records
) -> None:
    for value in (2, 3):
        evolving.run(f"insert into apples values ({value})")
        evolving.capture()
    newest = Cuts(evolving.store, root.LANDING).newest()
    assert newest is not None
    path = f"{records.folder}/cuts/{newest.number:020d}.json"
    damage(evolving.store, path)
    with pytest.raises(RecordDamaged, match=r"delete it.*mirrorlake repair"):
        evolving.capture()
    evolving.store.delete(path)
    with pytest.raises(SourceGap, match="mirrorlake repair"):
        evolving.capture()


def test_a_damaged_list_of_the_files_of_a_load_is_named(evolving: EvolvingDatabase) -> None:
    evolving.run("create table plums (id int primary key)", "insert into plums values (1)")
    assert evolving.capture(Dying(CrashPoint.LOAD_MANIFEST))
    damage(evolving.store, f"{root.LANDING}/public.schema/plums/{MANIFEST}")
    with pytest.raises(RecordDamaged, match=r"_load\.json.*mirrorlake reset public\.plums"):
        evolving.capture()
    plan_reset(of_root(evolving.store.root), ["public.plums"]).execute()
    evolving.capture()
    evolving.apply()
    assert len(evolving.mirrored("plums")) == 1
