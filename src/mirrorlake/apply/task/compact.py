"""Files of one table written anew together, in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorlake.apply.task.batch import as_texts
from mirrorlake.apply.task.errors import table_error
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.workspace import at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.compact import compact
from mirrorlake.errors import MirrorlakeError
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Files to write anew together, by their add actions."""

    table: str
    location: str
    schema: TableSchema
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The actions to commit as JSON texts, or why there are none."""

    actions: tuple[str, ...] = ()
    error: MirrorlakeError | None = None


def run_compact(task: CompactTask) -> CompactResult:
    """Do the work of a task. Raises nothing."""
    try:
        with flush.behind(), at_hand(task.location, task.options) as table:
            table.fetch(task.files)
            actions = compact(table.folder, task.files, task.schema, task.key)
            table.keep(actions)
        return CompactResult(as_texts(actions))
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return CompactResult(
            error=table_error(task.table, task.location, task.options, task.files, error)
        )
