"""What an event says that it is, and which events are dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.events.checks import check, key_names, missing_key
from mirrorlake.events.envelope import EventSource
from tests.events.decode.files import Event, event, lines, read


def checked(*events: Event, source: EventSource | None = None):  # type: ignore[no-untyped-def]
    return check(read(lines(events)), source)


@pytest.mark.clause("ST-034", "ST-185", "ST-186", "ST-369")
def test_events_are_told_by_their_read_method() -> None:
    found = checked(
        event(read_method="mysql-cdc-binlog"),
        event(read_method="mysql-backfill-fulldump"),
        event(read_method="mysql-backfill-incremental", change_type=None),
        event(read_method="mysql_dump"),
    )
    assert found.source is EventSource.MYSQL
    assert found.backfill.tolist() == [False, True, True, True]
    assert found.change_type.to_pylist() == ["INSERT"] * 4
    assert not found.rejected


@pytest.mark.clause("ST-188", "ST-189", "ST-191", "ST-192", "ST-194", "ST-195", "ST-231", "ST-369")
@pytest.mark.parametrize(
    ("method", "source", "backfill"),
    [
        ("oracle-cdc-logminer", "oracle", False),
        ("oracle-backfill", "oracle", True),
        ("oracle-supplementation", "oracle", False),
        ("postgres-cdc-wal", "postgresql", False),
        ("postgresql-cdc", "postgresql", False),
        ("postgresql-backfill", "postgresql", True),
        ("sqlserver-cdc", "sqlserver", False),
        ("sqlserver-backfill", "sqlserver", True),
        ("mongodb-change-stream", "mongodb", False),
        ("salesforce-cdc", "salesforce", False),
    ],
)
def test_each_source_is_recognised(method: str, source: str, backfill: bool) -> None:
    found = checked(event(read_method=method))
    assert (str(found.source), found.backfill.tolist()) == (source, [backfill])


@pytest.mark.clause("ST-240", "ST-246", "ST-247")
def test_changes_are_upserts_or_deletions() -> None:
    kinds = ["INSERT", "UPDATE", "UPDATE-INSERT", "CREATE", "READ", "DELETE", "UPDATE-DELETE"]
    found = checked(*(event(change_type=kind, is_deleted=None) for kind in kinds))
    assert found.deletion.tolist() == [False] * 5 + [True] * 2
    assert found.change_type.to_pylist() == [
        "INSERT",
        "UPDATE-INSERT",
        "UPDATE-INSERT",
        "INSERT",
        "INSERT",
        "DELETE",
        "UPDATE-DELETE",
    ]


@pytest.mark.clause("ST-110", "ST-111", "ST-253")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"change_type": "MERGE"}, "change_type 'MERGE' is not known"),
        ({"change_type": None}, "change_type is null"),
        ({"read_method": "kafka"}, "names no source"),
        ({"read_method": "mysql-what"}, "neither CDC nor a backfill"),
        ({"read_method": "oracle-backfill"}, "the event is of oracle, others are of mysql"),
        ({"is_deleted": True}, "contradict"),
        ({"payload": {}}, "no payload"),
        ({"source_timestamp": None}, "no source_timestamp"),
        (
            {"read_method": "mysql-backfill", "change_type": "DELETE", "is_deleted": True},
            "a backfill deletes",
        ),
    ],
)
def test_an_event_that_cannot_be_applied_has_a_reason(changed: Any, reason: str) -> None:
    found = checked(event(0), event(1, **changed), event(2))
    assert list(found.rejected) == [1]
    assert reason in found.rejected[1]


@pytest.mark.clause("ST-108")
def test_a_deletion_needs_no_more_than_its_key() -> None:
    deletion = event(change_type="DELETE", is_deleted=True, payload={"id": 1})
    found = read(lines([event(0), deletion]))
    assert not check(found).rejected
    assert not missing_key(found, ["id"])


def test_events_that_name_no_source_are_refused() -> None:
    with pytest.raises(ValueError, match="names its source"):
        checked(event(read_method="backfill"))
    found = checked(event(read_method="backfill"), source=EventSource.MONGODB)
    assert found.backfill.tolist() == [True]


@pytest.mark.clause("ST-095", "ST-250")
def test_the_key_is_what_the_events_name() -> None:
    events = [
        event(primary_keys=["b", "a"]),
        event(primary_keys=["a", "b"]),
        event(primary_keys=[], replication_index=["c"]),
        event(primary_keys=None),
    ]
    found = read(lines(events))
    assert key_names(found) == [{"a", "b"}, {"c"}, frozenset()]
    assert key_names(found, ["id"]) == [{"a", "b"}, {"c"}, {"id"}]


@pytest.mark.clause("ST-253")
def test_an_event_without_its_key_has_a_reason() -> None:
    found = read(lines([event(0), event(payload={"id": None, "val": "a"})]))
    assert missing_key(found, ["id"]) == {1: "the key column id is null"}
    assert missing_key(found, ["other"]) == dict.fromkeys(
        (0, 1), "the event has no key column other"
    )
