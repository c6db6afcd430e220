"""Tables whose columns another program overwrites: deleted rows have their values or are refused.

The other program is delta-rs.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from mirrorlake import FeedError, archive, history, read_feed, subscribe
from mirrorlake.app.changes.feed_pages import feed_page
from mirrorlake.app.changes.trace import trace
from mirrorlake.errors import SourceColumnsChanged
from mirrorlake.feed.ranges import FeedGap
from tests.feed.targets.test_archive import as_of, stored_rows

FEED = {"delta.enableChangeDataFeed": "true"}
MOMENT = pa.array([datetime(2020, 1, 1, 5, tzinfo=UTC)], pa.timestamp("us", "UTC"))


def overwritten(
    path: Path,
    *names: Any,
    partitions: tuple[list[str], list[str]] = ([], []),
) -> Path:
    """A table with the values of `name` in two rows, and then with other values."""
    for number, (values, by) in enumerate(zip(names, partitions, strict=False)):
        ids = list(range(1, len(values) + 1))
        rows = pa.table({"id": ids, "name": values, "n": [10 * number + one for one in ids]})
        write_deltalake(
            path,
            rows,
            mode="overwrite" if number else "error",
            schema_mode="overwrite" if number else None,
            partition_by=by,
            configuration=None if number else FEED,
        )
    return path


def rows_of(path: Path, **bounds: Any) -> list[tuple[Any, ...]]:
    rows = read_feed(path, **bounds).to_arrow().to_pylist()
    return sorted((row["_change_type"], row["id"], row["name"], row["n"]) for row in rows)


@pytest.mark.clause("CF-067", "CF-166")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["007"], [1]),
        (["x"], [1]),
        (["1"], [True]),
        ([7], [True]),
        ([7], ["x"]),
        ([1000], MOMENT),
        ([2**53 + 1], [1.0]),
        ([0.1], pa.array([0.5], pa.float32())),
        (MOMENT, [date(2020, 1, 1)]),
        ([Decimal("1.250")], pa.array([Decimal("1.2")], pa.decimal128(5, 1))),
        ([b"\xff"], ["x"]),
    ],
)
def test_deleted_rows_that_do_not_fit_are_refused(tmp_path: Path, old: Any, new: Any) -> None:
    feed = read_feed(overwritten(tmp_path / "t", old, new), from_version=0)
    assert [(part.first, part.last) for part in feed.ranges] == [(0, 0), (1, 1)]
    commits = iter(feed)
    assert next(commits).version == 0
    with pytest.raises(FeedError, match="version 1 changed the type of column name") as refused:
        next(commits)
    assert refused.value.reason == "schema_changed"
    assert "after it" in refused.value.hint


@pytest.mark.clause("CF-067")
def test_deleted_rows_that_fit_have_their_values(tmp_path: Path) -> None:
    path = overwritten(tmp_path / "t", pa.array([7, None], pa.int32()), pa.array([2**40]))
    assert rows_of(path, from_version=1) == [
        ("delete", 1, 7, 1),
        ("delete", 2, None, 2),
        ("insert", 1, 2**40, 11),
    ]


@pytest.mark.clause("CF-161", "CF-196", "CF-209", "CF-211")
@pytest.mark.parametrize(
    "partitions", [(["name"], []), ([], ["name"]), (["name"], ["id"])], ids=["off", "on", "other"]
)
def test_rows_keep_their_values_when_the_partition_columns_change(
    tmp_path: Path, partitions: tuple[list[str], list[str]]
) -> None:
    path = tmp_path / "t"
    overwritten(path, ["a", "b"], partitions=(partitions[0],))  # type: ignore[arg-type]
    for build, name in ((history, "history"), (archive, "archive")):
        build(path, tmp_path / f"{name}_cut", **({"key": ["id"]} if build is history else {}))
    rows = pa.table({"id": [1], "name": ["c"], "n": [11]})
    write_deltalake(
        path, rows, mode="overwrite", schema_mode="overwrite", partition_by=partitions[1]
    )
    first = [("insert", 1, "a", 1), ("insert", 2, "b", 2)]
    second = [("delete", 1, "a", 1), ("delete", 2, "b", 2), ("insert", 1, "c", 11)]
    assert rows_of(path, from_version=0, to_version=0) == first
    assert rows_of(path, from_version=1) == second
    assert rows_of(path, from_version=0) == sorted(first + second)
    for how in ("unite", "error"):
        assert len(rows_of(path, from_version=0, on_schema_change=how)) == 5
    for cut in ("cut", "whole"):
        history(path, tmp_path / f"history_{cut}", key=["id"])
        assert stored_rows(tmp_path / f"history_{cut}", "id", "name", "n", "__END_AT") == [
            (1, "a", 1, 1),
            (1, "c", 11, None),
            (2, "b", 2, 1),
        ]
        archive(path, tmp_path / f"archive_{cut}")
        assert as_of(tmp_path / f"archive_{cut}", 0) == {(1, "a"): 1, (2, "b"): 1}
        assert as_of(tmp_path / f"archive_{cut}", 1) == {(1, "c"): 1}


@pytest.mark.clause("CF-195", "CF-196")
def test_an_archive_goes_on_in_another_table(tmp_path: Path) -> None:
    path = overwritten(tmp_path / "t", ["x"], [1])
    archive(path, tmp_path / "archive")
    assert stored_rows(tmp_path / "archive", "name", "commit_version") == [("x", 0)]
    assert as_of(tmp_path / "archive_2", 1, snapshot=1) == {(1, 1): 1}
    write_deltalake(path, pa.table({"id": [2], "name": [2], "n": [3]}), mode="append")
    (report,) = archive(path, tmp_path / "archive")
    assert report.covered == 2
    assert as_of(tmp_path / "archive_2", 2, snapshot=1) == {(1, 1): 1, (2, 2): 1}


@pytest.mark.clause("CF-210")
def test_a_history_says_with_which_version_another_one_begins(tmp_path: Path) -> None:
    path = overwritten(tmp_path / "t", ["x"], [1])
    for _run in range(2):
        with pytest.raises(
            SourceColumnsChanged, match="version 1 of its source changed column name"
        ):
            history(path, tmp_path / "history", key=["id"])
    assert history(path, tmp_path / "other", key=["id"], from_version=1).covered == 1
    assert stored_rows(tmp_path / "other", "id", "name") == [(1, 1)]


@pytest.mark.clause("CF-053")
def test_a_subscription_goes_on_after_rows_that_do_not_fit(tmp_path: Path) -> None:
    path = overwritten(tmp_path / "t", ["x"], [1])
    write_deltalake(path, pa.table({"id": [2], "name": [2], "n": [3]}), mode="append")
    with subscribe("s", path, start=0, state=str(tmp_path)) as subscription:
        deliveries = iter(subscription)
        assert next(deliveries).version == 0
        with pytest.raises(FeedError, match="version 1 changed") as refused:
            next(deliveries)
        assert "subscription.reseed()" in refused.value.hint
        assert "subscription.accept_gap()" in refused.value.hint
        gap = subscription.accept_gap()
        assert gap is not None
        assert gap.parts == (FeedGap(1, 1, refused.value.reason),)
        (delivery,) = subscription
        assert delivery.version == 2
        assert delivery.schema_changes
        assert delivery.rows["name"].to_pylist() == [2]


def test_a_page_ends_before_rows_that_do_not_fit_and_the_next_one_says_so(tmp_path: Path) -> None:
    table = str(overwritten(tmp_path / "t", ["x"], [1]))
    page = feed_page(table, from_version=0)
    assert [row["name"] for row in page.rows] == ["x"]
    with pytest.raises(FeedError, match="version 1 changed the type of column name"):
        feed_page(table, token=str(page.next_token))


def test_a_trace_shows_what_fits_and_names_the_versions_that_do_not(tmp_path: Path) -> None:
    path = overwritten(tmp_path / "t", ["x"], [1])
    write_deltalake(path, pa.table({"id": [1], "name": [2], "n": [30]}), mode="append")
    found = trace(str(path), ["id=1"])
    assert [(one.version, one.row["name"]) for one in found.changes] == [(2, 2), (0, "x")]
    assert (found.since, found.unread) == (0, (1,))
    assert trace(str(path), ["id=1"], most=1).unread == ()
