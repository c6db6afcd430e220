"""Texts as values of the declared types."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing.text.format import DeclaredColumn
from tests.landing.text.texts import bad, declared, fault, rows, values

NOON = datetime(2025, 6, 17, 12, 30, tzinfo=UTC)


class TestNumbers:
    @pytest.mark.clause("LZ-177", "LZ-178", "LZ-179")
    @pytest.mark.parametrize(("kind", "bits"), [("Int16", 16), ("Int32", 32), ("Int64", 64)])
    def test_whole_numbers_up_to_their_range(self, kind: str, bits: int) -> None:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        assert values(kind, str(low), str(high), "+7", "007", "-0", "") == [
            low,
            high,
            7,
            7,
            0,
            None,
        ]
        assert bad(kind, str(high + 1)).value == str(high + 1)
        assert bad(kind, str(low - 1)).value == str(low - 1)

    @pytest.mark.clause("LZ-208")
    @pytest.mark.parametrize(
        "text", ["1.0", "1e3", "0x10", "1 000", " 1", "1_0", "--1", "-", "a", "٣"]
    )
    def test_a_text_that_is_not_an_integer_is_refused(self, text: str) -> None:
        assert bad("Int32", text).value == text

    @pytest.mark.clause("LZ-175", "LZ-176")
    @pytest.mark.parametrize("kind", ["Double", "Single"])
    def test_numbers_with_decimals(self, kind: str) -> None:
        texts = ["3.5", "-0.25", "+2", ".5", "5.", "1e3", "1E-3", "", "Infinity", "-inf"]
        found = values(kind, *texts)
        assert found[:6] == [3.5, -0.25, 2.0, 0.5, 5.0, 1000.0]
        assert math.isclose(found[6], 0.001, rel_tol=1e-6)
        assert found[7:] == [None, math.inf, -math.inf]
        assert math.isnan(values(kind, "NaN")[0])

    @pytest.mark.clause("LZ-208")
    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("Double", "1.000.5"),
            ("Double", "0x10"),
            ("Double", "1e400"),
            ("Double", "-1e400"),
            ("Double", "1;5"),
            ("Double", "1 "),
            ("Double", "e5"),
            ("Single", "1e39"),
        ],
    )
    def test_a_text_that_is_not_a_number_or_out_of_range_is_refused(
        self, kind: str, text: str
    ) -> None:
        assert bad(kind, text).value == text

    @given(st.lists(st.floats(allow_nan=False), min_size=1))
    def test_doubles_are_exact(self, numbers: list[float]) -> None:
        assert values("Double", *map(repr, numbers)) == numbers

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
    def test_long_numbers_are_exact(self, numbers: list[int]) -> None:
        assert values("Int64", *map(str, numbers)) == numbers

    @pytest.mark.clause("LZ-187")
    def test_decimals(self) -> None:
        form = declared(DeclaredColumn("a", "Decimal", precision=10, scale=2))
        found = rows("a\n12345678.90\n-0.010\n+5\n\n1e2\n", form)
        expected = ["12345678.90", "-0.01", "5.00", None, "100.00"]
        assert [row[0] for row in found] == [text and Decimal(text) for text in expected]
        for text in ("1.234", "123456789", "x", "0x1", "5e-41", "1e-400000000"):
            error = fault(f"a\n{text}\n", form)
            assert "Decimal(10,2)" in error.what
            assert error.value == text


class TestBooleans:
    @pytest.mark.clause("LZ-185")
    def test_each_form_in_any_case(self) -> None:
        texts = ["true", "TRUE", "True", "1", "false", "FALSE", "False", "0", ""]
        assert values("Boolean", *texts) == [True] * 4 + [False] * 4 + [None]

    @pytest.mark.clause("LZ-185")
    @pytest.mark.parametrize("text", ["yes", "t", "2", "truee", "01"])
    def test_any_other_form_is_refused(self, text: str) -> None:
        assert bad("Boolean", text).value == text


class TestTimes:
    @pytest.mark.clause("LZ-180", "LZ-207")
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2025-06-17 12:30:00", NOON),
            ("2025-06-17T12:30:00", NOON),
            ("2025-06-17T12:30:00Z", NOON),
            ("2025-06-17 14:30:00+02:00", NOON),
            ("2025-06-17T07:00:00-0530", NOON),
            ("2025-06-17T13:30:00+01", NOON),
            ("2025-06-17 12:30:00.5", NOON.replace(microsecond=500_000)),
            ("2025-06-17T12:30:00.123Z", NOON.replace(microsecond=123_000)),
            ("2025-06-17T12:30:00.1234567Z", NOON.replace(microsecond=123_456)),
            ("2025-06-17 12:30", NOON),
            ("2025-06-17", datetime(2025, 6, 17, tzinfo=UTC)),
            ("0001-01-01 00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
            ("9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ],
    )
    def test_each_form_of_a_date_time_alone(self, text: str, expected: datetime) -> None:
        assert values("DateTime", text) == [expected]

    @pytest.mark.clause("LZ-207")
    def test_the_forms_may_be_mixed(self) -> None:
        texts = ["2025-06-17 12:30:00", "", "2025-06-17T14:30:00.0000001+02:00", "2025-06-17 12:30"]
        assert values("DateTime", *texts) == [NOON, None, NOON, NOON]

    @pytest.mark.clause("LZ-207")
    @pytest.mark.parametrize(
        "text",
        [
            "17.06.2025",
            "2025-6-1",
            "2025-02-30 00:00:00",
            "2025-06-17 24:00:00",
            "2025-06-17 12:60:00",
            "2025-06-17 12",
            "2025-06-17 12:30:00.",
            "2025-06-17 12:30:00 +02:00",
            "0000-01-01 00:00:00",
            "10000-01-01 00:00:00",
            "20250617",
            "now",
            "2025-06-17Z",
        ],
    )
    def test_any_other_form_is_refused(self, text: str) -> None:
        assert bad("DateTime", text).value == text

    @pytest.mark.clause("LZ-180")
    @given(
        st.lists(
            st.datetimes(
                datetime(2, 1, 1),  # noqa: DTZ001
                datetime(9998, 1, 1),  # noqa: DTZ001
                timezones=st.integers(-840, 840).map(lambda m: timezone(timedelta(minutes=m))),
            ),
            min_size=1,
        ),
        st.sampled_from(["T", " "]),
    )
    def test_date_times_are_exact(self, moments: list[datetime], separator: str) -> None:
        assert values("DateTime", *(m.isoformat(separator) for m in moments)) == moments

    @pytest.mark.clause("LZ-181")
    def test_dates(self) -> None:
        found = values("IDate", "2025-06-17", "", "0001-01-01", "9999-12-31")
        assert found == [date(2025, 6, 17), None, date(1, 1, 1), date(9999, 12, 31)]

    @pytest.mark.clause("LZ-181")
    @pytest.mark.parametrize(
        "text", ["2025-02-29", "2025-6-1", "2025-06-17 00:00:00", "0000-01-01"]
    )
    def test_a_text_that_is_not_a_date_is_refused(self, text: str) -> None:
        assert bad("IDate", text).value == text

    @pytest.mark.clause("LZ-182", "LZ-183")
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("14:30", "14:30:00"),
            ("14:30:05", "14:30:05"),
            ("14:30:05.25", "14:30:05.25"),
            ("2025-06-17 14:30:00", "2025-06-17T14:30:00"),
            ("2025-06-17T14:30Z", "2025-06-17T14:30:00Z"),
            ("2025-06-17 14:30:00.5+02:00", "2025-06-17T14:30:00.5+02:00"),
            ("", None),
        ],
    )
    def test_times_are_texts_in_iso_form(self, text: str, expected: str | None) -> None:
        assert values("ITime", "00:00", text) == ["00:00:00", expected]

    @pytest.mark.clause("LZ-183")
    @pytest.mark.parametrize(
        "text", ["24:00", "14", "14:60", "14:30:60", "2025-06-17", "noon", "14:30Z"]
    )
    def test_a_text_that_is_not_a_time_is_refused(self, text: str) -> None:
        assert bad("ITime", text).value == text


class TestBytes:
    @pytest.mark.clause("LZ-186")
    @given(st.lists(st.tuples(st.binary(max_size=9), st.booleans()), min_size=1))
    def test_base64_and_hex(self, found: list[tuple[bytes, bool]]) -> None:
        texts = [
            f"0x{body.hex()}" if is_hex else base64.b64encode(body).decode()
            for body, is_hex in found
        ]
        expected: list[Any] = [body if body or is_hex else None for body, is_hex in found]
        assert values("ByteArray", *texts) == expected

    @pytest.mark.clause("LZ-186")
    def test_hex_in_capitals(self) -> None:
        assert values("ByteArray", "0xABcd") == [b"\xab\xcd"]

    @pytest.mark.clause("LZ-186")
    @pytest.mark.parametrize(
        "text", ["QQ", "Q===", "QQ==QQ==", "=QQQ", "Q=QQ", "Q QQ", "0x1", "0xg0", "ü==="]
    )
    def test_any_other_form_is_refused(self, text: str) -> None:
        assert bad("ByteArray", text).value == text


class TestErrors:
    @pytest.mark.clause("LZ-208", "LZ-270")
    def test_row_line_column_and_value_are_named(self) -> None:
        text = 'a,"b\nb"\n"x\ny",1\nz,zwei\n'
        error = fault(
            text, declared(DeclaredColumn("a", "String"), DeclaredColumn("b\nb", "Int32"))
        )
        assert (error.row, error.column, error.value) == (2, "b\nb", "zwei")
        assert error.what == "'zwei' is not a value of type Int32 (LZ-178), on line 5"
        assert error.code == "bad_value"

    def test_a_long_value_is_shortened_in_the_error(self) -> None:
        error = bad("Int32", "9" * 5_000)
        assert len(error.what) < 400
        assert error.value is not None
        assert len(error.value) < 300

    @given(st.integers(0, 50), st.integers(51, 60))
    def test_the_first_bad_row_is_named(self, at: int, later: int) -> None:
        texts = ["1"] * 61
        texts[at], texts[later] = "x", "y"
        error = fault("a\n" + "\n".join(texts), declared(DeclaredColumn("a", "Int64")))
        assert (error.row, error.value) == (at + 1, "x")
