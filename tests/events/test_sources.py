"""Events of all six sources with their own metadata, written and read in both formats."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.events import types
from mirrorlake.events.change_types import WRITTEN, inserted, rekeyed, updated
from mirrorlake.events.changes import Change, change_facts, sort_keys, source_times
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.metadata import (
    AS_CHOSEN,
    BACKFILL_VALUES,
    MetadataSwitches,
    MetadataType,
    metadata_fields,
)
from mirrorlake.events.reading import read_events
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn
from tests.events.values import STREAM, decoded

Record = dict[str, Any]

MYSQL, ORACLE, POSTGRESQL = EventSource.MYSQL, EventSource.ORACLE, EventSource.POSTGRESQL
SQLSERVER, SALESFORCE = EventSource.SQLSERVER, EventSource.SALESFORCE
MONGODB = EventSource.MONGODB
MOMENT = 1_737_457_695_000
COLUMNS = (EventColumn("id", types.LONG), EventColumn("note", types.STRING))
ARROW = {
    MetadataType.STRING: pa.string(),
    MetadataType.LONG: pa.int64(),
    MetadataType.BOOLEAN: pa.bool_(),
    MetadataType.STRINGS: pa.list_(pa.string()),
    MetadataType.INTEGERS: pa.list_(pa.int32()),
}


@dataclass(frozen=True)
class Events:
    """Events of one source. metadata, sort_keys: of each event."""

    source: EventSource
    metadata: Sequence[Record]
    sort_keys: Sequence[list[Any]]
    kind: ReadKind = ReadKind.CDC
    switches: MetadataSwitches = AS_CHOSEN

    def __len__(self) -> int:
        return len(self.metadata)

    @property
    def described(self) -> EventObject:
        return EventObject(STREAM, "shop_orders", self.source, COLUMNS, self.switches)

    def rows(self) -> EventRows:
        """Every field of the metadata and every part of the sort keys as an array."""
        numbers = range(len(self))
        facts: dict[str, pa.Array] = {
            field.name: pa.array([one[field.name] for one in self.metadata], ARROW[field.type])
            for field in metadata_fields(self.source, self.switches)
        }
        return EventRows(
            ReadMethod(self.source, self.kind),
            pa.array([f"batch-{n}" for n in numbers]),
            MOMENT + 5,
            np.array([MOMENT + n for n in numbers]),
            facts,
            [pa.array(list(part)) for part in zip(*self.sort_keys, strict=True)],
            [pa.array(numbers, pa.int64()), pa.array(map(note, numbers), pa.string())],
        )

    def expected(self, moment: type[int] | type[str]) -> list[Record]:
        """The events as they are in a file, with their times as numbers or texts."""

        def shown(at: int) -> int | str:
            text = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
            return at if moment is int else text.replace("+00:00", "Z")

        return [
            {
                "uuid": f"batch-{n}",
                "read_timestamp": shown(MOMENT + 5),
                "source_timestamp": shown(MOMENT + n),
                "object": "shop_orders",
                "read_method": str(ReadMethod(self.source, self.kind)),
                "stream_name": STREAM,
                "schema_key": self.described.schema_key,
                "sort_keys": self.sort_keys[n],
                "source_metadata": self.metadata[n],
                "payload": {"id": n, "note": note(n)},
            }
            for n in range(len(self))
        ]

    def written(self, form: str) -> bytes:
        write = container if form == "avro" else json_lines
        return b"".join(write(self.described, self.rows()))


def note(number: int) -> str | None:
    return None if number % 3 == 1 else f"note {number}"


def in_turn(values: Sequence[Any], count: int) -> list[Any]:
    return [values[n % len(values)] for n in range(count)]


def records(count: int, **fields: Sequence[Any]) -> list[Record]:
    """So many records, of which each field has its values in turn."""
    columns = {name: in_turn(values, count) for name, values in fields.items()}
    return [{name: column[n] for name, column in columns.items()} for n in range(count)]


def changed(source: EventSource) -> dict[str, list[Any]]:
    kinds = sorted(WRITTEN[source])
    return {
        "change_type": [str(kind) for kind in kinds],
        "is_deleted": [kind.is_deletion for kind in kinds],
    }


KEYS: list[Any] = [["id"], [], ["tenant", 'the "id"'], ["id"]]
TABLE: dict[str, Sequence[Any]] = {"table": ["orders", "ünïcode\n"], "schema": ["shop", "SHOP"]}
LSNS = ["16/CB002DB0", None, "0/1"]
FIELDS: Mapping[EventSource, dict[str, Sequence[Any]]] = {
    MYSQL: {
        "table": TABLE["table"],
        "database": ["shop", "shöp"],
        "primary_keys": KEYS,
        "log_file": ["mysql-bin.000131", "mysql-bin.000132"],
        "log_position": [4, 2**40, 2550],
        **changed(MYSQL),
    },
    ORACLE: {
        **TABLE,
        "log_file": ["ora_log/arch1_341_1054990283.arc", ""],
        "scn": [1_562_308_823_812, 2**62],
        "row_id": ["AAAR3sAAEAAAACXAAA", None],
        "database": ["XE", "ORCL"],
        "tx_id": [None, "CgAQAHMCAAA="],
        "rs_id": [" 0x0073c9.000a4e4c.01d0 ", ""],
        "ssn": [0, 67, 2**33],
        "primary_keys": KEYS,
        **changed(ORACLE),
    },
    POSTGRESQL: {
        **TABLE,
        "tx_id": [None, "623", "624"],
        "lsn": LSNS,
        "primary_keys": KEYS,
        **changed(POSTGRESQL),
    },
    SQLSERVER: {
        **TABLE,
        "database": ["sales", "master"],
        "lsn": ["0000002a:00000110:0003", None],
        "tx_id": ["0000:0000032d", None, None],
        "physical_location": [[1, 2, 3], None, [2**31 - 1, 0, -1], []],
        "replication_index": [["id"], None, ["a", "b,c"], []],
        **changed(SQLSERVER),
    },
    SALESFORCE: {
        "object_name": ["Account", "Own__c"],
        "domain": ["acme.my.salesforce.com", "x"],
        "primary_keys": [["Id"], []],
        **changed(SALESFORCE),
    },
    MONGODB: {
        "database": ["shop", "other"],
        "collection": ["orders", "system.x"],
        "primary_keys": [["_id"]],
        **changed(MONGODB),
    },
}


def sorted_by(source: EventSource, number: int, facts: Record) -> list[Any]:
    """As section 9 of the specification has them for changes."""
    match source:
        case EventSource.MYSQL:
            return [MOMENT + number, facts["log_file"], facts["log_position"]]
        case EventSource.ORACLE:
            return [MOMENT + number, facts["scn"], facts["rs_id"], facts["ssn"]]
        case EventSource.POSTGRESQL | EventSource.SQLSERVER:
            return [MOMENT + number, facts["lsn"] or ""]
        case EventSource.SALESFORCE:
            return [MOMENT + number]
        case EventSource.MONGODB:
            return [MOMENT // 1000, number]


def changes(
    source: EventSource, count: int, switches: MetadataSwitches = AS_CHOSEN, **fields: Sequence[Any]
) -> Events:
    metadata = records(count, **{**FIELDS[source], **fields})
    keys = [sorted_by(source, n, one) for n, one in enumerate(metadata)]
    return Events(source, metadata, keys, switches=switches)


def clauses(first: int, last: int, *others: int) -> tuple[str, ...]:
    return tuple(f"ST-{number:03}" for number in [*range(first, last + 1), *others])


PROVED = {
    MYSQL: clauses(45, 51, 199),
    ORACLE: clauses(52, 63, 200),
    POSTGRESQL: clauses(64, 71, 201),
    SQLSERVER: clauses(75, 81, 72, 202),
    SALESFORCE: clauses(82, 86, 203),
    MONGODB: clauses(87, 91, 204),
}
SOURCES = pytest.mark.parametrize(
    "source",
    [pytest.param(one, marks=pytest.mark.clause(*told), id=one) for one, told in PROVED.items()],
)
FORMS = pytest.mark.parametrize("form", ["avro", "json"])


def others_read(form: str, content: bytes) -> list[Record]:
    """As fastavro or Python's reader of JSON has them."""
    if form == "avro":
        return decoded(content)
    return [json.loads(line) for line in content.decode().removesuffix("\n").split("\n")]


def as_read(kind: pa.DataType, value: Any) -> Any:
    """As our reader has it: other types of a text as that text, sort keys as texts."""
    if isinstance(value, list) and pa.types.is_string(kind):
        (value,) = value
    if value is not None and pa.types.is_string(kind):
        return str(value)
    if value is not None and kind == pa.list_(pa.string()):
        return list(map(str, value))
    return value


def proved(events: Events, form: str) -> None:
    """Everyone reads what was to be written, field by field."""
    content = events.written(form)
    found = others_read(form, content)
    assert found == events.expected(int if form == "avro" else str)
    fields = [field.name for field in metadata_fields(events.source, events.switches)]
    assert all(list(one["source_metadata"]) == fields for one in found)
    batches = list(read_events(io.BytesIO(content), columns=COLUMNS))
    assert not any(batch.rejected for batch in batches)
    assert sum(map(len, batches)) == len(events)
    expected = events.expected(int)
    for batch in batches:
        ours = [expected[n] for n in batch.row.tolist()]
        payload = {name: batch.payload.column(name).to_pylist() for name in ("id", "note")}
        assert payload == {name: [one["payload"][name] for one in ours] for name in payload}
        for field in batch.head.schema:
            inside = field.name in fields
            told = [(one["source_metadata"] if inside else one).get(field.name) for one in ours]
            read = [as_read(field.type, value) for value in told]
            assert batch.head.column(field.name).to_pylist() == read, field.name


@SOURCES
@FORMS
@pytest.mark.parametrize("count", [4, 150])
@pytest.mark.clause("ST-008", "ST-009", "ST-015", "ST-044")
def test_changes_of_a_source_are_read_with_all_that_it_tells(
    source: EventSource, form: str, count: int
) -> None:
    proved(changes(source, count), form)


BACKFILL: Mapping[EventSource, dict[str, Sequence[Any]]] = {
    MYSQL: {"log_file": [""], "log_position": [0]},
    ORACLE: {"rs_id": [""], "ssn": [0], "log_file": [""], "tx_id": [None]},
    POSTGRESQL: {"lsn": [None], "tx_id": [None]},
    SQLSERVER: {"lsn": [None], "tx_id": [None]},
    SALESFORCE: {},
    MONGODB: {},
}


@SOURCES
@FORMS
@pytest.mark.clause("ST-009", "ST-093")
def test_a_backfill_of_a_source_is_read_with_positions_that_tell_nothing(
    source: EventSource, form: str
) -> None:
    kind = {"change_type": ["CREATE" if source is MONGODB else "INSERT"], "is_deleted": [False]}
    events = changes(source, 4, **BACKFILL[source], **kind)
    empty = {MYSQL: ["", 0], ORACLE: ["", 0], POSTGRESQL: [""], SQLSERVER: [""]}.get(source, [])
    assert all(keys[len(keys) - len(empty) :] == empty for keys in events.sort_keys)
    proved(Events(source, events.metadata, events.sort_keys, ReadKind.BACKFILL), form)


@FORMS
@pytest.mark.clause("ST-073", "ST-074", "ST-075")
def test_the_printed_types_of_sql_server_are_read_as_texts(form: str) -> None:
    switches = MetadataSwitches(literal_types=True)
    events = changes(SQLSERVER, 4, switches, database=[5, 2**40], schema=[["dbo"], ["sales"]])
    proved(events, form)


@FORMS
@pytest.mark.clause("ST-069")
def test_transactions_of_postgresql_that_are_numbers_are_read_as_texts(form: str) -> None:
    events = changes(POSTGRESQL, 3, MetadataSwitches(long_tx_id=True), tx_id=[7, None, 2**40])
    proved(events, form)


def genuine_key_change() -> list[Record]:
    """The two events that section 23 of the specification has, without their schema key."""
    lines = Path("docs/spec/streams.md").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"uuid":"ee7534b0')]
    return [{**one, "schema_key": ""} for one in found]


@FORMS
@pytest.mark.parametrize("is_delayed", [True, False])
@pytest.mark.clause("ST-102", "ST-103")
def test_a_change_of_a_key_of_mysql_is_written_as_the_genuine_one(
    form: str, *, is_delayed: bool
) -> None:
    genuine = genuine_key_change()
    place = {name: genuine[0]["source_metadata"][name] for name in ("log_file", "log_position")}
    halves = np.array([Change.OLD_KEY, Change.NEW_KEY], np.int8)
    times = source_times(MYSQL, halves, np.full(2, 1_737_457_695_000), is_delayed=is_delayed)
    facts = {
        "table": "my_table",
        "database": "ea-main",
        "primary_keys": ["id"],
        **place,
        **change_facts(MYSQL, halves),
    }
    written = EventRows(
        ReadMethod(MYSQL, ReadKind.CDC),
        pa.array([one["uuid"] for one in genuine]),
        1_737_457_761_898,
        times,
        facts,
        sort_keys(MYSQL, pa.array(times), facts),
        [pa.array([1, 10]), pa.array([10, 10])],
    )
    columns = (EventColumn("id", types.LONG), EventColumn("val", types.LONG))
    described = EventObject(genuine[0]["stream_name"], "ea-main_my_table", MYSQL, columns)
    if not is_delayed:
        genuine[1]["source_timestamp"] = genuine[1]["sort_keys"][0] = genuine[0]["source_timestamp"]
    write = container if form == "avro" else json_lines
    found = others_read(form, b"".join(write(described, written)))
    for one in found:
        for name in ("read_timestamp", "source_timestamp"):
            if form == "json":
                one[name] = round(datetime.fromisoformat(one[name]).timestamp() * 1000)
    assert [{**one, "schema_key": ""} for one in found] == genuine


@pytest.mark.clause("ST-102", "ST-103", "ST-104")
@pytest.mark.parametrize("source", [ORACLE, POSTGRESQL, SQLSERVER, SALESFORCE])
def test_both_halves_of_a_change_of_a_key_of_others_have_one_time(source: EventSource) -> None:
    halves = np.array([Change.OLD_KEY, Change.NEW_KEY], np.int8)
    changed = np.array([MOMENT, MOMENT])
    assert source_times(source, halves, changed).tolist() == changed.tolist()
    facts = change_facts(source, halves)
    assert facts["change_type"].to_pylist() == [*map(str, rekeyed(source) or ())]  # type: ignore[union-attr]
    assert facts["is_deleted"].to_pylist() == [True, False]  # type: ignore[union-attr]


@pytest.mark.clause("ST-106")
def test_a_change_of_the_key_of_a_document_is_refused() -> None:
    with pytest.raises(ValueError, match="no key of mongodb changes"):
        change_facts(MONGODB, np.array([Change.UPDATE, Change.NEW_KEY], np.int8))


@pytest.mark.parametrize("source", EventSource)
@pytest.mark.clause("ST-096", "ST-097", "ST-098", "ST-101")
def test_each_change_is_told_in_the_words_of_its_source(source: EventSource) -> None:
    made = [Change.INSERT, Change.UPDATE, Change.DELETE, Change.TRUNCATE]
    facts = change_facts(source, np.array(made, np.int8))
    words = [inserted(source), updated(source), "DELETE", "TRUNCATE"]
    assert facts["change_type"].to_pylist() == [*map(str, words)]  # type: ignore[union-attr]
    assert facts["is_deleted"].to_pylist() == [False, False, True, True]  # type: ignore[union-attr]


def of_arrow(values: Any, count: int) -> list[Any]:
    return values.to_pylist() if isinstance(values, pa.Array) else [values] * count


@SOURCES
def test_the_sort_keys_of_a_source_are_made_of_its_metadata(source: EventSource) -> None:
    events = changes(source, 4)
    given, numbers = events.rows(), pa.array(range(4))
    parts = sort_keys(source, pa.array(given.source_timestamp), given.metadata, numbers)
    found = [of_arrow(part, 4) for part in parts]
    assert [list(key) for key in zip(*found, strict=True)] == events.sort_keys


@SOURCES
def test_the_sort_keys_of_a_backfill_tell_no_position(source: EventSource) -> None:
    facts = {"scn": 7, **BACKFILL_VALUES[source]}
    told = {
        MYSQL: [MOMENT, "", 0],
        ORACLE: [MOMENT, 7, "", 0],
        POSTGRESQL: [MOMENT, ""],
        SQLSERVER: [MOMENT, ""],
        SALESFORCE: [MOMENT],
        MONGODB: [MOMENT // 1000, 0],
    }
    assert sort_keys(source, MOMENT, facts) == told[source]


@FORMS
@pytest.mark.parametrize("source", [MYSQL, ORACLE])
@pytest.mark.clause("ST-097", "ST-101")
def test_an_update_that_leaves_the_key_is_one_event(source: EventSource, form: str) -> None:
    kind = updated(source)
    fields = {"change_type": [str(kind)], "is_deleted": [kind.is_deletion]}
    events = changes(source, 1, **fields)
    proved(events, form)
    (found,) = others_read(form, events.written(form))
    assert found["source_metadata"]["change_type"] == "UPDATE-INSERT"
    assert found["source_metadata"]["is_deleted"] is False
    assert found["payload"] == {"id": 0, "note": "note 0"}
