"""Landed texts for tests: a text in, its rows out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from mirrorlake.errors import TableError
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet.reader import Inspected, Rows
from mirrorlake.landing.text.format import DeclaredColumn, TextFormat
from mirrorlake.model.change import Marker

TABLE, FILE = "sales.orders", "00000000000000000017.csv"


def column(name: str, kind: str = "String", nullable: bool | None = None) -> DeclaredColumn:
    return DeclaredColumn(name, kind, nullable)


def declared(*columns: DeclaredColumn, **form: Any) -> TextFormat:
    return TextFormat(columns=columns, **form)


def inspected(text: str | bytes, form: TextFormat | None = None) -> Inspected:
    content = text.encode() if isinstance(text, str) else text
    handle = io.BytesIO(content)
    return delimited.inspect(handle, len(content), form or TextFormat(), table=TABLE, file=FILE)


def read(
    text: str | bytes,
    form: TextFormat | None = None,
    key: Sequence[str] = (),
    default: Marker = Marker.INSERT,
) -> Rows:
    """The rows of a text in the columns that it brings itself."""
    content = text.encode() if isinstance(text, str) else text
    schema = inspected(content, form).schema
    return delimited.read(
        io.BytesIO(content),
        len(content),
        schema,
        default,
        form or TextFormat(),
        table=TABLE,
        file=FILE,
        key=key,
    )


def rows(
    text: str | bytes, form: TextFormat | None = None, key: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read(text, form, key).data.to_pylist()]


def values(kind: str, *texts: str, **form: Any) -> list[Any]:
    """What the texts are in a column of a type."""
    found = rows("a\n" + "\n".join(texts) + "\n", declared(column("a", kind), **form))
    return [row[0] for row in found]


def fault(text: str | bytes, form: TextFormat | None = None, key: Sequence[str] = ()) -> TableError:
    with pytest.raises(TableError) as caught:
        rows(text, form, key)
    return caught.value


def bad(kind: str, text: str) -> TableError:
    """What is said of a text that is no value of a type; it stands in the second row."""
    return fault(f"id,a\n1,\n2,{text}\n", declared(column("id"), column("a", kind)))
