"""Batches of event files that tasks of other processes apply make the same tables."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirrorlake.apply.events import file_reader
from mirrorlake.apply.events.batches.spread import EventSpread
from mirrorlake.apply.events.batches.tasks import EventPlaces, FilesTask
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.runner import TasksDied
from mirrorlake.delta.write.durable_commit import durable_commit
from mirrorlake.errors import SparkUnavailable
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.apply.events.bucket import MINUTE, Bucket, Noted, event
from tests.apply.events.repeating import Repeating


def both(tmp_path: Path, **asked: Any) -> tuple[Bucket, Bucket]:
    """The same files applied in this process, and by tasks."""
    here, there = Bucket(tmp_path / "here", **asked), Bucket(tmp_path / "there", **asked)
    there.runner = Repeating(Random(1))
    return here, there


def told(bucket: Bucket) -> dict[str, Any]:
    """Everything that is told of a bucket, apart from ids."""
    dead = FileJournals(LocalStore(bucket.root)).read().dead
    tables = {str(table) for table, _done in bucket.done}
    return {
        "rows": {table: bucket.rows(table.replace(".", "/")) for table in tables},
        "errors": {table: (error.code, error.what) for table, error in bucket.errors.items()},
        "dead": {
            file.path: [(letter.reason, sorted(letter.rows)) for letter in file.letters]
            for file in dead
        },
        "may be replayed": {file.path: (file.oldest_ms, file.tables) for file in dead},
    }


def of(
    table: str, number: int, payload: Mapping[str, Any], change: str = "INSERT", **more: Any
) -> dict[str, Any]:
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
    "a key of floating point": [[of("t", 1, {"id": 1.5}), of("u", 2, {"id": 1, "v": 1})]],
    "events that cannot be applied": [
        [of("t", 1, {"id": 1}, change="NEW"), of("t", 2, {"id": None}), of("u", 2, {"id": 1})],
        [of("t", 3, {"id": 1, "v": 1}), of("t", 4, {"id": 2, "v": "x"}), of("u", 5, {"id": None})],
    ],
    "a new column": [
        [of("t", 1, {"id": 1, "v": 1})],
        [of("t", 2, {"id": 2, "w": "x"}), of("t", 3, {"id": 1, "w": "y"}, "UPDATE")],
    ],
    "types that differ": [
        [of("t", 1, {"id": 1, "v": 1}), of("t", 2, {"id": 2, "v": "x"})],
        [of("t", 3, {"id": 3, "w": 1}), of("t", 4, {"id": 4, "w": "x"}), of("t", 5, {"id": "x"})],
    ],
}


@pytest.mark.parametrize("folders", [("a", "a"), ("a", "b"), ("b", "a")], ids="".join)
@pytest.mark.parametrize("mode", ["merge", "append"])
@pytest.mark.parametrize("name", BATCHES)
def test_all_that_is_told_is_the_same(
    tmp_path: Path, name: str, mode: str, folders: tuple[str, str]
) -> None:
    """Also of tables with events in the folders of two objects, which two tasks read."""
    here, there = both(tmp_path, is_append=mode == "append", metadata_columns=True)
    for number, batch in enumerate(BATCHES[name]):
        for bucket in (here, there):
            for part, events in enumerate((batch[::2], batch[1::2])):
                bucket.put(f"{number}{part}.jsonl", *events, of=folders[part])
            bucket.put(f"{number}.jsonl", of("v", 90 + number, {"id": number, "v": 1}), of="other")
            bucket.cycle()
        assert told(there) == told(here)
    assert told(here)["rows"]


def test_dead_letters_of_a_table_in_two_folders_are_told_once(tmp_path: Path) -> None:
    """The second of two tasks finds that the first one has committed."""
    here, there = both(tmp_path)
    for bucket in (here, there):
        for folder in ("one", "other"):
            number = len(folder)
            rows = ({"id": number, "v": 1}, {"id": None, "v": 2})
            bucket.put("a.jsonl", *(of("t", number, row) for row in rows), of=folder)
        assert bucket.cycle() == 2
    assert told(there) == told(here)
    assert [len(letters) for letters in told(there)["dead"].values()] == [1, 1]


def test_of_tables_inside_each_other_one_is_refused(tmp_path: Path) -> None:
    """They are prepared at the same time, when neither is there."""
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner(2)
    bucket.put("a.jsonl", of("t", 1, {"id": 1}, schema=""), of="t")
    bucket.put("a.jsonl", of("u", 2, {"id": 1}, schema="t"), of="t_u")
    assert bucket.cycle() == 1
    (error,) = bucket.errors.values()
    assert error.code == "nested_tables"
    assert len(bucket.done) == 1


def test_a_file_that_cannot_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    here, there = both(tmp_path)
    for bucket in (here, there):
        bucket.put("1.jsonl", of("t", 1, {"id": 1, "v": 1}))
        bucket.put("2.avro").write_bytes(b"Obj\x01cut off")
        assert bucket.cycle() == 2
    assert told(there) == told(here)
    assert len(told(there)["dead"]) == 1


def test_what_another_writer_has_committed_meanwhile_stays(tmp_path: Path) -> None:
    """The batch was prepared for a version that is not the newest any more."""
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner(2)
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    log, table = bucket.log(), str(bucket.root / "Tables/public/orders")

    def commits() -> None:
        if log.snapshot().version == 0:
            durable_commit(table, 1, [], None, operation="SET TBLPROPERTIES")

    bucket.check = commits  # type: ignore[method-assign]
    bucket.put("2.jsonl", event(2, {"id": 1, "v": 2}, "UPDATE"), event(3, {"id": 2, "v": 3}))
    assert bucket.cycle(anew=True) == 1
    assert log.snapshot().version == 2
    assert bucket.plain() == [{"id": 1, "v": 2}, {"id": 2, "v": 3}]


class Elsewhere(InProcessRunner):
    """Runs tasks with other stores than those that the driver has."""

    def __init__(self, source: Path | None = None, root: Path | None = None) -> None:
        super().__init__(2)
        self._source, self._root = source, root

    def run(
        self,
        work: Callable[[Any], Any],
        items: Sequence[FilesTask],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[Any]:
        def changed(places: EventPlaces) -> EventPlaces:
            source = partial(LocalStore, self._source) if self._source else places.source
            root = partial(LocalStore, self._root) if self._root else places.root
            return EventPlaces(source, root, places.settings)

        return super().run(work, [FilesTask(changed(i.places), i.files) for i in items], packing)


def test_files_that_executors_do_not_see_are_applied_here(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = Elsewhere(source=tmp_path / "empty")
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


def test_a_root_that_executors_do_not_see_stops_tables_and_loses_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = Elsewhere(root=tmp_path / "other")
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    assert bucket.cycle() == 0
    (error,) = bucket.errors.values()
    assert "same path" in error.hint
    assert not bucket.log().snapshot().exists
    bucket.runner = InProcessRunner()
    assert bucket.cycle(anew=True) == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


def test_files_that_do_not_fit_in_memory_are_applied_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "MOST_TOGETHER", 1)
    here, there = both(tmp_path)
    for bucket in (here, there):
        bucket.put("1.jsonl", *(of(f"t{n % 2}", n, {"id": n, "v": n}) for n in range(9)))
        assert bucket.cycle() == 1
    assert told(there) == told(here)


class Failing(InProcessRunner):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def run(self, *_anything: Any) -> Any:
        raise self._error


def test_where_tasks_die_the_files_are_applied_here(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = Failing(TasksDied("killed"))
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


def test_the_loss_of_spark_is_not_taken_for_one_of_the_storage(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = Failing(ConnectionRefusedError(111, "Connection refused"))
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    with pytest.raises(SparkUnavailable, match="Spark has ended"):
        bucket.cycle()


class Gone(InProcessRunner):
    @property
    def slots(self) -> int:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_spark_that_has_ended_before_is_not_taken_for_the_storage_either(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = Gone()
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    with pytest.raises(SparkUnavailable, match="Spark has ended"):
        bucket.cycle()


def test_a_task_stops_reading_when_events_do_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that do not contain their types would be read together otherwise, however many."""
    bucket = Bucket(tmp_path)
    for number in range(20):
        bucket.put(f"{number:02}.jsonl", event(number, {"id": number, "v": "x" * 1_000}))
    monkeypatch.setattr(file_reader, "MOST_OF_FILES", 3_000)
    files = [FoundFile(f"public_orders/{MINUTE}/{n:02}.jsonl", "", 1_000) for n in range(20)]
    opened: list[str] = []
    source = Noted(bucket.folder, opened.append)
    reader = FileReader(source, bucket.settings, lambda _table: {}, lambda: None)
    assert reader.together(files) is None
    assert len(opened) < 10


def test_what_fails_in_a_task_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_anything: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(EventTable, "prepare", failing)
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner()
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


def test_a_consumer_that_has_to_stop_commits_nothing_that_was_prepared(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner()
    bucket.put("1.jsonl", event(1, {"id": 1, "v": 1}))
    assert bucket.consumer(no_crash, ended=lambda: True).cycle() == 0
    assert not bucket.log().snapshot().exists
    assert bucket.done == []
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}]


@pytest.mark.parametrize(
    ("paths", "size", "suits"),
    [
        (["b/one/2026/a.avro", "b/two/2026/a.avro"], 9 << 20, True),
        (["b/one/2026/a.avro", "b/two/2026/a.avro"], 7 << 20, False),
        (["b/one/2026/a.jsonl.gz", "b/two/2026/a.jsonl.gz"], 1 << 20, True),
        (["b/one/2026/a.avro", "b/one/2027/b.avro"], 99 << 20, False),
        (["b/a.avro", "b/b.avro"], 99 << 20, False),
    ],
)
def test_large_batches_of_several_objects_are_spread(
    paths: Sequence[str], size: int, *, suits: bool
) -> None:
    places = EventPlaces(dict, dict, EventInput(Path(), path="b"))  # type: ignore[arg-type]
    files = [FoundFile(path, "", size) for path in paths]
    assert EventSpread(InProcessRunner, places).suits(files) == suits
    assert pickle.loads(pickle.dumps(files)) == files
