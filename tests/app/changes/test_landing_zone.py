"""The changes of a table, landed for another mirror: the same rows again, whatever dies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import FeedError, UsageError
from mirrorlake.app.changes.landing_zone import land
from mirrorlake.feed.landing_rows import landing_rows
from mirrorlake.landing import Publisher
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Schema
from mirrorlake.storage.local import LocalStore
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, UPDATE, FeedTable
from tests.profiles import tries
from tests.publisher.mirrored_zone import Zone

CRASHES = [
    CrashPoint.BATCH_ASSIGNED,
    CrashPoint.BATCH_STAGED_ONE,
    CrashPoint.BATCH_SEALED,
    CrashPoint.BATCH_PUBLISHED_ONE,
    CrashPoint.BATCH_RECORDED,
    CrashPoint.SUBSCRIPTION_READ,
    CrashPoint.SUBSCRIPTION_STORED,
]


class Died(Exception):
    pass


def made(tmp_path: Path, **properties: str) -> FeedTable:
    return FeedTable(tmp_path / "shop/Tables/s/t", **properties)


def copied(table: FeedTable, target: Path, **arguments: Any) -> list[tuple[int, bool, int]]:
    found = land(str(table.path), target, **arguments)
    return [(one.version, one.is_snapshot, one.rows) for one in found]


def rows(target: Path) -> list[tuple[Any, ...]]:
    """What a mirror makes of the zone."""
    return [tuple(row.values()) for row in Zone(LocalStore(target)).rows("s.t")]


def by_hand(*rows: tuple[str, int, str | None]) -> pa.Table:
    kinds, ids, names = zip(*rows, strict=True)
    count = len(rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(names, pa.string()),
            "_change_type": pa.array(kinds),
            "_commit_version": pa.array([1] * count, pa.int64()),
            "_commit_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )


def landed(*changes: tuple[str, int, str | None], key: tuple[str, ...] = ("id",)) -> list[Any]:
    found = landing_rows(by_hand(*changes), key, "t").to_pylist()
    return [(row["__rowMarker__"], row["id"], row["name"]) for row in found]


@pytest.mark.clause("CF-078", "CF-216")
def test_each_kind_of_change_has_its_marker_and_leaving_rows_come_first() -> None:
    assert landed(
        ("insert", 1, "a"),
        ("update_preimage", 2, "b"),
        ("update_postimage", 2, "c"),
        ("delete", 3, "d"),
    ) == [(2, 3, "d"), (0, 1, "a"), (1, 2, "c")]
    # the key 2 became 7, and the key 7 became 8
    assert landed(
        ("update_postimage", 7, "b"),
        ("update_preimage", 7, "x"),
        ("update_postimage", 8, "x"),
        ("update_preimage", 2, "b"),
    ) == [(2, 2, "b"), (1, 7, "b"), (0, 8, "x")]
    assert landed(("insert", 1, "new"), ("delete", 1, "old")) == [(2, 1, "old"), (0, 1, "new")]


@pytest.mark.clause("CF-217")
def test_rows_of_a_snapshot_are_upserts() -> None:
    assert landed(("snapshot", 1, "a"), ("snapshot", 2, None)) == [(4, 1, "a"), (4, 2, None)]


@pytest.mark.clause("CF-217")
@pytest.mark.parametrize("kind", ["delete", "update_preimage", "update_postimage"])
def test_without_a_key_there_are_inserts_only(kind: str) -> None:
    assert landed(("snapshot", 1, "a"), ("insert", 1, "a"), key=()) == [(0, 1, "a"), (0, 1, "a")]
    with pytest.raises(FeedError, match="has no key"):
        landed(("insert", 1, "a"), (kind, 1, "a"), key=())


@pytest.mark.clause("CF-078")
def test_it_goes_on_where_the_zone_is(tmp_path: Path) -> None:
    table, target = made(tmp_path), tmp_path / "copy"
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    assert copied(table, target) == [(1, True, 2)]
    assert copied(table, target) == []
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    table.commit([])
    table.change((INSERT, (2, "again")))
    assert copied(table, target) == [(2, False, 2), (4, False, 1)]
    assert Zone(LocalStore(target)).numbers("s.t") == [1, 2, 3]
    assert rows(target) == [(1, "c"), (2, "again")]


@pytest.mark.clause("CF-079")
@given(st.data())
@settings(max_examples=tries(24), deadline=None)
def test_the_copy_equals_the_table_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("zone")
    table, target, live = made(tmp_path), tmp_path / "copy", dict[int, str]()
    for _round in range(data.draw(st.integers(1, 4))):
        for _commit in range(data.draw(st.integers(0, 3))):
            changes = {}
            for id_ in data.draw(st.sets(st.integers(0, 5), min_size=1)):
                name = data.draw(st.sampled_from(["x", "y", "z"]))
                kind = data.draw(st.sampled_from([UPDATE, DELETE])) if id_ in live else INSERT
                changes[id_] = (kind, (id_, None if kind is DELETE else name))
                if kind is DELETE:
                    del live[id_]
                else:
                    live[id_] = name
            table.change(*changes.values())
        point = data.draw(st.none() | st.sampled_from(CRASHES))
        try:
            copied(table, target, reached=_dying(point, data.draw(st.integers(1, 3))))
        except Died:
            _forget_leases(target, table)
    copied(table, target)
    if live or Zone(LocalStore(target)).names("s.t"):
        assert rows(target) == sorted(live.items(), key=lambda row: repr(list(row)))


def _dying(point: CrashPoint | None, passage: int) -> CrashHook:
    left = [passage]

    def reached(passed: CrashPoint) -> None:
        left[0] -= passed is point
        if passed is point and left[0] == 0:
            raise Died

    return reached if point else no_crash


def _forget_leases(*places: object) -> None:
    """The process is gone, which a test in one process is not."""
    target, table = places
    assert isinstance(target, Path)
    assert isinstance(table, FeedTable)
    for root in (target, table.path.parents[2]):
        for lease in root.glob("Files/Mirrorlake/leases/**/*.json"):
            lease.unlink()


@pytest.mark.parametrize(("batch", "named"), [("monday", "monday"), (None, "no names")])
def test_a_zone_that_something_else_wrote_is_refused(
    tmp_path: Path, batch: str | None, named: str
) -> None:
    table, target = made(tmp_path), tmp_path / "copy"
    table.change((INSERT, (1, "a")))
    with Publisher(target) as publisher:
        publisher.load("s.t", [{"id": 1}], key="id", batch=batch)
    with pytest.raises(UsageError, match=named):
        copied(table, target)
    assert len(list(target.glob("Files/LandingZone/s.schema/t/*.parquet"))) == 1


def test_the_zone_of_the_table_itself_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.change((INSERT, (1, "a")))
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    for own in ("shop", "link", "shop/../shop"):
        with pytest.raises(UsageError, match="its own changes again"):
            copied(table, tmp_path / own)
    assert not (tmp_path / "shop/Files").exists()


def test_a_column_that_is_gone_stops_it(tmp_path: Path) -> None:
    table, target = made(tmp_path), tmp_path / "copy"
    table.change((INSERT, (1, "a")))
    copied(table, target)
    table.describe(Schema.of([SHAPE.schema["id"]]))
    table.change((INSERT, (2,)))
    with pytest.raises(FeedError, match="column name was removed") as refused:
        copied(table, target)
    assert refused.value.reason == "schema_changed"


def test_another_table_in_its_place_stops_it(tmp_path: Path) -> None:
    table, target = made(tmp_path), tmp_path / "copy"
    table.change((INSERT, (1, "a")))
    copied(table, target)
    shutil.rmtree(table.path)
    table = made(tmp_path)
    table.change((INSERT, (1, "b")))
    with pytest.raises(FeedError, match="do not continue"):
        copied(table, target)
