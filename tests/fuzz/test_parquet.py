"""Damaged Parquet files: rows or a clear error, and never anything else."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from mirrorlake.landing.parquet import unchanged as masks
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.landed import FileKind, Footer
from tests.fuzz.apart import Apart
from tests.fuzz.inputs import NUMBERED, damaged, harmed
from tests.fuzz.readers import KEYED, METADATA, both
from tests.histories import VALUES
from tests.landing.files import encoded

FILE = f"{NUMBERED}.parquet"
FOOTER = Footer("stream", FileKind.CHANGES, "0/1:1", "0/2:3", complete=True, rows={"0": 3})
WITHOUT_ARROW = {"byte", "short", "integer", "float"}
"""Of the values those whose type Arrow would not find by itself."""
EVERY_TYPE = pa.table(
    {"id": range(3)} | {name: v[:3] for name, v in VALUES.items() if name not in WITHOUT_ARROW}
)
PLAIN = pa.table({"id": range(50), "note": [f"row {n}" for n in range(50)]})
MARKED = PLAIN.append_column(MARKER_COLUMN, pa.array([0] * 50, pa.int8()))
ODD = pa.table(
    {
        "id": pa.array(range(5), pa.uint64()),
        "half": pa.array([1, None, 2, 3, 4], pa.float16()),
        "kind": pa.array(["a", "b", "a", None, "a"]).dictionary_encode(),
        "fixed": pa.array([b"abcd"] * 5, pa.binary(4)),
        "time": pa.array([1, 2, 3, 4, None], pa.time64("us")),
        "moment": pa.array([1, 2, 3, 4, None], pa.timestamp("us")),
        "json": pa.array(['{"a": 1}'] * 5, pa.json_()),
    }
)
NESTED = pa.table({"n": pa.array([[1, 2], None]), "s": pa.array([{"x": 1}, None])})
DELTAS = {"id": "DELTA_BINARY_PACKED", "note": "DELTA_BYTE_ARRAY"}
CONTENTS = [
    encoded(PLAIN),
    encoded(PLAIN, compression="none", use_dictionary=False),
    encoded(PLAIN, compression="gzip", data_page_version="2.0", row_group_size=7),
    encoded(PLAIN, compression="brotli", use_dictionary=False, column_encoding=DELTAS),
    encoded(PLAIN, compression="lz4", data_page_size=64, write_page_index=True),
    encoded(PLAIN, compression="none", write_page_checksum=True, store_schema=False),
    encoded(MARKED, compression="zstd"),
    encoded(MARKED, compression="none"),
    encoded(EVERY_TYPE),
    encoded(EVERY_TYPE, compression="none", data_page_version="2.0", use_dictionary=False),
    encoded(ODD, compression="none", use_deprecated_int96_timestamps=True),
    encoded(ODD, use_byte_stream_split=["fixed"], use_dictionary=["kind"]),
    encoded(
        {"id": [1], "note": ["a"], UNCHANGED_COLUMN: masks.packed(np.array([[False, True]]))},
        FOOTER,
    ),
    encoded(pa.table({"id": pa.array([], pa.int64())})),
    encoded(NESTED),
]


NO_ROWS, ONE_ROW, NO_GROUPS = b"\x16\0", b"\x16\2", b"\x19\x0c"
"""Fields of a footer in Thrift's compact protocol: the number of rows, and the row groups."""


def outcome(apart: Apart, content: bytes) -> str:
    """What becomes of a file; where the engine refuses it, the linter says so too, unless it is a
    project that allows no larger ones."""
    outcomes, errors = apart.run(both, {METADATA: KEYED, FILE: content})
    assert errors or outcomes[FILE] in {"rows", "file_too_large"}
    return outcomes[FILE]


def parted(content: bytes) -> tuple[bytes, bytes]:
    """The pages and the footer of a file."""
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:begin], content[begin:-8]


def joined(pages: bytes, footer: bytes) -> bytes:
    return pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@st.composite
def with_damaged_footers(draw: st.DrawFn) -> bytes:
    """Their footer is where it should be, however much it is damaged."""
    pages, footer = parted(draw(st.sampled_from(CONTENTS)))
    return joined(pages, draw(harmed(footer)))


@st.composite
def with_damaged_pages(draw: st.DrawFn) -> bytes:
    """Their pages and heads of pages are damaged, and lie where the footer says."""
    pages, footer = parted(draw(st.sampled_from(CONTENTS)))
    found = draw(harmed(pages))[: len(pages)]
    return joined(found.ljust(len(pages), b"\0"), footer)


@pytest.mark.parametrize("content", CONTENTS[:-1])
def test_what_is_not_damaged_is_read(apart: Apart, content: bytes) -> None:
    assert outcome(apart, content) == "rows"


def test_a_name_that_is_no_text_is_a_clear_error(apart: Apart) -> None:
    content = encoded({"note": [1]}, compression="none")
    assert outcome(apart, content.replace(b"note", b"n\x80te")) == "bad_file"


def test_a_deep_footer_is_a_clear_error(apart: Apart) -> None:
    facts = FOOTER.encode() | {"mirrorlake.rows": "[" * 100_000}
    table = pa.table({"id": [1]}).replace_schema_metadata(facts)
    assert outcome(apart, encoded(table)) == "bad_file"


def test_rows_without_row_groups_are_a_clear_error(apart: Apart) -> None:
    """Found by the fuzz of footers."""
    empty = io.BytesIO()
    pq.ParquetWriter(empty, pa.schema([("id", pa.int64())])).close()
    pages, footer = parted(empty.getvalue())
    assert footer.count(NO_ROWS + NO_GROUPS) == 1
    claimed = footer.replace(NO_ROWS + NO_GROUPS, ONE_ROW + NO_GROUPS)
    assert outcome(apart, joined(pages, claimed)) == "bad_file"


@pytest.mark.fuzz
@given(damaged(CONTENTS))
def test_a_damaged_file_gives_rows_or_a_clear_error(apart: Apart, content: bytes) -> None:
    event(outcome(apart, content))


@pytest.mark.fuzz
@given(with_damaged_footers())
def test_a_damaged_footer_gives_rows_or_a_clear_error(apart: Apart, content: bytes) -> None:
    event(outcome(apart, content))


@pytest.mark.fuzz
@given(with_damaged_pages())
def test_damaged_pages_give_rows_or_a_clear_error(apart: Apart, content: bytes) -> None:
    event(outcome(apart, content))


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_bytes_that_end_like_parquet_give_a_clear_error(apart: Apart, content: bytes) -> None:
    assert outcome(apart, joined(b"PAR1", content)) != "rows"
