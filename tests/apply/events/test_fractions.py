"""Numbers in files of JSON without a schema, whose first ones in a column were whole."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.events import types
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.test_widening import column_types, dead

MINUTES = [f"2026/11/20/10/{minute:02}" for minute in range(10)]
MANY = 200
"""Events that are worth being scanned together."""


def line(number: int, price: str, row: int = 0) -> str:
    """An event of a row, else of that with its number, with the price as it is written."""
    text = json.dumps(event(number, {"id": row or number, "price": "?"}))
    return text.replace('"?"', price)


def prices(bucket: Bucket) -> dict[int, Any]:
    return {row["id"]: row["price"] for row in bucket.plain()}


@pytest.mark.clause("ST-028", "ST-219", "ST-262")
@pytest.mark.parametrize("is_append", [False, True], ids=["merge", "append"])
def test_prices_of_which_the_first_were_whole_are_decimals(
    tmp_path: Path, *, is_append: bool
) -> None:
    files = [
        [line(1, "10"), line(2, "null")],
        [line(3, "10.50"), line(4, "7")],
        [line(5, "-0.125"), line(6, "9223372036854775807")],
        [line(7, "3.0", 2)],
    ]
    for number, order in enumerate(itertools.permutations(files[1:])):
        bucket = Bucket(tmp_path / str(number), is_append=is_append)
        for minute, lines in zip(MINUTES, [files[0], *order], strict=False):
            bucket.put("a.jsonl", *lines, minute=minute)
            bucket.cycle(anew=True)
        assert not bucket.errors
        assert dead(bucket) == []
        assert column_types(bucket) == {"id": "long", "price": "decimal(22,3)"}
        rows = [(row["id"], row["price"]) for row in bucket.plain()]
        rows = [one for one in rows if one != (2, None)] if is_append else rows
        assert dict(rows) == {
            1: 10,
            2: 3,
            3: Decimal("10.5"),
            4: 7,
            5: Decimal("-0.125"),
            6: 9223372036854775807,
        }


@pytest.mark.clause("ST-028", "ST-253")
def test_other_values_of_the_file_are_applied_and_what_no_decimal_has_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", line(1, "10"))
    bucket.cycle()
    odd = ['"10.5"', "1.5e3", "0.12345678901234567890", "12345678901234567890.5", "true", "[1]"]
    many = (line(number, f"{number}.25" if number % 3 else "5") for number in range(20, 20 + MANY))
    bucket.put(
        "b.jsonl",
        *(line(number, price) for number, price in enumerate(odd, 2)),
        *many,
        minute=MINUTES[6],
    )
    bucket.cycle()
    assert dead(bucket) == ["the value of column price is no LONG"]
    (file,) = bucket.consumer()._journal.dead
    assert file.letters[0].rows == tuple(range(len(odd)))
    assert column_types(bucket)["price"] == "decimal(21,2)"
    found = prices(bucket)
    assert found.keys() == {1, *range(20, 20 + MANY)}
    assert (found[21], found[22]) == (5, Decimal("22.25"))


@pytest.mark.clause("ST-175", "ST-250", "ST-262")
def test_types_that_something_tells_and_keys_stay(tmp_path: Path) -> None:
    named = Bucket(tmp_path / "named", types={"public.orders": {"price": types.LONG}})
    for bucket in (named, Bucket(tmp_path / "told"), Bucket(tmp_path / "key")):
        bucket.put("a.jsonl", line(1, "10"))
        bucket.cycle()
        name = "b.jsonl"
        if bucket.folder.parent.name == "told":
            fields = [{"name": name, "type": ["null", "long"]} for name in ("id", "price")]
            payload = {"type": "record", "name": "payload", "fields": fields}
            told = {
                "type": "record",
                "name": "e",
                "fields": [{"name": "payload", "type": payload}],
            }
            name = f"{'9' * 40}_a_1_0_0.jsonl"
            schema = bucket.put(f"{'9' * 40}.avsc", minute=MINUTES[6])
            schema.write_text(json.dumps(told))
        wrong = line(2, "10.5")
        if bucket.folder.parent.name == "key":
            wrong = wrong.replace('"id": 2', '"id": 2.5').replace("10.5", "10")
        bucket.put(name, wrong, line(3, "30"), minute=MINUTES[6])
        bucket.cycle()
        assert len(dead(bucket)) == 1
        assert column_types(bucket) == {"id": "long", "price": "long"}
        assert prices(bucket) == {1: 10, 3: 30}
