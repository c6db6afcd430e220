"""Batches of event files that tasks of other processes apply make the same tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.events.batches import spread
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.runner import TasksDied
from mirrorlake.delta.write.durable_commit import durable_commit
from mirrorlake.model.crash_points import CrashPoint, no_crash
from mirrorlake.storage.local import LocalStore
from tests.apply.events import drawn_files
from tests.apply.events.bucket import TYPED, Bucket, event
from tests.apply.events.drawn_files import as_written, line, rows_of
from tests.apply.events.killed_tables import POINTS, Killed
from tests.mirror.event_order.drawn import SOURCES, arrivals
from tests.mirror.event_order.model import table_of
from tests.profiles import some, tries

NAMES = (f"{TYPED}_cdc_1_0_{{}}.jsonl", "{}.jsonl")
"""Of a file with types, which a task reads, and of one without."""


@pytest.mark.clause("ST-219", "ST-223", "ST-233")
@pytest.mark.parametrize("source", some(SOURCES))
@settings(max_examples=tries(20, long=1_000), deadline=None)
@given(data=st.data())
def test_any_order_with_crashes_makes_the_same_table(source: str, data: st.DataObject) -> None:
    events, batches = data.draw(arrivals(source))
    points = [None, *POINTS, CrashPoint.EVENT_FILES_RECORDED]
    with tempfile.TemporaryDirectory() as root:
        bucket = Bucket(Path(root))
        bucket.settings = drawn_files.settings(source, bucket.folder)
        bucket.runner = InProcessRunner(data.draw(st.integers(1, 3)))
        bucket.describe({"id": "long", "v": "long"}, minute="")
        for number, batch in enumerate(filter(None, batches)):
            cut = data.draw(st.integers(0, len(batch)))
            for part, lines in enumerate((batch[:cut], batch[cut:])):
                name = data.draw(st.sampled_from(NAMES)).format(2 * number + part)
                bucket.put(name, *(line(source, one) for one in lines), minute="")
            if data.draw(st.booleans()):
                with suppress(Killed):
                    bucket.cycle(partial(_dies, data.draw(st.sampled_from(points))), anew=True)
                bucket.cycle(anew=True)
        bucket.cycle(anew=True)
        rows = rows_of(bucket.root / "Tables/shop/orders")
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == table_of(source, as_written(events))


def _dies(at: CrashPoint | None, point: CrashPoint) -> None:
    if point is at:
        raise Killed


def both(tmp_path: Path, **asked: Any) -> tuple[Bucket, Bucket]:
    """The same files applied in this process, and by tasks."""
    here, there = Bucket(tmp_path / "here", **asked), Bucket(tmp_path / "there", **asked)
    there.runner = InProcessRunner(2)
    for bucket in (here, there):
        bucket.describe({"id": "long", "v": "long", "w": "string"})
    return here, there


def fill(bucket: Bucket, name: str, *events: Mapping[str, Any]) -> None:
    bucket.put(f"{TYPED}_cdc_1_0_{name}.jsonl", *events)


def told(bucket: Bucket) -> dict[str, Any]:
    """Everything that is told of a bucket, apart from ids and paths."""
    dead = FileJournals(LocalStore(bucket.root)).read().dead
    tables = {str(table) for table, _done in bucket.done}
    return {
        "rows": {table: bucket.rows(table.replace(".", "/")) for table in tables},
        "errors": {table: (error.code, error.what) for table, error in bucket.errors.items()},
        "dead": {
            file.path: [(letter.reason, sorted(letter.rows)) for letter in file.letters]
            for file in dead
        },
    }


def of(
    table: str, number: int, payload: Mapping[str, Any], change: str = "INSERT", **more: Any
) -> Any:
    return event(number, payload, change, table=table, object=f"public_{table}", **more)


BATCHES: dict[str, list[list[Any]]] = {
    "several tables": [
        [of(f"t{n % 5}", n, {"id": n, "v": n}) for n in range(30)],
        [of(f"t{n % 5}", 50 + n, {"id": n, "v": -n}, "UPDATE") for n in range(7)],
    ],
    "a truncation": [
        [of("t", 1, {"id": 1, "v": 1}), of("t", 2, {"id": 2, "v": 2}), of("u", 3, {"id": 1})],
        [
            of("t", 5, {"id": None}, "TRUNCATE", is_deleted=True),
            of("t", 6, {"id": 3, "v": 3}),
            of("u", 7, {"id": 2}),
        ],
    ],
    "a key that changes": [
        [of("t", 1, {"id": 1, "v": 1}), of("u", 2, {"id": 1, "v": 1})],
        [of("t", 3, {"id": 1, "v": 2}, key=["v"]), of("u", 4, {"id": 1, "v": 2}, "UPDATE")],
    ],
    "a key without values": [[of("t", 1, {"v": 1}, key=["w"]), of("u", 2, {"id": 1, "v": 1})]],
    "events that cannot be applied": [
        [of("t", 1, {"id": 1}, change="NEW"), of("t", 2, {"id": None}), of("u", 2, {"id": 1})]
    ],
    "a new column": [
        [of("t", 1, {"id": 1, "v": 1})],
        [of("t", 2, {"id": 2, "w": "x"}), of("t", 3, {"id": 1, "w": "y"}, "UPDATE")],
    ],
}


@pytest.mark.parametrize("mode", ["merge", "append"])
@pytest.mark.parametrize("name", BATCHES)
def test_all_that_is_told_is_the_same(tmp_path: Path, name: str, mode: str) -> None:
    here, there = both(tmp_path, is_append=mode == "append", metadata_columns=True)
    for number, batch in enumerate(BATCHES[name]):
        for bucket in (here, there):
            for part, events in enumerate((batch[::2], batch[1::2])):
                fill(bucket, f"{number}{part}", *events)
            bucket.put(f"{number}.jsonl", of("v", 90 + number, {"id": number, "v": 1}))
            bucket.cycle()
        assert told(there) == told(here)
    assert told(here)["rows"]


def test_of_tables_inside_each_other_one_is_refused(tmp_path: Path) -> None:
    """They are prepared at the same time, when neither is there."""
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner(2)
    bucket.describe({"id": "long"})
    fill(bucket, "1", of("t", 1, {"id": 1}, schema=""), of("u", 2, {"id": 1}, schema="t"))
    assert bucket.cycle() == 0
    (error,) = bucket.errors.values()
    assert error.code == "nested_tables"
    assert len(bucket.done) == 1


def test_a_file_that_cannot_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    here, there = both(tmp_path)
    for bucket in (here, there):
        fill(bucket, "1", of("t", 1, {"id": 1, "v": 1}))
        fill(bucket, "2", of("t", 2, {"id": 2, "v": 2}))
        with bucket.put(f"{TYPED}_cdc_1_0_3.avro").open("wb") as file:
            file.write(b"Obj\x01cut off")
        assert bucket.cycle() == 3
    assert told(there) == told(here)
    assert len(told(there)["dead"]) == 1


def test_what_another_writer_has_committed_meanwhile_stays(tmp_path: Path) -> None:
    """The batch was prepared for a version that is not the newest any more."""
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner(2)
    bucket.describe({"id": "long", "v": "long"})
    fill(bucket, "1", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    log, table = bucket.log(), str(bucket.root / "Tables/public/orders")

    def commits() -> None:
        if log.snapshot().version == 0:
            durable_commit(table, 1, [], None, operation="SET TBLPROPERTIES")

    bucket.check = commits  # type: ignore[method-assign]
    fill(bucket, "2", event(2, {"id": 1, "v": 2}, "UPDATE"), event(3, {"id": 2, "v": 3}))
    assert bucket.cycle(anew=True) == 1
    assert log.snapshot().version == 2
    assert bucket.plain() == [{"id": 1, "v": 2}, {"id": 2, "v": 3}]


class DyingRunner(InProcessRunner):
    def chain(self, *_anything: Any) -> Any:
        raise TasksDied("killed")


def test_where_tasks_die_the_files_are_applied_here(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = DyingRunner()
    bucket.describe({"id": "long", "v": "long"})
    fill(bucket, "1", event(1, {"id": 1, "v": 1}))
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


@pytest.mark.parametrize("fails", ["reading", "preparing"])
def test_a_storage_that_fails_in_a_task_is_asked_again_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner()
    bucket.describe({"id": "long", "v": "long"})
    fill(bucket, "1", event(1, {"id": 1, "v": 1}))

    def failing(*_anything: Any) -> Any:
        raise PermissionError(13, "denied")

    if fails == "reading":
        monkeypatch.setattr(LocalStore, "open", failing)
        with suppress(PermissionError):
            bucket.cycle()  # here as well
        monkeypatch.undo()
        assert bucket.done == []
    else:
        monkeypatch.setattr(EventTable, "prepare", failing)
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


def test_small_batches_are_applied_here() -> None:
    found = spread.EventSpread(InProcessRunner, None)  # type: ignore[arg-type]
    assert not found.suits([])


def test_a_consumer_that_has_to_stop_commits_nothing_that_was_prepared(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner()
    bucket.describe({"id": "long", "v": "long"})
    fill(bucket, "1", event(1, {"id": 1, "v": 1}))
    assert bucket.consumer(no_crash, ended=lambda: True).cycle() == 0
    assert not bucket.log().snapshot().exists
    assert bucket.done == []
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]
