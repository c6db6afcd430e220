"""Landed files: their names, and what their footers say."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import (
    BackfillChunk,
    Checksum,
    FileKind,
    FileName,
    Footer,
    LaterFormat,
    format_time,
    parse_time,
)

numbers = st.integers(0, 10**20 - 1)
extensions = st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,4})?", fullmatch=True)
times = st.datetimes(
    min_value=datetime(1900, 1, 2),  # noqa: DTZ001  (the zone is drawn)
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
bounds = st.none() | st.builds(lambda key: pa.table({"k": [key]}), st.text() | st.integers(0, 9))
chunks = st.builds(
    BackfillChunk, st.text(), st.integers(1), st.builds(KeyRange, bounds, bounds, st.booleans())
)
footers = st.builds(
    Footer,
    stream=st.uuids().map(str),
    kind=st.sampled_from(FileKind),
    first=st.text(string.hexdigits + "/:"),
    last=st.text(string.hexdigits + "/:"),
    complete=st.booleans(),
    commit_times=st.none() | st.tuples(times, times),
    rows=st.dictionaries(st.sampled_from("0124"), st.integers(0, 2**40)),
    stream_id=st.text(),
    data_file=st.none() | st.builds(Checksum, st.integers(0, 2**40), st.integers(0, 2**32 - 1)),
).flatmap(
    lambda footer: (
        st.builds(replace, st.just(footer), backfill=chunks)
        if footer.kind is FileKind.BACKFILL
        else st.just(footer)
    )
)
FOOTER = Footer("stream", FileKind.CHANGES, "0/1:1", "0/2:3", complete=True, rows={"0": 1})


class TestFileName:
    @pytest.mark.clause("LZ-112", "LZ-115")
    @given(numbers, extensions)
    def test_a_name_is_read_as_printed(self, number: int, extension: str) -> None:
        name = FileName(number, extension)
        assert FileName.parse(str(name)) == name

    @pytest.mark.clause("LZ-112")
    def test_a_number_has_twenty_digits(self) -> None:
        assert str(FileName(1)) == "00000000000000000001.parquet"

    @given(st.lists(numbers))
    def test_names_sort_by_number(self, found: list[int]) -> None:
        assert [n.number for n in sorted(map(FileName, found))] == sorted(found)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1.parquet",
            "0000000000000000001.parquet",
            "000000000000000000001.parquet",
            "_00000000000000000001.parquet",
            "00000000000000000001",
            "00000000000000000001.",
            "00000000000000000001.parquet_TEMP",
            "00000000000000000001.parquet\n",
            "x.csv.temp",
            "_metadata.json",
            "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.parquet",
        ],
    )
    def test_other_names_are_not_names_of_data_files(self, text: str) -> None:
        assert FileName.parse(text) is None


class TestFooter:
    @given(footers)
    def test_a_footer_is_read_as_written(self, footer: Footer) -> None:
        assert Footer.decode(footer.encode()) == footer

    @given(footers)
    def test_other_members_of_the_file_do_not_matter(self, footer: Footer) -> None:
        others = {"ARROW:schema": "x", "format": "9", "pandas": "{}"}
        assert Footer.decode(others | footer.encode()) == footer

    def test_every_member_has_the_same_prefix(self) -> None:
        assert all(name.startswith("mirrorlake.") for name in FOOTER.encode())

    def test_a_file_of_another_publisher_has_no_footer(self) -> None:
        assert Footer.decode({"ARROW:schema": "x", "writer": "other"}) is None

    def test_a_later_format_is_refused_by_its_name(self) -> None:
        with pytest.raises(LaterFormat, match="format 2;"):
            Footer.decode(FOOTER.encode() | {"mirrorlake.format": "2"})

    @pytest.mark.parametrize("member", ["stream", "kind", "first", "last", "complete", "rows"])
    def test_a_missing_member_is_named(self, member: str) -> None:
        facts = FOOTER.encode()
        del facts[f"mirrorlake.{member}"]
        with pytest.raises(ValueError, match=f"mirrorlake.{member}"):
            Footer.decode(facts)

    def test_a_footer_without_the_id_of_a_stream_is_of_the_default_one(self) -> None:
        facts = FOOTER.encode()
        del facts["mirrorlake.stream_id"]
        assert Footer.decode(facts) == FOOTER

    def test_one_commit_time_alone_is_damage(self) -> None:
        times = (datetime(2026, 1, 1, tzinfo=UTC),) * 2
        facts = replace(FOOTER, commit_times=times).encode()
        del facts["mirrorlake.commit_time.last"]
        with pytest.raises(ValueError, match=r"mirrorlake\.commit_time\.last"):
            Footer.decode(facts)

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("kind", "delta"),
            ("complete", "yes"),
            ("rows", "[]"),
            ("rows", "{"),
            ("rows", '{"0": null}'),
            ("commit_time.first", "yesterday"),
        ],
    )
    def test_a_damaged_member_is_refused(self, member: str, value: str) -> None:
        times = (datetime(2026, 1, 1, tzinfo=UTC),) * 2
        facts = replace(FOOTER, commit_times=times).encode()
        with pytest.raises(ValueError):
            Footer.decode(facts | {f"mirrorlake.{member}": value})


class TestTimes:
    @given(times)
    def test_a_time_is_read_as_printed(self, time: datetime) -> None:
        assert parse_time(format_time(time)) == time

    def test_a_time_is_printed_in_utc_with_microseconds(self) -> None:
        india = timezone(timedelta(hours=5, minutes=30))
        time = datetime(2026, 1, 1, 5, 30, 0, 7, india)
        assert format_time(time) == "2026-01-01T00:00:00.000007Z"

    def test_a_year_has_four_digits(self) -> None:
        assert format_time(datetime(33, 4, 3, tzinfo=UTC)).startswith("0033-04-03")

    def test_a_time_without_a_zone_is_utc(self) -> None:
        assert parse_time("2026-01-01T00:00:00") == datetime(2026, 1, 1, tzinfo=UTC)
