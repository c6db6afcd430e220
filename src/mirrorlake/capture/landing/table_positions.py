"""The position of each table of a stream in the zone: its folder, its last file, its checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mirrorlake.capture.records.records import Records
from mirrorlake.errors import (
    BadFile,
    BadMetadata,
    KeyColumnsChanged,
    MissingFile,
    SelectionChanged,
    TableAltered,
    TableRecreated,
)
from mirrorlake.landing import layout, metadata, publish
from mirrorlake.landing.cuts import Cut
from mirrorlake.landing.metadata import Metadata, OurMetadata
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.scan import Landed
from mirrorlake.model.landed import DEFAULT_STREAM, FileKind, Footer, RowKey
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A table in the zone. `number` is 0 and `checkpoint` None before its first file.

    unfinished: transactions that are landed in part, with the last landed ordinal.
    upto: the loaded rows may contain changes up to this point. key: of the newest file, as far as
    it is known.
    """

    table: SourceTable
    folder: str
    number: int = 0
    checkpoint: Position | None = None
    unfinished: Mapping[LogPoint, int] = field(default_factory=dict)
    upto: LogPoint | None = None
    key: RowKey | None = None

    @property
    def ahead(self) -> LogPoint | None:
        """The point that the stream has to reach before the rows are consistent."""
        landed = self.checkpoint.point if self.checkpoint else None
        return landed.join(self.upto) if landed and self.upto else landed


def folders(records: Records, tables: Sequence[TableId]) -> dict[TableId, str]:
    """A folder for each table: its existing one, else a new one. Tables of other streams have none.

    A new table whose name differs from another only in case gets a folder that differs in more than
    case.
    """
    described = _described_folders(records)
    chosen = {table: found.folder for table, found in described.items()}
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
    """A folder with the table that its metadata names: its stream, and its identity in the
    source."""

    folder: str
    stream_id: str
    identity: str


def _described_folders(records: Records) -> dict[TableId, _Folder]:
    """The folders whose metadata names their table; of copies, the one with the table's name."""
    found: dict[TableId, _Folder] = {}
    for folder in layout.table_folders(records.store, records.zone):
        try:
            described = _described(records.store, folder.table, folder.path)
        except BadMetadata:
            continue  # one of ours is found by its name and stops its own table
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
    return {table: own.folder for table, own in _own_folders(records).items()}


def identities(records: Records) -> dict[TableId, str]:
    """`SourceTable.identity` of the tables of the stream, as of their load."""
    # Of one whose folder was deleted for a truncation, before another one was made.
    emptied = {
        TableId.parse(name): one["identity"]
        for name, one in records.truncated().items()
        if "schema" in one
    }
    own = _own_folders(records).items()
    return emptied | {table: found.identity for table, found in own if found.identity}


def _own_folders(records: Records) -> dict[TableId, _Folder]:
    found = _described_folders(records).items()
    return {table: folder for table, folder in found if folder.stream_id == records.stream_id}


def flush_zone(records: Records) -> None:
    """Make durable the names that an earlier process created in a zone and may not have flushed,
    because all of it will be acknowledged to the source."""
    store, zone = records.store, records.zone
    inner = [f"{records.folder}/{layout.CUTS}"]
    inner += [folder.path for folder in layout.table_folders(store, zone)]
    above = {str(parent) for path in inner for parent in PurePosixPath(path).parents}
    for folder in [zone, *sorted(path for path in above if path.startswith(f"{zone}/")), *inner]:
        store.flush(folder)


def find(
    records: Records,
    source: Source,
    table: SourceTable,
    folder: str,
    truncated: Position | None = None,
    cut: Cut | None = None,
) -> TablePosition:
    """The position of a table, read from its newest file. Raises TableError.

    truncated: nothing at or before this position may be published again, although the folder is
        empty. cut: the newest one, of which all files must be there.
    """
    store = records.store
    newest = publish.newest_file(store, folder)
    if newest is None:
        return TablePosition(table, folder, checkpoint=truncated)
    ours = _check_unchanged(store, table, folder)
    if ours and table.known and str(table.table) not in records.known():
        _check_columns(table, ours)
    upto = source.parse_point(ours.source["upto"]) if ours and ours.source.get("upto") else None
    footer = _footer(records, table.table, newest)
    last = Position.parse(footer.last, source.parse_point)
    if cut is not None and newest.number < (named := cut.tables.get(str(table.table), 0)):
        _check_anew(table.table, newest.number, named, footer, last.point, cut, source)
    if footer.kind in {FileKind.LOAD, FileKind.BACKFILL}:
        # Every transaction that ends at or before the point is landed completely.
        after = Position.after(last.point)
        return TablePosition(table, folder, newest.number, after, upto=upto, key=footer.key)
    unfinished = dict(last.partly)
    if not footer.complete:
        unfinished[last.of or last.point] = last.ordinal
    return TablePosition(table, folder, newest.number, last, unfinished, upto, footer.key)


def _check_anew(
    table: TableId,
    number: int,
    named: int,
    footer: Footer,
    point: LogPoint,
    cut: Cut,
    source: Source,
) -> None:
    """Check that a table whose newest file has a lower number than the cut names was loaded since.
    Raises MissingFile: later changes would get the numbers of those that are gone.

    Numbers and positions ascend together, so one that is beyond the cut is of a later load, also
    where its transaction is landed in part. One at the cut is, unless the rest of it is missing.
    """
    end = source.parse_point(cut.position)
    is_whole = footer.complete or footer.kind is not FileKind.CHANGES
    if point.covers(end) and (is_whole or not end.covers(point)):
        return
    raise MissingFile(
        f"the newest file is {number}, and files up to {named} were landed",
        table=str(table),
        hint=f"Run `mirrorlake reset {table}` to reload it.",
    )


def ends(records: Records, source: Source) -> list[LogPoint]:
    """The last point in the newest file of each table of the stream."""
    found = []
    for table, folder in known(records).items():
        newest = publish.newest_file(records.store, folder)
        with suppress(BadFile):  # which stops the table
            if newest is not None:
                footer = _footer(records, table, newest)
                found.append(Position.parse(footer.last, source.parse_point).point)
    return found


def _footer(records: Records, table: TableId, file: Landed) -> Footer:
    """The footer of a file that this stream has written. Raises BadFile."""
    with records.store.open(file.path) as handle:
        found = parquet.inspect(handle, file.size, table=str(table), file=str(file.name))
    if found.footer is None or found.footer.stream_id != records.stream_id:
        raise BadFile(
            "the newest file was not written by this capture",
            table=str(table),
            file=str(file.name),
            hint="Use another root for this source, or remove the table from source.tables.",
        )
    return found.footer


def describe(
    records: Records,
    table: SourceTable,
    folder: str,
    source: Mapping[str, str],
    generation: str | None = None,
    upto: str = "",
) -> None:
    """Write `_metadata.json` of a table that is loaded from scratch (LZ-029, LZ-056).

    upto: the point at which the last of its parts was read, if they were read at different points.
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
    """The generation in the `_metadata.json` of one of our tables."""
    described = _described(store, table, folder)
    return described.ours.generation if described and described.ours else ""


def _check_unchanged(store: Store, table: SourceTable, folder: str) -> OurMetadata | None:
    """Check that the selection is the one with which the table was loaded, and the key too where
    the source does not record it in `known` (LZ-036)."""
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
    if table.known.get("key") is None and described.key_columns != table.key:
        raise KeyColumnsChanged(
            f"the key was ({', '.join(described.key_columns)}) when the table was loaded and is "
            f"now ({', '.join(table.key)})",
            table=name,
            hint=hint,
        )
    if table.known.get("key") is None and described.whole_rows != table.whole_rows:
        was, now = ("append-only", "is") if table.whole_rows else ("mirrored", "no longer is")
        raise KeyColumnsChanged(
            f"the table was {was} when it was loaded, without a key, and {now} mirrored by whole "
            "rows",
            table=name,
            hint=f"Run `mirrorlake reset {name}` to reload it.",
        )
    if described.ours.source.get("selection", {}) != dict(table.selection):
        raise SelectionChanged.of(
            "the selected columns or rows differ from those with which the table was loaded",
            table.selection,
            table=name,
            hint=hint,
        )
    return described.ours


def _check_columns(table: SourceTable, ours: OurMetadata) -> None:
    """Check that a table loaded by an earlier release still has its columns."""
    types = {name: str(kind) for name, kind in table.source_types.items()}
    if ours.source.get("types", types) != types:
        raise TableAltered(
            "the columns changed in the source since the table was loaded by an earlier release, "
            "which did not record how",
            table=str(table.table),
            hint=f"Run `mirrorlake reset {table.table}` to reload it.",
        )


def _described(store: Store, table: TableId, folder: str) -> Metadata | None:
    try:
        content = store.read(f"{folder}/{layout.METADATA}")
    except FileNotFoundError:
        return None
    return metadata.decode(content, table=str(table), file=layout.METADATA)
