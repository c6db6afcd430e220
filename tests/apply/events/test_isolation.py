"""One file or one table at fault stops no other, and is told as long as its events are missing."""

from __future__ import annotations

import errno
import json
import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from structlog.testing import capture_logs

from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.journal import ReadFile
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.remembered.state import created
from mirrorlake.apply.events.table import EventTable
from mirrorlake.events import types
from mirrorlake.events.avro_schema import event_schema
from mirrorlake.events.decode.json import events as json_events
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.types import EventColumn
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Listing
from tests.apply.events.bucket import Bucket, event
from tests.events.decode.files import avro

ARRAYS = event_schema(
    "public_orders",
    EventSource.POSTGRESQL,
    (EventColumn("id", types.LONG), EventColumn("a", types.array(types.INTEGER))),
)


def element(value: int | None) -> dict[str, Any]:
    return {"nestedArray": None, "elementValue": value}


def array(*inner: dict[str, Any]) -> dict[str, Any]:
    return {"nestedArray": list(inner), "elementValue": None}


SHAPES = {
    "[]": array(),
    "[[]]": array(array()),
    "[[], []]": array(array(), array()),
    "[[[]], [[]]]": array(array(array()), array(array())),
    "[1, null]": array(element(1), element(None)),
    "[[1], [2]]": array(array(element(1)), array(element(2))),
}


def dead(bucket: Bucket) -> dict[str, ReadFile]:
    return {one.path.rpartition("/")[2]: one for one in bucket.consumer()._journal.dead}


def put_avro(bucket: Bucket, name: str, *events: dict[str, Any]) -> None:
    whole = [one | {"schema_key": "k" * 40} for one in events]
    (bucket.folder / name).write_bytes(avro(whole, ARRAYS))


def put_lines(bucket: Bucket, *events: dict[str, Any]) -> None:
    """A file of JSON with a schema file."""
    digest = "0" * 40
    (bucket.folder / f"{digest}.avsc").write_text(json.dumps(ARRAYS))
    bucket.put(f"{digest}_x_0_0_0.jsonl", *events, minute="")


@pytest.mark.clause("ST-134")
@pytest.mark.parametrize("is_avro", [True, False])
def test_arrays_without_elements_keep_their_shape(tmp_path: Path, *, is_avro: bool) -> None:
    bucket = Bucket(tmp_path)
    if is_avro:
        values = enumerate(SHAPES.values())
        put_avro(bucket, "a.avro", *(event(n, {"id": n, "a": value}) for n, value in values))
    else:
        texts = enumerate(SHAPES)
        put_lines(bucket, *(event(n, {"id": n, "a": json.loads(text)}) for n, text in texts))
    bucket.cycle()
    assert [row["a"] for row in bucket.plain()] == list(SHAPES)


@pytest.mark.clause("ST-253")
def test_an_array_that_is_one_element_is_a_dead_letter_and_shifts_no_other(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    values = (element(7), array(element(1)), array(element(2)))
    put_avro(bucket, "a.avro", *(event(n, {"id": n, "a": one}) for n, one in enumerate(values)))
    bucket.cycle()
    assert [row["a"] for row in bucket.plain()] == ["[1]", "[2]"]
    (letter,) = dead(bucket)["a.avro"].letters
    assert letter.rows == (0,)
    assert letter.reason == "column a has an array whose elements do not fill it"


@pytest.mark.clause("ST-108")
@pytest.mark.parametrize("first", ["INSERT", "DELETE"])
def test_a_deletion_needs_no_array_that_fits(tmp_path: Path, first: str) -> None:
    bucket = Bucket(tmp_path)
    put_lines(
        bucket,
        event(1, {"id": 1, "a": [1]}, first),
        event(2, {"id": 2, "a": ["x"]}, "DELETE"),
        event(3, {"id": 3, "a": [3, 4]}),
    )
    bucket.cycle()
    kept = [{"id": 1, "a": "[1]"}] if first == "INSERT" else []
    assert bucket.plain() == [*kept, {"id": 3, "a": "[3, 4]"}]
    assert not dead(bucket)


class Refusing(LocalStore):
    """A bucket of which one file may not be read, or nothing any more."""

    def __init__(self, folder: Path, refused: str, *, lists: bool) -> None:
        super().__init__(folder)
        self._refused, self._lists, self._opened = refused, lists, False

    def open(self, path: str) -> BinaryIO:
        if path.endswith(self._refused):
            self._opened = True
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open(path)

    def list(self, folder: str) -> Listing:
        if self._opened and not self._lists:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return super().list(folder)


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize("lists", [True, False])
def test_a_file_that_may_not_be_read_is_a_dead_letter_unless_nothing_may(
    tmp_path: Path, *, lists: bool
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.put("b.jsonl", event(2, {"id": 2}))
    store = Refusing(bucket.folder, "a.jsonl", lists=lists)
    consumer = EventConsumer(
        LocalStore(bucket.root),
        store,
        bucket.settings,
        bucket.clock,
        bucket,
        reached=no_crash,
        check=bucket.check,
    )
    if not lists:
        with pytest.raises(PermissionError):
            consumer.cycle()
        assert not dead(bucket)
        bucket.cycle(anew=True)
        assert [row["id"] for row in bucket.plain()] == [1, 2]
        return
    consumer.cycle()
    assert [row["id"] for row in bucket.plain()] == [2]
    (letter,) = dead(bucket)["a.jsonl"].letters
    assert letter.reason == "it may not be read: permission denied"
    bucket.consumer().replay()
    assert [row["id"] for row in bucket.plain()] == [1, 2]


def test_a_task_that_may_not_read_a_file_leaves_it_to_who_may(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="")
    store = Refusing(bucket.folder, "a.jsonl", lists=True)
    reader = FileReader(store, bucket.settings, lambda _table: {}, lambda: None, must_exist=True)
    with pytest.raises(PermissionError):
        reader.together([FoundFile("a.jsonl", "1", 1)])


@pytest.mark.clause("ST-263")
def test_a_table_is_failed_as_long_as_events_of_it_are_held(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}, key=("id", "v")))
    bucket.cycle()
    for number in (3, 4):
        bucket.put(f"{number}.jsonl", event(number, {"id": number, "v": 1}))
        bucket.cycle()
        assert "its key has changed" in bucket.errors["public.orders"].what
    assert [row["id"] for row in bucket.plain()] == [1, 3, 4]
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}))
    bucket.cycle()
    assert bucket.errors == {}
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3, 4]


def test_a_bug_met_by_one_table_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(tmp_path)
    apply = EventTable.apply

    def faulty(table: EventTable, *events: Any) -> Any:
        if str(table.table) == "public.orders":
            raise IndexError("secret")
        return apply(table, *events)

    bucket.put("a.jsonl", event(1, {"id": 1}), event(1, {"id": 5}, table="others"))
    with monkeypatch.context() as patch:
        patch.setattr(EventTable, "apply", faulty)
        bucket.cycle()
    assert bucket.plain("public/others") == [{"id": 5}]
    what = bucket.errors["public.orders"].what
    assert what.startswith("IndexError at ")
    assert "with the next files" in bucket.errors["public.orders"].hint
    assert "secret" not in what
    bucket.put("b.jsonl", event(2, {"id": 2}))
    bucket.cycle()
    assert bucket.errors == {}
    assert bucket.plain() == [{"id": 1}, {"id": 2}]


def test_a_bug_met_by_one_file_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    put_avro(bucket, "b.avro", event(2, {"id": 2, "a": None}))

    def faulty(*_given: Any, **_named: Any) -> Any:
        raise IndexError("secret")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(json_events, "_batch", faulty)
        bucket.cycle()
    assert [row["id"] for row in bucket.plain()] == [2]
    (letter,) = dead(bucket)["a.jsonl"].letters
    assert letter.reason.startswith("reading it met a fault, IndexError at ")
    assert any(one["event"] == "event_file_fault" for one in logs)
    assert "secret" not in str(logs) + letter.reason


def test_what_a_listing_leaves_out_is_told_once(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    good = bucket.put("good.jsonl", event(1, {"id": 1}), minute="")
    bucket.put("back\\slash.jsonl", event(2, {"id": 2}), minute="")
    (bucket.folder / "link.jsonl").symlink_to(good)
    Path(os.fsdecode(os.fsencode(bucket.folder) + b"/caf\xe9.jsonl")).write_text("{}\n")
    with capture_logs() as logs:
        bucket.cycle()
        bucket.cycle()
    told = {one["file"]: one["reason"] for one in logs if one["event"] == "event_file_skipped"}
    assert told == {
        "back\\slash.jsonl": "a name that is not a valid path in a store is not read",
        "caf\\xe9.jsonl": "a name that is not a valid path in a store is not read",
        "link.jsonl": "a link is not read",
    }
    assert sum(one["event"] == "event_file_skipped" for one in logs) == len(told)
    assert bucket.plain() == [{"id": 1}]


TYPED = {
    "INTEGER": (types.INTEGER, 5, 6, 6),
    "DECIMAL": (types.decimal(10, 2), Decimal("1.50"), "2.50", Decimal("2.50")),
    "DATE": (types.DATE, date(1970, 1, 2), "2026-01-01", date(2026, 1, 1)),
}


@pytest.mark.clause("ST-175")
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", ["a.avro", "z.avro"])
@pytest.mark.parametrize("kind", TYPED)
def test_json_has_the_types_of_avro_files_that_come_with_it(
    tmp_path: Path, kind: str, first: str, *, together: bool
) -> None:
    bucket = Bucket(tmp_path)
    column, in_avro, in_json, value = TYPED[kind]
    told = event_schema(
        "public_orders",
        EventSource.POSTGRESQL,
        (EventColumn("id", types.LONG), EventColumn("v", column)),
    )
    whole = event(1, {"id": 1, "v": in_avro}) | {"schema_key": "k" * 40}
    (bucket.folder / first).write_bytes(avro([whole], told))
    if not together:
        bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "v": in_json}), minute="")
    bucket.cycle()
    assert [row["v"] for row in bucket.plain()] == [in_avro, value]
    assert not dead(bucket)


@pytest.mark.clause("ST-075", "ST-253")
@pytest.mark.parametrize("place", [0, 30, 59])
@pytest.mark.parametrize(
    "bad",
    [
        {"source_timestamp": [1]},
        {"is_deleted": [False]},
        {"scn": [1]},
        {"physical_location": ["x"]},
    ],
    ids=str,
)
def test_a_list_in_one_event_harms_no_other(
    tmp_path: Path, bad: dict[str, Any], place: int
) -> None:
    bucket = Bucket(tmp_path)
    events = [event(n, {"id": n}, schema=["public"]) for n in range(60)]
    events[place] = event(place, {"id": place}, **bad)
    bucket.put("a.jsonl", *events)
    bucket.cycle()
    assert {row["id"] for row in bucket.plain()} == {*range(60)} - {place}
    (letter,) = dead(bucket)["a.jsonl"].letters
    assert letter.rows == (place,)


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_table_is_not_made_for_dead_letters_alone(tmp_path: Path, mode: str) -> None:
    bucket = Bucket(tmp_path, is_append=mode == "append")
    bucket.put("a.jsonl", event(1, {"id": 1}, read_method="oracle-cdc-logminer"))
    bucket.cycle()
    assert not (bucket.root / "Tables").exists()
    assert bucket.done == []
    bucket.put("b.jsonl", event(2, {"id": 2}))
    bucket.cycle()
    assert bucket.errors == {}
    assert [row["id"] for row in bucket.plain()] == [2]


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize("place", [0, 4])
def test_an_event_of_another_source_is_the_dead_letter_of_a_file(
    tmp_path: Path, place: int
) -> None:
    bucket = Bucket(tmp_path)
    events = [event(n, {"id": n}) for n in range(5)]
    events[place] = event(place, {"id": place}, read_method="oracle-cdc-logminer")
    bucket.put("a.jsonl", *events)
    bucket.cycle()
    (letter,) = dead(bucket)["a.jsonl"].letters
    assert letter.rows == (place,)
    assert letter.reason == "the event is of oracle, others are of postgresql"
    assert len(bucket.plain()) == 4


UNSUPPORTED = {
    "type": "record",
    "name": "multidimensionalArray_a",
    "fields": [
        {
            "name": "nestedArray",
            "type": ["null", {"type": "array", "items": "multidimensionalArray_a"}],
        },
        {"name": "elementValue", "type": {"type": "null", "logicalType": "unsupported"}},
    ],
}
FIELDS = {
    "two columns have the name 'x'": [
        {"name": "a", "type": ["null", "int"], "sourceName": "x"},
        {"name": "b", "type": ["null", "int"], "sourceName": "x"},
    ],
    "the name of column '\\ud800' is no text": [
        {"name": "a", "type": ["null", "int"], "sourceName": "\ud800"}
    ],
    "": [{"name": "a", "type": ["null", UNSUPPORTED]}],
}


@pytest.mark.clause("ST-017", "ST-253")
@pytest.mark.parametrize("reason", FIELDS)
def test_a_schema_with_columns_that_no_table_has_is_a_dead_letter(
    tmp_path: Path, reason: str
) -> None:
    bucket = Bucket(tmp_path)
    told = event_schema("public_orders", EventSource.POSTGRESQL, (EventColumn("id", types.LONG),))
    told["fields"][-1]["type"]["fields"] += FIELDS[reason]
    value = 1 if reason else array({"nestedArray": None, "elementValue": None})
    whole = event(1, {"id": 1, "a": value, "b": 2}) | {"schema_key": "k" * 40}
    (bucket.folder / "a.avro").write_bytes(avro([whole], told))
    bucket.put("b.jsonl", event(1, {"id": 5}, table="others"))
    bucket.cycle()
    assert bucket.plain("public/others") == [{"id": 5}]
    assert bucket.errors == {}
    if not reason:
        assert bucket.plain() == [{"id": 1}]
        return
    (letter,) = dead(bucket)["a.avro"].letters
    assert reason in letter.reason


def test_a_damaged_name_of_a_table_is_written_again_with_its_next_events(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    (named,) = bucket.root.glob("Files/Mirrorlake/events/tables/*/table.json")
    whole = named.read_bytes()
    named.write_bytes(whole[:9])
    assert created(LocalStore(bucket.root)) == []
    bucket.put("b.jsonl", event(2, {"id": 2}))
    bucket.cycle(anew=True)
    assert named.read_bytes() == whole
    (table,) = created(LocalStore(bucket.root))
    assert str(table) == "public.orders"
