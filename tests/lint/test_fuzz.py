"""The linter agrees with the engine about metadata, footers, types and names of columns.

That bytes of any kind give findings and nothing else is tried in tests/fuzz.
"""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import TableError
from mirrorlake.landing import metadata
from mirrorlake.landing.text.members import MEMBERS
from mirrorlake.lint import Report
from mirrorlake.lint.finding import FindingLocation
from mirrorlake.lint.rules.metadata import check
from mirrorlake.lint.rules.parquet import check_file
from mirrorlake.lint.table_view import LintedFile
from mirrorlake.model.change import MARKER_COLUMN
from mirrorlake.model.table import TableId
from tests.fuzz.inputs import damaged
from tests.landing.files import encoded, inspected
from tests.lint.zones import CHANGES, ROWS, marked

PARQUET = [encoded(ROWS), encoded(marked(CHANGES), compression="zstd")]
KINDS = [
    pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.binary(),
    pa.binary(4), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("s"),
    pa.timestamp("ns", "UTC"), pa.duration("s"), pa.decimal128(38, 10), pa.decimal256(50, 2),
    pa.null(), pa.list_(pa.int8()), pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8()),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip
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


class TestAgreementWithEngine:
    """An error of the linter is a refusal of the engine, and the other way round."""

    @pytest.mark.fuzz
    @given(RECORDS)
    def test_on_metadata(self, record: dict[str, object]) -> None:
        content = json.dumps(record).encode()
        report = Report()
        check(content, FindingLocation("t/_metadata.json", TableId("", "t")), report)
        try:
            metadata.decode(content, table="t", file="_metadata.json")
        except TableError:
            assert report.errors
        else:
            assert not report.errors

    @pytest.mark.fuzz
    @given(damaged(PARQUET))
    def test_on_footers(self, content: bytes) -> None:
        name = f"{1:020d}.parquet"
        file = LintedFile(name, name, len(content), 0, 1)
        report = Report()
        seen = check_file(lambda: io.BytesIO(content), file, FindingLocation(name), report)
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
        file = LintedFile(name, name, len(content), 0, 1)
        check_file(lambda: io.BytesIO(content), file, FindingLocation(name), report)
        try:
            inspected(content)
        except TableError:
            assert report.errors
        else:
            assert not report.errors
