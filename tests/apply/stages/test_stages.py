"""A batch in stages of many tasks does what it does in one task."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.runner import TasksDied
from mirrorlake.apply.stages import tasks
from mirrorlake.apply.stages.division import stretches
from mirrorlake.apply.stages.shares import InputShare, balanced, shares
from mirrorlake.apply.stages.spread import Exchange, Spread, SpreadSettings
from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import parse
from mirrorlake.errors import WorkerLost
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.bounded import Share
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.engine import Conflicted, Failed
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.steps import ApplyFiles, Estimate
from mirrorlake.model import keys as codes
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.apply.stages.batches import BATCH, ORDERS, filled, holds_batch
from tests.conformance.apply.histories import apply_together
from tests.conformance.apply.player import Subject
from tests.conformance.apply.rows import ROWS
from tests.conformance.apply.suite import ScenarioContract, SubjectAt
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import ALWAYS, HandmadeReader, in_process_engine
from tests.histories import SHAPES, Shape, as_file, histories
from tests.profiles import tries
from tests.reference import UNCHANGED, Change

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT

NEVER = Exchange(rows=1_000_000, files=1_000)
"""Every task folds all keys of a batch, but for one with texts."""

_numbers = itertools.count(1)


@pytest.fixture
def reader(store: LocalStore) -> HandmadeReader:
    return HandmadeReader(store)


@pytest.fixture(params=[ALWAYS, NEVER], ids=["tasks send keys", "tasks fold all keys"])
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return request.param


@pytest.fixture
def make(store: LocalStore, reader: HandmadeReader, exchange: Exchange) -> Callable[..., Mirrored]:
    """Makes a table of a shape, whose batches are spread over three tasks, or go to one."""

    def make(shape: Shape = ORDERS, path: str = "Tables/orders", spread: int = 3) -> Mirrored:
        engine = in_process_engine(store, spread=spread, exchange=exchange)
        return Mirrored(engine, store, reader, shape, path).create()

    return make


@pytest.fixture
def orders(make: Callable[..., Mirrored]) -> Mirrored:
    return make()


class TestRows(ScenarioContract):
    """What the rows of a batch do, as of every engine."""

    scenarios = ROWS
    exchange = ALWAYS

    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls) -> SubjectAt:
        def at(folder: Path) -> Subject:
            store = LocalStore(folder / "root")
            return Subject(
                lambda: in_process_engine(store, spread=3, exchange=cls.exchange),
                store,
                HandmadeReader(store),
            )

        return at


class TestRowsWhereEachTaskFoldsAllKeys(TestRows):
    exchange = NEVER


@pytest.mark.full
@settings(max_examples=tries(40), suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(histories(truncations=False), min_size=1, max_size=3))
def test_rows_and_feed_of_random_histories_are_those_of_the_model(
    make: Callable[..., Mirrored], drawn
) -> None:
    tables = [make(shape, f"Tables/t{next(_numbers)}") for shape, _landings in drawn]
    apply_together(tables, [landings for _shape, landings in drawn], compacting=True)


def test_a_table_with_partitions_is_left_to_one_task(
    store: LocalStore, reader: HandmadeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many would write a file for each partition that it meets."""
    monkeypatch.setattr(Spread, "run", None)
    engine = in_process_engine(store, spread=3, partitions=lambda _schema: ["name"])
    orders = Mirrored(engine, store, reader, ORDERS).create()
    orders.apply([(INSERT, (n, f"{n % 5}", "x")) for n in range(20)])
    assert len(orders.rows()) == 20


def given_up(action: Callable[[], object]) -> list[str]:
    """Why batches were not spread meanwhile."""
    with capture_logs() as logs:
        action()
    return [line["reason"] for line in logs if line["event"] == "spread_given_up"]


def test_an_ordinary_batch_is_applied_in_stages(orders: Mirrored) -> None:
    """Several files of the table, each read by one task; keys in all of its parts."""
    filled(orders)
    assert given_up(lambda: orders.apply(BATCH[:80], BATCH[80:])) == []
    holds_batch(orders)


def test_rows_of_several_files_stay_in_their_order(orders: Mirrored) -> None:
    """Of each key the last change counts, whichever file and share it stands in."""
    files = [[(UPSERT, (n, f"{file}", None)) for n in range(file, 100)] for file in range(7)]
    assert given_up(lambda: orders.apply(*files)) == []
    rows = {key: name for key, name, _note in orders.rows()}
    assert rows == {n: str(min(n, 6)) for n in range(100)}


def test_the_result_is_that_of_one_task(make: Callable[..., Mirrored]) -> None:
    """Counts, and the rows read of each file, which the commit says."""
    batch = [(INSERT, (n, "a", None)) for n in range(9)]
    more = [(UPSERT, (n, "b", None)) for n in range(5, 15)] + [(DELETE, (2, None, None))]
    many, one = make(path="Tables/many"), make(path="Tables/one", spread=0)
    for table in (many, one):
        table.apply(batch + batch[:3])
    with capture_logs() as logs:
        answers = [table.apply(more[:4], more[4:], rows=15).counts for table in (many, one)]
    assert not any(line["event"] == "spread_given_up" for line in logs)
    assert answers[0] == answers[1]
    assert answers[0].duplicates == 1
    said = [table.reader.commit(table.path, 2)["userMetadata"] for table in (many, one)]
    assert said[0] == said[1]


def test_a_key_with_rows_in_files_of_several_tasks_is_left_to_one(orders: Mirrored) -> None:
    for name in ("a", "b"):
        orders.apply([(INSERT, (1, name, None)), (INSERT, (2, name, None))])
    reasons = given_up(lambda: orders.apply([(UPDATE, (1, "c", None))]))
    assert reasons == ["a key with rows in files of several tasks"]
    assert sorted(name for _id, name, _note in orders.rows()) == ["a", "b", "c"]


def test_unchanged_values_are_left_to_one_task(orders: Mirrored) -> None:
    orders.apply([(INSERT, (1, "a", "long"))])
    reasons = given_up(lambda: orders.apply([(UPDATE, (1, "b", UNCHANGED))]))
    assert reasons == ["values that the source did not send"]
    assert orders.rows() == [(1, "b", "long")]


def test_rows_of_a_file_are_counted_across_tasks(
    make: Callable[..., Mirrored],
) -> None:
    """Row groups of one file are read by several tasks, and its commit says what it held."""
    rows = [(Marker(n % 2 * UPSERT), (n, "a", None)) for n in range(30)]
    file = as_file(ORDERS, [Change(marker, row) for marker, row in rows])
    target = io.BytesIO()
    pq.write_table(file, target, row_group_size=3)
    tables = [make(path="Tables/many"), make(path="Tables/one", spread=0)]
    for table in tables:
        table.apply([(INSERT, (7, "b", None))])
        reasons = given_up(lambda table=table: table.apply(target.getvalue()))
        assert reasons == []
        assert len(table.rows()) == 30
    said = [table.reader.commit(table.path, 2)["userMetadata"] for table in tables]
    assert said[0] == said[1]


def test_texts_are_spread_beside_other_files(orders: Mirrored) -> None:
    """A text is not shared out, and its rows keep their order."""
    orders.apply([(INSERT, (n, "old", None)) for n in range(9)])
    lines = [f"{n % 12},text {n},x" for n in range(40)]
    text = "\n".join(["id,name,note", *lines, ""]).encode()
    step = orders.step([(UPSERT, (3, "before", None))], text, [(UPSERT, (4, "after", None))])
    first, written, last = step.files
    step = replace(step, files=(first, replace(written, text=TEXT), last), default=UPSERT)
    assert given_up(lambda: orders.run(step)) == []
    expected = {n: f"text {max(m for m in range(40) if m % 12 == n)}" for n in range(12)}
    found = {key: name for key, name, _note in orders.rows()}
    assert found == {**expected, 4: "after"}


class Otherwise(InProcessRunner):
    """Its second task of each chain hashes keys as another release would."""

    def chain(self, first, items, later, tasks):
        read, *others = super().chain(first, items, later, tasks)
        return [[read[0], *(replace(one, hasher="another") for one in read[1:])], *others]


def test_tasks_with_another_hash_function_are_detected(
    store: LocalStore, reader: HandmadeReader
) -> None:
    engine = in_process_engine(store, spread=2, runner=Otherwise(2))
    orders = Mirrored(engine, store, reader, ORDERS).create()
    batch = [[(UPSERT, (n, "a", None))] for n in range(4)]
    reasons = given_up(lambda: orders.apply(*batch))
    assert reasons == ["executors with different releases of DuckDB"]
    assert len(orders.rows()) == 4


class Recomputed(InProcessRunner):
    """Blocks of a task are lost and computed again, which fails. Its report is that
    of the first attempt."""

    def __init__(self, stage: int) -> None:
        super().__init__(3)
        self._stage = stage

    def chain(self, first, items, later, tasks):
        def lost(stage, work):
            def with_less(number, blocks):
                given = [None, *blocks[1:]] if number == 1 and stage == self._stage else blocks
                return work(number, given)

            return with_less

        reports, done = [], [first(item) for item in items]
        for stage, work in enumerate(later):
            reports.append([report for report, _blocks in done])
            blocks = [[sent[n] for _report, sent in done] for n in range(tasks)]
            done = [lost(stage, work)(n, given) for n, given in enumerate(blocks)]
        return [*reports, [report for report, _blocks in done]]


@pytest.mark.parametrize(("stage", "exchange"), [(0, ALWAYS), (1, ALWAYS), (0, NEVER)])
def test_blocks_that_fail_when_they_are_computed_again_are_detected(
    store: LocalStore, reader: HandmadeReader, stage: int, exchange: Exchange
) -> None:
    engine = in_process_engine(store, spread=3, exchange=exchange, runner=Recomputed(stage))
    orders = Mirrored(engine, store, reader, ORDERS).create()
    files = [[(UPSERT, (n, "a", None)) for n in range(file, 9, 3)] for file in range(3)]
    reasons = given_up(lambda: orders.apply(*files))
    assert reasons == ["stages that do not fit together"]
    assert len(orders.rows()) == 9


def failed(
    make: Callable[..., Mirrored], *files: Any, required: tuple[str, ...] = (), **more: Any
) -> str:
    """What is said of files that are wrong, by a batch in stages as by one task."""
    said = []
    for path, spread in (("Tables/many", 3), ("Tables/single", 0)):
        table = make(path=path, spread=spread).create(replace=True, required=required)
        outcome = table.run(table.step(*files, **more))
        assert isinstance(outcome, Failed)
        said.append(str(outcome.error).replace(path.removeprefix("Tables/"), "t"))
    assert said[0] == said[1]
    return said[0]


def test_an_error_is_that_of_the_whole_batch(make: Callable[..., Mirrored]) -> None:
    """The first in file and row order, in the same words."""

    def bad(markers: list[int]) -> pa.Table:
        columns = {"id": pa.array(range(len(markers)), pa.int64()), "name": ["a"] * len(markers)}
        return pa.table({**columns, MARKER_COLUMN: pa.array(markers, pa.int8())})

    assert "row 51" in failed(make, bad([0] * 50 + [7]), bad([9]))


def test_required_columns_are_checked_in_stages_too(make: Callable[..., Mirrored]) -> None:
    good = [(INSERT, (n, "a", None)) for n in range(9)]
    no_rows = pa.table({"id": pa.array([], pa.int64()), MARKER_COLUMN: pa.array([], pa.float64())})
    assert MARKER_COLUMN in failed(make, no_rows, good)
    null = [(INSERT, (None, "a", None))]
    assert "NULL" in failed(make, good, null, row_checks=RowChecks(strict_keys=True))
    keyless = pa.table({"name": ["a"], MARKER_COLUMN: pa.array([4], pa.int8())})
    assert "id" in failed(make, good, keyless)
    nameless = pa.table({"id": pa.array([1]), MARKER_COLUMN: pa.array([4], pa.int8())})
    assert "name" in failed(make, good, nameless, required=("name",))
    long = [(INSERT, (n, "a" * 1_000, None)) for n in range(100)]
    assert "memory" in failed(make, good, long, row_checks=RowChecks(file_bytes=50_000))


class Differing(InProcessRunner):
    """Two tasks read different keys, as of a file that is replaced between."""

    def chain(self, first, items, later, tasks):
        done = [first(item) for item in items]
        block = replace(done[1][1][0], folded=replace(done[1][1][0].folded, sought=7))
        (work,) = later
        reports = [work(task, [done[0][1][task], block])[0] for task in range(tasks)]
        return [[report for report, _blocks in done], reports]


def test_tasks_that_fold_different_keys_are_detected(
    store: LocalStore, reader: HandmadeReader
) -> None:
    engine = in_process_engine(store, spread=2, exchange=NEVER, runner=Differing(2))
    orders = Mirrored(engine, store, reader, ORDERS).create()
    reasons = given_up(lambda: orders.apply([(UPSERT, (n, "a", None)) for n in range(4)]))
    assert reasons == ["stages that do not fit together"]
    assert len(orders.rows()) == 4


@pytest.mark.parametrize("rows", [4, 3], ids=["as many rows", "fewer rows"])
def test_a_file_that_is_replaced_between_two_reads_is_not_applied(
    store: LocalStore, reader: HandmadeReader, rows: int
) -> None:
    """Keys of one and rows of the other would be a batch that nobody has landed."""
    orders = Mirrored(in_process_engine(store, spread=2), store, reader, ORDERS).create()
    orders.apply([(INSERT, (n, "a", None)) for n in range(4)])
    left = [1]

    def reached(point: CrashPoint) -> None:
        left[0] -= point is CrashPoint.STAGE_WRITTEN
        if point is CrashPoint.STAGE_WRITTEN and left[0] == 0:
            index = Path(store.location(f"{orders.folder}/{step.files[0].name}"))
            index.unlink()
            orders.land(step.first, [(UPSERT, (n, "c", None)) for n in (3, 2, 1, 0)[:rows]])

    orders.engine = in_process_engine(store, reached, spread=2)
    step = orders.step([(UPSERT, (n, "b", None)) for n in range(4)])
    outcome = orders.run(step)
    assert isinstance(outcome, Conflicted)
    assert str(step.files[0].name) in outcome.reason
    assert {name for _id, name, _note in orders.rows()} == {"a"}
    orders.run(orders.step([(UPSERT, (n, "d", None)) for n in range(4)]))
    assert {name for _id, name, _note in orders.rows()} == {"d"}


class Twice(InProcessRunner):
    """Runs every task twice, as Spark may, and takes either answer."""

    def __init__(self) -> None:
        super().__init__(3)
        self._turn = itertools.cycle([0, 1, 1, 0, 1])

    def run(self, work, items, packing=None):
        answers = [super(Twice, self).run(work, items, packing) for _ in range(2)]
        return [both[next(self._turn)] for both in zip(*answers, strict=True)]


def test_a_task_that_runs_twice_has_no_second_effect(
    store: LocalStore, reader: HandmadeReader
) -> None:
    orders = Mirrored(in_process_engine(store), store, reader, ORDERS).create()
    orders.apply([(INSERT, (n, "a", None)) for n in range(30)])
    orders.engine = in_process_engine(store, spread=3, runner=Twice())
    batch = [(UPSERT, (n, "b", None)) for n in range(20, 40)]
    assert given_up(lambda: orders.apply(batch)) == []
    assert Counter(name for _id, name, _note in orders.rows()) == {"a": 20, "b": 20}
    feed = Counter(kind for kind, _row in orders.feed(2).elements())
    assert feed == {"update_preimage": 10, "update_postimage": 10, "insert": 10}


def test_inconsistent_stages_are_given_up(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    truly = tasks._write

    def one_less(task: tasks.WriteTask) -> tasks.WrittenRows:
        written = truly(task)
        return replace(written, rows=written.rows - 1)

    monkeypatch.setattr(tasks, "_write", one_less)
    reasons = given_up(lambda: orders.apply([(UPSERT, (n, "a", None)) for n in range(9)]))
    assert reasons == ["stages that do not fit together"]
    assert len(orders.rows()) == 9


# -- when, and into what ------------------------------------------------------------------------


def step_of(rows: int, **more: Any) -> ApplyFiles:
    facts: dict[str, Any] = {"table": TableId("", "t"), "path": "", "folder": "", "files": ()}
    facts |= {"first": 1, "last": 1, "key": ("id",), "default": INSERT}
    facts |= {"estimate": Estimate(rows=rows)}
    return ApplyFiles(**{**facts, **more})


def test_only_a_batch_that_would_keep_others_waiting_is_spread() -> None:
    spread = Spread(InProcessRunner(2), lambda _point: None)
    large, small = step_of(1_000_000), step_of(1_000)
    assert spread.suits(large, [large, *[small] * 20], slots=2)
    assert not spread.suits(small, [small], slots=2)
    assert not spread.suits(large, [large], slots=1)
    assert not spread.suits(large, [large] * 2, slots=2)
    for other in ({"is_load": True}, {"truncated": True}, {"key": ()}):
        step = step_of(1_000_000, **other)
        assert not spread.suits(step, [step], slots=8)


def test_keys_of_few_rows_in_few_files_are_folded_by_each_task() -> None:
    file, text = LandedPath("1", "", 1), LandedPath("1", "", 1, TEXT)
    exchange = Exchange(rows=10, files=2)
    assert not exchange.suits([file] * 2, rows=10)
    assert exchange.suits([file], rows=11)
    assert exchange.suits([file] * 3, rows=1)
    assert exchange.suits([text], rows=1), "all of it would be read for its keys"


def test_a_table_is_not_spread_for_some_batches_after_one_was_given_up(
    store: LocalStore, orders: Mirrored
) -> None:
    spread = Spread(InProcessRunner(2), lambda _point: None, SpreadSettings(rest=2))
    table, other = step_of(1_000_000), step_of(1_000_000, table=TableId("", "other"))
    file = orders.land(1, [(INSERT, (1, "a", UNCHANGED))])
    landed = LandedPath(str(file.name), store.location(file.path), file.size)
    location = store.location(orders.path)
    schema = parse(TableLog(location).snapshot().metadata)
    rows = LandedRows("t", schema, ("id",), INSERT)
    assert spread.run(BatchTask(rows, location, (landed,), False, ()), 1) is None
    tried = [spread.suits(table, [table], slots=2) for _ in range(4)]
    assert tried == [False, False, True, True]
    assert spread.suits(other, [other], slots=2)


class Deadly(InProcessRunner):
    """Tasks of a chain die with their process."""

    def chain(self, first, items, later, tasks):
        raise TasksDied("they crashed")


def test_a_batch_that_died_in_stages_is_not_tried_in_one_task(
    store: LocalStore, reader: HandmadeReader
) -> None:
    engine = in_process_engine(store, spread=2, runner=Deadly(2))
    orders = Mirrored(engine, store, reader, ORDERS).create()
    outcome = orders.run(orders.step([(INSERT, (1, "a", None))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WorkerLost)
    assert "they crashed" in outcome.error.what
    assert orders.rows() == []


TEXT = TextFormat()


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=12), count=st.integers(1, 8))
def test_shares_are_all_of_the_files_in_their_order(sizes: list[int], count: int) -> None:
    landed = [LandedPath(str(n), "", size) for n, size in enumerate(sizes)]
    runs = shares(landed, count)
    assert len(runs) <= count
    assert all(runs)
    flat = [(part.number, part.share) for run in runs for part in run]
    for number in range(len(sizes)):
        found = [share for of, share in flat if of == number]
        assert found == [Share(index, len(found)) for index in range(len(found))]
    assert [number for number, _share in flat] == sorted(number for number, _share in flat)


def test_a_large_parquet_file_is_divided_but_a_text_is_not() -> None:
    assert len(shares([LandedPath("a", "", 1001)], 4)) == 4
    assert len(shares([LandedPath("a", "", 1001, TEXT)], 4)) == 1


@given(groups=st.integers(0, 9), count=st.integers(1, 9), rows=st.integers(1, 3))
def test_the_shares_of_a_file_are_its_rows_in_their_order(
    groups: int, count: int, rows: int
) -> None:
    target = io.BytesIO()
    whole = pa.table({"id": pa.array(range(groups * rows), pa.int64())})
    pq.write_table(whole, target, row_group_size=rows)
    schema = Shape.of(["id"], id=types.LONG).schema
    found = [
        piece.data
        for index in range(count)
        for piece in parquet.read_blocks(
            io.BytesIO(target.getvalue()),
            len(target.getvalue()),
            schema,
            INSERT,
            table="t",
            file="f",
            share=Share(index, count),
        )
    ]
    assert pa.concat_tables([whole.slice(0, 0), *found]).equals(whole)


@given(weights=st.lists(st.integers(0, 1000), max_size=20), count=st.integers(1, 8))
def test_everything_is_in_one_group_and_none_is_empty(weights: list[int], count: int) -> None:
    groups = balanced(range(len(weights)), weights, count)
    assert len(groups) == min(count, len(weights))
    assert sorted(one for group in groups for one in group) == list(range(len(weights)))
    assert all(groups)
    heavy = [sum(weights[one] for one in group) for group in groups]
    assert not heavy or max(heavy) - min(heavy) <= max(weights) + len(weights)


@given(
    runs=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=4),
    count=st.integers(1, 5),
    data=st.data(),
)
def test_what_was_read_is_written_once(
    runs: list[list[int]], count: int, data: st.DataObject
) -> None:
    read, landed, file = [], [], LandedPath("1", "", 1)
    for rows in runs:
        landed.append([InputShare(0, file, Share(n, len(rows))) for n in range(len(rows))])
        read.append(tasks.KeysRead(tuple((n, 0, 0, 0) for n in rows), "", partial=False))
    drawn = [data.draw(st.sets(st.integers(0, max(0, sum(rows) - 1)))) for rows in runs]
    left = [
        np.array(sorted(some) if sum(rows) else [], np.int64)
        for some, rows in zip(drawn, runs, strict=True)
    ]

    def in_order(one: tasks.Stretch) -> tuple[int, int, int]:
        return one.run, one.begin, one.end

    groups = stretches(landed, read, [(rows, rows[::2]) for rows in left], count)
    assert len(groups) <= count
    found = sorted((one for group in groups for one in group), key=in_order)
    assert [one.share for one in found] == [share for some in landed for share in some]
    for run, rows in enumerate(runs):
        bounds = [(one.begin, one.end) for one in found if one.run == run]
        assert [end - begin for begin, end in bounds] == rows
        assert [begin for begin, _end in bounds] == [0, *(end for _begin, end in bounds[:-1])]
        for name, expected in (("left", left[run]), ("updated", left[run][::2])):
            own = [one for one in found if one.run == run]
            written = [tasks.numbers(getattr(one, name)) + one.begin for one in own]
            assert np.concatenate(written).tolist() == expected.tolist()
    for group in groups:
        assert list(group) == sorted(group, key=in_order)


@settings(max_examples=tries(25))
@given(shape=st.sampled_from(list(SHAPES.values())), parts=st.integers(1, 40), data=st.data())
def test_equal_keys_are_in_one_partition(shape: Shape, parts: int, data: st.DataObject) -> None:
    _shape, landings = data.draw(histories([shape], batches=2))
    rows = [change.row for landing in landings for change in landing.changes]
    held = shape.arrow([tuple(None if v == UNCHANGED else v for v in row) for row in rows])
    chosen = held.select(list(shape.key))
    part = tasks.hash_partition(chosen, parts)
    assert part.dtype == np.uint16
    code = codes.encode(chosen).code
    assert len(set(zip(code.tolist(), part.tolist(), strict=True))) == len(set(code.tolist()))
    alone = [tasks.hash_partition(chosen.slice(n, 1), parts)[0] for n in range(len(rows))]
    assert alone == part.tolist()
    assert not len(part) or part.max() < parts
