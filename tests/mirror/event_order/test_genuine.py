"""Genuine event files, and the golden example, read and put in order."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.events.checks import check, key_names
from mirrorlake.events.reading import read_events
from mirrorlake.mirror.event_order import ORDER, RULES, records, resolve
from mirrorlake.mirror.event_order.resolution import DECIDES

SPEC = Path(__file__).parents[3] / "docs" / "spec" / "streams.md"
GUARD = 30 * 60 * 1000


def printed(section: str, following: str) -> list[str]:
    """The lines of JSON of a section of the specification, one event each."""
    text = SPEC.read_text().partition(f"## {section}")[2].partition(f"## {following}")[0]
    return re.findall(r"^\{.*\}$", text, re.MULTILINE)


def table_after(deliveries: Sequence[Sequence[str]], key: str | None = None) -> list[Any]:
    """The rows that files with these lines leave, one after another."""
    table: dict[Any, Any] = {}
    kinds = pa.schema([("key", pa.string()), *ORDER, (DECIDES, pa.bool_())])
    state = kinds.empty_table()
    for lines in deliveries:
        for batch in read_events(io.BytesIO("\n".join(lines).encode())):
            checked = check(batch)
            assert not checked.rejected
            ((column,),) = key_names(batch, [key] if key else [])
            rule = RULES[checked.source]
            ordered = records(
                rule,
                batch.head,
                backfill=checked.backfill,
                deletion=checked.deletion,
                content=np.zeros(len(batch), np.uint64),
            )
            assert ordered.readable.all()
            keys = batch.payload.column(column).cast(pa.string())
            rows = ordered.rows.add_column(0, "key", keys)
            found = resolve(rule, GUARD, ["key"], state, rows)
            for one in found.deleted["key"].to_pylist():
                table.pop(one, None)
            for index in found.upserts.tolist():
                table[keys[index].as_py()] = batch.payload.slice(index, 1).to_pylist()[0]
            state = found.state(state, rows)
    return list(table.values())


@pytest.mark.clause("ST-358", "ST-359", "ST-360")
def test_the_golden_events_read_as_insert_update_and_delete() -> None:
    (batch,) = read_events(io.BytesIO("\n".join(printed("22", "23")).encode()))
    found = check(batch)
    assert found.change_type.to_pylist() == ["INSERT", "UPDATE-INSERT", "DELETE"]
    assert found.deletion.tolist() == [False, False, True]
    assert [row["FIELD1"] for row in batch.payload.to_pylist()] == ["foo", None, None]


@pytest.mark.clause("ST-361", "ST-364", "ST-365")
def test_the_golden_events_give_the_expected_states() -> None:
    events = printed("22", "23")
    key, row = "THIS_IS_MY_PK", {"THIS_IS_MY_PK": "1231535353", "FIELD2": "TLV"}
    assert table_after([events[:1]], key) == [row | {"FIELD1": "foo"}]
    assert table_after([events[:2]], key) == [row | {"FIELD1": None}]
    for order in itertools.permutations(events):
        assert table_after([order], key) == []
        assert table_after([[one] for one in (*order, *order)], key) == []


@pytest.mark.clause("ST-362", "ST-363")
def test_the_golden_example_is_invalid_json_and_its_repaired_lines_are_accepted() -> None:
    text = SPEC.read_text().partition("exactly as printed:")[2].partition("```text")[2]
    (batch,) = read_events(io.BytesIO(text.partition("```")[0].encode()))
    assert set(batch.rejected) == set(range(len(batch)))
    (batch,) = read_events(io.BytesIO("\n".join(printed("22", "23")).encode()))
    (first, *_rest) = batch.head.to_pylist()
    assert (first["schema_key"], first["sort_keys"], first["object"]) == (None, None, "SAMPLE.TBL")
    assert first["source_timestamp"] == 1573092939000
    assert first["scn"] == 15869116216871


@pytest.mark.clause("ST-366")
def test_a_genuine_change_of_a_key_leaves_the_row_under_the_new_one() -> None:
    before, after = printed("23", "24")
    first = (
        before.replace('"UPDATE-DELETE","is_deleted":true', '"INSERT","is_deleted":false')
        .replace("2550", "900")
        .replace("000131", "000130")
    )
    for order in itertools.permutations([first, before, after]):
        assert table_after([order]) == [{"id": 10, "val": 10}]
        assert table_after([[one] for one in (*order, *order)]) == [{"id": 10, "val": 10}]
