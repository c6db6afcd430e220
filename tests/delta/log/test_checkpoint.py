"""Checkpoints of ours: all that still counts, nothing else, and readable by everybody."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.checkpoint import UnsupportedLog, write
from mirrorlake.delta.log.names import LAST
from mirrorlake.delta.log.retention import RetentionTimes
from mirrorlake.delta.log.table_log import (
    Action,
    BrokenLog,
    TableLog,
    _parquet_actions,
    file_id,
)
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from tests.delta.handmade import HandmadeTable

SCHEMA = Schema.of([Column("id", types.LONG)])
NOW = 1_800_000_000.0
EXPIRED = int((NOW - RetentionTimes().files.total_seconds()) * 1000)
VECTORS: list[Action | None] = [
    None,
    {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 4, "cardinality": 1},
    {"storageType": "u", "pathOrInlineDv": "ab", "offset": 9, "sizeInBytes": 4, "cardinality": 2},
    {"storageType": "i", "pathOrInlineDv": "ab@1", "sizeInBytes": 4, "cardinality": 2},
]


def of_file(path: str, vector: Action | None) -> Action:
    return {"path": path, "partitionValues": {}, "size": 5, "deletionVector": vector}


FILES = st.builds(of_file, st.sampled_from(["a", "b", "c%20d"]), st.sampled_from(VECTORS))
ADDS = FILES.map(
    lambda file: {"add": {**file, "modificationTime": 7, "dataChange": True, "stats": "{}"}}
)
REMOVES = st.builds(
    lambda file, at: {
        "remove": {**file, "deletionTimestamp": at, "dataChange": True, "tags": {"t": "x"}}
    },
    FILES,
    st.sampled_from([EXPIRED - 1, EXPIRED, EXPIRED + 1, int(NOW * 1000)]),
)
TXNS = st.builds(
    lambda app, version: {"txn": {"appId": app, "version": version}},
    st.sampled_from("xy"),
    st.integers(0, 3),
)
DOMAINS = st.builds(
    lambda domain, removed: {
        "domainMetadata": {"domain": domain, "configuration": "{}", "removed": removed}
    },
    st.sampled_from("dé"),
    st.booleans(),
)
ACTIONS = ADDS | REMOVES | TXNS | DOMAINS
CHECKPOINT = "checkpoint"


@dataclass
class Replayed:
    """What the protocol says of the actions so far, one after another."""

    of: dict[tuple[Any, ...], Action] = field(default_factory=dict)

    def take(self, actions: Sequence[Action]) -> None:
        for action in actions:
            ((kind, said),) = action.items()
            if kind in {"add", "remove"}:
                # A file is live or deleted, whichever came last.
                self.of["file", file_id(said)] = {kind: {**said, "dataChange": False}}
            elif kind in {"txn", "domainMetadata"}:
                self.of[kind, said.get("appId") or said.get("domain")] = action
            else:
                self.of[kind,] = action

    def counting(self) -> list[str]:
        return sorted(said(action) for action in self.of.values() if counts(action))


def counts(action: Action) -> bool:
    if remove := action.get("remove"):
        return bool(remove["deletionTimestamp"] > EXPIRED)
    return not action.get("domainMetadata", {}).get("removed")


def said(action: Action) -> str:
    """An action without what is absent, and without what commits alone say."""
    ((kind, members),) = action.items()
    left = {name: value for name, value in members.items() if value is not None}
    if kind == "remove":
        left.pop("tags", None)
    return json.dumps({kind: left}, sort_keys=True)


def table_at(path: Path) -> HandmadeTable:
    return HandmadeTable(path, SCHEMA)


def checkpoint_of(table: HandmadeTable, version: int) -> Path:
    return Path(table.location, "_delta_log", f"{version:020d}.checkpoint.parquet")


def rows(path: Path) -> list[str]:
    with path.open("rb") as file:
        return sorted(said(row) for row in _parquet_actions(file))


@given(steps=st.lists(st.lists(ACTIONS, max_size=5) | st.just(CHECKPOINT), max_size=12))
def test_a_checkpoint_contains_the_result_of_replaying_all_commits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("table")
    table, model = table_at(folder / "t"), Replayed()
    model.take([a for a in TableLog(table.location).actions(0) if "commitInfo" not in a])
    version = 0
    for step in [*steps, CHECKPOINT]:
        if step != CHECKPOINT:
            version = table.commit(step)
            model.take(step)
            continue
        assert write(folder / "t", NOW) == version
        assert rows(checkpoint_of(table, version)) == model.counting()
    pointer = json.loads((folder / "t/_delta_log" / LAST).read_bytes())
    assert pointer["version"] == version
    assert pointer["size"] == len(model.counting())
    shutil.rmtree(folder)


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return table_at(tmp_path / "t")


def test_a_checkpoint_is_equivalent_to_its_commits(table: HandmadeTable, tmp_path: Path) -> None:
    table.commit([{"add": {**of_file("a", VECTORS[1]), "modificationTime": 7}}])
    before = TableLog(table.location).snapshot()
    write(tmp_path / "t")
    for commit in (tmp_path / "t/_delta_log").glob("*.json"):
        commit.unlink()
    after = TableLog(table.location).snapshot()
    assert (after.version, after.protocol) == (before.version, before.protocol)
    assert after.metadata == before.metadata
    assert after.files.keys() == before.files.keys()


def test_an_existing_checkpoint_is_kept_without_leftovers(
    table: HandmadeTable, tmp_path: Path
) -> None:
    write(tmp_path / "t")
    facts = checkpoint_of(table, 0).stat()
    assert write(tmp_path / "t") == 0
    assert checkpoint_of(table, 0).stat() == facts
    names = {path.name for path in (tmp_path / "t/_delta_log").iterdir()}
    assert names == {f"{0:020d}.json", checkpoint_of(table, 0).name, LAST}


def test_the_pointer_never_goes_back(table: HandmadeTable, tmp_path: Path) -> None:
    pointer = tmp_path / "t/_delta_log" / LAST
    pointer.write_text('{"version":9,"size":1}')
    write(tmp_path / "t")
    assert json.loads(pointer.read_bytes())["version"] == 9
    pointer.write_text("damaged")
    table.commit([])
    write(tmp_path / "t")
    assert json.loads(pointer.read_bytes())["version"] == 1


@pytest.mark.parametrize(
    "action",
    [
        {"rowIds": {"preservedRowIds": True}},
        {"add": {**of_file("a", None), "modificationTime": 1, "futureMember": 1}},
        {"txn": {"appId": "a", "version": 1, "more": 1}},
        {"add": {**of_file("a", {**(VECTORS[1] or {}), "more": 1}), "modificationTime": 1}},
        {"add": {**of_file("a", None), "modificationTime": 1, "size": "5"}},
        {"add": {**of_file("a", None), "modificationTime": 1, "stats": {"numRecords": 1}}},
        {"add": {**of_file("a", None), "modificationTime": 1, "deletionVector": 7}},
        {"add": {"path": "a", "size": 1, "modificationTime": 1}},
        {"txn": {"version": 1}},
        {"metaData": {"id": "a", "format": {}, "schemaString": "{}", "partitionColumns": []}},
    ],
    ids=[
        "an action",
        "a member of a file",
        "a member of a transaction",
        "a member of a vector",
        "a number as text",
        "statistics that are no text",
        "a vector that is none",
        "a file without values of partitions",
        "a transaction of nobody",
        "a table without properties",
    ],
)
def test_unknown_actions_are_not_written(
    table: HandmadeTable, tmp_path: Path, action: Action
) -> None:
    table.commit([action])
    with pytest.raises(UnsupportedLog):
        write(tmp_path / "t")
    assert not checkpoint_of(table, 1).exists()


@pytest.mark.parametrize(
    "name",
    [
        "delta.deletedFileRetentionDuration",
        "delta.checkpointPolicy",
        "delta.checkpoint.writeStatsAsJson",
    ],
)
def test_a_table_that_requires_other_checkpoints_gets_none(tmp_path: Path, name: str) -> None:
    table = HandmadeTable(tmp_path / "t", SCHEMA, properties={name: "x"})
    with pytest.raises(UnsupportedLog, match=name):
        write(tmp_path / "t")
    assert not checkpoint_of(table, 0).exists()


def test_checksums_that_hadoop_wrote_are_deleted(table: HandmadeTable, tmp_path: Path) -> None:
    log = tmp_path / "t/_delta_log"
    (log / LAST).write_text("{}")
    for name in (LAST, checkpoint_of(table, 0).name):
        (log / f".{name}.crc").write_bytes(b"of another")
    write(tmp_path / "t")
    assert not list(log.glob(".*"))


def test_a_table_that_is_recreated_meanwhile_gets_no_old_checkpoint(
    table: HandmadeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = checkpoint._without_expired

    def made_anew(*args: Any) -> Any:
        shutil.rmtree(tmp_path / "t")
        table_at(tmp_path / "t")
        return living(*args)

    for _ in range(3):
        table.commit([])
    monkeypatch.setattr(checkpoint, "_without_expired", made_anew)
    write(tmp_path / "t")
    assert [path.name for path in (tmp_path / "t/_delta_log").iterdir()] == [f"{0:020d}.json"]


def test_tables_with_statistics_only_in_typed_columns_are_left_to_delta(
    table: HandmadeTable, tmp_path: Path
) -> None:
    table.commit([{"add": {**of_file("a", None), "modificationTime": 7, "stats": "{}"}}])
    write(tmp_path / "t")
    path = checkpoint_of(table, 1)
    rows = pq.read_table(path)
    add = rows["add"].combine_chunks()
    told = {name: add.field(name) for name in ("path", "partitionValues", "size")}
    told["stats_parsed"] = pa.array([{"numRecords": 1}] * len(add))
    typed = pa.StructArray.from_arrays(list(told.values()), list(told), mask=add.is_null())
    pq.write_table(rows.set_column(rows.column_names.index("add"), "add", typed), path)
    table.commit([])
    with pytest.raises(UnsupportedLog, match="typed columns"):
        write(tmp_path / "t")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EPERM, UnsupportedLog),
        (errno.EOPNOTSUPP, UnsupportedLog),
        (errno.ENOSYS, UnsupportedLog),
        (errno.EMLINK, UnsupportedLog),
        (errno.ENOSPC, OSError),
    ],
)
def test_without_hard_links_delta_has_to_write_the_checkpoint(
    table: HandmadeTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[Exception],
) -> None:
    def refused(*_names: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(kind, match="hard links" if kind is UnsupportedLog else os.strerror(number)):
        write(tmp_path / "t")
    assert not list((tmp_path / "t/_delta_log").glob(".*"))


def test_no_checkpoint_is_written_after_a_damaged_one(table: HandmadeTable, tmp_path: Path) -> None:
    write(tmp_path / "t")
    table.commit([])
    checkpoint_of(table, 0).write_bytes(b"PAR1")
    with pytest.raises(UnsupportedLog):
        write(tmp_path / "t")


def test_a_log_with_a_gap_gets_no_checkpoint(table: HandmadeTable, tmp_path: Path) -> None:
    for _ in range(3):
        table.commit([])
    (tmp_path / "t/_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(BrokenLog, match="commit 2 of"):
        write(tmp_path / "t")


def test_without_a_table_there_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_flipped_bit_is_detected(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    version = table.commit([{"txn": {"appId": "some-app", "version": 1}}])
    write(tmp_path / "t", NOW)
    path = checkpoint_of(table, version)
    path.write_bytes(path.read_bytes().replace(b"some-app", b"some-apq", 1))
    with pytest.raises(BrokenLog, match="damaged"):
        TableLog(table.location).snapshot()


@pytest.mark.parametrize(("value", "is_made"), [("true", False), ("TRUE", False), ("false", True)])
def test_statistics_in_typed_columns_are_left_to_spark(
    tmp_path: Path, value: str, is_made: bool
) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": value}
    table = HandmadeTable(tmp_path / "t", SCHEMA, properties=properties)
    if is_made:
        write(tmp_path / "t", NOW)
    else:
        with pytest.raises(UnsupportedLog, match="writeStatsAsStruct"):
            write(tmp_path / "t", NOW)
    assert checkpoint_of(table, 0).exists() == is_made
