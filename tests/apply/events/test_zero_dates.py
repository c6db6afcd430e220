"""Dates that no calendar has, as MySQL's zero date is where a writer did not make it NULL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.events import types
from mirrorlake.events.types import UnifiedType
from tests.apply.events.bucket import Bucket, event

ZERO = "0000-00-00"
MOMENT = datetime(2026, 11, 20, 10, 5, tzinfo=UTC)


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize(
    ("kind", "zero", "text", "value"),
    [
        (types.DATE, ZERO, "2026-11-20", date(2026, 11, 20)),
        (types.DATETIME, f"{ZERO} 00:00:00", "2026-11-20T10:05:00", MOMENT),
        (types.DATETIME, f"{ZERO}T00:00:00", "2026-11-20T10:05:00", MOMENT),
    ],
    ids=str,
)
def test_a_zero_date_is_a_dead_letter_in_a_column_of_dates_and_null_stays_null(
    tmp_path: Path, kind: UnifiedType, zero: str, text: str, value: Any
) -> None:
    bucket = Bucket(tmp_path, types={"public.orders": {"d": kind}})
    values = [text, zero, None]
    bucket.put("a.jsonl", *(event(n, {"id": n, "d": one}) for n, one in enumerate(values)))
    bucket.cycle()
    assert bucket.plain() == [{"id": 0, "d": value}, {"id": 2, "d": None}]
    (file,) = bucket.consumer()._journal.dead
    (letter,) = file.letters
    assert (letter.rows, "column d" in letter.reason) == ((1,), True)


def test_a_zero_date_stays_a_text_where_no_type_is_known(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    values = ["2026-11-20", ZERO, None]
    bucket.put("a.jsonl", *(event(n, {"id": n, "d": one}) for n, one in enumerate(values)))
    bucket.cycle()
    assert bucket.plain() == [{"id": n, "d": one} for n, one in enumerate(values)]
    assert bucket.consumer()._journal.dead == []
