"""The envelope: what every event has, and how it was read."""

from __future__ import annotations

import pytest

from mirrorlake.events import envelope
from mirrorlake.events.avro_schema import event_schema
from mirrorlake.events.change_types import (
    WRITTEN,
    ChangeType,
    inserted,
    rekeyed,
    updated,
)
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod

SQLSERVER, MONGODB = EventSource.SQLSERVER, EventSource.MONGODB


@pytest.mark.clause("ST-005", "ST-012", "ST-013", "ST-029")
@pytest.mark.parametrize("source", EventSource)
def test_every_source_has_the_same_fields_in_the_same_order(source: EventSource) -> None:
    schema = event_schema("shop_orders", source, [])
    order = (
        "uuid read_timestamp source_timestamp object read_method stream_name schema_key sort_keys"
        " source_metadata payload"
    )
    assert [field["name"] for field in schema["fields"]] == order.split()
    assert order.split() == list(envelope.FIELDS)


@pytest.mark.clause("ST-022", "ST-030", "ST-036", "ST-038", "ST-040", "ST-043", "ST-044")
def test_generic_fields_have_the_types_of_the_event_page_and_are_never_null() -> None:
    fields = {f["name"]: f["type"] for f in event_schema("o", EventSource.MYSQL, [])["fields"]}
    for name in ("uuid", "object", "read_method", "stream_name", "schema_key"):
        assert fields[name] == "string"
    for name in ("read_timestamp", "source_timestamp"):
        assert fields[name] == {"type": "long", "logicalType": "timestamp-millis"}
    assert fields["sort_keys"] == {"type": "array", "items": ["string", "long"]}


@pytest.mark.clause("ST-031", "ST-032")
def test_every_listed_read_method_is_understood() -> None:
    listed = {text: ReadMethod.parse(text) for text in envelope.LISTED}
    assert listed == {
        "oracle-cdc-logminer": ReadMethod(EventSource.ORACLE, ReadKind.CDC),
        "oracle-backfill": ReadMethod(EventSource.ORACLE, ReadKind.BACKFILL),
        "oracle-supplementation": ReadMethod(EventSource.ORACLE, ReadKind.SUPPLEMENTATION),
        "mysql-cdc-binlog": ReadMethod(EventSource.MYSQL, ReadKind.CDC),
        "mysql-backfill-incremental": ReadMethod(EventSource.MYSQL, ReadKind.BACKFILL),
        "mysql-backfill-fulldump": ReadMethod(EventSource.MYSQL, ReadKind.BACKFILL),
        "postgres-cdc-wal": ReadMethod(EventSource.POSTGRESQL, ReadKind.CDC),
        "postgresql-backfill": ReadMethod(EventSource.POSTGRESQL, ReadKind.BACKFILL),
        "salesforce-cdc": ReadMethod(EventSource.SALESFORCE, ReadKind.CDC),
        "salesforce-backfill": ReadMethod(EventSource.SALESFORCE, ReadKind.BACKFILL),
    }


@pytest.mark.clause("ST-033")
@pytest.mark.parametrize("text", ["sqlserver-backfill", "sqlserver-backfill-anything"])
def test_the_read_methods_of_sql_server_are_understood(text: str) -> None:
    assert ReadMethod.parse("sqlserver-cdc") == ReadMethod(SQLSERVER, ReadKind.CDC)
    assert ReadMethod.parse(text) == ReadMethod(SQLSERVER, ReadKind.BACKFILL)


@pytest.mark.clause("ST-034", "ST-369")
@pytest.mark.parametrize(
    ("text", "source", "kind"),
    [
        ("postgresql-cdc", EventSource.POSTGRESQL, ReadKind.CDC),
        ("sqlserver-cdc-logbased", SQLSERVER, ReadKind.CDC),
        ("oracle_dump", EventSource.ORACLE, ReadKind.BACKFILL),
        ("mongodb-change-stream", MONGODB, ReadKind.CDC),
        ("MySQL-CDC-binlog", EventSource.MYSQL, ReadKind.CDC),
    ],
)
def test_other_read_methods_that_were_seen_are_classified(
    text: str, source: EventSource, kind: ReadKind
) -> None:
    assert ReadMethod.parse(text) == ReadMethod(source, kind)


@pytest.mark.clause("ST-034", "ST-369")
def test_a_configured_source_stands_above_the_text() -> None:
    assert ReadMethod.parse("backfill", MONGODB) == ReadMethod(MONGODB, ReadKind.BACKFILL)
    assert ReadMethod.parse("cdc", MONGODB) == ReadMethod(MONGODB, ReadKind.CDC)


@pytest.mark.clause("ST-034")
@pytest.mark.parametrize("text", ["", "cdc", "db2-cdc", "mysql", "mysql-guess"])
def test_what_cannot_be_classified_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="read_method"):
        ReadMethod.parse(text)


@pytest.mark.clause("ST-035")
def test_read_methods_are_written_with_the_listed_names() -> None:
    written = {str(ReadMethod(s, k)) for s in EventSource for k in ReadKind if _is_written(s, k)}
    more = {"sqlserver-cdc", "sqlserver-backfill", "mongodb-cdc", "mongodb-backfill"}
    assert written <= set(envelope.LISTED) | more
    assert more <= written
    for text in written:
        assert str(ReadMethod.parse(text)) == text


def _is_written(source: EventSource, kind: ReadKind) -> bool:
    return kind is not ReadKind.SUPPLEMENTATION or source is EventSource.ORACLE


def test_a_source_without_supplementation_writes_none() -> None:
    with pytest.raises(ValueError, match="no supplementation"):
        str(ReadMethod(MONGODB, ReadKind.SUPPLEMENTATION))


@pytest.mark.parametrize(
    ("source", "written"),
    [
        pytest.param(s, w.split(), marks=pytest.mark.clause(clause))
        for clause, s, w in [
            ("ST-051", EventSource.MYSQL, "INSERT UPDATE-INSERT UPDATE-DELETE DELETE"),
            ("ST-059", EventSource.ORACLE, "INSERT UPDATE-INSERT UPDATE-DELETE DELETE"),
            ("ST-067", EventSource.POSTGRESQL, "INSERT UPDATE DELETE"),
            ("ST-081", EventSource.SQLSERVER, "INSERT UPDATE DELETE"),
            ("ST-085", EventSource.SALESFORCE, "INSERT UPDATE DELETE"),
            ("ST-089", EventSource.MONGODB, "CREATE UPDATE DELETE"),
        ]
    ],
)
def test_each_source_has_its_own_change_types(source: EventSource, written: list[str]) -> None:
    assert {str(one) for one in WRITTEN[source]} == set(written)
    assert inserted(source) in WRITTEN[source]
    assert updated(source) in WRITTEN[source]
    assert set(rekeyed(source) or ()) <= WRITTEN[source]


@pytest.mark.clause("ST-102", "ST-104", "ST-106")
def test_a_key_change_is_a_deletion_and_an_insert_in_the_words_of_the_source() -> None:
    pair = (ChangeType.UPDATE_DELETE, ChangeType.UPDATE_INSERT)
    assert rekeyed(EventSource.MYSQL) == rekeyed(EventSource.ORACLE) == pair
    for source in (EventSource.POSTGRESQL, SQLSERVER, EventSource.SALESFORCE):
        assert rekeyed(source) == (ChangeType.DELETE, ChangeType.INSERT)
    assert rekeyed(MONGODB) is None


@pytest.mark.clause("ST-092", "ST-100", "ST-107", "ST-110", "ST-246", "ST-247")
def test_change_types_are_read_as_upserts_and_deletions() -> None:
    for text in ("INSERT", "UPDATE", "UPDATE-INSERT", "CREATE", "READ"):
        assert not ChangeType.parse(text).is_deletion
    for text in ("DELETE", "UPDATE-DELETE"):
        assert ChangeType.parse(text).is_deletion
    assert ChangeType.parse(None, is_backfill=True) is ChangeType.INSERT
    for odd in (None, "", "MERGE"):
        with pytest.raises(ValueError, match="change_type"):
            ChangeType.parse(odd)
