"""Joins files of a table, in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrorlake.apply.task.batch import as_texts
from mirrorlake.apply.task.errors import table_error
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.compact import cluster, compact
from mirrorlake.errors import MirrorlakeError
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Join files. files: their add actions; into: number of files to cluster them into, 0 for a
    compaction."""

    table: str
    location: str
    schema: TableSchema
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None
    into: int = 0


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The actions to commit as JSON texts, or the error."""

    actions: tuple[str, ...] = ()
    error: MirrorlakeError | None = None


def run_compact(task: CompactTask) -> CompactResult:
    """Do the work of a task. Raises nothing."""
    try:
        with flush.flush_in_background(), open_workspace(task.location, task.options) as table:
            table.fetch(task.files)
            actions = _rewritten(table.folder, task)
            table.upload(actions)
        return CompactResult(as_texts(actions))
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return CompactResult(
            error=table_error(task.table, task.location, task.options, task.files, error)
        )


def _rewritten(folder: Path, task: CompactTask) -> list[dict[str, Any]]:
    if task.into:
        return cluster(folder, task.files, task.schema, task.key, task.into)
    return compact(folder, task.files, task.schema, task.key)
