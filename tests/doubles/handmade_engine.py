"""An engine without a JVM: the tasks of the true one, and commits written by hand.

Reading, folding, finding and writing are those of the engine on Spark; what it lacks is Delta's
transaction, so it is for one process alone. Its tables are real: every reader of Delta reads them.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.store import Store
from mirrorlake.mirror.compaction import choose
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Counts,
    Failed,
    Outcome,
)
from mirrorlake.mirror.progress import (
    FOLDER,
    GENERATION,
    KEY_COLUMNS,
    REQUIRED,
    Progress,
    progress_of,
    read_progress,
    table_at,
)
from mirrorlake.mirror.schema import needs_mapping
from mirrorlake.mirror.steps import AddColumns, ApplyFiles, Compact, CreateTable, SetKey
from mirrorlake.model.table import Schema
from mirrorlake.spark import task
from tests.lake.handmade import HandmadeTable, metadata
from tests.reference import Row

NAME_MAPPING = "delta.columnMapping.mode"


class HandmadeEngine:
    """A `MirrorEngine` that needs neither Spark nor Delta."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def progress(self, path: str) -> Progress:
        return read_progress(self._table(path).log, table_at(path))

    def create(self, step: CreateTable) -> None:
        location = Path(self._store.location(step.path))
        if step.replace:
            shutil.rmtree(location, ignore_errors=True)
        if not self.progress(step.path).exists:
            HandmadeTable(
                location,
                step.schema,
                mapped=needs_mapping(step.schema),
                properties={
                    GENERATION: step.generation,
                    KEY_COLUMNS: json.dumps(list(step.key)),
                    FOLDER: step.folder,
                    REQUIRED: json.dumps(list(step.required)),
                },
            )

    def add_columns(self, step: AddColumns) -> None:
        table = self._table(step.path)
        known = table.schema.schema
        new = [column for column in step.columns if column.name not in known]
        if not new:
            return
        described = dict(table.log.snapshot().metadata)
        fields = json.loads(described["schemaString"])["fields"]
        united = Schema.of([*known, *new])
        mapped = NAME_MAPPING in described["configuration"] or needs_mapping(united)
        template = metadata(united, mapped=mapped)
        wanted = json.loads(template["schemaString"])["fields"]
        for old, field in zip(fields, wanted, strict=False):
            if mapped:  # what the files that are there call the column
                field["metadata"] = {"delta.columnMapping.physicalName": old["name"]} | {
                    **field["metadata"],
                    **old["metadata"],
                }
                if not old["metadata"]:
                    field["metadata"]["delta.columnMapping.physicalName"] = old["name"]
        described["schemaString"] = json.dumps({"type": "struct", "fields": wanted})
        described["configuration"] = template["configuration"] | described["configuration"]
        table.commit([{"metaData": described}])

    def set_key(self, step: SetKey) -> None:
        table = self._table(step.path)
        described = dict(table.log.snapshot().metadata)
        key = {KEY_COLUMNS: json.dumps(list(step.key))}
        table.commit(
            [{"metaData": described | {"configuration": described["configuration"] | key}}]
        )

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        return [self._apply(step, before_commit) for step in steps]

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        return [self._compact(step, before_commit) for step in steps]

    def settle(self, path: str, version: int) -> None:
        assert self._table(path).log.commit_file(version).exists()

    def _table(self, path: str) -> HandmadeTable:
        return HandmadeTable(Path(self._store.location(path)))

    def _apply(self, step: ApplyFiles, before_commit: Callable[[], None]) -> Outcome:
        table = self._table(step.path)
        snapshot = table.log.snapshot()
        progress = progress_of(snapshot)
        if progress.recorded >= step.last:
            return AlreadyApplied(progress.recorded)
        if progress.recorded != step.first - 1:
            return Conflicted("the batch does not follow")
        result = task.run(
            task.TaskSpec(
                table=str(step.table),
                location=str(table.path),
                schema=table.schema,
                key=step.key,
                default=step.default,
                landed=tuple(
                    task.LandedPath(str(file.name), self._store.location(file.path), file.size)
                    for file in step.files
                ),
                truncate=step.truncated,
                files=tuple(snapshot.files.values()),
                required=progress.required,
                demands=step.demands,
            )
        )
        if result.error is not None:
            return Failed(result.error)
        try:
            before_commit()
        except MirrorlakeError as error:
            return Failed(error)
        if self.progress(step.path).version != snapshot.version:
            return Conflicted("another writer was faster")
        recorded = {"appId": progress.application, "version": step.last, "lastUpdated": 0}
        version = table.commit(
            [*map(json.loads, result.actions), {"txn": recorded}],
            userMetadata=json.dumps(_said(step, result.counts)),
        )
        return Applied(version, result.counts)

    def _compact(self, step: Compact, before_commit: Callable[[], None]) -> Outcome | None:
        table = self._table(step.path)
        version = table.log.snapshot().version
        files = choose(table.files)
        if not files:
            return None
        result = task.run(
            task.CompactSpec(str(step.table), str(table.path), table.schema, step.key, files)
        )
        if result.error is not None:
            return Failed(result.error)
        before_commit()
        if self.progress(step.path).version != version:
            return Conflicted("another writer was faster")
        return Applied(table.commit([json.loads(action) for action in result.actions]))


def _said(step: ApplyFiles, counts: Counts) -> Mapping[str, Any]:
    rows = {"insert": counts.insert, "update": counts.update, "delete": counts.delete}
    return {
        "mirrorlake": 1,
        "files": [step.first, step.last],
        "positions": list(step.positions) if step.positions else None,
        "cut": step.cut,
        "rows": rows,
    }


class HandmadeReader:
    """Reads the tables of a store file by file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self, path: str) -> list[Row]:
        return self._table(path).rows()

    def feed(self, path: str) -> dict[int, Counter[tuple[str, Row]]]:
        return dict(self._feeds(self._table(path)))

    def commit(self, path: str, version: int) -> dict[str, Any]:
        actions = self._table(path).log.actions(version)
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return info

    def _feeds(self, table: HandmadeTable) -> Iterator[tuple[int, Counter[tuple[str, Row]]]]:
        for version in range(1, table.log.snapshot().version + 1):
            if feed := table.feed(version):
                yield version, feed

    def _table(self, path: str) -> HandmadeTable:
        return HandmadeTable(Path(self._store.location(path)))
