"""Damaged Parquet files: rows or a clear error, and never anything else.

`make fuzz` runs what is marked with many more examples. What it finds is kept as an example here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import TableError
from mirrorlake.landing import masks
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.landed import FileKind, Footer
from tests.histories import VALUES
from tests.landing.damage import damaged
from tests.landing.files import encoded, inspected, read

MIB = 1 << 20
MOST = 64 * MIB
FOOTER = Footer("stream", FileKind.CHANGES, "0/1:1", "0/2:3", complete=True, rows={"0": 3})


def every_type() -> pa.Table:
    columns = {
        name: pa.array(values[:3])
        for name, values in VALUES.items()
        if name not in {"byte", "short", "integer", "float"}
    }
    return pa.table(columns)


PLAIN = pa.table({"id": range(50), "note": [f"row {n}" for n in range(50)]})
CONTENTS = [
    encoded(PLAIN),
    encoded(PLAIN, compression="none", use_dictionary=False),
    encoded(PLAIN, compression="gzip", data_page_version="2.0", row_group_size=7),
    encoded(PLAIN.append_column(MARKER_COLUMN, pa.array([0] * 50, pa.int8())), compression="zstd"),
    encoded(every_type()),
    encoded(
        {"id": [1], "note": ["a"], UNCHANGED_COLUMN: masks.packed(np.array([[False, True]]))},
        FOOTER,
    ),
    encoded(pa.table({"id": pa.array([], pa.int64())})),
    encoded(pa.table({"n": pa.array([[1, 2], None]), "s": pa.array([{"x": 1}, None])})),
]


def outcome(content: bytes) -> str:
    """What becomes of a file, as the engine takes it: looked at, and read if it is small enough."""
    try:
        found = inspected(content)
        if found.size > MOST:
            return "too large"
        rows = read(content, found.schema, most=MOST)
    except TableError as error:
        return error.code
    assert len(rows.marker) == rows.data.num_rows
    return "rows"


@pytest.mark.parametrize("content", CONTENTS[:-1])
def test_what_is_not_damaged_is_read(content: bytes) -> None:
    assert outcome(content) == "rows"


def test_a_name_that_is_no_text_is_a_clear_error() -> None:
    content = encoded({"note": [1]}, compression="none")
    assert outcome(content.replace(b"note", b"n\x80te")) == "bad_file"


def test_a_deep_footer_is_a_clear_error() -> None:
    facts = FOOTER.encode() | {"mirrorlake.rows": "[" * 100_000}
    table = pa.table({"id": [1]}).replace_schema_metadata(facts)
    assert outcome(encoded(table)) == "bad_file"


@pytest.mark.fuzz
@given(damaged(CONTENTS))
def test_a_damaged_file_gives_rows_or_a_clear_error(content: bytes) -> None:
    outcome(content)


@pytest.mark.fuzz
@given(damaged(CONTENTS, near_end=600))
def test_a_damaged_footer_gives_rows_or_a_clear_error(content: bytes) -> None:
    outcome(content)


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_bytes_that_end_like_parquet_give_a_clear_error(content: bytes) -> None:
    footer = len(content).to_bytes(4, "little")
    assert outcome(b"PAR1" + content + footer + b"PAR1") != "rows"
