"""What a zone remembers of its stream."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.errors import BadValue
from mirrorlake.model.landed import LaterFormat, format_time
from mirrorlake.model.table import TableId
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

ZONE = "Files/LandingZone"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


@pytest.fixture
def records(store: MemoryStore) -> Records:
    return Records(store, ZONE)


def test_a_new_zone_remembers_nothing(records: Records) -> None:
    assert (records.stream(), records.stopped(), records.truncated()) == (None, {}, {})


def test_a_stream_is_remembered(records: Records) -> None:
    record = StreamRecord.new({"system": "7"})
    records.write_stream(record)
    found = records.stream()
    assert found is not None
    assert (found.stream, found.source, found.is_established) == (
        record.stream,
        {"system": "7"},
        False,
    )


def test_a_stream_is_established_when_its_place_in_the_log_is_made(records: Records) -> None:
    records.write_stream(replace(StreamRecord.new({}), start="0/A", made=["slot x"]))
    found = records.stream()
    assert found is not None
    assert (found.is_established, found.start, list(found.made)) == (True, "0/A", ["slot x"])


def test_records_without_the_id_of_a_stream_are_of_the_default_one(
    store: MemoryStore, records: Records
) -> None:
    stored = {"format": "1", "stream": "u", "source": {}, "start": "0/A", "made": []}
    store.create(f"{ZONE}/_mirrorlake/stream.json", json.dumps(stored).encode())
    assert records.stream() == StreamRecord("u", {}, "0/A", [])


def test_streams_of_one_zone_have_records_of_their_own(
    store: MemoryStore, records: Records
) -> None:
    other = Records(store, ZONE, "crm")
    other.write_stream(StreamRecord.new({"system": "8"}))
    other.stop("a", {"code": "x"})
    assert (records.stream(), records.stopped()) == (None, {})
    assert other.stopped() == {"a": {"code": "x"}}


@pytest.mark.parametrize("stream_id", ["", "..", "a/b", "Crm", "a" * 64])
def test_what_is_no_id_of_a_stream_is_refused(store: MemoryStore, stream_id: str) -> None:
    with pytest.raises(ValueError, match="not a stream id"):
        Records(store, ZONE, stream_id).stream()


def test_streams_differ() -> None:
    assert StreamRecord.new({}).stream != StreamRecord.new({}).stream


def test_stopped_tables_are_remembered_with_their_errors(records: Records) -> None:
    error = BadValue("no", table="a", hint="Mend it.").facts()
    records.stop("a", error)
    records.stop("b", {"code": "x"})
    assert records.stopped() == {"a": error, "b": {"code": "x"}}


def test_the_last_truncation_of_each_table_is_remembered(records: Records) -> None:
    for table, position, generation in (("a", "0/1:1", "g"), ("b", "0/2:1", "h"), ("a", "9", "i")):
        records.truncate(TableId("", table), position, generation)
    assert records.truncated() == {
        "a": {"position": "9", "generation": "i"},
        "b": {"position": "0/2:1", "generation": "h"},
    }


@pytest.mark.parametrize("name", ["stream", "stopped", "truncated"])
def test_a_later_format_is_refused_by_its_name(
    store: MemoryStore, records: Records, name: str
) -> None:
    store.create(f"{ZONE}/_mirrorlake/{name}.json", json.dumps({"format": "2"}).encode())
    with pytest.raises(LaterFormat, match=r"\.json has format 2;"):
        getattr(records, name)()


def test_what_is_counted_of_an_append_only_table_survives_a_reset_of_the_counters(
    records: Records,
) -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    found = AppendOnly("it has no primary key", {"7": (5, 5)})
    assert not found.after("", {"7": (5, 5)}, at(1)).differs
    found = found.after("", {"7": (7, 5)}, at(2)).after("", {"7": (7, 9)}, at(3))
    assert (found.updates, found.deletes, found.since) == (2, 4, format_time(at(2)))
    found = found.after("it has no primary key", {"7": (1, 0)}, at(4))
    assert (found.updates, found.deletes, found.since) == (3, 4, format_time(at(2)))
    records.write_append_only({"public.t": found})
    assert records.append_only() == {"public.t": found}
    records.forget("public.t")
    assert records.append_only() == {}
