"""Damaged input: what a publisher may land, drawn at random, and random harm to its bytes."""

from __future__ import annotations

import codecs
import encodings
import gzip
import json
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from mirrorlake.landing import metadata
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata
from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    DECIMAL,
    ESCAPES,
    QUOTES,
    ROW_SEPARATORS,
    TYPES,
    DeclaredColumn,
    TextFormat,
)
from mirrorlake.landing.text.members import MEMBERS, is_text_codec
from mirrorlake.model.change import MARKER_COLUMN

_CODECS = [module.name for module in pkgutil.iter_modules(encodings.__path__)]
ENCODINGS = sorted({codecs.lookup(name).name for name in _CODECS if is_text_codec(name)})
"""All that Python knows on this system."""
NUMBERED = f"{1:020d}"


_HARMS = ["change", "change", "flip", "large", "cut", "double", "end"]
_LARGE = b"\xfe\xff\xff\xff\x0f"
"""The largest of the numbers in 32 bits, as Thrift writes it."""


@st.composite
def harmed(draw: st.DrawFn, whole: bytes, most: int = 4) -> bytes:
    """Content with up to so many harms: bytes changed, cut out, doubled, or all after a place lost,
    and numbers made large."""
    content = bytearray(whole)
    for _ in range(draw(st.just(1) | st.integers(1, most))):
        if not content:
            break
        index = draw(st.integers(0, len(content) - 1))
        span = draw(st.integers(1, 16))
        match draw(st.sampled_from(_HARMS)):
            case "change":
                content[index] = draw(st.integers(0, 255))
            case "flip":
                content[index] ^= 1 << draw(st.integers(0, 7))
            case "large":
                content[index : index + draw(st.sampled_from([1, len(_LARGE)]))] = _LARGE
            case "cut":
                del content[index : index + span]
            case "double":
                content[index:index] = content[index : index + span]
            case "end":
                del content[index:]
    return bytes(content)


def damaged(contents: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of the contents, harmed."""
    return st.sampled_from(contents).flatmap(harmed)


# -- delimited text -------------------------------------------------------------------------------

NAMES = ["id", "a", "b", "é", MARKER_COLUMN]
VALUES = [
    *("", "0", "1", "-1", "+7", "32768", "99999999999999999999", "1.5", "1e400", "nan", "-inf"),
    *("0x", "0x0", "0xAB", "QQ==", "Q===", "true", "FALSE", "NULL", "\\N", "a", "é", "数", "\0"),
    *("2025-06-17", "2025-06-17 14", "2025-06-17T14:30", "0001-01-01", "9999-12-31 23:59:59.999"),
    *("2025-06-17T14:30:00.1234567Z", "2025-06-17 14:30+02:00", "24:00", "10000-01-01", " "),
]
"""Of which some are values of a type, and some nearly."""


def _framed(text: bytes) -> bytes:
    """Snappy's framing format, in blocks as small as nobody writes them."""
    parts = [text[i : i + 100] for i in range(0, len(text), 100)]
    blocks = [
        b"\0\0\0\0" + pa.compress(part, codec="snappy", asbytes=True) if part else b""
        for part in parts
    ]
    head = b"\xff\x06\x00\x00sNaPpY"
    return head + b"".join(b"\0" + len(b).to_bytes(3, "little") + b for b in blocks)


PACKED = {
    "": bytes,
    "gzip": lambda text: gzip.compress(text, mtime=0),
    "zstd": lambda text: pa.compress(text, codec="zstd", asbytes=True),
    "snappy": _framed,
}

types = st.sampled_from([*TYPES, DECIMAL])


@st.composite
def columns(draw: st.DrawFn) -> tuple[DeclaredColumn, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    found = [
        DeclaredColumn(name, draw(types), draw(st.sampled_from([None, True, False])))
        for name in names
    ]
    return tuple(
        replace(column, precision=draw(st.integers(1, 38)), scale=0)
        if column.type == DECIMAL
        else column
        for column in found
    )


forms = st.builds(
    TextFormat,
    columns=st.none() | columns().map(lambda found: found or None),
    extension=st.sampled_from(["csv", "tsv"]),
    row_separator=st.sampled_from(ROW_SEPARATORS),
    column_separator=st.sampled_from(COLUMN_SEPARATORS),
    quote=st.sampled_from(QUOTES),
    escape=st.sampled_from(ESCAPES),
    null=st.sampled_from([None, "", "NULL", "\\N", "a"]),
    encoding=st.just("UTF-8") | st.sampled_from(ENCODINGS),
)


@st.composite
def texts(draw: st.DrawFn, form: TextFormat) -> bytes:
    """A text that is nearly of the form, or of no form at all; packed, and then harmed."""
    declared = [column.name for column in form.columns or ()]
    usual = st.just(declared or ["id", "a", "b"])
    header = draw(usual | usual | usual | st.lists(st.sampled_from(NAMES), min_size=1))
    odd = st.sampled_from([form.quote, form.escape, form.quote * 3, "\r", "\n"])
    value = st.sampled_from(VALUES) | st.sampled_from(VALUES).map(
        lambda value: f"{form.quote}{value}{form.quote}"
    )
    width = draw(st.just(len(header)) | st.integers(1, 4))
    row = st.lists(value | value | value | odd, min_size=width, max_size=width)
    rows = draw(st.lists(row.map(form.column_separator.join), max_size=4))
    rows *= draw(st.sampled_from([1, 1, 1, 1, 1, 300]))
    text = form.row_separator.join([form.column_separator.join(header), *rows])
    try:
        content = text.encode(form.encoding, errors="replace")
    except UnicodeError:  # of which not every codec has a replacement
        content = text.encode()
    packed: bytes = PACKED[draw(st.sampled_from(["", "", "", *PACKED]))](content)
    return draw(st.just(packed) | st.just(packed) | harmed(packed))


@st.composite
def landed_texts(draw: st.DrawFn) -> dict[str, bytes]:
    """A table with metadata that are as they should be, and a text that is not."""
    form = draw(forms)
    key = draw(st.sampled_from([(), ("id",), ("a", "b")]))
    described = metadata.encode(Metadata(key_columns=key, text=form))
    return {"_metadata.json": described, f"{NUMBERED}.{form.extension}": draw(texts(form))}


# -- JSON -----------------------------------------------------------------------------------------

_WORDS = ["id", ",", ";", "CSV", "DelimitedText", "tsv", "utf-16", "true", "\r\n", '"', "\\", "\t"]
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(_WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Columns", "Name", "DataType", "Precision", "format", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
_OF_METADATA = [
    *MEMBERS,
    *("keyColumns", "KEYCOLUMNS", "fileDetectionStrategy", "isUpsertDefaultRowMarker"),
    *("mirrorlake", "isPartitionEnabled", "ConditionalUpdateColumn", "else"),
]
_OF_PARTNERS = ["partnerName", "sourceInfo", "sourceType", "sourceVersion", "additionalInformation"]
WHOLE = [
    metadata.encode(
        Metadata(
            key_columns=("id", "é"),
            detection=detection,
            text=TextFormat(
                columns=(DeclaredColumn("id", "Int32"), DeclaredColumn("é", DECIMAL, None, 9, 2)),
                encoding="utf-16",
                null="\\N",
            ),
        )
    )
    for detection in (SEQUENTIAL, BY_TIME)
]
"""Metadata in which most members are there."""


def _record(names: Sequence[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    found = st.dictionaries(st.sampled_from(names), values, max_size=6)
    return found.map(lambda record: json.dumps(record).encode())


def _harmed_or_not(content: bytes) -> st.SearchStrategy[bytes]:
    return st.just(content) | harmed(content)


described = st.one_of(
    st.binary(max_size=300),
    damaged(WHOLE),
    _record(_OF_METADATA, _json | st.just(["id"])).flatmap(_harmed_or_not),
)
"""What may stand in `_metadata.json`."""

partners = st.one_of(
    st.binary(max_size=100),
    _record(_OF_PARTNERS, _json | _json.map(lambda x: {"sourceType": x})).flatmap(_harmed_or_not),
)
"""What may stand in `_partnerEvents.json`."""
