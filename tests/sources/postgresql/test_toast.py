"""Values that PostgreSQL keeps outside of their row and does not send when they do not change."""

from __future__ import annotations

import random

import pytest

from mirrorlake.model.change import Marker
from tests.conformance.scene import UNCHANGED
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

# Random, so that it does not shrink into the row when it is compressed.
LONG = random.Random(1).randbytes(5_000).hex()
TABLE = (
    "create table apples (id int primary key, long text, note text)",
    "alter table apples alter column long set storage external",
)
FULL = "alter table apples replica identity full"
INSERT_LONG = f"insert into apples values (1, '{LONG}', 'a')"


def test_a_long_value_that_does_not_change_is_marked_as_unchanged(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(INSERT_LONG, "update apples set note = 'b'")
    assert found[0].row == {"id": 1, "long": LONG, "note": "a"}
    assert found[1].row == {"id": 1, "long": UNCHANGED, "note": "b"}


def test_a_long_value_that_changes_is_sent(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(INSERT_LONG, "update apples set long = reverse(long)")
    assert found[1].row == {"id": 1, "long": LONG[::-1], "note": "a"}


def test_a_long_value_that_becomes_null_is_not_taken_for_unchanged(captured: Captured) -> None:
    captured.begin(*TABLE)
    found = captured.changes(INSERT_LONG, "update apples set long = null")
    assert found[1].row == {"id": 1, "long": None, "note": "a"}


def test_unchanged_values_are_marked_when_the_key_changes_as_well(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(INSERT_LONG, "update apples set id = 2, note = 'b'")
    assert [event.kind for event in found] == [Marker.INSERT, Marker.DELETE, Marker.INSERT]
    assert found[1].row == {"id": 1, "long": None, "note": None}
    assert found[2].row == {"id": 2, "long": UNCHANGED, "note": "b"}


def test_with_identity_full_unchanged_values_are_filled_in(any_captured: Captured) -> None:
    any_captured.begin(*TABLE, FULL)
    found = any_captured.changes(INSERT_LONG, "update apples set note = 'b'")
    assert found[1].row == {"id": 1, "long": LONG, "note": "b"}


def test_with_identity_full_they_are_filled_in_when_the_key_changes(any_captured: Captured) -> None:
    any_captured.begin(*TABLE, FULL)
    found = any_captured.changes(INSERT_LONG, "update apples set id = 2")
    assert found[1].row == {"id": 1, "long": None, "note": None}
    assert found[2].row == {"id": 2, "long": LONG, "note": "a"}


def test_an_unchanged_array_of_bytes_is_marked_whatever_its_type(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int primary key, bytes bytea, list text[], note text)",
        "alter table apples alter column bytes set storage external",
        "alter table apples alter column list set storage external",
    )
    found = any_captured.changes(
        f"insert into apples values (1, '\\x{LONG}', array['{LONG}'], 'a')",
        "update apples set note = 'b'",
    )
    assert found[0].row["bytes"] == bytes.fromhex(LONG)
    assert found[1].row == {"id": 1, "bytes": UNCHANGED, "list": UNCHANGED, "note": "b"}


def test_a_long_key_that_does_not_change_is_told(any_captured: Captured) -> None:
    # A key is short enough for its index, and may still be kept outside of its row.
    key = LONG[:2_500]
    any_captured.begin(
        "create table apples (k text primary key, note text)",
        "alter table apples alter column k set storage external",
        "alter table apples set (toast_tuple_target = 128)",
    )
    found = any_captured.changes(
        f"insert into apples values ('{key}', 'a')",
        "update apples set note = 'b'",
        "delete from apples",
    )
    assert [(event.kind, event.row["k"]) for event in found] == [
        (Marker.INSERT, key),
        (Marker.UPDATE, key),
        (Marker.DELETE, key),
    ]


@pytest.mark.parametrize("identity", ["default", "full"])
def test_the_long_part_of_a_key_is_told_when_the_other_part_changes(
    any_captured: Captured, identity: str
) -> None:
    key = LONG[:2_000]
    any_captured.begin(
        "create table apples (k text, n int, note text, primary key (k, n))",
        "alter table apples alter column k set storage external",
        "alter table apples set (toast_tuple_target = 128)",
        f"alter table apples replica identity {identity}",
    )
    found = any_captured.changes(
        f"insert into apples values ('{key}', 1, 'a')", "update apples set n = 2"
    )
    assert [(event.kind, event.row["k"], event.row["n"]) for event in found] == [
        (Marker.INSERT, key, 1),
        (Marker.DELETE, key, 1),
        (Marker.INSERT, key, 2),
    ]


def test_rows_with_and_without_unchanged_values_stand_side_by_side(captured: Captured) -> None:
    captured.begin(*TABLE)
    found = captured.changes(
        INSERT_LONG,
        "insert into apples values (2, 'short', 'a')",
        "update apples set note = 'b'",
    )
    assert [event.row["long"] for event in found] == [LONG, "short", UNCHANGED, "short"]
