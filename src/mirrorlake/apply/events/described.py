"""The state of a table as far as the table itself tells it: name, mode, key and columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from mirrorlake.apply.events.columns import (
    METADATA,
    POSITION_AND_TIME,
    EventTableColumn,
    EventTableColumns,
    column_name,
    delta_type,
    wider_type,
)
from mirrorlake.apply.events.reading import TableEvents
from mirrorlake.apply.events.remembered.key_values import BY_VALUE
from mirrorlake.apply.events.remembered.state import EventTableState, StateFolder
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.schema import OF_EVENTS, parse
from mirrorlake.events import types as unified
from mirrorlake.events.types import UnifiedType
from mirrorlake.events.wider import has_every_value
from mirrorlake.mirror.table.progress import MALFORMED, key_columns
from mirrorlake.model import types
from mirrorlake.model.types import DataType

_UNIFIED: Mapping[DataType, UnifiedType] = {
    types.BOOLEAN: unified.BOOLEAN,
    types.BINARY: unified.BYTES,
    types.DATE: unified.DATE,
    types.DOUBLE: unified.DOUBLE,
    types.FLOAT: unified.FLOAT,
    types.INTEGER: unified.INTEGER,
    types.LONG: unified.LONG,
    types.STRING: unified.STRING,
    types.TIMESTAMP: unified.TIMESTAMP,
}
"""One of the unified types of each Delta type; event files tell the others."""


def known_state(
    folder: StateFolder, number: int, snapshot: TableSnapshot, settings: EventInput
) -> EventTableState:
    """The state with this number without files, from its record if that can be read, otherwise
    from the table. The content of all events is computed anew. Raises one of MALFORMED."""
    table_id = str(snapshot.metadata["id"])
    try:
        state = folder.read(number)
    except MALFORMED:
        state = None
    if state is None or state.table_id != table_id:
        state = _described_by(snapshot, settings)
    state = replace(state, number=number, table_id=table_id, keys=(), changes=())
    return replace(state, pruned_ms=0, waiting=0, content_by_value=True)


def _described_by(snapshot: TableSnapshot, settings: EventInput) -> EventTableState:
    """The state that a table describes, without files. Names and types that differ between events
    and table come from `recognized`. Raises one of MALFORMED."""
    schema = parse(snapshot.metadata).schema
    told = json.loads(snapshot.properties[OF_EVENTS])
    of_key = {name: UnifiedType.parse(kind) for name, kind in told.get(BY_VALUE, {}).items()}
    own = {METADATA, *(column.name for column in POSITION_AND_TIME)}
    columns = [
        EventTableColumn(column.name, column.name, of_key.get(column.name) or _unified(column.type))
        for column in schema
        if column.name not in own
    ]
    members = [name for name, _kind in schema[METADATA].type.members]
    return EventTableState(
        name=str(told["name"]),
        database=str(told.get("database", "")),
        rule=settings.rule(settings.source) if settings.source else "",
        key=key_columns(snapshot.properties),
        is_append="CHANGE_TYPE" in members,
        columns=EventTableColumns(tuple(columns)),
        is_by_value=BY_VALUE in told,
    )


def recognized(
    state: EventTableState, events: TableEvents, settings: EventInput
) -> EventTableState | None:
    """The state with the names and types that these events have; None for events that the table
    does not take."""
    rule = settings.rule(events.source)
    if events.name != state.name or state.rule not in ("", rule):
        return None
    if state.database and events.database not in ("", state.database):
        return None
    found = {
        column_name(source): EventTableColumn(source, column_name(source), kind)
        for source, kind in events.columns.items()
    }
    columns = tuple(
        replace(found[column.name], unified=_known_type(column, found[column.name].unified))
        if column.name in found and column.source in {column.name, found[column.name].source}
        else column
        for column in state.columns
    )
    named = {before.source: now.source for before, now in zip(state.columns, columns, strict=True)}
    key = tuple(named[name] for name in state.key)
    keys = set(events.keys)
    if state.is_append and not state.key and len(keys) == 1:
        # A table of every event does not name the key of its events.
        (only,) = keys
        key = tuple(column.source for column in columns if column.source in only)
    if keys - {frozenset(key)}:
        return None
    database = state.database or events.database
    return replace(state, rule=rule, key=key, columns=EventTableColumns(columns), database=database)


def _known_type(column: EventTableColumn, found: UnifiedType) -> UnifiedType:
    """The type of a column of which events have one: theirs, if it was only guessed, or one that
    has the values of both. Rows tell that columns had narrower types by their Delta types alone."""
    if has_every_value(column.unified, found) or delta_type(found) is None:
        return column.unified
    if column.unified == _UNIFIED.get(column.type) and delta_type(found) == column.type:
        return found
    wider = wider_type(column.unified, found, is_key=False, by_value=True)
    return wider if delta_type(wider) == column.type else column.unified


def _unified(kind: DataType) -> UnifiedType:
    if kind.name == "decimal":
        return unified.decimal(kind.precision, kind.scale)
    return _UNIFIED[kind]
