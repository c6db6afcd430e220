"""Where each table of a stream stands in the zone: its folder, its last file, its checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mirrorlake.capture.record import Records
from mirrorlake.errors import (
    BadFile,
    BadMetadata,
    KeyColumnsChanged,
    SelectionChanged,
    TableAltered,
    TableRecreated,
)
from mirrorlake.landing import layout, metadata, publish
from mirrorlake.landing.metadata import Metadata, OurMetadata
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.model.landed import DEFAULT_STREAM, FileKind
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A table in the zone. `number` is 0 and `checkpoint` None before its first file.

    unfinished: transactions of which only the first changes are landed, with their last ordinal.
    upto: until the stream has brought all of this, its changes may be in the loaded rows.
    """

    table: SourceTable
    folder: str
    number: int = 0
    checkpoint: Position | None = None
    unfinished: Mapping[LogPoint, int] = field(default_factory=dict)
    upto: LogPoint | None = None

    @property
    def ahead(self) -> LogPoint | None:
        """Before the stream stands here, the rows are those of no one point."""
        landed = self.checkpoint.point if self.checkpoint else None
        return landed.join(self.upto) if landed and self.upto else landed


def folders(records: Records, tables: Sequence[TableId]) -> dict[TableId, str]:
    """A folder for each table: the one it has, else a new one; none for those of other streams.

    A new table whose name equals another but for case gets a folder that differs in more.
    """
    described = _described_folders(records)
    chosen = {table: one.folder for table, one in described.items()}
    for table in tables:
        if table not in chosen:
            beside = {t.name for t in (*tables, *chosen) if t.schema == table.schema}
            others = frozenset(name.casefold() for name in beside - {table.name})
            chosen[table] = layout.folder_of(records.zone, table, others)
    return {
        table: chosen[table]
        for table in tables
        if table not in described or described[table].stream_id == records.stream_id
    }


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that says which table it holds: of which stream, and which table of that name."""

    folder: str
    stream_id: str
    identity: str


def _described_folders(records: Records) -> dict[TableId, _Folder]:
    """The folders that say which table they hold; of copies, the one with the table's name."""
    found: dict[TableId, _Folder] = {}
    for folder in layout.table_folders(records.store, records.zone):
        try:
            described = _described(records.store, folder.table, folder.path)
        except BadMetadata:
            continue  # if it is one of ours it is found by its name, and stops its own table
        if described and described.ours:
            schema = str(described.ours.source.get("schema", folder.table.schema))
            table = TableId(schema, described.ours.table)
            if table not in found or folder.path == layout.folder_of(records.zone, table):
                source = described.ours.source
                stream_id = str(source.get("stream", DEFAULT_STREAM))
                found[table] = _Folder(folder.path, stream_id, str(source.get("identity", "")))
    return found


def is_new(table: TableId, folder: str, records: Records) -> bool:
    """Whether nothing of the table was ever landed."""
    if str(table) in records.truncated():
        return False
    return publish.newest_file(records.store, folder) is None


def known(records: Records) -> dict[TableId, str]:
    """The tables of the stream with their folders."""
    return {table: one.folder for table, one in _own_folders(records).items()}


def identities(records: Records) -> dict[TableId, str]:
    """The tables of the stream with `SourceTable.identity`, as they were when they were loaded."""
    return {table: one.identity for table, one in _own_folders(records).items() if one.identity}


def _own_folders(records: Records) -> dict[TableId, _Folder]:
    found = _described_folders(records).items()
    return {table: one for table, one in found if one.stream_id == records.stream_id}


def flush_zone(records: Records) -> None:
    """Make durable what an earlier process has named in a zone and may not have lived to flush: the
    source will be told that it may forget all of it."""
    store, zone = records.store, records.zone
    inner = [f"{records.folder}/{layout.CUTS}"]
    inner += [folder.path for folder in layout.table_folders(store, zone)]
    above = {str(one) for path in inner for one in PurePosixPath(path).parents}
    for folder in [zone, *sorted(one for one in above if one.startswith(f"{zone}/")), *inner]:
        store.flush(folder)


def find(
    records: Records,
    source: Source,
    table: SourceTable,
    folder: str,
    truncated: Position | None = None,
) -> TablePosition:
    """The place of a table, read from its newest file. Raises TableError.

    truncated: nothing at or before it may be published again, though the folder is empty.
    """
    store = records.store
    newest = publish.newest_file(store, folder)
    if newest is None:
        return TablePosition(table, folder, checkpoint=truncated)
    ours = _check_unchanged(store, table, folder)
    if ours and table.known and str(table.table) not in records.known():
        _check_columns(table, ours)
    upto = source.parse_point(ours.source["upto"]) if ours and ours.source.get("upto") else None
    with store.open(newest.path) as handle:
        found = parquet.inspect(handle, newest.size, table=str(table.table), file=str(newest.name))
    if found.footer is None or found.footer.stream_id != records.stream_id:
        raise BadFile(
            "the newest file was not written by this capture",
            table=str(table.table),
            file=str(newest.name),
            hint="Use another root for this source, or remove the table from source.tables.",
        )
    last = Position.parse(found.footer.last, source.parse_point)
    if found.footer.kind in {FileKind.LOAD, FileKind.BACKFILL}:
        # Every transaction that ends at the point is landed, and all of it.
        return TablePosition(table, folder, newest.number, Position.after(last.point), upto=upto)
    unfinished = dict(last.partly)
    if not found.footer.complete:
        unfinished[last.of or last.point] = last.ordinal
    return TablePosition(table, folder, newest.number, last, unfinished, upto)


def describe(
    records: Records,
    table: SourceTable,
    folder: str,
    source: Mapping[str, str],
    generation: str | None = None,
    upto: str = "",
) -> None:
    """Write `_metadata.json` of a table that begins anew (LZ-029, LZ-056).

    upto: where the last of its parts was read, if not all were read at one point.
    """
    content = Metadata(
        key_columns=table.key,
        ours=OurMetadata(
            generation=generation or new_generation(),
            table=table.table.name,
            whole_rows=table.whole_rows,
            source={
                **source,
                "stream": records.stream_id,
                "schema": table.table.schema,
                "identity": table.identity,
                "append_only": table.append_only,
                "selection": dict(table.selection),
                "upto": upto,
                "types": {name: str(kind) for name, kind in table.source_types.items()},
            },
        ),
    )
    records.store.replace(f"{folder}/{layout.METADATA}", metadata.encode(content))


def new_generation() -> str:
    return str(uuid.uuid4())


def generation_of(store: Store, table: TableId, folder: str) -> str:
    """The generation in the `_metadata.json` of a table of ours."""
    described = _described(store, table, folder)
    return described.ours.generation if described and described.ours else ""


def _check_unchanged(store: Store, table: SourceTable, folder: str) -> OurMetadata | None:
    """The table is selected and told apart as it was when it was loaded (LZ-036)."""
    described = _described(store, table.table, folder)
    if described is None or described.ours is None:
        return None
    name = str(table.table)
    hint = f"Run `mirrorlake reset {name}` to reload it, or undo the change."
    if described.ours.source.get("identity", table.identity) != table.identity:
        raise TableRecreated(
            "the table was dropped and created again in the source",
            table=name,
            hint=f"Run `mirrorlake reset {name}` to reload it.",
        )
    if described.key_columns != table.key:
        raise KeyColumnsChanged(
            f"the key was ({', '.join(described.key_columns)}) when the table was loaded and is "
            f"now ({', '.join(table.key)})",
            table=name,
            hint=hint,
        )
    if described.whole_rows != table.whole_rows:
        was, now = ("append-only", "is") if table.whole_rows else ("mirrored", "no longer is")
        raise KeyColumnsChanged(
            f"the table was {was} when it was loaded, without a key, and {now} mirrored by whole "
            "rows",
            table=name,
            hint=f"Run `mirrorlake reset {name}` to reload it.",
        )
    if described.ours.source.get("selection", {}) != dict(table.selection):
        raise SelectionChanged(
            "the selected columns or rows differ from those with which the table was loaded",
            table=name,
            hint=hint,
        )
    return described.ours


def _check_columns(table: SourceTable, ours: OurMetadata) -> None:
    """What an earlier release loaded has still the columns that it had then."""
    types = {name: str(kind) for name, kind in table.source_types.items()}
    if ours.source.get("types", types) != types:
        raise TableAltered(
            "the columns changed in the source since the table was loaded by an earlier release, "
            "which does not tell how",
            table=str(table.table),
            hint=f"Run `mirrorlake reset {table.table}` to reload it.",
        )


def _described(store: Store, table: TableId, folder: str) -> Metadata | None:
    try:
        content = store.read(f"{folder}/{layout.METADATA}")
    except FileNotFoundError:
        return None
    return metadata.decode(content, table=str(table), file=layout.METADATA)
