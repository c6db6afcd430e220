"""Ranges of the change feed: what is read, what is refused, and in which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake import FeedError, read_feed
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log import checkpoint, table_log
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, START, UPDATE, FeedTable, time_of


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    """Versions 0 to 3, the feed on since version 1."""
    table = FeedTable(tmp_path / "orders", **{"delta.enableChangeDataFeed": "false"})
    table.record(is_on=True)
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    return table


def read_rows(path: Path, **request: Any) -> list[tuple[Any, ...]]:
    rows = read_feed(path, **request).to_arrow().to_pylist()
    return sorted(
        (row["_commit_version"], row["_change_type"], row["id"], row["name"]) for row in rows
    )


SECOND = [(2, "insert", 1, "a"), (2, "insert", 2, "b")]
THIRD = [
    (3, "delete", 2, "b"),
    (3, "update_postimage", 1, "c"),
    (3, "update_preimage", 1, "a"),
]
LATE = {"from_time": time_of(4)}
READ, CLIPPED = (SECOND + THIRD, False), (SECOND + THIRD, True)


@pytest.mark.clause("CF-221", "CF-162", "CF-026")
@pytest.mark.parametrize(
    ("request_", "clip", "error"),
    [
        ({"from_version": 0, "to_version": 3}, "not_recorded", "not_recorded"),
        ({"from_version": 1, "to_version": 3}, READ, READ),
        ({"from_beginning": True}, READ, READ),
        ({"from_version": 2, "to_version": 50}, CLIPPED, "beyond_latest"),
        ({"from_version": 50}, ([], True), "beyond_latest"),
        (LATE, ([], True), "beyond_latest"),
        ({"from_version": 2, "to_time": time_of(4)}, CLIPPED, "beyond_latest"),
        ({"from_version": 3, "to_version": 1}, "invalid_range", "invalid_range"),
        ({}, "start_missing", "start_missing"),
        ({"from_version": 2, **LATE}, "invalid_argument", "invalid_argument"),
    ],
)
def test_the_golden_example_of_ranges(
    table: FeedTable, request_: dict[str, Any], clip: Any, error: Any
) -> None:
    for policy, expected in (("clip", clip), ("error", error)):
        if isinstance(expected, str):
            with pytest.raises(FeedError) as refused:
                read_feed(table.path, beyond_latest=policy, **request_)
            assert refused.value.reason == expected
            if expected in {"not_recorded", "beyond_latest"}:
                assert refused.value.readable == (1, 3)
                assert "versions 1 to 3 are readable" in str(refused.value)
        else:
            feed = read_feed(table.path, beyond_latest=policy, **request_)
            rows, is_clipped = expected
            assert read_rows(table.path, beyond_latest=policy, **request_) == rows
            assert (feed.last, feed.is_clipped) == (3, is_clipped)


@pytest.mark.clause("CF-158")
@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"from_version": 0, "from_beginning": True}, "from_version and from_beginning"),
        ({"from_version": 0, "to_version": 1, "to_time": "2026-01-01"}, "to_version and to_time"),
        ({"from_version": -1}, "from_version"),
        ({"from_version": True}, "from_version"),
        ({"from_version": "1"}, "from_version"),
        ({"from_time": "yesterday"}, "from_time"),
        ({"from_time": "2026-02-30"}, "from_time"),
        ({"from_time": "2026-01-01 10:00 Nowhere/Town"}, "from_time"),
        ({"from_time": 5}, "from_time"),
        ({"from_position": "somewhere"}, "from_position"),
        ({"from_version": 0, "on_gap": "skip"}, "on_gap"),
        ({"from_version": 0, "beyond_latest": "wait"}, "beyond_latest"),
        ({"from_version": 0, "on_schema_change": "ignore"}, "on_schema_change"),
        ({"from_beginning": "no"}, "from_beginning"),
        ({"from_version": 0, "pair_updates": "false"}, "pair_updates"),
        ({"from_version": 0, "skip_unchanged": 0}, "skip_unchanged"),
        ({"from_version": 0, "sort": None}, "sort"),
        ({"from_version": 0, "key": "id"}, "key"),
        ({"from_version": 0, "key": 7}, "key"),
        ({"from_version": 0, "key": [7]}, "key"),
    ],
    ids=str,
)
def test_a_refusal_names_the_argument_and_reads_nothing(
    request_: dict[str, Any], named: str
) -> None:
    with pytest.raises(FeedError, match=named) as refused:
        read_feed("/nowhere", **request_)
    assert refused.value.reason == "invalid_argument"
    assert refused.value.hint


@pytest.mark.clause("CF-158")
@pytest.mark.parametrize(
    "bounds",
    [
        {"from_time": "2026-01-02", "to_time": "2026-01-01"},
        {"from_source_time": "2026-01-02", "to_source_time": "2026-01-01"},
        {"from_position": "0/B:2", "to_position": "0/B:1"},
    ],
    ids=str,
)
def test_the_end_is_not_before_the_start(bounds: dict[str, Any]) -> None:
    with pytest.raises(FeedError) as refused:
        read_feed("/nowhere", **bounds)
    assert refused.value.reason == "invalid_range"


@pytest.mark.clause("CF-164")
def test_an_unknown_option_is_refused_by_name(table: FeedTable) -> None:
    with pytest.raises(FeedError, match="excludeRegex"):
        read_feed(table.path, from_version=1, excludeRegex="x")  # type: ignore[call-arg]


@pytest.mark.clause("CF-159", "CF-028")
def test_a_time_is_in_utc_unless_it_says_otherwise(table: FeedTable) -> None:
    moment = time_of(3)
    ahead = moment.astimezone(timezone(timedelta(hours=2)))
    for text in (
        f"{moment:%Y-%m-%d %H:%M:%S}",
        f"{moment:%Y-%m-%dT%H:%M:%S}Z",
        f"{moment:%Y-%m-%d %H:%M:%S}.000",
        f"{ahead:%Y-%m-%d %H:%M:%S}+02:00",
        f"{ahead:%Y-%m-%dT%H:%M:%S}+0200",
        f"{ahead:%Y-%m-%d %H:%M:%S} Etc/GMT-2",
        moment,
        moment.replace(tzinfo=None),
        ahead,
    ):
        assert read_rows(table.path, from_time=text) == THIRD


def test_a_day_begins_at_midnight_in_utc(table: FeedTable) -> None:
    after = (datetime.now(UTC) + timedelta(days=2)).date()
    assert read_feed(table.path, from_version=1, to_time=after).is_clipped
    assert read_feed(table.path, from_time="1970-01-02", on_gap="report").first == 0


def test_bounds_by_time_are_inclusive(table: FeedTable) -> None:
    assert read_rows(table.path, from_time=time_of(2), to_time=time_of(2)) == SECOND
    between = time_of(2) + timedelta(seconds=1), time_of(2) + timedelta(seconds=2)
    assert read_rows(table.path, from_time=between[0], to_time=between[1]) == []


@pytest.mark.parametrize("is_in_commit", [False, True])
def test_times_are_found_in_the_commit_and_in_the_file_time(
    tmp_path: Path, is_in_commit: bool
) -> None:
    table = FeedTable(
        tmp_path / "t", **{"delta.enableInCommitTimestamps": str(is_in_commit).lower()}
    )
    for number in range(9):
        table.change((INSERT, (number, "a")))
    for version in range(10):
        feed = read_feed(table.path, from_time=time_of(version), to_time=time_of(version))
        assert (feed.first, feed.last) == (version, version)


@pytest.mark.clause("CF-160")
def test_bounds_may_be_positions_and_times_of_the_source(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "orders")
    moments = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]
    for number, position in enumerate(["0/A:3", "0/B:1", "0/D:2"]):
        row = (INSERT, (number, "a"))
        table.change(row, position=position, source_time=moments[number])
        table.commit([])  # as maintenance does
    versions = {
        ("0/9:1", "0/9:1"): (1, 0),
        ("0/9", "0/A:3"): (1, 2),
        ("0/A:2", "0/B"): (1, 4),
        ("0/A:3", "0/B:1"): (3, 4),
        ("0/A", "0/C"): (3, 4),
        ("0/B:1", "0/D:2"): (5, 6),
        ("0/D:2", None): (7, 6),
    }
    for (start, end), expected in versions.items():
        feed = read_feed(table.path, from_position=start, to_position=end)
        assert (feed.first, feed.last) == expected, (start, end)
    feed = read_feed(table.path, from_source_time=moments[0], to_source_time=moments[1])
    assert (feed.first, feed.last) == (3, 4)
    for beyond in ({"from_position": "0/E"}, {"from_source_time": moments[3]}):
        with pytest.raises(FeedError, match=r"reach from .* to ") as refused:
            read_feed(table.path, **beyond)
        assert refused.value.reason == "beyond_latest"
    with pytest.raises(FeedError, match="0/D:2") as refused:
        read_feed(table.path, from_position="17")
    assert refused.value.reason == "invalid_argument"


@pytest.mark.clause("CF-160")
def test_a_position_before_the_log_is_not_known(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "orders")
    for number, position in enumerate(["0/A:1", "0/B:1", "0/C:1"]):
        table.change((INSERT, (number, "a")), position=position)
        if number == 1:
            cut(table, table.log.snapshot().version)
    with pytest.raises(FeedError, match="from 0/B:1 to 0/C:1") as refused:
        read_feed(table.path, from_position="0/A")
    assert refused.value.reason == "expired"
    assert read_feed(table.path, from_position="0/B").first == 3


def test_a_table_without_positions_says_so(table: FeedTable) -> None:
    with pytest.raises(FeedError, match="name no source"):
        read_feed(table.path, from_position="0/A")


@pytest.mark.clause("CF-161")
def test_the_end_is_fixed_when_the_range_is(table: FeedTable) -> None:
    feed = read_feed(table.path, from_version=2)
    table.change((INSERT, (7, "later")))
    first = feed.to_arrow()
    assert feed.last == 3
    assert first["_commit_version"].to_pylist()[-1] == 3
    assert feed.to_arrow() == first
    assert read_feed(table.path, from_version=2, to_version=feed.last).to_arrow() == first


def cut(table: FeedTable, upto: int) -> None:
    """Write a checkpoint, and remove the commits before it."""
    checkpoint.write(table.path)
    for version in range(upto):
        table.log.commit_file(version).unlink()


@pytest.mark.clause("CF-165", "CF-170")
def test_what_the_log_no_longer_has_is_expired(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "orders")
    for number in range(4):
        table.change((INSERT, (number, "a")))
        if number == 2:
            cut(table, 3)
    with pytest.raises(FeedError) as refused:
        read_feed(table.path, from_version=1, to_version=4)
    assert refused.value.facts() | {"message": ""} == {
        "code": "feed",
        "message": "",
        "hint": refused.value.hint,
        "reason": "expired",
        "table": str(table.path),
        "requested": "version 1 to version 4",
        "readable": [3, 4],
        "condition": "",
        "sqlstate": "",
    }
    assert "on_gap='report'" in refused.value.hint
    assert read_feed(table.path, from_beginning=True).first == 3
    with pytest.raises(FeedError, match="no longer kept"):
        read_feed(table.path, from_time=time_of(2))


@pytest.mark.clause("CF-165", "CF-170", "CF-172")
@pytest.mark.parametrize("length", [1, 1_000])
def test_commits_between_checkpoints_are_expired_without_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(table_log, "LONG", length)
    table = FeedTable(tmp_path / "orders")
    for version in range(1, 7):
        table.change((INSERT, (version, "a")))
        if version in {2, 5}:
            checkpoint.write(table.path)
    for version in range(4):
        table.log.commit_file(version).unlink()
    with pytest.raises(FeedError) as refused:
        read_feed(table.path, from_version=4)
    assert (refused.value.reason, refused.value.readable) == ("expired", (5, 6))
    assert read_rows(table.path, from_beginning=True) == [
        (5, "insert", 5, "a"),
        (6, "insert", 6, "a"),
    ]
    for start in ({"from_version": 0}, {"from_time": time_of(1)}):
        feed = read_feed(table.path, on_gap="report", **start)  # type: ignore[arg-type]
        assert [(gap.first, gap.last, gap.reason) for gap in feed.gaps] == [(0, 4, "expired")]
        assert [commit.version for commit in feed] == [5, 6]


@pytest.mark.clause("CF-170")
def test_a_log_may_begin_with_a_commit_that_describes_the_table(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    table.describe(SHAPE.schema)
    table.change((INSERT, (3, "a")))
    cut(table, 2)
    feed = read_feed(table.path, from_beginning=True)
    assert [commit.version for commit in feed] == [3]
    assert feed.first == 2


@pytest.mark.clause("CF-170")
def test_versions_older_than_their_files_are_expired(tmp_path: Path) -> None:
    minutes = int((datetime.now(UTC) - START).total_seconds() / 60) - 2
    kept = {"delta.deletedFileRetentionDuration": f"interval {minutes} minutes"}
    table = FeedTable(tmp_path / "orders", **kept)
    for number in range(4):
        table.change((INSERT, (number, "a")))
    with pytest.raises(FeedError) as refused:
        read_feed(table.path, from_version=1)
    assert refused.value.reason == "expired"
    assert refused.value.readable is not None
    since = refused.value.readable[0]
    assert since in {3, 4}
    assert read_feed(table.path, from_beginning=True).first == since


def test_a_table_that_keeps_files_for_no_time_is_read_while_they_are_there(tmp_path: Path) -> None:
    kept = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    table = FeedTable(tmp_path / "orders", **kept)
    table.change((INSERT, (1, "a")))
    assert [commit.version for commit in read_feed(table.path, from_version=1)] == [1]


@pytest.mark.clause("CF-169")
@pytest.mark.parametrize("what", ["*.parquet", "_change_data/*"])
def test_a_file_that_is_gone_is_expired_and_never_passed_over(table: FeedTable, what: str) -> None:
    feed = read_feed(table.path, from_version=1)
    for file in table.path.glob(what):
        file.unlink()
    with pytest.raises(FeedError, match=r"\.parquet is needed") as refused:
        feed.to_arrow()
    assert refused.value.reason == "expired"
    assert isinstance(refused.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize("what", ["file", "log", "JSON"])
def test_commits_before_one_that_cannot_be_read_are_returned(table: FeedTable, what: str) -> None:
    versions = [table.change((INSERT, (n, "a"))) for n in range(10, 14)]
    if what == "file":
        (add,) = (a["add"] for a in table.log.actions(versions[2]) if "add" in a)
        (table.path / add["path"]).write_bytes(b"damaged")
    else:
        checkpoint.write(table.path)
        commit = table.log.commit_file(versions[2])
        damaged = ('"timestamp"', '"no time"') if what == "log" else ('"add"', '"add')
        commit.write_text(commit.read_text().replace(*damaged))
    feed = read_feed(table.path, from_version=versions[0])
    found = iter(feed)
    assert [next(found).version for _ in range(2)] == versions[:2]
    with pytest.raises(FeedError):
        next(found)


@pytest.mark.parametrize("damage", ["cut", "empty", "zeros"])
def test_a_commit_that_was_not_written_whole_is_refused_at_once(
    table: FeedTable, damage: str
) -> None:
    commit = table.log.commit_file(2)
    content = commit.read_bytes()
    damaged = {"cut": content[:-9], "empty": b"", "zeros": bytes(len(content))}
    checkpoint.write(table.path)
    commit.write_bytes(damaged[damage])
    with pytest.raises(FeedError, match=r"2\.json is damaged"):
        read_feed(table.path, from_version=1)


@pytest.mark.parametrize("what", ["*.parquet", "_change_data/*"])
@pytest.mark.parametrize("damage", ["cut", "bits"])
def test_a_file_that_is_damaged_is_named(table: FeedTable, what: str, damage: str) -> None:
    feed = read_feed(table.path, from_version=1)
    for file in table.path.glob(what):
        content = bytearray(file.read_bytes())
        content[20:40] = bytes(20)
        file.write_bytes(content if damage == "bits" else content[:-100])
    with pytest.raises(FeedError, match=r"\.parquet of commit \d is damaged") as refused:
        feed.to_arrow()
    assert refused.value.reason == "other"


@pytest.mark.clause("CF-172")
def test_a_table_that_records_no_changes_has_no_beginning(table: FeedTable) -> None:
    table.record(is_on=False)
    table.change((INSERT, (3, "unseen")))
    with pytest.raises(FeedError, match="changes of the table are not recorded") as refused:
        read_feed(table.path, from_beginning=True)
    assert (refused.value.reason, refused.value.readable) == ("not_recorded", None)
    assert read_feed(table.path, from_beginning=True, on_gap="report").to_arrow().num_rows == 0


@pytest.mark.clause("CF-172")
def test_gaps_are_reported_on_request(table: FeedTable) -> None:
    table.record(is_on=False)
    table.change((INSERT, (3, "unseen")))
    table.record(is_on=True)
    table.change((INSERT, (4, "d")))
    with pytest.raises(FeedError, match="version 4 to 5 were not recorded") as refused:
        read_feed(table.path, from_version=2)
    assert (refused.value.reason, refused.value.readable) == ("not_recorded", (6, 7))
    feed = read_feed(table.path, from_version=0, on_gap="report")
    assert feed.facts() | {"table": ""} == {
        "table": "",
        "first": 0,
        "last": 7,
        "clipped": False,
        "ranges": [[1, 3], [6, 7]],
        "gaps": [[0, 0, "not_recorded"], [4, 5, "not_recorded"]],
    }
    fourth = [(7, "insert", 4, "d")]
    assert read_rows(table.path, from_version=0, on_gap="report") == [*SECOND, *THIRD, *fourth]
    assert read_rows(table.path, from_version=1, to_version=3) == [*SECOND, *THIRD]


@pytest.mark.clause("CF-178")
def test_commits_come_whole_and_in_order(table: FeedTable) -> None:
    feed = read_feed(table.path, from_version=1)
    assert [(one.version, one.time, one.rows.num_rows) for one in feed] == [
        (2, time_of(2), 2),
        (3, time_of(3), 3),
    ]
    assert sum(batch.num_rows for batch in feed.batches()) == 5


def test_all_rows_in_one_table_are_those_of_the_commits(table: FeedTable) -> None:
    feed = read_feed(table.path, from_version=1)
    commits = [commit.rows for commit in feed]
    assert feed.to_arrow() == pa.concat_tables(commits)
    assert {rows.schema == feed.schema() for rows in [*commits, feed.to_arrow()]} == {True}
    found = [feed.to_arrow()[name].to_pylist() for name in METADATA]
    assert sorted(zip(*found, strict=True)) == [
        (kind, version, time_of(version))
        for kind, version in (
            ("delete", 3),
            ("insert", 2),
            ("insert", 2),
            ("update_postimage", 3),
            ("update_preimage", 3),
        )
    ]


def test_what_a_file_says_of_itself_is_not_said_of_the_rows(table: FeedTable) -> None:
    (path,) = (table.path / "_change_data").rglob("*.parquet")
    frame = pq.read_table(path)
    told = pa.Table.from_pandas(frame.to_pandas().set_index("id")).schema.metadata
    pq.write_table(frame.replace_schema_metadata(told), path)
    feed = read_feed(table.path, from_version=1)
    for rows in (*(commit.rows for commit in feed), feed.to_arrow()):
        assert rows.schema.equals(feed.schema(), check_metadata=True)
        assert list(rows.to_pandas()) == feed.schema().names


WIDER = Schema.of([*SHAPE.schema, Column("more", types.DOUBLE)])
LONGER = Schema.of([Column("id", types.STRING), Column("name", types.STRING)])


@pytest.mark.clause("CF-174")
def test_an_added_column_is_null_in_earlier_rows(table: FeedTable) -> None:
    table.describe(WIDER)
    table.change((INSERT, (9, "z", 1.5)))
    feed = read_feed(table.path, from_version=2, on_schema_change="error")
    assert len(feed.ranges) == 1
    rows = feed.to_arrow().select(["id", "more"]).to_pylist()
    assert {row["more"] for row in rows[:-1]} == {None}
    assert rows[-1] == {"id": 9, "more": 1.5}


@pytest.mark.clause("CF-173")
def test_columns_of_a_commit_that_is_written_with_escapes_are_found(table: FeedTable) -> None:
    commit = table.log.commit_file(table.describe(LONGER))
    commit.write_text(commit.read_text().replace('"metaData"', r'"\u006detaData"'))
    feed = read_feed(table.path, from_version=1)
    assert [(one.first, one.last) for one in feed.ranges] == [(1, 3), (4, 4)]


@pytest.mark.clause("CF-173", "CF-174")
def test_another_type_begins_another_range(tmp_path: Path) -> None:
    small = Schema.of([Column("id", types.INTEGER), Column("name", types.STRING)])
    table = FeedTable(tmp_path / "t", small)
    table.change((INSERT, (1, "a")))
    table.describe(SHAPE.schema)
    table.change((INSERT, (2**40, "b")))
    feed = read_feed(table.path, from_version=1)
    assert [(one.first, one.last) for one in feed.ranges] == [(1, 1), (2, 3)]
    assert [str(feed.schema(one).field("id").type) for one in feed.ranges] == ["int32", "int64"]
    found = [
        [row["id"] for c in feed.commits(one) for row in c.rows.to_pylist()] for one in feed.ranges
    ]
    assert found == [[1], [2**40]]
    with pytest.raises(FeedError) as refused:
        feed.to_arrow()
    assert refused.value.reason == "schema_changed"
    united = read_feed(table.path, from_version=1, on_schema_change="unite").to_arrow()
    assert united["id"].to_pylist() == [1, 2**40]
    with pytest.raises(FeedError, match="version 2 changed the columns"):
        read_feed(table.path, from_version=1, on_schema_change="error")


@pytest.mark.clause("CF-174")
def test_rows_that_do_not_fit_the_latest_columns_are_not_united(table: FeedTable) -> None:
    table.describe(Schema.of([Column("id", types.LONG)]))
    with pytest.raises(FeedError, match="column name of versions 1 to 3") as refused:
        read_feed(table.path, from_version=1, on_schema_change="unite")
    assert refused.value.reason == "schema_changed"
    table.describe(LONGER)
    with pytest.raises(FeedError, match="column id"):
        read_feed(table.path, from_version=1, on_schema_change="unite")


@pytest.mark.clause("CF-146")
def test_a_delete_and_an_insert_of_one_key_are_an_update_on_request(table: FeedTable) -> None:
    (old,) = table.files
    table.commit([{"remove": old | {"dataChange": True}}])
    whole = FeedTable(table.path.parent / "other", SHAPE.schema)
    whole.change((INSERT, (1, "new")), (INSERT, (5, "e")))
    (file,) = whole.files
    (whole.path / file["path"]).rename(table.path / file["path"])
    remove, add = {"remove": old}, {"add": file}
    table.log.commit_file(4).unlink()
    table.log.forget()
    table.commit([remove, add])
    plain = [(4, "delete", 1, "c"), (4, "insert", 1, "new"), (4, "insert", 5, "e")]
    assert read_rows(table.path, from_version=4) == plain
    assert read_rows(table.path, from_version=4, pair_updates=True) == [
        (4, "insert", 5, "e"),
        (4, "update_postimage", 1, "new"),
        (4, "update_preimage", 1, "c"),
    ]
    with pytest.raises(FeedError, match="key names nothing"):
        read_feed(table.path, from_version=4, pair_updates=True, key=["nothing"])


def test_what_needs_a_key_says_so(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t", **{"mirrorlake.keyColumns": "[]"})
    with pytest.raises(FeedError, match="skip_unchanged needs a key"):
        read_feed(table.path, from_version=0, skip_unchanged=True)


@pytest.mark.clause("CF-023")
def test_updates_of_nothing_are_left_out_on_request(table: FeedTable) -> None:
    table.change((UPDATE, (1, "c")))
    assert len(read_rows(table.path, from_version=4)) == 2
    assert read_rows(table.path, from_version=4, skip_unchanged=True) == []
    assert read_rows(table.path, from_version=4, skip_unchanged=True, sort=True) == []
    assert read_rows(table.path, from_version=3, to_version=3, skip_unchanged=True) == THIRD


@pytest.mark.clause("CF-178")
def test_sorted_rows_have_the_old_one_of_a_key_first(table: FeedTable) -> None:
    table.change((UPDATE, (1, "x")), (INSERT, (0, "y")), (INSERT, (2, "w")))
    rows = read_feed(table.path, from_version=3, sort=True).to_arrow().to_pylist()
    assert [(row["_commit_version"], row["id"], row["_change_type"]) for row in rows] == [
        (3, 1, "update_preimage"),
        (3, 1, "update_postimage"),
        (3, 2, "delete"),
        (4, 0, "insert"),
        (4, 1, "update_preimage"),
        (4, 1, "update_postimage"),
        (4, 2, "insert"),
    ]


@pytest.mark.clause("CF-179")
def test_a_feature_that_the_reader_lacks_is_named(table: FeedTable) -> None:
    protocol = table.log.snapshot().protocol
    table.commit([{"protocol": {**protocol, "readerFeatures": ["deletionVectors", "novelty"]}}])
    with pytest.raises(FeedError, match="novelty"):
        read_feed(table.path, from_version=2)


def test_no_table_is_an_error_of_the_feed(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="no Delta table") as refused:
        read_feed(tmp_path, from_version=0)
    assert refused.value.reason == "invalid_argument"
