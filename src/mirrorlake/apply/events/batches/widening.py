"""Gives columns of a table the wider types that their events have.

All rows, and what is remembered of keys, are written anew in the types that they get, so that keys
and values of all files compare. No value changes, so that the change feed has no rows of it.

Order: write the rows → write the state. As with a batch, a commit makes both part of the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mirrorlake.apply.events.batches.prepared import EventTableVersion, WiderColumns
from mirrorlake.apply.events.batches.writer import key_names, told
from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.keyed_files import KeyedFiles
from mirrorlake.apply.events.remembered.state import EventTableState, StateFolder, WidenedColumn
from mirrorlake.delta.schema import OF_EVENTS, altered, parse
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.alter import ColumnAssignment, alter
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class WidenedTable:
    """What was written. actions: of the commit, without the number of the state, none of which
    changes data; state: without a number of its own."""

    actions: list[dict[str, Any]]
    state: EventTableState


def widen(
    before: EventTableVersion,
    wider: WiderColumns,
    folder: StateFolder,
    location: str,
    options: ObjectOptions | None,
) -> WidenedTable:
    """Write the rows of a table and its state with wider columns. folder: open. Raises
    DamagedFiles, LostFile, OSError. Memory: the rows of one file, three times."""
    version = before.snapshot.version + 1
    widened = tuple(
        WidenedColumn(name, str(one), str(other), version)
        for name, (one, other) in wider.widened.items()
    )
    state = replace(before.state, columns=wider.columns, widened=(*before.state.widened, *widened))
    described = _described(before, state)
    actions = [{"metaData": described}] if described != before.snapshot.metadata else []
    with flush.flush_in_background():
        actions += _rows(before, state, described, location, options)
        state = _remembered(before.state, state, folder)
    folder.upload(state, before.state)
    return WidenedTable(actions, state)


def _described(before: EventTableVersion, state: EventTableState) -> dict[str, Any]:
    """The metaData action."""
    present = before.schema.schema
    types = {
        column.name: str(column.type)
        for column in state.columns
        if present[column.name].type != column.type
    }
    return altered(before.snapshot.metadata, types, properties={OF_EVENTS: json.dumps(told(state))})


def _rows(
    before: EventTableVersion,
    state: EventTableState,
    described: Mapping[str, Any],
    location: str,
    options: ObjectOptions | None,
) -> list[dict[str, Any]]:
    assigned = ColumnAssignment(before.schema, parse(described), {}, None)
    if not assigned.retypes:
        return []
    actions: list[dict[str, Any]] = []
    with open_workspace(location, options) as table:
        for add in before.files:
            table.fetch([add])
            new, _changed = alter(table.folder, add, assigned, key_names(state))
            table.upload(new)
            actions += new
    return actions


def _remembered(
    before: EventTableState, state: EventTableState, folder: StateFolder
) -> EventTableState:
    """The state with its files written anew where they have other columns."""
    if not state.merges:
        return state
    keys, changes = (
        tuple(_rewritten(*both).files)
        for both in zip(
            merging.files_of(before, folder.files),
            merging.files_of(state, folder.files),
            strict=True,
        )
    )
    return replace(state, keys=keys, changes=changes)


def _rewritten(before: KeyedFiles, after: KeyedFiles) -> KeyedFiles:
    if before.arrow == after.arrow:
        return after
    for add in before.files:
        after = after.replaced(add, before.live(add).cast(after.arrow))
    return after
