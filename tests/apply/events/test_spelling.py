"""Columns that were renamed in the source, to names that are one in a table."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.model.table import TableId
from tests.apply.events.bucket import Bucket, event

ORDERS = TableId("public", "orders")
FILES = {
    "a": [
        event(1, {"ID": 1, "unit-price": 10}, key=["ID"]),
        event(2, {"ID": 2, "unit-price": 20}, key=["ID"]),
    ],
    "b": [
        event(3, {"id": 1, "Unit_Price": 11}, "UPDATE", key=["id"]),
        event(4, {"id": 3, "Unit_Price": None}, key=["id"]),
    ],
    "c": [event(5, {"Id": 2, "unit_price": 0}, "DELETE", key=["Id"])],
}
MODES = ["merge", "append"]


def values(bucket: Bucket) -> list[Any]:
    """The rows, whatever their columns are called."""
    return sorted((tuple(row.values()) for row in bucket.plain()), key=repr)


@pytest.mark.clause("ST-219", "ST-245", "ST-261")
@pytest.mark.parametrize("mode", MODES)
def test_a_column_that_is_written_otherwise_stays_what_it_is(tmp_path: Path, mode: str) -> None:
    for order in itertools.permutations(FILES):
        for is_together in (False, True):
            bucket = Bucket(tmp_path / f"{order}{is_together}", is_append=mode == "append")
            with capture_logs() as told:
                for minute, name in enumerate(order):
                    bucket.put(f"{name}.jsonl", *FILES[name], minute=f"2026/11/20/10/{minute:02}")
                    if not is_together:
                        bucket.cycle()
                bucket.cycle()
            assert not bucket.errors
            rows = [(1, 11), (3, None)]
            if mode == "append":
                rows += [(1, 10), (2, 20), (2, 0)]
            assert values(bucket) == sorted(rows, key=repr)
            (names,) = {tuple(row) for row in bucket.plain()}
            assert [name.casefold() for name in names] == ["id", "unit_price"]
            assert [one for one in told if one["event"] == "event_column_respelled"]
            assert bucket.consumer()._journal.dead == []


@pytest.mark.clause("ST-254")
@pytest.mark.parametrize("mode", MODES)
def test_they_are_recognised_after_a_repair(tmp_path: Path, mode: str) -> None:
    bucket = Bucket(tmp_path, is_append=mode == "append")
    for name, events in FILES.items():
        bucket.put(f"{name}.jsonl", *events)
        bucket.cycle()
    before = values(bucket)
    state = bucket.root / "Files/Mirrorlake/events/tables/public~2Eorders"
    for file in state.rglob("*.json"):
        if file.name.startswith("0"):
            file.unlink()
    bucket.consumer().rebuild(ORDERS)
    for name, events in FILES.items():
        bucket.put(f"{name}.jsonl", *events, minute="2026/11/20/10/06")
    bucket.put("d.jsonl", event(6, {"ID": 3, "unit-price": 30}, "UPDATE", key=["ID"]))
    bucket.cycle(anew=True)
    assert not bucket.errors
    gone = [] if mode == "append" else [(3, None)]
    assert values(bucket) == sorted({*before, (3, 30)} - {*gone}, key=repr)


@pytest.mark.clause("ST-245")
def test_two_columns_of_one_schema_are_two(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2, "V": 3}), minute="2026/11/20/10/06")
    bucket.cycle()
    assert "its columns 'V' and 'v' would have one name" in bucket.errors["public.orders"].what
    assert bucket.plain() == [{"id": 1, "v": 1}]


@pytest.mark.clause("ST-261", "ST-262")
def test_values_without_a_schema_have_the_type_of_the_column(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    for number, (name, value) in enumerate([("Price", 10), ("price", 10.5), ("PRICE", "7")], 1):
        bucket.put(f"{number}.jsonl", event(number, {"id": number, name: value}))
        bucket.cycle()
    assert bucket.consumer()._journal.dead == []
    assert values(bucket) == [(1, 10), (2, Decimal("10.5")), (3, 7)]
