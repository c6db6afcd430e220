"""Compressed texts, by their leading bytes, and what only looks like text."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadFile, TableError
from mirrorlake.landing.text import compression
from mirrorlake.landing.text.format import TextFormat
from tests.landing.text.texts import fault, inspected, rows

TEXT = b"id,name\n" + b"".join(b"%d,name %d\n" % (i, i) for i in range(1000))
ROWS = [(str(i), f"name {i}") for i in range(1000)]
STREAM = b"\xff\x06\x00\x00sNaPpY"


def snappy(text: bytes) -> bytes:
    return pa.compress(text, codec="snappy", asbytes=True)


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def framed(text: bytes, size: int = 4096) -> bytes:
    """Snappy's framing format, with a block of each kind."""
    parts = [text[i : i + size] for i in range(0, len(text), size)]
    blocks = [chunk(0x00, b"\0\0\0\0" + snappy(part)) for part in parts[:-1]]
    blocks += [chunk(0xFE, b"\0" * 9), STREAM, chunk(0x80, b"skip me")]
    return STREAM + b"".join(blocks) + chunk(0x01, b"\0\0\0\0" + parts[-1])


def zstd(text: bytes) -> bytes:
    return pa.compress(text, codec="zstd", asbytes=True)


def zipped(text: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", text)
    return buffer.getvalue()


class TestForms:
    @pytest.mark.clause("LZ-173", "LZ-209")
    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(TEXT, id="plain"),
            pytest.param(gzip.compress(TEXT), id="gzip"),
            pytest.param(gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]), id="gzip parts"),
            pytest.param(zstd(TEXT), id="zstd"),
            pytest.param(zstd(TEXT[:500]) + zstd(TEXT[500:]), id="zstd parts"),
            pytest.param(framed(TEXT), id="snappy"),
        ],
    )
    def test_each_compression_is_detected_by_its_first_bytes(self, content: bytes) -> None:
        assert rows(content) == ROWS
        assert inspected(content).rows == 1000

    @given(st.text(st.characters(codec="utf-8", exclude_characters='\r\n"'), min_size=1))
    def test_short_texts_are_recognized_as_text(self, text: str) -> None:
        header = text.replace(",", "").removeprefix("\ufeff") or "a"
        assert inspected(f"{header}\nx\n").schema.names == [header]

    @pytest.mark.parametrize("header", ["PAR1,PAR2", "BZh,x", "PK,id"])
    def test_a_column_may_be_called_like_another_format(self, header: str) -> None:
        assert inspected(f"{header}\n1,2\n").schema.names == header.split(",")

    def test_a_text_that_is_valid_snappy_by_chance_is_a_text(self) -> None:
        text = b"!$xxxxxxxxxx0yyyyyyyyyyyyy$zzzzzzzzzz"
        assert pa.decompress(text, decompressed_size=33, codec="snappy", asbytes=True)
        assert inspected(text).schema.names == [text.decode()]

    @pytest.mark.parametrize("encoding", ["utf-16-be", "utf-32-be"])
    def test_a_wide_encoding_is_not_mistaken_for_hadoop_blocks(self, encoding: str) -> None:
        text = "id,name\n" + "1,x\n" * 2_000_000
        found = inspected(text.encode(encoding), TextFormat(encoding=encoding))
        assert found.schema.names == ["id", "name"]

    def test_rows_of_a_large_compressed_text_are_estimated(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mirrorlake.landing.text.reader.COUNTED", 1_000_000)
        numbers = np.random.default_rng(1).integers(0, 1 << 60, 300_000)
        text = "a\n" + "".join(f"{n}\n" for n in numbers)
        found = inspected(gzip.compress(text.encode()))
        assert not found.is_exact
        assert 250_000 <= found.rows <= 350_000


class TestFaults:
    @pytest.mark.clause("LZ-276")
    @pytest.mark.parametrize("compress", [gzip.compress, zstd, framed])
    def test_a_cut_file_is_refused(self, compress) -> None:
        whole = compress(TEXT)
        for length in (12, len(whole) // 2, len(whole) - 5):
            assert isinstance(fault(whole[:length]), BadFile)

    def test_a_damaged_file_is_refused(self) -> None:
        whole = bytearray(gzip.compress(TEXT))
        whole[len(whole) // 2] ^= 0xFF
        assert "cannot be decompressed" in fault(bytes(whole)).what

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (snappy(TEXT), "raw Snappy"),
            (snappy(b"a,b\n1,2\n"), "raw Snappy"),
            (
                len(TEXT).to_bytes(4, "big") + len(snappy(TEXT)).to_bytes(4, "big") + snappy(TEXT),
                "Snappy blocks of Hadoop",
            ),
            (zipped(TEXT), "ZIP archive"),
            (b"PAR1" + b"\0" * 30, "Parquet"),
            (pa.compress(TEXT, codec="lz4", asbytes=True), "LZ4"),
            (bz2.compress(TEXT), "bzip2"),
        ],
        ids=["Snappy", "short Snappy", "Hadoop", "ZIP", "Parquet", "LZ4", "bzip2"],
    )
    @pytest.mark.clause("LZ-209", "LZ-210")
    def test_unsupported_formats_are_refused_by_name(self, content: bytes, told: str) -> None:
        assert told in fault(content).what

    def test_a_compression_without_magic_bytes_is_detected(self) -> None:
        assert isinstance(fault(pa.compress(TEXT, codec="brotli", asbytes=True)), BadFile)

    def test_an_unknown_block_of_snappy_is_refused(self) -> None:
        assert "unknown type 2" in fault(STREAM + chunk(0x02, b"x")).what

    def test_a_block_of_snappy_has_a_bound(self) -> None:
        huge = chunk(0x00, b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f" + b"x")
        assert "longer than the format allows" in fault(STREAM + huge).what

    @pytest.mark.parametrize("compress", [gzip.compress, zstd])
    def test_a_decompression_bomb_is_refused_before_it_is_decompressed(
        self, compress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compression, "MODEST", 1 << 20)
        bomb = compress(b"a,b\n" + b"1,2\n" * 10_000_000)
        error = fault(bomb)
        assert "decompresses to more than" in error.what
        assert "smaller files" in error.hint

    @pytest.mark.fuzz
    @given(st.binary(max_size=60), st.sampled_from([b"", b"\x1f\x8b", STREAM, b"\x28\xb5\x2f\xfd"]))
    def test_any_bytes_give_rows_or_a_table_error(self, body: bytes, head: bytes) -> None:
        with contextlib.suppress(TableError):
            rows(head + body)
