"""What became of columns, as footers carry it."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import Alteration
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.types import (
    BYTE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
    is_wider,
)
from tests.histories import VALUES

KINDS = {name: DataType(name) if name != "decimal" else decimal(12, 2) for name in VALUES}


@st.composite
def fillings(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.text(), min_size=1, max_size=3, unique=True))
    chosen = [draw(st.sampled_from(sorted(VALUES))) for _name in names]
    columns = [
        pa.array([draw(st.sampled_from(VALUES[kind]))], arrow_type(KINDS[kind])) for kind in chosen
    ]
    return pa.RecordBatch.from_arrays(columns, names)


@given(copied=st.dictionaries(st.text(), st.text()), filled=st.none() | fillings())
def test_an_alteration_is_decoded_as_encoded(
    copied: dict[str, str], filled: pa.RecordBatch | None
) -> None:
    alteration = Alteration(copied, filled)
    footer = Footer("s", FileKind.CHANGES, "0/1:1", "0/2:3", complete=True, alteration=alteration)
    found = Footer.decode(footer.encode())
    assert found is not None
    assert found.alteration is not None
    # A NaN is not equal to itself, and its text is.
    assert repr(found.alteration.filled) == repr(filled)
    assert sorted(found.alteration.columns) == sorted(alteration.columns)
    assert found.alteration.copied == copied


def stream(rows: int) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"a": pa.array(range(rows), pa.int64())}))
    return base64.b64encode(sink.getvalue()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"copied": 1}',
        '{"copied": {}, "filled": "no"}',
        json.dumps({"copied": {}, "filled": base64.b64encode(b"no stream").decode()}),
        json.dumps({"copied": {}, "filled": stream(0)}),
        json.dumps({"copied": {}, "filled": stream(2)}),
        json.dumps({"copied": {}, "filled": stream(1)[:40]}),
        json.dumps({"copied": {}, "filled": [1]}),
    ],
)
def test_damage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Alteration.decode(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BYTE, SHORT),
        (INTEGER, LONG),
        (INTEGER, DOUBLE),
        (FLOAT, DOUBLE),
        (INTEGER, decimal(12, 2)),
        (LONG, decimal(19, 0)),
        (decimal(9, 2), decimal(11, 4)),
    ],
)
def test_a_wider_type_has_every_value_of_the_narrower_type_but_not_vice_versa(
    old: DataType, new: DataType
) -> None:
    assert is_wider(new, old)
    assert not is_wider(old, new)
    assert not is_wider(new, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LONG, DOUBLE),
        (INTEGER, FLOAT),
        (INTEGER, decimal(11, 2)),
        (decimal(9, 2), decimal(10, 4)),
        (decimal(9, 2), decimal(12, 1)),
        (STRING, LONG),
        (LONG, STRING),
        (TIMESTAMP, decimal(38, 0)),
        (FLOAT, decimal(38, 9)),
    ],
)
def test_a_type_that_lacks_some_value_is_not_wider(old: DataType, new: DataType) -> None:
    assert not is_wider(new, old)


RETYPED = Alteration({"new": "old", "old": "new"}, saved={"new": "old_before_1"})


@pytest.mark.parametrize(
    ("later", "saved"),
    [
        (Alteration({"newest": "new"}), {"newest": "old_before_1"}),
        (Alteration({"new": "old", "old": "new"}), {"old": "old_before_1"}),
        (Alteration({"new": "other"}), {}),
        (Alteration({"other": "old"}), {"new": "old_before_1"}),
        (Alteration(saved={"new": "new_before_2"}), {"new": "new_before_2"}),
        (
            Alteration({"newest": "new"}, saved={"newest": "new_before_2"}),
            {"newest": "new_before_2"},
        ),
    ],
)
def test_former_values_are_kept_of_a_column_that_is_renamed_later(
    later: Alteration, saved: dict[str, str]
) -> None:
    assert RETYPED.then(later).saved == saved
