"""What a table says is read once for each version, and never an old one for a new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import ForeignTable
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG
from tests.delta.handmade import HandmadeTable

PATH = "Tables/t"
SCHEMA = Schema.of([Column("id", LONG)])


@pytest.fixture
def logs(tmp_path: Path) -> TableLogs:
    return TableLogs(lambda path: TableLog(tmp_path / path))


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / PATH, SCHEMA)


def test_a_missing_table_has_no_progress(logs: TableLogs, tmp_path: Path) -> None:
    assert not logs.progress(PATH).exists
    HandmadeTable(tmp_path / PATH, SCHEMA)
    assert logs.progress(PATH).version == 0


def test_the_same_version_is_the_same_object(logs: TableLogs, table: HandmadeTable) -> None:
    assert logs.progress(PATH) is logs.progress(PATH)


def test_a_commit_is_seen_at_once(logs: TableLogs, table: HandmadeTable) -> None:
    before = logs.progress(PATH)
    table.commit([])
    assert (before.version, logs.progress(PATH).version) == (0, 1)


def test_a_commit_read_by_another_call_is_seen_too(logs: TableLogs, table: HandmadeTable) -> None:
    logs.progress(PATH)
    table.commit([])
    with logs.snapshot(PATH, "t") as (snapshot, progress):
        assert snapshot.version == progress.version == 1
    assert logs.progress(PATH).version == 1


def test_a_replaced_table_is_detected(logs: TableLogs, tmp_path: Path) -> None:
    HandmadeTable(tmp_path / PATH, SCHEMA, properties={"mirrorlake.generation": "one"})
    assert logs.progress(PATH).generation == "one"
    shutil.rmtree(tmp_path / PATH)
    HandmadeTable(tmp_path / PATH, SCHEMA, properties={"mirrorlake.generation": "other"})
    assert logs.progress(PATH).generation == "other"


def test_a_forgotten_log_is_read_again(logs: TableLogs, table: HandmadeTable) -> None:
    before = logs.progress(PATH)
    logs.forget(PATH)
    after = logs.progress(PATH)
    assert after == before
    assert after is not before


def test_changes_of_others_are_seen_after_the_maximum_age(tmp_path: Path) -> None:
    table, now = HandmadeTable(tmp_path / PATH, SCHEMA), [100.0]
    logs = TableLogs(lambda path: TableLog(tmp_path / path), lambda _path: 30.0, lambda: now[0])
    recorded = {"txn": {"appId": "mirrorlake/", "version": 7}}
    assert logs.progress(PATH).recorded == 0
    table.commit([recorded])
    now[0] += 29
    assert logs.progress(PATH).recorded == 0
    with logs.snapshot(PATH, "t") as (_snapshot, progress):
        assert progress.recorded == 7  # a batch begins on what is there
    now[0] += 2
    assert logs.progress(PATH).recorded == 7


def test_our_own_changes_are_seen_at_once(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / PATH, SCHEMA)
    logs = TableLogs(lambda path: TableLog(tmp_path / path), lambda _path: 30.0, lambda: 1.0)
    assert logs.progress(PATH).recorded == 0
    table.commit([{"txn": {"appId": "mirrorlake/", "version": 7}}])
    logs.changed(PATH)
    assert logs.progress(PATH).recorded == 7


def test_a_missing_table_is_checked_every_time(tmp_path: Path) -> None:
    logs = TableLogs(lambda path: TableLog(tmp_path / path), lambda _path: 30.0, lambda: 1.0)
    assert not logs.progress(PATH).exists
    HandmadeTable(tmp_path / PATH, SCHEMA)
    assert logs.progress(PATH).exists


@pytest.mark.parametrize(
    "said",
    [
        {"commitInfo": "garbage"},
        {"commitInfo": {"operation": "WRITE"}, "metaData": {"configuration": []}},
        {"metaData": {"schemaString": "{}", "configuration": {}}},
    ],
    ids=["commit", "properties", "schema"],
)
def test_a_log_of_another_form_is_an_error_of_its_table(
    logs: TableLogs, table: HandmadeTable, said: dict[str, Any]
) -> None:
    table.commit([{kind: value} for kind, value in said.items()])
    with pytest.raises(ForeignTable, match="its Delta log cannot be read"):
        logs.progress(PATH)
    with (
        pytest.raises(ForeignTable, match="its Delta log cannot be read"),
        logs.snapshot(PATH, "t"),
    ):
        pass
