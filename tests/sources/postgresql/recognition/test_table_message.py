"""Messages about altered tables: written, signed, read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.keys import ColumnBounds
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import DESCRIBED, CheckSeverity
from mirrorlake.sources.chunk import Changes, SchemaChange
from mirrorlake.sources.postgresql.recognition.known import Attribute, Leaf, TableLook
from mirrorlake.sources.postgresql.recognition.row_identity import RowIdentity
from mirrorlake.sources.postgresql.recognition.table_message import (
    ColumnState,
    TableMessage,
    signed,
)
from tests.conformance.scene import differing, faults, streaming
from tests.sources.postgresql.captured import BEGINNING, Captured

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)
NUMBERS = st.integers(0, 2**32 - 1)
TABLES = st.builds(TableId, NAMES, NAMES)
COLUMNS = st.dictionaries(st.integers(-5, 1600), NAMES, max_size=4)
TEXTS = st.dictionaries(st.integers(-5, 1600), NUMBERS, max_size=4)
LEAVES = st.builds(
    Leaf,
    TABLES,
    NUMBERS,
    NUMBERS,
    st.none() | st.builds(ColumnBounds, NAMES, st.none() | NAMES, st.none() | NAMES),
)
ATTRIBUTES = st.builds(
    Attribute,
    st.integers(1, 1600),
    st.none() | NAMES,
    NUMBERS,
    st.lists(NAMES).map(tuple),
    NAMES,
    NUMBERS,
    st.integers(-1, 1 << 20),
)
KEYS = st.lists(NAMES, max_size=3).map(tuple)
IDENTITIES = st.builds(
    RowIdentity,
    st.sampled_from("dfin"),
    st.booleans(),
    KEYS,
    KEYS,
    KEYS,
    st.booleans(),
    st.lists(NUMBERS, max_size=3).map(tuple),
    st.dictionaries(TABLES, st.none() | st.frozensets(NAMES, max_size=3), max_size=3),
)
LOOKS = st.builds(
    TableLook,
    st.builds(Lsn, st.integers(0, 2**64 - 1)),
    st.integers(0, 1600),
    NUMBERS,
    st.lists(ATTRIBUTES, max_size=4).map(tuple),
    st.none() | st.dictionaries(NUMBERS, LEAVES, max_size=3),
    st.frozensets(NAMES, max_size=3),
    st.dictionaries(NUMBERS, NUMBERS, max_size=3),
    IDENTITIES,
)
MESSAGES = st.builds(
    TableMessage,
    NUMBERS,
    st.builds(
        ColumnState,
        COLUMNS,
        COLUMNS,
        st.integers(0, 1600),
        TEXTS,
        st.none() | st.lists(NUMBERS, max_size=3).map(tuple),
        st.booleans(),
    ),
    LOOKS,
)


@given(message=MESSAGES, secret=st.text(min_size=1))
def test_a_message_is_read_as_it_was_written(message: TableMessage, secret: str) -> None:
    assert TableMessage.parse(signed(message, secret).encode(), secret) == message


@given(message=MESSAGES, at=st.integers(0), bit=st.integers(0, 7))
def test_a_message_that_was_changed_is_none(message: TableMessage, at: int, bit: int) -> None:
    content = bytearray(signed(message, "secret").encode())
    content[at % len(content)] ^= 1 << bit
    assert TableMessage.parse(bytes(content), "secret") is None


@given(message=MESSAGES, content=st.binary())
def test_what_others_write_is_none(message: TableMessage, content: bytes) -> None:
    assert TableMessage.parse(signed(message, "another").encode(), "secret") is None
    assert TableMessage.parse(signed(message, "").encode(), "") is None
    assert TableMessage.parse(content, "secret") is None


@given(message=MESSAGES)
def test_a_message_of_a_later_format_is_none(message: TableMessage) -> None:
    text = signed(message, "secret")
    start = text.index("{")
    later = json.dumps({**json.loads(text[start:]), "format": 2})
    assert TableMessage.parse((text[:start] + later).encode(), "secret") is None


ALTERED = [
    "alter table apples rename size to weight",
    "alter table apples add column size int default 7",
]


@pytest.mark.postgres
@pytest.mark.parametrize("immediately", [False, True])
def test_the_stream_describes_an_altered_table_without_a_row(
    captured: Captured, immediately: bool
) -> None:
    """immediately: transactions are streamed before they end, however small."""
    captured.begin("create table apples (id int primary key, size int)")
    if immediately:
        captured.run(
            f"alter database {captured.database.name} "
            "set debug_logical_replication_streaming = immediate"
        )
    source = captured.source(streaming=True)
    with streaming(source, captured.tables, BEGINNING, secret="secret") as reader:
        captured.run(*ALTERED)
        reader.read_to(source.current())
        for _ in range(2):
            found = [f for f in source.watch(captured.tables) if "columns" in f.message]
            assert [(f.check, f.severity) for f in found] == [(DESCRIBED, CheckSeverity.OK)]
        reader.read_to(source.current())
        captured.run("insert into apples values (1, 2, 3)")
        reader.read_to(source.current())
    assert faults(reader.chunks) == differing(reader.chunks) == []
    parts = [part for chunk in reader.chunks for part in chunk.parts]
    change, rows = parts
    assert isinstance(change, SchemaChange)
    assert change.without_rows
    assert change.alteration is not None
    assert [kind for kind, _what in change.alteration.changes] == [
        SchemaChangeKind.COLUMN_RENAMED,
        SchemaChangeKind.COLUMN_ADDED,
    ]
    assert change.alteration.copied == {"weight": "size"}
    assert isinstance(rows, Changes)
    assert rows.rows.to_pylist() == [{"id": 1, "weight": 2, "size": 3}]
