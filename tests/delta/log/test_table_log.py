"""The log of a table: followed commit by commit, it says what a fresh reading says."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta.log.table_log import APPLICATION, BrokenLog, TableLog, TableSnapshot
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.delta.handmade import HandmadeTable, metadata
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape
from tests.profiles import tries
from tests.reference import Change

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
APP = f"{APPLICATION}generation"
WIDER = Shape.of(["id"], id=types.LONG, name=types.STRING, more=types.DOUBLE)


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "table", SHAPE.schema)


def put(table: HandmadeTable, *ids: int, marker: Marker = Marker.UPSERT) -> None:
    """A batch of these keys, recorded under an application id."""
    net = net_of(SHAPE, Landing((tuple(Change(marker, (n, "x")) for n in ids),)))
    table.apply(net)
    version = table.log.snapshot().version + 1
    table.commit([{"txn": {"appId": APP, "version": version}}])


def facts(snapshot: TableSnapshot) -> tuple[Any, ...]:
    """What a snapshot says of the table, with statistics as values."""
    files = {
        name: {**add, "stats": json.loads(add.get("stats") or "null")}
        for name, add in snapshot.files.items()
    }
    for add in files.values():
        add.pop("dataChange")  # says nothing of the table, and checkpoints have it false
    return (
        snapshot.version,
        snapshot.features,
        snapshot.metadata,
        snapshot.transactions,
        files,
    )


def anew(table: HandmadeTable) -> TableSnapshot:
    return TableLog(table.path).snapshot()


def checkpoint(table: HandmadeTable) -> Path:
    """Let another writer make a checkpoint of the newest version."""
    deltalake.DeltaTable(str(table.path)).create_checkpoint()
    version = table.log.snapshot().version
    return table.path / "_delta_log" / f"{version:020d}.checkpoint.parquet"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("columns"), st.just([])),
        st.tuples(st.just("checkpoint"), st.just([])),
    ),
    max_size=8,
)


@settings(max_examples=tries(60))
@given(STEPS)
def test_following_a_log_equals_loading_it_again(steps: list[tuple[str, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), SHAPE.schema)
        followed = TableLog(table.path)
        for kind, ids in steps:
            match kind:
                case "upsert":
                    put(table, *ids)
                case "delete":
                    put(table, *ids, marker=Marker.DELETE)
                case "columns":
                    table.commit([{"metaData": {**metadata(WIDER.schema), "id": "same"}}])
                    table.commit([{"metaData": {**metadata(SHAPE.schema), "id": "same"}}])
                case "checkpoint":
                    checkpoint(table)
            assert facts(followed.snapshot()) == facts(anew(table))
            other = deltalake.DeltaTable(str(table.path))
            assert other.version() == followed.snapshot().version
            assert sorted(other.file_uris()) == sorted(
                str(table.path / path) for path, _vector in followed.snapshot().files
            )
            assert other.transaction_version(APP) == followed.snapshot().transactions.get(APP)


def test_a_folder_without_a_log_is_not_a_table(tmp_path: Path) -> None:
    assert not TableLog(tmp_path / "nothing").snapshot().exists


def test_a_checkpoint_replaces_the_commits_before_it(table: HandmadeTable) -> None:
    put(table, 1, 2)
    put(table, 2)
    checkpoint(table)
    before = facts(anew(table))
    for version in anew(table).commits:
        table.log.commit_file(version).unlink()
    assert facts(anew(table)) == before


def test_commits_after_a_checkpoint_are_read(table: HandmadeTable) -> None:
    put(table, 1, 2)
    checkpoint(table)
    put(table, 2)
    table.log.commit_file(0).unlink()
    assert facts(anew(table)) == facts(table.log.snapshot())


def test_a_missing_commit_is_an_error(table: HandmadeTable) -> None:
    put(table, 1)
    table.log.commit_file(1).unlink()
    with pytest.raises(BrokenLog, match="commit 1 of"):
        anew(table)


def test_a_log_that_begins_late_is_an_error(table: HandmadeTable) -> None:
    put(table, 1)
    table.log.commit_file(0).unlink()
    with pytest.raises(BrokenLog, match="commit 0 of"):
        anew(table)


def test_the_parts_of_a_checkpoint_belong_together(table: HandmadeTable) -> None:
    put(table, 1, 2)
    put(table, 3)
    before = facts(anew(table))
    for part in split(checkpoint(table)):
        assert part.exists()
    for version in anew(table).commits:
        table.log.commit_file(version).unlink()
    assert facts(anew(table)) == before


def test_parts_of_different_checkpoints_are_not_combined(table: HandmadeTable) -> None:
    put(table, 1)
    whole = checkpoint(table)
    version, content = whole.name.split(".")[0], whole.read_bytes()
    whole.unlink()
    for part, parts in ((1, 3), (2, 3), (1, 2)):
        name = f"{version}.checkpoint.{part:010d}.{parts:010d}.parquet"
        whole.with_name(name).write_bytes(b"of another number of parts")
    assert facts(anew(table)) == facts(table.log.snapshot())
    whole.write_bytes(content)
    table.log.commit_file(1).unlink()
    assert anew(table).version == int(version)


def test_a_checkpoint_without_all_its_parts_is_skipped(table: HandmadeTable) -> None:
    put(table, 1, 2)
    before = facts(anew(table))
    split(checkpoint(table))[0].unlink()
    assert facts(anew(table)) == before


def split(path: Path) -> list[Path]:
    """A checkpoint in two parts in the place of one file."""
    rows = pq.read_table(path)
    stem = path.name.removesuffix(".parquet")
    parts = [path.with_name(f"{stem}.{n:010d}.{2:010d}.parquet") for n in (1, 2)]
    pq.write_table(rows.slice(0, 2), parts[0])
    pq.write_table(rows.slice(2), parts[1])
    path.unlink()
    return parts


def test_a_recreated_table_is_read_again(table: HandmadeTable) -> None:
    put(table, 1)
    known = table.log.snapshot().version
    shutil.rmtree(table.path)
    other = HandmadeTable(table.path, WIDER.schema)
    for _ in range(known + 3):
        other.commit([])
    assert facts(table.log.snapshot()) == facts(anew(table))


def test_a_recreated_table_with_fewer_commits_is_read_again(table: HandmadeTable) -> None:
    put(table, 1)
    put(table, 2)
    shutil.rmtree(table.path)
    HandmadeTable(table.path, WIDER.schema)
    assert table.log.snapshot().version == 0


def test_a_removed_table_is_reported_once_and_then_missing(table: HandmadeTable) -> None:
    table.log.snapshot()
    shutil.rmtree(table.path)
    with pytest.raises(FileNotFoundError):
        table.log.snapshot()
    assert not table.log.snapshot().exists


# -- what was done to the table ---------------------------------------------------------------


def test_the_commit_that_recorded_an_application_last_is_known(table: HandmadeTable) -> None:
    put(table, 1)
    put(table, 2)
    last = table.log.snapshot().version
    table.commit([])
    assert anew(table).recorded_in == {APP: last}


def test_operations_since_the_last_batch_are_known_despite_a_checkpoint(
    table: HandmadeTable,
) -> None:
    put(table, 1)
    recorded = table.log.snapshot().version
    table.commit([])
    checkpoint(table)
    found = anew(table)
    assert found.recorded_in == {APP: recorded}
    assert recorded + 1 in found.commits


def test_transactions_of_other_applications_are_not_batches(table: HandmadeTable) -> None:
    foreign = {"txn": {"appId": "a stream", "version": 1}}
    table.commit([foreign])
    put(table, 1)
    recorded = table.log.snapshot().version
    table.commit([])
    table.commit([foreign])
    checkpoint(table)
    found = anew(table)
    assert found.recorded_in[APP] == recorded
    assert recorded + 1 in found.commits
    put(table, 2)
    followed = table.log.snapshot()
    assert min(followed.commits) == followed.recorded_in[APP]


def test_a_damaged_commit_before_a_checkpoint_may_hide_operations(table: HandmadeTable) -> None:
    damaged = table.commit([])
    put(table, 1)
    checkpoint(table)
    table.log.commit_file(damaged).write_text("damaged")
    assert anew(table).version == table.log.snapshot().version  # it is older than the last batch
    hidden = table.commit([])
    checkpoint(table)
    table.log.commit_file(hidden).write_text("damaged")
    with pytest.raises(BrokenLog, match="is damaged"):
        anew(table)


def test_older_commits_are_forgotten(table: HandmadeTable) -> None:
    for number in range(5):
        put(table, number)
    found = table.log.snapshot()
    assert min(found.commits) == found.recorded_in[APP]


def test_reader_and_writer_features_are_returned(table: HandmadeTable) -> None:
    assert table.log.snapshot().features == {
        "deletionVectors",
        "columnMapping",
        "changeDataFeed",
        "appendOnly",
    }


def test_unknown_actions_are_returned(table: HandmadeTable) -> None:
    put(table, 1)
    assert table.log.snapshot().unknown == set()
    table.commit([{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}])
    table.commit([{"ofTomorrow": {"a": 1}}])
    assert table.log.snapshot().unknown == anew(table).unknown == {"ofTomorrow"}


def test_versions_are_those_of_the_remaining_commits(table: HandmadeTable) -> None:
    put(table, 1)
    checkpoint(table)
    table.log.commit_file(0).unlink()
    assert TableLog(table.path).versions() == [1, 2]


# -- damage -------------------------------------------------------------------------------------


def test_changes_of_a_commit_with_change_files_are_in_these(table: HandmadeTable) -> None:
    add, cdc = ({kind: {"path": kind, "dataChange": True}} for kind in ("add", "cdc"))
    for actions, kinds in (([add, cdc], {"commitInfo", "cdc"}), ([add], {"commitInfo", "add"})):
        version = table.commit(actions)
        found = table.log.changes_in(version, table.log.content(version))
        assert {kind for action in found for kind in action} == kinds


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n",
        b"\xff\xfe\n",
        b'["no action"]\n',
        b'{"add": {"x": 1}}\n',
        b'{"txn": 7}\n',
        b'{"commitInfo": "garbage"}\n',
        b'{"commitInfo": {}},{"txn": {"appId": "a", "version": 1}}\n',
        b'{"commitInfo": {"a": 1\n"b": 2}}\n',
        b"",
        b"\n",
    ],
    ids=["text", "bytes", "list", "pathless", "number", "said", "two", "half", "empty", "blank"],
)
@pytest.mark.parametrize("following", [True, False])
def test_a_damaged_commit_is_named_and_not_quoted(
    table: HandmadeTable, content: bytes, following: bool
) -> None:
    log = TableLog(table.path)
    if following:
        log.snapshot()
    put(table, 1)
    table.log.commit_file(table.log.snapshot().version).write_bytes(content)
    with pytest.raises(BrokenLog, match="_delta_log") as raised:
        log.snapshot()
    assert "garbage" not in str(raised.value)


def test_a_log_is_read_again_after_its_repair(table: HandmadeTable) -> None:
    put(table, 1)
    commit = table.log.commit_file(table.log.snapshot().version)
    whole, log = commit.read_bytes(), TableLog(table.path)
    commit.write_bytes(b"garbage")
    with pytest.raises(BrokenLog):
        log.snapshot()
    commit.write_bytes(whole)
    assert facts(log.snapshot()) == facts(anew(table))


def test_a_damaged_checkpoint_is_named(table: HandmadeTable) -> None:
    put(table, 1)
    checkpoint(table).write_bytes(b"garbage")
    with pytest.raises(BrokenLog, match=r"checkpoint\.parquet is damaged"):
        anew(table)


def test_a_log_without_its_first_commit_is_broken(table: HandmadeTable) -> None:
    put(table, 1)
    table.log.commit_file(0).unlink()
    with pytest.raises(BrokenLog, match="commit 0 "):
        anew(table)
