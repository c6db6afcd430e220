"""The engine on Spark without Spark: its tasks run here, and its commits are written by hand.

All that it decides, reads, folds, finds and writes is the true code; what is missing is the job
that carries tasks and Delta's transaction, so it is for one process alone. Its tables are real:
every reader of Delta reads them.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from mirrorlake.delta import tables as table_removal
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Outcome
from mirrorlake.mirror.progress import (
    DETECTION,
    FOLDER,
    GENERATION,
    KEY_COLUMNS,
    REQUIRED,
    RESEEDED,
)
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.steps import AddColumns, ApplyFiles, CreateTable, DropTable, SetKey
from mirrorlake.mirror.strategy import PLAIN, Choice, Wanted, Way
from mirrorlake.model.seams import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Schema
from mirrorlake.spark import tables, task
from mirrorlake.spark.commit import Commit, Rearrangement
from mirrorlake.spark.direct import Direct
from mirrorlake.spark.engine import SparkEngine
from mirrorlake.spark.spread import Spread, SpreadSettings, has_pieces
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import options_of
from tests.delta.handmade import HandmadeTable, metadata
from tests.delta.readers import feed_of
from tests.doubles.handmade_merge import HandmadeMerge
from tests.reference import Row

MAPPING = "delta.columnMapping.mode"
PHYSICAL = "delta.columnMapping.physicalName"


class HandmadeEngine(SparkEngine):
    """A `SparkEngine` that needs neither Spark nor Delta.

    spread: every batch goes to so many tasks that can; crew: these go together; partitions: the
    columns by which a table that it makes is partitioned; merges: every batch goes by the plain
    way. Files are joined by tasks of ours then too, which to that way is work of others.
    """

    def __init__(
        self,
        store: Store,
        reached: CrashHook = no_crash,
        *,
        spread: int = 0,
        crew: bool = False,
        partitions: Callable[[Schema], Sequence[str]] = lambda _schema: (),
        merges: bool = False,
    ) -> None:
        jobs: Any = ThreadJobs(spread) if crew else HereJobs(spread or 1)
        committer: Any = HandmadeCommitter()
        super().__init__(
            SimpleNamespace(session=None),  # type: ignore[arg-type]
            store,
            reached,
            jobs=jobs,
            committer=committer,
            wanted=Wanted.MERGE if merges else Wanted.AUTO,
        )
        if spread:
            spreading = AlwaysSpread(store, reached, ALWAYS_CREWS if crew else NO_CREWS)
            self._direct = Direct(jobs, committer, store, reached, spreading)
            self._strategies[Way.DIRECT] = self._direct
        del self._strategies[Way.MERGE]  # nothing steps back to it
        if merges:
            self._strategies = {Way.MERGE: HandmadeMerge(jobs, store, reached)}
            self._rearranger._choice = lambda _progress: Choice(Way.DIRECT, "")
        self._partitions = partitions
        self.vacuumed: list[tuple[str, timedelta]] = []
        self.checkpoints: list[str] = []

    def create(self, step: CreateTable) -> None:
        location = self._store.location(step.path)
        if step.replace:
            self._logs.forget(step.path)
            table_removal.remove(self._store, step.path)
        if not self.progress(step.path).exists:
            ours = {
                GENERATION: step.generation,
                KEY_COLUMNS: json.dumps(list(step.key)),
                FOLDER: step.folder,
                REQUIRED: json.dumps(list(step.required)),
                DETECTION: step.detection,
            }
            if step.replace:
                ours[RESEEDED] = "true"
            HandmadeTable(
                location,
                step.schema,
                mapped=needs_mapping(step.schema),
                partitions=self._partitions(step.schema),
                properties=ours,
            )
        self._reached(CrashPoint.TABLE_CREATED)

    def drop(self, step: DropTable) -> None:
        if self.progress(step.path).generation == step.generation:
            self._logs.forget(step.path)
            tables.move_aside(self._store, step.path)
        self._reached(CrashPoint.TABLE_DROPPED)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        """Nothing goes: it is noted, and the table stays as it is."""
        before_commit()
        self.vacuumed.append((path, retention))

    def checkpoint(self, path: str) -> None:
        """Nothing is written: it is noted."""
        self.checkpoints.append(path)

    def add_columns(self, step: AddColumns) -> None:
        table = self._table(step.path)
        known = table.schema.schema
        new = [column for column in step.columns if column.name not in known]
        if new:
            described = table.log.snapshot().metadata
            table.commit([{"metaData": _widened(described, Schema.of([*known, *new]))}])
        self._logs.changed(step.path)
        self._reached(CrashPoint.COLUMNS_ADDED)

    def set_key(self, step: SetKey) -> None:
        table = self._table(step.path)
        described = table.log.snapshot().metadata
        key = {KEY_COLUMNS: json.dumps(list(step.key))}
        table.commit(
            [{"metaData": {**described, "configuration": described["configuration"] | key}}]
        )
        self._logs.changed(step.path)

    def _table(self, path: str) -> HandmadeTable:
        return HandmadeTable(self._store.location(path))


def by_plain_columns(schema: Schema) -> list[str]:
    """Every other column, from the last on, of those by which a table can be partitioned whatever
    they hold: an empty text has no place there."""
    plain = [one.name for one in schema if one.type.name in {*PLAIN, "decimal"} - {"string"}]
    return plain[::-2][: len(schema) - 1]


ALWAYS_CREWS = SpreadSettings()
NO_CREWS = SpreadSettings(crew_rows=-1)
"""Each wave a job of its own."""


class AlwaysSpread(Spread):
    """Spreads whatever can be spread, however small."""

    def suits(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        return has_pieces(step)


class HereJobs:
    """Runs tasks one after another in this process."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots

    def threads(self, tasks: int) -> int:
        return 1

    def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
        """As to executors, all goes there and back as bytes."""
        return self.map(task.run, specs)

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        sent = [pickle.loads(pickle.dumps(item)) for item in items]
        return [pickle.loads(pickle.dumps(work(item))) for item in sent]


class ThreadJobs(HereJobs):
    """Runs tasks in this process, as many at once as there are slots."""

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        sent = [pickle.loads(pickle.dumps(item)) for item in items]
        with ThreadPoolExecutor(self.slots) as pool:
            return [pickle.loads(pickle.dumps(result)) for result in pool.map(work, sent)]


class HandmadeCommitter:
    """Writes the next commit, if the table is still at the version that was read."""

    def commit(self, commit: Commit) -> Outcome:
        recorded = {
            "appId": commit.application,
            "version": commit.number,
            "lastUpdated": 0,
        }
        actions = [*map(json.loads, commit.actions), {"txn": recorded}]
        said = {"userMetadata": json.dumps(commit.metadata)}
        return _committed(commit, actions, commit.counts, said)

    def rearrange(self, commit: Rearrangement) -> Outcome:
        return _committed(commit, [json.loads(action) for action in commit.actions], Counts(), {})


def _committed(
    commit: Commit | Rearrangement,
    actions: Sequence[dict[str, Any]],
    counts: Counts,
    said: dict[str, str],
) -> Outcome:
    table = HandmadeTable(commit.location)
    if table.log.snapshot().version != commit.version:
        return Conflicted("another writer was faster")
    return Applied(table.commit(actions, **said), counts)


def _widened(described: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The metaData action with further columns; files keep the names that they know."""
    mapped = MAPPING in described["configuration"] or needs_mapping(schema)
    new = metadata(schema, mapped=mapped)
    fields = json.loads(new["schemaString"])["fields"]
    before = json.loads(described["schemaString"])["fields"]
    for field, old in zip(fields, before, strict=False):
        if mapped:
            field["metadata"] |= {PHYSICAL: old["name"], **old["metadata"]}
    for field in fields[len(before) :]:
        if mapped:
            field["metadata"][PHYSICAL] = f"col-{uuid.uuid4()}"
    return {
        **described,
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": new["configuration"] | described["configuration"],
    }


class HandmadeReader:
    """Reads the tables of a store file by file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self, path: str) -> list[Row]:
        return self._table(path).rows()

    def feed(self, path: str) -> dict[int, Counter[tuple[str, Row]]]:
        """By the tests themselves, and the same by our own reader."""
        feed = dict(self._feeds(self._table(path)))
        assert feed_of(self._store.location(path), 1, options_of(self._store, path)) == feed
        return feed

    def commit(self, path: str, version: int) -> dict[str, Any]:
        actions = self._table(path).log.actions(version)
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return info

    def _feeds(self, table: HandmadeTable) -> Iterator[tuple[int, Counter[tuple[str, Row]]]]:
        for version in range(1, table.log.snapshot().version + 1):
            if feed := table.feed(version):
                yield version, feed

    def _table(self, path: str) -> HandmadeTable:
        return HandmadeTable(self._store.location(path))
