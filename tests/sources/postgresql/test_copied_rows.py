"""Rows of a COPY that are not as they should be are refused, and never read as others."""

from __future__ import annotations

import pytest

from mirrorlake.errors import BadValue
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.sources.postgresql.changed_rows import decoders_of
from mirrorlake.sources.postgresql.reading.copied_rows import columns_of, rows_of
from mirrorlake.sources.postgresql.reading.copy import block_of
from mirrorlake.sources.postgresql.types.mapping import Form, PgType
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.table import SourceTable

INT4, TEXT = 23, 25
KINDS = {
    "id": PgType("int4", types.INTEGER, Form.NUMBER),
    "note": PgType("text", types.STRING, Form.TEXT),
}


def row(*fields: bytes | None, count: int = 2) -> bytes:
    found = count.to_bytes(2, "big")
    for field in fields:
        found += b"\xff" * 4 if field is None else len(field).to_bytes(4, "big") + field
    return found


FIRST = row(b"\0\0\0\1", b"one")
"""A row that is as it should be, before each of the others."""


def read(*rows: bytes, oid: int = INT4) -> list[dict[str, object]]:
    schema = Schema.of([Column(name, kind.type) for name, kind in KINDS.items()])
    table = SourceTable(TableId("public", "things"), schema, (), "1", source_types=KINDS)
    decoders = decoders_of(table, Extremes(), lambda *_noted: None)
    found: list[dict[str, object]] = rows_of(
        block_of(rows), table, columns_of([oid, TEXT], decoders)
    ).to_pylist()
    return found


def test_rows_are_read() -> None:
    assert read(FIRST, row(None, b""), row(b"\xff" * 4, None)) == [
        {"id": 1, "note": "one"},
        {"id": None, "note": ""},
        {"id": -1, "note": None},
    ]


def test_a_type_that_is_not_that_of_the_column_is_read_from_its_text() -> None:
    assert read(row(b"12", None), oid=TEXT) == [{"id": 12, "note": None}]
    with pytest.raises(BadValue, match="does not fit its column"):
        read(row(b"9999999999", None), oid=TEXT)


@pytest.mark.parametrize("extremes", [Extremes(), Extremes("error"), Extremes("null", "null")])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PgType("bytea", types.BINARY, Form.BYTEA), b"it is text"),
        (PgType("date", types.DATE, Form.DATE), b"2024-02-30"),
        (PgType("timestamp", types.TIMESTAMP, Form.TIMESTAMP), b"2024-02-29 10:00:00+00"),
        (PgType("numeric(3,2)", types.decimal(3, 2), Form.DECIMAL), b"12.345"),
    ],
)
def test_a_text_of_another_type_is_refused(kind: PgType, text: bytes, extremes: Extremes) -> None:
    schema = Schema.of([Column("v", kind.type)])
    table = SourceTable(TableId("public", "things"), schema, (), "1", source_types={"v": kind})
    columns = columns_of([TEXT], decoders_of(table, extremes, lambda *_noted: None))
    with pytest.raises(BadValue, match="does not fit its column"):
        rows_of(block_of([row(None, count=1), row(text, count=1)]), table, columns)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\0", "2 fields"),
        (row(b"\0\0\0\2", count=1), "2 fields"),
        (row(b"\0\0\0\2", b"a", b"b", count=3), "2 fields"),
        (row(b"\0\0\0\2"), "before its last field"),
        (row(b"\0\0\0\2") + b"\0\0\0\7abc", "behind its row"),
        (row(b"\0\0\0\2", b"a") + b"b", "more than its fields"),
        (row(b"\0\0\2", b"a"), "3 bytes"),
        (row(b"", b"a"), "0 bytes"),
    ],
)
def test_a_row_that_is_not_as_it_should_be_is_refused(content: bytes, what: str) -> None:
    for rows in [(content,), (FIRST, content), (content, FIRST)]:
        with pytest.raises(BadValue, match=what) as caught:
            read(*rows)
        assert caught.value.table == "public.things"


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(BadValue, match="not UTF-8"):
        read(FIRST, row(None, b"a\xff"))
