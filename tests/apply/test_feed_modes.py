"""What commits record for the change feed: both images of an update, a delete and an insert, or
nothing; and updates that change no value may be left out."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import FEED, FeedMode, parse
from mirrorlake.errors import UnsupportedTable
from mirrorlake.mirror.engine import Failed, MirrorEngine
from mirrorlake.model import types
from mirrorlake.model.change import ROW_POSITION, Marker
from mirrorlake.model.table import Column
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, feed_of, in_process_engine
from tests.histories import SHAPES, Landing, Shape, as_file, counted, histories, rows_of
from tests.profiles import some, tries
from tests.reference import Change, Row, without_equal

ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING)
INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
Feed = Counter[tuple[str, Row]]
_numbers = itertools.count(1)

REPLACED = {"update_preimage": "delete", "update_postimage": "insert"}


def replaced(feed: Feed) -> Feed:
    """A feed with a delete and an insert in the place of each update."""
    found: Feed = Counter()
    for (kind, row), count in feed.items():
        found[REPLACED.get(kind, kind), row] += count
    return found


def made(store: LocalStore, engine: MirrorEngine, shape: Shape, feed: FeedMode) -> Mirrored:
    path = f"Tables/orders{next(_numbers)}"
    return Mirrored(engine, store, HandmadeReader(store), shape, path).create(feed=feed)


def change_files(table: Mirrored, version: int) -> bool:
    actions = TableLog(table.store.location(table.path)).actions(version)
    return any("cdc" in action for action in actions)


@pytest.mark.clause("CF-145", "CF-147", "CF-024", "CF-149")
@pytest.mark.parametrize("suppresses", [False, True])
@pytest.mark.parametrize("mode", FeedMode)
@pytest.mark.parametrize("tasks", some([0, 3]))
@settings(max_examples=tries(40), suppress_health_check=list(HealthCheck))
@given(history=histories(list(SHAPES.values()), batches=4))
@example(
    history=(
        ORDERS,
        [Landing(((Change(INSERT, (1, "a")),),)), Landing(((Change(UPDATE, (1, "a")),),))],
    )
)
def test_rows_and_feed_are_those_of_the_model(
    store: LocalStore, tasks: int, mode: FeedMode, suppresses: bool, history: Any
) -> None:
    shape, landings = history
    engine = in_process_engine(store, spread=tasks)
    table, model = made(store, engine, shape, mode), shape.table()
    for landing in landings:
        feed = model.truncate() if landing.truncate else Counter()
        feed += model.apply(landing.changes)
        expected = without_equal(feed) if suppresses else feed
        files = [[(c.marker, c.row) for c in changes] for changes in landing.files]
        outcome = table.apply(*files, truncated=landing.truncate, suppress_unchanged=suppresses)
        assert counted(table.rows()) == counted(model.rows)
        location = store.location(table.path)
        told = feed_of(location, outcome.version).get(outcome.version, Counter())
        if mode is FeedMode.OFF:
            assert not change_files(table, outcome.version)
        else:
            assert told == (replaced(expected) if mode is FeedMode.REPLACE else expected)
        if mode is FeedMode.REPLACE and not landing.truncate:
            assert not change_files(table, outcome.version)


def rows_at(location: str, version: int, width: int) -> Counter[Row]:
    """The rows as of a version, in their first columns."""
    snapshot = TableLog(location).snapshot_at(version)
    schema = parse(snapshot.metadata)
    found = [live_rows(Path(location), add, schema) for add in snapshot.files.values()]
    return counted(row[:width] for some in found for row in rows_of(some))


@pytest.mark.clause("CF-219")
@pytest.mark.parametrize(
    ("mode", "merges"),
    [(FeedMode.IMAGES, False), (FeedMode.REPLACE, False), (FeedMode.IMAGES, True)],
    ids=["images", "replace", "compatible"],
)
@settings(max_examples=tries(40), suppress_health_check=list(HealthCheck))
@given(
    history=histories(list(SHAPES.values()), batches=5),
    grows=st.integers(0, 5),
    compactions=st.sets(st.integers(0, 4)),
)
def test_the_feed_replays_to_each_version(
    store: LocalStore,
    mode: FeedMode,
    merges: bool,
    history: tuple[Shape, list[Landing]],
    grows: int,
    compactions: set[int],
) -> None:
    """As time travel shows it, over added columns and compaction."""
    shape, landings = history
    engine = in_process_engine(store, merges=merges)
    table = made(store, engine, shape, mode)
    location, width = store.location(table.path), len(shape.schema)
    for number, landing in enumerate(landings):
        if number == grows:
            table.add_columns(Column("added", types.LONG))
        files = [as_file(shape, list(changes)) for changes in landing.files]
        table.apply(*files, truncated=landing.truncate)
        if number in compactions:
            table.compact()
    rows: Counter[Row] = Counter()
    latest = TableLog(location).snapshot().version
    feed = feed_of(location, 1)
    for version in range(1, latest + 1):
        for (kind, row), count in feed.get(version, Counter()).items():
            rows[row[:width]] += count if kind in {"insert", "update_postimage"} else -count
        assert +rows == rows_at(location, version, width)
        assert not -rows


@pytest.mark.clause("CF-147")
def test_metadata_columns_alone_make_no_change(store: LocalStore) -> None:
    shape = Shape.of(["id"], id=types.LONG, name=types.STRING, **{ROW_POSITION: types.STRING})
    table = made(store, in_process_engine(store), shape, FeedMode.IMAGES)
    table.apply([(INSERT, (1, "a", "0/1:1")), (INSERT, (2, None, "0/1:2"))])
    unchanged = [(UPDATE, (1, "a", "0/2:1")), (UPDATE, (2, None, "0/2:2"))]
    outcome = table.apply(unchanged, suppress_unchanged=True)
    assert table.feed(outcome.version) == Counter()
    assert table.engine.progress(table.path).recorded == 2
    outcome = table.apply(unchanged)
    assert len(table.feed(outcome.version)) == 4


def test_only_the_direct_way_replaces(store: LocalStore) -> None:
    engine = in_process_engine(store, merges=True)
    table = made(store, engine, ORDERS, FeedMode.REPLACE)
    outcome = table.run(table.step([(INSERT, (1, "a"))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UnsupportedTable)
    assert "apply: replace" in str(outcome.error)


def test_a_table_says_how_its_changes_are_recorded(store: LocalStore) -> None:
    engine = in_process_engine(store)
    for mode in FeedMode:
        table = made(store, engine, ORDERS, mode)
        properties = engine.progress(table.path).properties
        assert FeedMode.of(properties) is mode
        assert properties[FEED] == ("false" if mode is FeedMode.OFF else "true")


def test_delta_rs_misreads_the_changes_of_files_that_are_gone_whole(store: LocalStore) -> None:
    """As docs/how-to/read-the-changes.md says of `apply: replace`; our reader is right."""
    table = made(store, in_process_engine(store), ORDERS, FeedMode.REPLACE)
    table.apply([(INSERT, (key, "a")) for key in (1, 2)])
    table.apply([(DELETE, (1, None))])
    version = table.apply([(DELETE, (2, None))]).version
    location = store.location(table.path)
    assert feed_of(location, version) == {version: Counter({("delete", (2, "a")): 1})}
    found = DeltaTable(location).load_cdf(starting_version=version).read_all()
    assert pa.table(found)["id"].to_pylist() == [1]
