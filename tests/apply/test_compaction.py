"""Who compacts the files of a table: we do, Delta does, or nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.compaction import CLUSTERED, Compactor
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import LeaseLost
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.optimize import COSTS_ROWS, Join, Purge
from mirrorlake.mirror.engine import Applied, Conflicted, Outcome
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.strategy import Choice, StrategyFacts, StrategySetting, choose_strategy
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import Shape

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
DELTA = 7
"""The version of which Delta says that it has made it."""


class Delta:
    """Notes what Delta is told to do."""

    def __init__(self) -> None:
        self.told: list[Join | Purge] = []

    def run(self, table: str, location: str, schema: Any, command: Join | Purge) -> Outcome:
        self.told.append(command)
        return Applied(DELTA)


class Table:
    """A table with two small files, which are many, and who is asked to compact them."""

    def __init__(self, store: LocalStore) -> None:
        self.delta = Delta()
        engine = in_process_engine(store)
        self.orders = Mirrored(engine, store, HandmadeReader(store), SHAPE).create()
        for number in (1, 2):
            self.insert(number)
        self.by_hand = HandmadeTable(Path(store.location(self.orders.path)))

    def insert(self, number: int) -> None:
        self.orders.apply([(Marker.INSERT, (number, "a"))])

    def alter(self, *features: str, **properties: str) -> None:
        snapshot = self.by_hand.log.snapshot()
        protocol, metadata = dict(snapshot.protocol), dict(snapshot.metadata)
        protocol["writerFeatures"] = [*protocol["writerFeatures"], *features]
        metadata["configuration"] = metadata["configuration"] | properties
        self.by_hand.commit([{"protocol": protocol}, {"metaData": metadata}])

    def compactor(
        self, setting: StrategySetting = StrategySetting.AUTO, platform: str = ""
    ) -> Compactor:
        def choice(progress: Progress) -> Choice:
            return choose_strategy(StrategyFacts(setting, platform, progress.delegated))

        store = self.orders.store
        logs = TableLogs(lambda path: TableLog.below(store, path))
        return Compactor(
            InProcessRunner(), LogCommitter(), store, logs, choice, no_crash, self.delta
        )

    @property
    def step(self) -> Compact:
        return Compact(self.orders.table, self.orders.path)


@pytest.fixture
def table(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "SMALLEST", 2)
    return Table(store)


def cost(compactor: Compactor, table: Table) -> int:
    step = compactor.step(table.orders.path)
    assert step is not None
    return step.rows


CHECKED = {"delta.constraints.positive": "id > 0"}
FORGETS = {"delta.setTransactionRetentionDuration": "interval 1 day"}


@pytest.mark.parametrize(
    ("setting", "platform", "features", "properties"),
    [
        (StrategySetting.MERGE, "", (), {}),
        (StrategySetting.AUTO, "not a tested pair", (), {}),
        (StrategySetting.AUTO, "", (), CHECKED),
        (StrategySetting.AUTO, "", ("rowTracking",), {}),
    ],
)
@pytest.mark.clause("CF-156")
def test_tables_of_merge_are_compacted_by_delta(
    table: Table, setting: StrategySetting, platform: str, features: Any, properties: Any
) -> None:
    table.alter(*features, **properties)
    compactor, before = table.compactor(setting, platform), table.by_hand.log.snapshot().version
    assert cost(compactor, table) == 2 + COSTS_ROWS
    assert compactor.compact([table.step], lambda: None) == [Applied(DELTA)]
    (command,) = table.delta.told
    assert command.rewrite.rows == 2
    assert table.by_hand.log.snapshot().version == before, "something else was committed"


@pytest.mark.parametrize("setting", [StrategySetting.AUTO, StrategySetting.DIRECT])
@pytest.mark.clause("CF-156")
def test_tables_of_direct_are_compacted_by_our_tasks(
    table: Table, setting: StrategySetting
) -> None:
    compactor, before = table.compactor(setting), table.by_hand.log.snapshot().version
    assert cost(compactor, table) == 2
    assert compactor.compact([table.step], lambda: None) == [Applied(before + 1)]
    assert len(table.by_hand.files) == 1
    assert not table.delta.told


@pytest.mark.parametrize(
    ("setting", "platform", "features", "properties"),
    [
        (StrategySetting.DIRECT, "not a tested pair", (), {}),
        (StrategySetting.DIRECT, "", (), CHECKED),
        (StrategySetting.MERGE, "", (CLUSTERED,), {}),
        (StrategySetting.MERGE, "", (), FORGETS),
    ],
)
def test_unwritable_and_clustered_tables_are_not_compacted(
    table: Table, setting: StrategySetting, platform: str, features: Any, properties: Any
) -> None:
    table.alter(*features, **properties)
    compactor, before = table.compactor(setting, platform), table.by_hand.log.snapshot().version
    assert compactor.step(table.orders.path) is None
    assert compactor.compact([table.step], lambda: None) == [None]
    assert table.by_hand.log.snapshot().version == before
    assert not table.delta.told


def test_delta_does_not_start_after_another_commit_or_without_permission(table: Table) -> None:
    def refuse() -> None:
        raise LeaseLost("another process took over")

    compactor = table.compactor(StrategySetting.MERGE)
    (outcome,) = compactor.compact([table.step], lambda: table.insert(3))
    assert isinstance(outcome, Conflicted)
    with pytest.raises(LeaseLost):
        compactor.compact([table.step], refuse)
    assert not table.delta.told
