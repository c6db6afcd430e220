"""Files of one table written anew with what its columns have become, in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.apply.task.batch import as_texts
from mirrorlake.apply.task.errors import table_error
from mirrorlake.delta.workspace import at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.alter import Assigned, alter
from mirrorlake.errors import MirrorlakeError, SchemaMergeFailure
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class AlterTask:
    """Files to write anew one by one, by their add actions."""

    table: str
    location: str
    assigned: Assigned
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None


@dataclass(frozen=True, slots=True)
class AlterResult:
    """The actions to commit as JSON texts, all with `dataChange` false, and how many rows have
    changed; or why there are none."""

    actions: tuple[str, ...] = ()
    changed: int = 0
    error: MirrorlakeError | None = None


def run_alter(task: AlterTask) -> AlterResult:
    """Do the work of a task. Raises nothing. Memory: the rows of one file, three times."""
    actions, changed = [], 0
    try:
        with flush.behind(), at_hand(task.location, task.options) as table:
            for add in task.files:
                table.fetch([add])
                some, count = alter(table.folder, add, task.assigned, task.key)
                table.keep(some)
                actions += some
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
        "a column was renamed to one of another type, and a value does not fit it",
        table=table,
        hint=f"Run `mirrorlake reset {table}` to reload it.",
    )
