"""Rewrites files of a table with altered columns, in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.apply.task.batch import as_texts
from mirrorlake.apply.task.errors import table_error
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.alter import ColumnAssignment, alter
from mirrorlake.errors import MirrorlakeError, SchemaMergeFailure
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class AlterTask:
    """Rewrite files one by one. files: their add actions."""

    table: str
    location: str
    assigned: ColumnAssignment
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None


@dataclass(frozen=True, slots=True)
class AlterResult:
    """The actions to commit as JSON texts, all with `dataChange` false, and the number of changed
    rows; or the error."""

    actions: tuple[str, ...] = ()
    changed: int = 0
    error: MirrorlakeError | None = None


def run_alter(task: AlterTask) -> AlterResult:
    """Do the work of a task. Raises nothing. Memory: the rows of one file, three times."""
    actions, changed = [], 0
    try:
        with flush.flush_in_background(), open_workspace(task.location, task.options) as table:
            for add in task.files:
                table.fetch([add])
                new, count = alter(table.folder, add, task.assigned, task.key)
                table.upload(new)
                actions += new
                changed += count
        return AlterResult(as_texts(actions), changed)
    except pa.ArrowInvalid:
        return AlterResult(error=_unfit(task.table))
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return AlterResult(
            error=table_error(task.table, task.location, task.options, task.files, error)
        )


def _unfit(table: str) -> SchemaMergeFailure:
    return SchemaMergeFailure(
        "a column was renamed to one of another type, and a value does not fit this type",
        table=table,
        hint=f"Run `mirrorlake reset {table}` to reload it.",
    )
