"""Bytes of any kind give findings and nothing else, and the linter agrees with the engine."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlake.errors import TableError
from mirrorlake.landing import metadata
from mirrorlake.landing.lint import Report, Result, lint
from mirrorlake.landing.lint.finding import Place
from mirrorlake.landing.lint.metadata_rules import check
from mirrorlake.landing.lint.parquet_rules import look
from mirrorlake.landing.lint.target import Target
from mirrorlake.landing.lint.view import DataFile
from mirrorlake.landing.textmembers import MEMBERS
from mirrorlake.model.change import MARKER_COLUMN
from mirrorlake.model.table import TableId
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.landing.files import encoded, inspected
from tests.landing.lint.zones import CHANGES, ROWS, marked

ZONE = "Files/LandingZone"
PARQUET = [encoded(ROWS), encoded(marked(CHANGES), compression="zstd")]
KINDS = [
    pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.binary(),
    pa.binary(4), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("s"),
    pa.timestamp("ns", "UTC"), pa.duration("s"), pa.decimal128(38, 10), pa.decimal256(50, 2),
    pa.null(), pa.list_(pa.int8()), pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8()),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip
KEYED = b'{"keyColumns": ["id"]}'


def linted(described: bytes, name: str, content: bytes) -> Result:
    """A table with one file."""
    store = MemoryStore(SteppedClock())
    store.create(f"{ZONE}/t/_metadata.json", described)
    store.create(f"{ZONE}/t/{name}", content)
    return lint(Target(store, Path("/"), (ZONE,)))


def damaged() -> st.SearchStrategy[bytes]:
    """A Parquet file with some bytes changed, or cut."""
    changes = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=8)

    def damage(whole: bytes, changed: list[tuple[int, int]], length: int) -> bytes:
        content = bytearray(whole)
        for at, byte in changed:
            content[at % len(content)] = byte
        return bytes(content[: max(length, 1) if length < 200 else None])

    return st.builds(damage, st.sampled_from(PARQUET), changes, st.integers(0, 400))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Columns", "Name", "DataType", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)
RECORDS = st.dictionaries(
    st.sampled_from(
        [
            *MEMBERS,
            "keyColumns",
            "KEYCOLUMNS",
            "fileDetectionStrategy",
            "isUpsertDefaultRowMarker",
            "mirrorlake",
            "isPartitionEnabled",
            "ConditionalUpdateColumn",
            "else",
        ]
    ),
    JSON | st.sampled_from([["id"], ",", ";", "CSV", "DelimitedText", "tsv", "utf-16", "true"]),
    max_size=6,
)


class TestAnyBytes:
    @given(st.binary(max_size=300))
    @example(b"[" * 100_000)
    @example(b'{"keyColumns": ' + b"9" * 5_000 + b"}")
    @example(b'{"keyColumns": ["\\ud800"]}')
    def test_as_metadata(self, content: bytes) -> None:
        linted(content, f"{1:020d}.parquet", PARQUET[0])

    @given(damaged())
    def test_as_parquet(self, content: bytes) -> None:
        linted(KEYED, f"{1:020d}.parquet", content)

    @given(st.binary(max_size=300) | st.text(alphabet='ab,"\\\r\n', max_size=40).map(str.encode))
    @example(b"\xff\xfe")
    @example(b"\x1f\x8b\x08\x00")
    def test_as_text(self, content: bytes) -> None:
        linted(KEYED, f"{1:020d}.csv", content)

    @given(st.binary(max_size=100))
    def test_as_partner_events(self, content: bytes) -> None:
        store = MemoryStore(SteppedClock())
        store.create(f"{ZONE}/_partnerEvents.json", content)
        lint(Target(store, Path("/"), (ZONE,)))


class TestAgreement:
    """An error of the linter is a refusal of the engine, and the other way round."""

    @given(RECORDS)
    def test_on_metadata(self, record: dict[str, object]) -> None:
        content = json.dumps(record).encode()
        report = Report()
        check(content, Place("t/_metadata.json", TableId("", "t")), report)
        try:
            metadata.decode(content, table="t", file="_metadata.json")
        except TableError:
            assert report.errors
        else:
            assert not report.errors

    @given(damaged())
    def test_on_footers(self, content: bytes) -> None:
        name = f"{1:020d}.parquet"
        file = DataFile(name, name, len(content), 0, 1)
        report = Report()
        seen = look(lambda: io.BytesIO(content), file, Place(name), report)
        try:
            inspected(content)
        except (TableError, UnicodeDecodeError, ValueError):
            assert report.errors
        assert (seen is None) == bool(report.errors)

    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_on_types(self, kind: pa.DataType) -> None:
        columns = {"id": pa.array([], pa.int64()), "v": pa.array([], kind)}
        self._agrees(encoded(columns))

    @given(
        st.lists(
            st.sampled_from(
                ["id", "ID", "a", "A", MARKER_COLUMN, "__rowmarker__", "b c", "ü", "Ü"]
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_on_names(self, names: list[str]) -> None:
        columns = [pa.array([0], pa.int8())] * len(names)
        self._agrees(encoded(pa.Table.from_arrays(columns, names=names)))

    def _agrees(self, content: bytes) -> None:
        name = f"{1:020d}.parquet"
        report = Report()
        file = DataFile(name, name, len(content), 0, 1)
        look(lambda: io.BytesIO(content), file, Place(name), report)
        try:
            inspected(content)
        except TableError:
            assert report.errors
        else:
            assert not report.errors
