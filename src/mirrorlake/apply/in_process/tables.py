"""Table definitions that write the log without Delta."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from mirrorlake.apply.table_definitions import properties_of
from mirrorlake.delta import deletion_vectors, tables
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.first_commit import is_free
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup import key_index
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.schema import TYPE_WIDENING, is_mapped
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.delta.write.table_metadata import (
    PROTOCOL,
    metadata,
    widened,
    with_mapping,
    with_type_widening,
)
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.steps import AddColumns, CreateTable
from mirrorlake.mirror.strategy import StrategyName
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import Schema
from mirrorlake.root import DROPPED
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url


class LogTables:
    """A `TableDefinitions` that writes the log itself. partitions: returns the partition columns of
    a new table."""

    def __init__(
        self,
        store: Store,
        partitions: Callable[[Schema], Sequence[str]] = lambda _schema: (),
        reached: CrashHook = no_crash,
    ) -> None:
        self._store, self._partitions, self._reached = store, partitions, reached

    def metadata_of(self, step: CreateTable) -> Mapping[str, Any] | None:
        return self._metadata(step) if is_free(self._store, step.path) else None

    def _metadata(self, step: CreateTable) -> dict[str, Any]:
        return metadata(
            step.schema,
            mapped=needs_mapping(step.schema),
            partitions=self._partitions(step.schema),
            properties=properties_of(step),
        )

    def create(self, step: CreateTable) -> None:
        if step.replace:
            tables.remove(self._store, step.path)
        location = self._store.location(step.path)
        if TableLog(location).snapshot().exists:
            return
        actions = [{"protocol": PROTOCOL}, {"metaData": self._metadata(step)}]
        write_commit(location, 0, actions, operation="CREATE TABLE")

    def add_columns(self, step: AddColumns, known: Progress) -> None:
        new = [column for column in step.columns if column.name not in known.schema]
        if new:
            described = TableLog(self._store.location(step.path)).snapshot().metadata
            mapped = needs_mapping(Schema.of([*known.schema, *new]))
            self._describe(step.path, widened(described, new, mapped=mapped), "ADD COLUMNS")

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        described = TableLog(self._store.location(path)).snapshot().metadata
        described = widened(described, [], mapped=is_mapped(properties))
        changed = {**described, "configuration": described["configuration"] | dict(properties)}
        self._describe(path, changed, "SET TBLPROPERTIES")

    def put_aside(self, path: str) -> None:
        tables.put_aside(self._store, path, f"{DROPPED}/{path}")

    def vacuum(self, path: str, retention: timedelta, before: Callable[[], None]) -> None:
        """As in the contract, for local tables; does nothing for tables on object storage."""
        before()
        location = self._store.location(path)
        if is_url(location):
            return
        table, oldest = Path(location), time.time() - retention.total_seconds()
        needed = set(_needed(table, oldest))
        for file in list(_files(table)):
            if file not in needed and file.stat().st_mtime < oldest:
                file.unlink()
        key_index.sweep(table)

    def checkpoint(self, path: str, known: Progress, strategy: StrategyName) -> None:  # noqa: ARG002
        location = self._store.location(path)
        if not is_url(location):
            checkpoint.write(Path(location), reached=self._reached)

    def _describe(self, path: str, described: Mapping[str, Any], operation: str) -> None:
        location = self._store.location(path)
        table = TableLog(location).snapshot()
        actions: list[dict[str, Any]] = [{"metaData": dict(described)}]
        protocol = table.protocol
        if is_mapped(described["configuration"]):
            protocol = with_mapping(protocol) or protocol
        if TYPE_WIDENING in described["configuration"]:
            protocol = with_type_widening(protocol) or protocol
        if protocol != table.protocol:
            actions.insert(0, {"protocol": protocol})
        write_commit(location, table.version + 1, actions, operation=operation)


def _needed(table: Path, oldest: float) -> Iterator[Path]:
    """The files of the newest version, and those in commits since `oldest` (Unix time)."""
    log = TableLog(table)
    yield from _named(table, log.snapshot().files.values())
    for version in log.versions():
        if log.commit_file(version).stat().st_mtime >= oldest:
            for action in log.actions(version):
                named = (action.get(kind) for kind in ("add", "remove", "cdc"))
                yield from _named(table, filter(None, named))


def _named(table: Path, actions: Iterable[Mapping[str, Any]]) -> Iterator[Path]:
    for action in actions:
        yield path_of(table, action)
        vector = action.get("deletionVector")
        if vector and vector["storageType"] != "i":
            yield deletion_vectors.path_of(table, vector)


def _files(table: Path) -> Iterator[Path]:
    """All files of a table except its log, names with an underscore, and tables inside it."""
    for folder, folders, names in os.walk(table):
        if FOLDER in folders and Path(folder) != table:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name == "_change_data" or name[0] != "_"]
        if Path(folder).name != FOLDER:
            yield from (Path(folder, name) for name in names)
