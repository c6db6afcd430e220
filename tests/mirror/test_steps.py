"""Steps as sentences and as plain data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pyarrow as pa
import pytest

from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import MissingFile
from mirrorlake.mirror.explain import as_fact, explain
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    CleanUp,
    Compact,
    CreateTable,
    Discard,
    DropTable,
    Estimate,
    RenameColumns,
    SetFeed,
    SetKey,
    Step,
    TablePlan,
)
from mirrorlake.mirror.strategy import StrategyFacts, choose_strategy
from mirrorlake.model.change import Marker
from mirrorlake.model.state import TableState
from mirrorlake.model.types import LONG
from tests.mirror.planning import FOLDER, PATH, PLAIN, TABLE, columns, landed

CREATE = CreateTable(TABLE, PATH, FOLDER, PLAIN, ("id",), "g")
RECREATE = CreateTable(TABLE, PATH, FOLDER, PLAIN, ("id",), "g", replace=True)
ADD = AddColumns(TABLE, PATH, columns(more="long", price="decimal(9,2)").columns)
ALTER = AlterColumns(
    TABLE,
    PATH,
    3,
    {"remark": "note"},
    pa.record_batch({"more": pa.array([7])}),
    {"id": LONG},
)
RENAME = RenameColumns(TABLE, PATH, 3, {"note": "remark", "size": "width"})
SET_KEY = SetKey(TABLE, PATH, ("id", "note"))
SET_FEED = SetFeed(TABLE, PATH, FeedMode.REPLACE)
FILES = (landed(1), landed(2))
ESTIMATE = Estimate(rows=12_000)
APPLY = ApplyFiles(TABLE, PATH, FOLDER, FILES, 1, 2, ("id",), Marker.INSERT, estimate=ESTIMATE)
APPLY_ONE = ApplyFiles(TABLE, PATH, FOLDER, FILES[:1], 1, 1, (), Marker.INSERT, truncated=True)
BY_MERGE = replace(
    APPLY,
    estimate=replace(ESTIMATE, choice=choose_strategy(StrategyFacts(table="it is partitioned"))),
)
ADDED = replace(
    APPLY, estimate=replace(ESTIMATE, choice=choose_strategy(StrategyFacts(appends=True)))
)
LARGE = replace(
    APPLY, estimate=replace(ESTIMATE, choice=choose_strategy(StrategyFacts(large=True)))
)
CLEAN_UP = CleanUp(TABLE, FOLDER, FILES)
DISCARD = Discard(TABLE, FOLDER, FILES)
DROP = DropTable(TABLE, PATH, FOLDER, "g")
MERGED = "Delta's MERGE writes them, which takes longer, because it is partitioned (strategy merge)"
BY_DIRECT = "; mirrorlake writes only the changed rows (strategy direct)"

EXPLAINED = [
    (
        CREATE,
        "sales.orders: create Tables/sales/orders with 2 columns",
        {
            "step": "create",
            "table": "sales.orders",
            "path": "Tables/sales/orders",
            "columns": {"id": "integer", "note": "string"},
            "key": ["id"],
        },
    ),
    (
        RECREATE,
        "sales.orders: replace Tables/sales/orders, because its folder was recreated",
        {
            "step": "recreate",
            "table": "sales.orders",
            "path": "Tables/sales/orders",
            "columns": {"id": "integer", "note": "string"},
            "key": ["id"],
        },
    ),
    (
        ADD,
        "sales.orders: add more long, price decimal(9,2)",
        {
            "step": "add_columns",
            "table": "sales.orders",
            "columns": {"more": "long", "price": "decimal(9,2)"},
        },
    ),
    (
        ALTER,
        "sales.orders: rewrite remark, more, id in the rows before file 3",
        {
            "step": "alter_columns",
            "table": "sales.orders",
            "copied": {"remark": "note"},
            "filled": ["more"],
            "types": {"id": "long"},
        },
    ),
    (
        RENAME,
        "sales.orders: rename note to remark, size to width by column mapping before file 3",
        {
            "step": "rename_columns",
            "table": "sales.orders",
            "names": {"note": "remark", "size": "width"},
        },
    ),
    (
        SET_KEY,
        "sales.orders: set its key to id, note",
        {"step": "set_key", "table": "sales.orders", "key": ["id", "note"]},
    ),
    (
        SET_FEED,
        "sales.orders: record its changes, updates as a delete and an insert",
        {"step": "set_feed", "table": "sales.orders", "feed": "replace"},
    ),
    (
        APPLY,
        "sales.orders: apply files 1 to 2 (12,000 rows) in one commit",
        {
            "step": "apply",
            "table": "sales.orders",
            "first": 1,
            "last": 2,
            "rows": 12_000,
            "rows_exact": True,
            "truncate": False,
        },
    ),
    (
        APPLY_ONE,
        "sales.orders: apply file 1 (0 rows) in one commit",
        {
            "step": "apply",
            "table": "sales.orders",
            "first": 1,
            "last": 1,
            "rows": 0,
            "rows_exact": True,
            "truncate": True,
        },
    ),
    (
        CLEAN_UP,
        "sales.orders: move 2 applied files to the cleanup folder",
        {
            "step": "clean_up",
            "table": "sales.orders",
            "files": ["00000000000000000001.parquet", "00000000000000000002.parquet"],
        },
    ),
    (
        DISCARD,
        "sales.orders: delete 2 files that were applied before the folder was recreated",
        {
            "step": "discard",
            "table": "sales.orders",
            "files": ["00000000000000000001.parquet", "00000000000000000002.parquet"],
        },
    ),
    (
        Compact(TABLE, PATH, 12_000, "16 files"),
        "sales.orders: compact 16 files (about 12,000 rows)",
        {"step": "compact", "table": "sales.orders", "files": "16 files", "rows": 12_000},
    ),
    (
        DROP,
        "sales.orders: drop Tables/sales/orders, because its folder was deleted",
        {"step": "drop", "table": "sales.orders", "path": "Tables/sales/orders"},
    ),
]


def planned(*steps: Step, error: MissingFile | None = None, waiting: str = "") -> TablePlan:
    return TablePlan(TABLE, PATH, FOLDER, TableState.REPLICATING, steps, error, waiting)


@pytest.mark.parametrize(
    ("step", "said", "facts"),
    [
        (BY_MERGE, f"in one commit; {MERGED}", ("merge", False)),
        (ADDED, f", as a plain append{BY_DIRECT}", ("direct", True)),
        (LARGE, f", in the background because it is large{BY_DIRECT}", ("direct", False)),
    ],
)
def test_a_plan_contains_the_strategy_of_a_batch_and_its_reason(
    step: ApplyFiles, said: str, facts: tuple[str, bool]
) -> None:
    assert explain([planned(step)])[0].endswith(said)
    fact = as_fact(step)
    assert (fact["strategy"], fact["appends"]) == facts
    assert fact["reason"] == step.estimate.choice.reason  # type: ignore[union-attr]


def test_every_step_has_a_text() -> None:
    assert {type(step) for step, _sentence, _fact in EXPLAINED} == set(get_args(Step))


@pytest.mark.parametrize(("step", "sentence", "_fact"), EXPLAINED)
def test_the_text_of_a_step(step: Step, sentence: str, _fact: dict) -> None:
    assert explain([planned(step)]) == [sentence]


@pytest.mark.parametrize(("step", "_sentence", "fact"), EXPLAINED)
def test_a_step_is_plain_data(step: Step, _sentence: str, fact: dict) -> None:
    assert json.loads(json.dumps(as_fact(step))) == fact


def test_steps_are_printed_in_order() -> None:
    assert explain([planned(CREATE, APPLY)]) == [EXPLAINED[0][1], EXPLAINED[7][1]]


def test_an_error_is_printed_after_the_steps() -> None:
    error = MissingFile("file 3 is missing, 4 waits", table="sales.orders", hint="Upload file 3.")
    assert explain([planned(APPLY, error=error)]) == [
        EXPLAINED[7][1],
        "sales.orders: stops: file 3 is missing, 4 waits (table sales.orders). Upload file 3.",
    ]


def test_a_wait_is_printed() -> None:
    assert explain([planned(waiting="the files of its last transaction are incomplete")]) == [
        "sales.orders: waits: the files of its last transaction are incomplete"
    ]


def test_a_table_without_steps_is_not_printed() -> None:
    assert explain([planned()]) == []


@pytest.mark.parametrize(
    ("steps", "idle"),
    [((), True), ((CLEAN_UP,), True), ((APPLY,), False), ((CREATE,), False)],
)
def test_a_table_is_idle_without_rows_to_write(steps: tuple[Step, ...], idle: bool) -> None:
    assert planned(*steps).is_idle is idle
