"""The API for authors of publishers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from mirrorlake.errors import UsageError
from mirrorlake.landing.layout import printed_names
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model.clock import Clock, WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId, named
from mirrorlake.model.types import DataType
from mirrorlake.publisher import state as states
from mirrorlake.publisher.describe import Layout, Partner, introduce, introduction
from mirrorlake.publisher.encoding.encoders import Codec
from mirrorlake.publisher.journal import Published
from mirrorlake.publisher.locations import Built, Workshop, folder_for
from mirrorlake.publisher.operations import Meaning, Operation
from mirrorlake.publisher.table import FILE_BYTES, AssignedTable, Settings
from mirrorlake.root import LANDING, LANDING_V1
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store


class Publisher:
    """Writes tables into the landing zone below one root, as the only writer of each (LZ-138).

    When a call returns, its rows are visible to the mirror, in order, exactly once for each
    `batch`. After a crash, repeat the call with the same batch and the same rows.

    root: a folder, a URL such as `s3://bucket/shop` or one of Azure Data Lake Storage or OneLake,
    or a Store. partner: the publisher, for `_partnerEvents.json`. zone: path of the landing zone
    below the root, `Files/LandingZone` or `LandingZone` (LZ-010). built: where files are built and
    checked before they get their final names, `beside` those of the table (LZ-131) or in the
    landing zone's `scratch_pad` (LZ-132). codec: compression of the files, `snappy`, `zstd`, `gzip`
    or `none`; text is uncompressed by default. file_bytes: approximate maximum size of a file.
    on_progress: called with the table and the number of written rows of the current batch. Not
    thread-safe.
    """

    def __init__(
        self,
        root: str | Path | Store,
        *,
        partner: Partner | None = None,
        zone: str = LANDING,
        built: str = Built.BESIDE,
        codec: str | None = None,
        file_bytes: int = FILE_BYTES,
        clock: Clock | None = None,
        reached: CrashHook = no_crash,
        on_progress: Callable[[TableId, int], None] = lambda _table, _rows: None,
    ) -> None:
        """Raises UsageError."""
        if zone not in {LANDING, LANDING_V1}:
            raise UsageError(
                f"{zone!r} is not a landing zone",
                where="zone",
                hint=f"Use {LANDING} or {LANDING_V1}.",
            )
        self._store = open_store(root) if isinstance(root, str | Path) else root
        self._zone, self._partner = zone, partner
        self._built: Built = _word(Built, built, "built")
        self._codec = None if codec is None else _word(Codec, codec, "codec")
        self._file_bytes, self._on_progress = file_bytes, on_progress
        self._clock, self._reached = clock or WallClock(), reached
        self._tables: dict[TableId, AssignedTable] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        try:
            self.close()
        except OSError:
            if error is None:  # otherwise the first error is raised
                raise

    def close(self) -> None:
        """Release the leases.

        Raises OSError if the storage fails; then the lease of that table expires.
        """
        tables, self._tables = self._tables, {}
        with ExitStack() as closing:
            for table in tables.values():
                closing.callback(table.close)  # all of them, even if one fails

    def load(
        self,
        table: str | TableId,
        rows: Any,
        *,
        key: str | Sequence[str] | None = None,
        batch: str | None = None,
        types: Mapping[str, str] | None = None,
        layout: str | None = None,
        text: TextFormat | None = None,
    ) -> Published:
        """Publish initial rows of a table (LZ-093), in one call or in several.

        table: `schema.name`, or a name. rows: a DataFrame of pandas, Polars or Spark, an Arrow
        table or reader, dicts; large input is streamed. key: the columns of the unique key, `()`
        for none; required only in the first call. batch: a name for these rows, under which they
        are published only once, however often they are sent. types: Delta types of columns whose
        type is not known from the rows, such as {"zip": "string"}. layout: `v1` has the marker as
        first column, in every row. text: delimited text instead of Parquet. Raises UsageError,
        TableError, LeaseHeld, LeaseLost.
        """
        members = _members(key=key, layout=layout, text=text)
        return self._publish(table, rows, Meaning(), members, types, batch)

    def publish(
        self,
        table: str | TableId,
        rows: Any,
        *,
        operation: str | None = None,
        marker_column: str | None = None,
        previous_key: Mapping[str, str] | None = None,
        key: str | Sequence[str] | None = None,
        batch: str | None = None,
        types: Mapping[str, str] | None = None,
        layout: str | None = None,
        text: TextFormat | None = None,
    ) -> Published:
        """Publish changes, in the order in which they are to be applied (LZ-108).

        operation: of all rows, `insert`, `update`, `delete` or `upsert`. Without it, marker_column:
        the column with the operation of each row, as one of these words, its first letter, or 0, 1,
        2 or 4 (by default `__rowMarker__`). Updates have all columns (LZ-100), deletes need only
        the key (LZ-103). previous_key: for updates that change the key, maps a key column to the
        column with its previous value, NULL if it did not change (LZ-102). The rest is as in
        `load`.
        """
        meaning = _meaning(operation, marker_column, previous_key)
        members = _members(key=key, layout=layout, text=text)
        return self._publish(table, rows, meaning, members, types, batch)

    def describe(
        self,
        table: str | TableId,
        *,
        key: str | Sequence[str] | None = None,
        layout: str | None = None,
        text: TextFormat | None = None,
        by_time: bool | None = None,
        upsert_default: bool | None = None,
        hold: bool = False,
    ) -> None:
        """Define how a table is landed before its first rows (LZ-056).

        by_time: files may arrive independently of each other, and are applied in the order of their
        times (LZ-128). upsert_default: rows that others land without a marker are upserts (LZ-048).
        hold: a bulk load; the mirror does not see it before `release`.
        """
        members = _members(
            key=key, layout=layout, text=text, by_time=by_time, upsert_default=upsert_default
        )
        self._table(table).describe(members, hold=hold)

    def named(self, table: str | TableId) -> TableId:
        """The table of a name, which may lack its quotes where only one has files in the landing
        zone that is named so. Raises UsageError."""
        if isinstance(table, str):
            names = printed_names(self._store, self._zone, table)
            table = TableId.parse(named(table, names, where="table"))
        if not table.name:
            raise UsageError(
                "the table has no name",
                where="table",
                hint="Use schema.name, such as sales.orders.",
            )
        return table

    def columns(self, table: str | TableId) -> dict[str, DataType]:
        """The columns of a table and their types, as far as they are published. Takes no lease."""
        state = self._state(self.named(table))
        return dict(state.columns) if state else {}

    def release(self, table: str | TableId) -> None:
        """Make a table visible to the mirror that `describe` held back."""
        self._table(table).release()

    def drop(
        self,
        table: str | TableId,
        *,
        patience: float = 300.0,
        gone: Callable[[], bool] | None = None,
    ) -> None:
        """Delete a table's folder, so that the mirror drops the table; then it can be loaded again.

        This is how a column is removed or renamed, a type or a key changed, or a table renamed
        (LZ-216, LZ-220, LZ-225, LZ-237). A reader may hold the folder open: the deletion is retried
        for `patience` seconds (LZ-236). gone: whether the mirror has dropped the table; if
        given, the call waits for it as well (LZ-239).
        """
        self._table(table).drop(patience, gone)

    def wait_for(
        self, table: str | TableId, mirrored: Callable[[], bool], *, patience: float = 300.0
    ) -> None:
        """Wait until the mirror has a table: after a new load, changes may follow only then
        (LZ-239).

        mirrored: whether the mirror has it. Raises TableError after `patience` seconds.
        """
        self._table(table).wait_for(patience, mirrored)

    def last_batch(self, table: str | TableId) -> str | None:
        """The name of the last batch that is published, None if there is none or it has no name.

        A batch that was begun is completed, or withdrawn if none of its files are visible, so that
        exactly the batches up to this one are published.
        """
        return self._table(table).last_batch()

    def has_batches(self, table: str | TableId) -> bool:
        """Whether any batch of a table, with a name or without one, is published. Takes no
        lease."""
        state = self._state(self.named(table))
        return state is not None and bool(state.done)

    def give_up(self, table: str | TableId, batch: str) -> bool:
        """Withdraw a batch that was started and can never be sent again; False if there is no
        such batch."""
        return self._table(table).give_up(batch)

    def _publish(
        self,
        table: str | TableId,
        rows: Any,
        meaning: Meaning,
        members: Mapping[str, Any],
        types: Mapping[str, str] | None,
        batch: str | None,
    ) -> Published:
        kinds = {name: type_of(name, kind) for name, kind in (types or {}).items()}
        text = members.get("text")
        codec = self._codec or (Codec.NONE if text else Codec.SNAPPY)
        settings = Settings(codec, self._file_bytes)
        return self._table(table).publish(rows, meaning, members, kinds, batch, settings)

    def _state(self, name: TableId) -> states.State | None:
        folder = folder_for(self._store, self._zone, name)
        return states.load(self._store, folder, table=str(name))

    def _table(self, table: str | TableId) -> AssignedTable:
        name = self.named(table)
        if name not in self._tables:
            introduction(self._store, self._zone, self._partner)  # refused before there is anything
            folder = folder_for(self._store, self._zone, name)
            self._tables[name] = AssignedTable(
                self._store,
                Workshop(self._zone, folder, self._built),
                name,
                f"publisher/{folder.removeprefix(self._zone + '/')}",
                self._clock,
                self._reached,
                lambda rows: self._on_progress(name, rows),
                lambda: introduce(self._store, self._zone, self._partner),
            )
        # After an unknown outcome the lease is requested again, by the same holder.
        self._tables[name].take()
        return self._tables[name]


def _members(**given: Any) -> dict[str, Any]:
    members = {name: value for name, value in given.items() if value is not None}
    if isinstance(members.get("key"), str):
        members["key"] = (members["key"],)
    if "key" in members:
        members["key"] = tuple(dict.fromkeys(members["key"]))
    if "layout" in members:
        members["layout"] = _word(Layout, members["layout"], "layout")
    return members


def _meaning(
    operation: str | None, column: str | None, previous: Mapping[str, str] | None
) -> Meaning:
    if operation is not None and column is not None:
        raise UsageError(
            "both operation and marker_column are set",
            where="publish",
            hint="Set only one of them.",
        )
    if operation is not None:
        word = _word(Operation, operation, "operation")
        if word is Operation.LOAD:
            raise UsageError("initial rows are not a change", where="operation", hint="Use load.")
        return Meaning(word, None, previous or {})
    return Meaning(Operation.UPSERT, column or "__rowMarker__", previous or {})


def _word(words: Any, given: str, where: str) -> Any:
    try:
        return words(str(given).lower())
    except ValueError:
        known = ", ".join(str(word) for word in words)
        raise UsageError(
            f"unknown {where} {given!r}", where=where, hint=f"Use one of {known}."
        ) from None


def type_of(column: str, kind: str) -> DataType:
    """A Delta type by its name. Raises UsageError."""
    try:
        return DataType.parse(kind)
    except ValueError as error:
        raise UsageError(
            str(error),
            where=f"type of column {column}",
            hint="The types are boolean, byte, short, integer, long, float, double, "
            "decimal(p,s), string, binary, date and timestamp.",
        ) from error
