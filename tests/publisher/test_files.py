"""Files that people have: CSV, JSON lines, Parquet, Excel."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import BadFile, IncompleteRow, UsageError
from mirrorlake.landing.parquet import bounded
from mirrorlake.model import types
from mirrorlake.publisher import Publisher
from mirrorlake.publisher.input import files
from mirrorlake.publisher.input.files import InputOptions, rows_of
from tests.publisher.mirrored_zone import Zone

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def loaded(zone: Zone, path: Path, **reading: Any) -> list[dict[str, Any]]:
    with zone.publisher() as publisher:
        publisher.load("t", rows_of(path, InputOptions(**reading)), key=())
    return zone.rows("t")


class TestCsv:
    def test_empty_is_null_and_quoted_empty_is_text(self, zone: Zone, write: Write) -> None:
        path = write("a.csv", 'id,name,n\r\n1,"a ""b"", c\r\nd",7\r\n2,"",\r\n3,,8\r\n')
        assert loaded(zone, path) == [
            {"id": 1, "name": 'a "b", c\r\nd', "n": 7},
            {"id": 2, "name": "", "n": None},
            {"id": 3, "name": None, "n": 8},
        ]

    def test_words_such_as_na_are_words(self, zone: Zone, write: Write) -> None:
        path = write("a.csv", "id,code\n1,NA\n2,null\n")
        assert [row["code"] for row in loaded(zone, path)] == ["NA", "null"]

    def test_a_text_for_null_can_be_named(self, zone: Zone, write: Write) -> None:
        path = write("a.csv", "id,code\n1,N/A\n2,x\n")
        assert [row["code"] for row in loaded(zone, path, null="N/A")] == [None, "x"]

    def test_types_can_be_given_by_the_caller(self, zone: Zone, write: Write) -> None:
        told = {"zip": types.STRING, "price": types.decimal(9, 2), "day": types.DATE}
        path = write("a.csv", "zip,price,day\n01234,1.10,2026-05-01\n")
        row = {"zip": "01234", "price": Decimal("1.10"), "day": date(2026, 5, 1)}
        assert loaded(zone, path, types=told) == [row]

    @pytest.mark.parametrize(
        ("texts", "values"),
        [
            (["01234", "99999"], ["01234", "99999"]),
            (["7", "-007"], ["7", "-007"]),
            (["01.5"], ["01.5"]),
            (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
            (["0", "-0", " 10 "], [0, 0, 10]),
            (["0.5", "1e3", "-0.25"], [0.5, 1000.0, -0.25]),
            (["9223372036854775807"], [2**63 - 1]),
        ],
    )
    def test_digits_that_a_number_would_lose_are_text(
        self, zone: Zone, write: Write, texts: list[str], values: list[Any]
    ) -> None:
        path = write("a.csv", "".join(f"{line}\n" for line in ["zip", *texts]))
        found = [row["zip"] for row in loaded(zone, path)]
        assert sorted(found, key=repr) == sorted(values, key=repr)

    def test_digits_that_come_later_are_an_error(
        self, zone: Zone, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "BLOCK", 1 << 10)
        path = write("a.csv", "id\n" + "123456789\n" * 1_000 + "01\n")
        with pytest.raises(BadFile, match="column id began with plain numbers"):
            loaded(zone, path)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("2025-06-17 14:30:00", datetime(2025, 6, 17, 14, 30, tzinfo=UTC)),
            ("2025-06-17T14:30:00+02:00", datetime(2025, 6, 17, 12, 30, tzinfo=UTC)),
        ],
    )
    def test_times_are_instants(self, zone: Zone, write: Write, text: str, value: datetime) -> None:
        path = write("a.csv", f"at\n{text}\n")
        assert loaded(zone, path) == [{"at": value}]
        assert loaded(Zone(), path, types={"at": types.TIMESTAMP}) == [{"at": value}]

    def test_later_files_are_read_in_the_types_of_the_table(
        self, zone: Zone, publisher: Publisher, write: Write
    ) -> None:
        first = write("a.csv", "id,code\n1,x\n")
        later = write("b.csv", "id,code\n2,0042\n")
        publisher.load("t", rows_of(first, InputOptions()), key="id")
        reading = InputOptions(publisher.columns("t"))
        publisher.publish("t", rows_of(later, reading), operation="upsert")
        assert zone.rows("t")[1] == {"id": 2, "code": "0042"}

    def test_separator_and_encoding_can_be_given(self, zone: Zone, write: Write) -> None:
        path = write("a.csv", "id;name\n1;Jürgen\n".encode("windows-1252"))
        assert loaded(zone, path, separator=";", encoding="windows-1252") == [
            {"id": 1, "name": "Jürgen"}
        ]

    @pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.psv", "|")])
    def test_the_extension_determines_the_separator(
        self, zone: Zone, write: Write, name: str, separator: str
    ) -> None:
        path = write(name, f"a{separator}b\n1{separator}2\n")
        assert loaded(zone, path) == [{"a": 1, "b": 2}]

    def test_packed_text_is_unpacked(self, zone: Zone, write: Write) -> None:
        assert loaded(zone, write("a.csv.gz", gzip.compress(b"a\n1\n"))) == [{"a": 1}]

    def test_a_header_alone_is_a_table_without_rows(self, zone: Zone, write: Write) -> None:
        given = {"a": types.LONG, "b": types.STRING}
        assert loaded(zone, write("a.csv", "a,b\n"), types=given) == []
        assert zone.numbers("t") == [1]

    @pytest.mark.parametrize("content", ["", "a,b\n1\n", b"a\n\xff\xfe\n", "late"])
    def test_what_cannot_be_read_is_refused_and_leaves_nothing(
        self, zone: Zone, write: Write, content: str | bytes
    ) -> None:
        if content == "late":
            content = "a\n" + "1\n" * 2**23 + "x\n"
        with pytest.raises(BadFile, match=r"a\.csv"):
            loaded(zone, write("a.csv", content))
        assert zone.names("t") == []


class TestJsonLines:
    def test_members_are_columns(self, zone: Zone, write: Write) -> None:
        lines = '{"id": 1, "tags": ["a", "b"]}\n{"id": 2, "tags": null, "more": {"x": 1.5}}\n'
        assert loaded(zone, write("a.jsonl", lines)) == [
            {"id": 1, "tags": '["a","b"]', "more": None},
            {"id": 2, "tags": None, "more": '{"x":1.5}'},
        ]

    def test_blocks_may_have_other_columns(
        self, zone: Zone, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "BLOCK", 20)
        path = write("a.jsonl", "".join(f'{{"id": {n}, "c{n % 3}": {n}}}\n' for n in range(9)))
        rows = loaded(zone, path)
        assert [row["id"] for row in rows] == list(range(9))
        assert [row[f"c{row['id'] % 3}"] for row in rows] == list(range(9))

    def test_known_text_is_text_though_it_looks_like_a_time(
        self, zone: Zone, publisher: Publisher, write: Write
    ) -> None:
        publisher.load("t", [{"id": 1, "note": "x"}], key="id")
        path = write("a.jsonl", '{"id": 2, "note": "2026-01-01"}')
        rows = rows_of(path, InputOptions(publisher.columns("t")))
        publisher.publish("t", rows, operation="upsert")
        assert zone.rows("t")[1] == {"id": 2, "note": "2026-01-01"}

    @pytest.mark.clause("LZ-100")
    def test_a_column_that_no_line_has_is_missed_by_updates(
        self, publisher: Publisher, write: Write
    ) -> None:
        publisher.load("t", [{"id": 1, "a": 1, "b": 2}], key="id")
        reading = InputOptions(publisher.columns("t"))
        lines = rows_of(write("a.jsonl", '{"id": 1, "a": 5}\n'), reading)
        with pytest.raises(IncompleteRow):
            publisher.publish("t", lines, operation="update")
        lines = write("b.jsonl", '{"id": 1, "a": 5, "b": null}\n')
        publisher.publish("t", rows_of(lines, reading), operation="update")

    def test_damaged_lines_are_refused(self, zone: Zone, write: Write) -> None:
        with pytest.raises(BadFile):
            loaded(zone, write("a.jsonl", '{"id": 1}\n{"id": \n'))


class TestParquet:
    def test_rows_keep_their_types(self, zone: Zone, tmp_path: Path) -> None:
        table = pa.table({"n": pa.array([1, 2], pa.int16()), "t": ["a", None]})
        pq.write_table(table, tmp_path / "a.parquet")
        assert loaded(zone, tmp_path / "a.parquet") == table.to_pylist()
        assert zone.file("t").schema.field("n").type == pa.int16()

    def test_a_damaged_file_is_refused(self, zone: Zone, write: Write) -> None:
        with pytest.raises(BadFile):
            loaded(zone, write("a.parquet", b"PAR1 not really"))


class TestExcel:
    @pytest.fixture
    def book(self, tmp_path: Path) -> Path:
        openpyxl = pytest.importorskip("openpyxl", reason="the extra `excel` is not installed")
        book = openpyxl.Workbook()
        sheet = book.active
        for row in (
            ["id", "name", "zip", "when"],
            [1, "Jürgen", 1234, datetime(2026, 5, 1, 12, 30)],  # noqa: DTZ001
            [2, None, "00017", None],
            [None, None, None, None],
        ):
            sheet.append(row)
        other = book.create_sheet("other")
        other.append(["a"])
        other.append([1, "beside the header"])
        book.create_sheet("empty")
        book.save(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    def test_rows_stand_below_the_header(self, zone: Zone, book: Path) -> None:
        noon = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
        assert loaded(zone, book, types={"zip": types.STRING}) == [
            {"id": 1, "name": "Jürgen", "zip": "1234", "when": noon},
            {"id": 2, "name": None, "zip": "00017", "when": None},
        ]  # fmt: skip

    @pytest.mark.parametrize("sheet", ["other", "empty", "absent"])
    def test_a_sheet_that_is_not_a_table_is_refused(
        self, zone: Zone, book: Path, sheet: str
    ) -> None:
        with pytest.raises(BadFile):
            loaded(zone, book, sheet=sheet)

    def test_what_is_not_an_excel_file_is_refused(self, zone: Zone, book: Path) -> None:
        book.write_bytes(b"no")
        with pytest.raises(BadFile):
            loaded(zone, book)


@pytest.mark.parametrize("name", ["a.docx", "a", "a.gz"])
def test_other_files_are_refused(write: Write, name: str) -> None:
    with pytest.raises(UsageError, match="extension"):
        rows_of(write(name, "x"), InputOptions())


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        rows_of(tmp_path / "a.csv", InputOptions())


def test_a_file_that_unfolds_to_very_much_is_read_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text of 1 MiB in each of 4,000 rows."""
    monkeypatch.setattr(bounded, "BLOCK_BYTES", 8 << 20)
    text = pa.DictionaryArray.from_arrays(np.zeros(4_000, np.int32), pa.array(["x" * (1 << 20)]))
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"id": range(4_000), "v": text}), path, store_schema=False)
    assert path.stat().st_size < 1 << 20
    rows = rows_of(path, InputOptions())
    assert next(rows).num_rows == 0
    assert 0 < next(rows).num_rows <= 8
