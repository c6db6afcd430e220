"""PostgreSQL as a source: puts the parts of this package together."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf

import psycopg
import pyarrow as pa

from mirrorlake.errors import (
    PrerequisiteMissing,
    PublishedOtherwise,
    SourceGap,
    SourceUnavailable,
    TableAltered,
    UsageError,
)
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import (
    ALTERED,
    DESCRIBED,
    DIFFERS,
    LINEAGE,
    REACHABLE,
    REPAIR,
    UNFOLLOWED,
    URL_CHECK,
    AwaitedTransaction,
    CheckResult,
    CheckSeverity,
    Snapshot,
)
from mirrorlake.sources.postgresql.catalog import CatalogTable, describe, read_tables, read_types
from mirrorlake.sources.postgresql.checks import server_checks, table_checks
from mirrorlake.sources.postgresql.connect import (
    Connection,
    OpenConnections,
    PostgresPulse,
    SlotWaits,
    connect,
    connect_replication,
    patiently,
    simple_query,
)
from mirrorlake.sources.postgresql.decoder import Decoder
from mirrorlake.sources.postgresql.objects import PostgresObjects
from mirrorlake.sources.postgresql.publishing import event_trigger, publication, rejected
from mirrorlake.sources.postgresql.reading.by_key import read_rows
from mirrorlake.sources.postgresql.recognition.catalog_look import CatalogLook
from mirrorlake.sources.postgresql.recognition.known import TableLook
from mirrorlake.sources.postgresql.recognition.recognition import (
    Recognition,
    captures,
    condition_of,
)
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.replication import history
from mirrorlake.sources.postgresql.replication import slot as slots
from mirrorlake.sources.postgresql.replication.awaited import awaited, open_transactions
from mirrorlake.sources.postgresql.replication.stream import PostgresStream
from mirrorlake.sources.postgresql.replication.value_format import ValueFormat
from mirrorlake.sources.postgresql.settings import MIB, PostgresSettings
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot, at_slot
from mirrorlake.sources.postgresql.types.mapping import PgType, Types
from mirrorlake.sources.replaced import ReplacedValues
from mirrorlake.sources.table import SourceTable


class PostgresSource:
    """A `Source` on PostgreSQL. Connections are opened when they are needed."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._streaming: PostgresStream | None = None
        self._types: Types | None = None
        self._opened = OpenConnections()
        self._noted = ReplacedValues().note
        self._look = CatalogLook(self._sql, settings, self._resolve)
        self.objects = PostgresObjects(settings, self._sql, self._noted, self._look, self._opened)
        self._trigger = event_trigger.KeysTrigger(settings)
        self._recognition: Recognition | None = None
        self._secret = ""  # of the stream
        self._reached: CrashHook = no_crash
        self._format = ValueFormat(may_be_binary=settings.binary)
        self._loaded_names: Mapping[str, TableId] = {}
        self._taken: frozenset[TableId] = frozenset()
        self._gone: frozenset[TableId] = frozenset()

    # -- before ---------------------------------------------------------------------------------

    def check(self) -> list[CheckResult]:
        try:
            connection = self._sql()
        except UsageError as error:
            return [CheckResult(URL_CHECK, CheckSeverity.ERROR, error.what, error.hint)]
        except (SourceUnavailable, PrerequisiteMissing) as error:
            return [CheckResult(REACHABLE, CheckSeverity.ERROR, error.what, error.hint)]
        with translated():
            name = connection.info.dbname
            findings = [CheckResult(REACHABLE, CheckSeverity.OK, f"connected to {name}")]
            if refused := server_checks.functions(connection):
                return [*findings, refused]
            findings += server_checks.server(connection, self._settings)
            catalog = self._catalog()
            tables = self._described(catalog)
            tables = self._with_refused(tables, self._look.tables(tables))
            findings += event_trigger.check(connection, self._settings)
            findings += table_checks.tables(connection, self._settings, catalog, tables)
            if slots.slot_state(connection, self._settings.slot):
                findings += server_checks.watch(connection, self._settings, _published(tables))
        return findings

    def discover(self) -> list[SourceTable]:
        with translated():
            catalog = self._catalog()
            tables = self._described(catalog)
            looks = self._look.tables(tables)
            tables = self._with_refused(tables, looks)
        loaded = self._taken | self._gone
        if not tables and not loaded:
            raise PrerequisiteMissing(
                "no table of the database is selected",
                where="source.tables",
                hint=table_checks.where_tables_are(self._sql()),
            )
        columns = table_checks.columns_of(catalog)
        if idle := table_checks.idle(self._settings, columns, loaded=loaded):
            raise PrerequisiteMissing(idle[0], where="source", hint=table_checks.IDLE_HINT)
        return [
            replace(table, known=look.known(captures(table)).plain())
            if (look := looks.get(int(table.identity)))
            else table
            for table in tables
        ]

    def keep_names(
        self,
        names: Mapping[str, TableId],
        taken: Collection[TableId] = (),
        gone: Collection[TableId] = (),
    ) -> None:
        self._loaded_names, self._taken = dict(names), frozenset({*names.values(), *taken})
        self._gone = frozenset(gone)

    def identity(self) -> Mapping[str, str]:
        with closing(self._replication()) as replication:
            return self._identity_of(replication)

    def _identity_of(self, replication: Connection) -> Mapping[str, str]:
        (row,) = simple_query(replication, "IDENTIFY_SYSTEM")
        with translated():
            state = publication.state_of(self._sql(), self._settings.publication)
        return {
            "type": "postgresql",
            "system": row["systemid"] or "",
            "timeline": row["timeline"] or "",
            "database": row["dbname"] or "",
            "slot": self._settings.slot,
            # One of the same name that was made later does not carry what happened in between.
            "publication": f"number {state.number}" if state else "",
        }

    def parse_point(self, text: str) -> LogPoint:
        return Lsn.parse(text)

    # -- streaming ------------------------------------------------------------------------------

    def resume(self, since: LogPoint, former: Mapping[str, str]) -> None:
        with translated():
            state = slots.slot_state(self._sql(), self._settings.slot)
        self._check_lineage(since, former.get(LINEAGE, ""))
        slot = self._settings.slot
        if state is None:
            raise self._gap(f"replication slot {slot} does not exist", since)
        if state.status == "lost":
            raise self._gap(f"replication slot {slot} was invalidated", since)
        if state.confirmed is not None and not since.covers(state.confirmed):
            raise self._gap(
                f"replication slot {slot} was read up to {state.confirmed}, but the landing zone "
                f"holds changes only up to {since}",
                since,
                state.confirmed,
            )
        with translated():
            findings = server_checks.watch(self._sql(), self._settings, [])
        for finding in findings:
            if finding.severity is CheckSeverity.ERROR:
                raise self._gap(finding.message, since)

    def _set_failover(self, replication: Connection, state: slots.SlotState | None) -> None:
        """Correct the slot of an earlier release, and one whose setting has changed."""
        failover = self._settings.failover
        if not state or state.active_pid or (state.two_phase and not slots.takes_both(replication)):
            return
        if state.failover not in {None, failover}:
            slots.set_failover(replication, self._settings.slot, failover=failover)

    def _check_lineage(self, since: LogPoint, former: str) -> None:
        """Everything up to `since` is in the log that the server writes now. Raises SourceGap."""
        now = self.identity()[LINEAGE]
        if not former or now == former:
            return
        took_over = f"another server has taken over, with timeline {now} instead of {former}"
        with closing(self._replication()) as replication:
            end = history.left_at(replication, former, now)
        if end is None:
            raise SourceGap(
                f"{took_over}, of whose history that is no part",
                where="PostgreSQL",
                hint=f"If source.url names the right server: {REPAIR}",
            )
        if not end.covers(since):
            assert isinstance(since, Lsn)
            size = (since.value - end.value) / MIB
            raise SourceGap(
                f"{took_over}, and lacks the changes in the last {size:,.1f} MiB of the log, from "
                f"{end} to {since}, which are mirrored",
                where="PostgreSQL",
                hint=f"{REPAIR} From PostgreSQL 17 on, synchronized_standby_slots lets a standby "
                "have all changes before they are mirrored.",
            )

    def snapshot(self) -> PostgresSnapshot:
        return self._snapshot(None)

    def snapshot_within(self, seconds: float) -> PostgresSnapshot | None:
        try:
            return self._snapshot(seconds)
        except SlotWaits:
            return None

    def open_transactions(self) -> Mapping[str, AwaitedTransaction | None]:
        connection = self._sql()
        try:
            with translated():
                return open_transactions(connection)
        except SourceUnavailable:
            connection.close()  # the answer may still come
            raise

    def _snapshot(self, within: float | None) -> PostgresSnapshot:
        slot = f"mirrorlake_load_{uuid.uuid4().hex[:12]}"
        return at_slot(
            self._settings,
            slot,
            self._noted,
            self._opened,
            temporary=True,
            recognition=self._recognition,
            within=within,
        )

    def stream(
        self,
        tables: Sequence[SourceTable],
        since: LogPoint,
        *,
        metadata: bool = False,
        secret: str = "",
        reached: CrashHook = no_crash,
    ) -> PostgresStream:
        """The changes that are neither acknowledged to the slot nor covered by `since`."""
        self._recognition = Recognition(
            self._look, {int(table.identity): table for table in tables}
        )
        self._secret, self._reached = secret, reached
        with translated():
            self._recognition.begins(since)
            decoder = Decoder(
                {table.table: table for table in tables},
                self._resolve,
                self._settings.extremes,
                self._noted,
                self._recognition,
                self._keeps,
                secret,
            )
            replication = self._replication()
            try:
                state = slots.slot_state(self._sql(), self._settings.slot)
                self._set_failover(replication, state)
                stream = PostgresStream(
                    replication,
                    self._settings.slot,
                    publication.read_by(self._sql(), self._settings, tables),
                    decoder,
                    self._settings.chunk_bytes,
                    since,
                    metadata=metadata,
                    reconnect=self._replication,
                    streaming=self._settings.streaming,
                    two_phase=state is not None and state.two_phase,
                    messages=bool(secret),
                    binary=self._format.is_binary(tables, replication.info.server_version),
                    need_text=self._need_text,
                )
            except BaseException as error:
                replication.close()
                if isinstance(error.__cause__, psycopg.errors.ObjectInUse):
                    raise slots.in_use(
                        self._sql(), self._settings.slot, "Its end is waited for."
                    ) from error
                raise
        self._streaming = stream
        return stream

    def _need_text(self, reason: str) -> None:
        self._format.need_text(self._settings.slot, reason)
        with translated():
            slots.freed(self._sql(), self._settings.slot)

    def beyond(self, snapshot: Snapshot, tables: Sequence[SourceTable]) -> PostgresStream:
        """By the slot of the snapshot, which is a temporary one."""
        assert isinstance(snapshot, PostgresSnapshot)
        decoder = Decoder(
            {table.table: table for table in tables},
            self._resolve,
            self._settings.extremes,
            self._noted,
            keeps=self._keeps,
        )
        with translated():
            publications = publication.read_by(self._sql(), self._settings, tables)
            return snapshot.followed(publications, decoder)

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        with translated():
            catalog = self._catalog()
            now = {table.table: table for table in self._described(catalog)}
            # Updates of a table that lost its key work again at once, even when the mirror fails.
            as_now = [now.get(table.table, table) for table in tables]
            described = list(now.values())
            if not publication.follow_keys(self._sql(), self._settings, described, self._reached):
                as_now = list(tables)  # published as before, until the next attempt
            findings = list(rejected.take_out(self._sql(), self._settings, described))
            findings += self._trigger.follow(self._sql())
            findings += server_checks.watch(self._sql(), self._settings, _published(as_now))
            findings += table_checks.changed(tables, now)
            findings += table_checks.gone(self._settings, table_checks.columns_of(catalog))
            if self._recognition:
                looks = self._look.tables(tables)
                findings += [
                    CheckResult(
                        DIFFERS if kind else ALTERED,
                        CheckSeverity.WARNING if kind else CheckSeverity.ERROR,
                        error.what,
                        error.hint,
                        TableId.parse(error.table),
                        kind,
                        within=within,
                    )
                    for kind, error, within in self._recognition.faults(looks)
                ]
                findings += self._unfollowed(looks)
        return findings

    def _unfollowed(self, looks: Mapping[int, TableLook]) -> Iterator[CheckResult]:
        """Tables whose columns are other ones than the stream has described. It will describe them
        when it comes to a message about them, which is written here if that is permitted."""
        recognition = self._recognition
        assert recognition is not None
        for older in [*recognition.to_write(looks)]:
            now = self._look.tables([recognition.tables[older.oid]])
            for message in recognition.to_write(now) if self._secret else ():
                self._reached(CrashPoint.MESSAGE_DUE)
                if at := message.write(self._sql(), self._secret):
                    self._reached(CrashPoint.MESSAGE_WRITTEN)
                    recognition.written(message, at)
                else:  # refused once, it is not tried again before the next stream
                    self._secret = ""
        for oid, changes, alters in recognition.unseen(looks):
            table = recognition.tables[oid].table
            if recognition.awaits(oid, looks[oid]):
                what = f"columns of {table} have changed: {changes}"
                yield CheckResult(DESCRIBED, CheckSeverity.OK, what, table=table)
                continue
            yield CheckResult(
                UNFOLLOWED if alters else "columns",
                CheckSeverity.WARNING,
                f"columns of {table} have changed: {changes}; the mirror follows with the next "
                "change of a row of it",
                table=table,
            )

    def current(self) -> LogPoint:
        with translated():
            row = self._sql().execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        def read() -> pa.Table:
            return read_rows(self._sql(), table, keys, self._settings.extremes, self._noted)

        with translated():
            try:
                return patiently(read)
            except psycopg.ProgrammingError as error:  # altered, or not ours to read
                raise TableAltered(
                    f"rows cannot be read again: {error.diag.message_primary}",
                    table=str(table.table),
                    hint=f"Run `mirrorlake reset {table.table}` to reload it.",
                ) from error

    def gone(self, identities: Iterable[str], former: Mapping[str, str]) -> Collection[str]:
        query = "select oid::text from pg_catalog.pg_class where oid::text = any(%s)"
        asked = {*identities}
        with translated():
            absent = asked - {oid for (oid,) in self._sql().execute(query, [[*asked]])}
        if not absent:
            return absent
        # A connection that was lost may have been made to another server since. So the one that
        # does not have them has to say in the same breath that it is the one that had them.
        with closing(self._replication()) as replication:
            if self._identity_of(replication) != former:
                return ()
            listed = ", ".join(str(int(oid)) for oid in absent)
            query = f"select oid::text as oid from pg_catalog.pg_class where oid in ({listed})"  # noqa: S608  (numbers)
            return absent - {row["oid"] for row in simple_query(replication, query)}

    def pulse(self) -> PostgresPulse:
        """Until a stream is opened, it asks."""
        self._streaming = None
        with translated():
            info = self._sql().info
        return PostgresPulse(
            self._settings.url,
            info,
            lambda: stream.heard if (stream := self._streaming) else -inf,
            self._opened,
            awaited,
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- parts ----------------------------------------------------------------------------------

    def _sql(self) -> Connection:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self._opened.add(connect(self._settings.url))
            self._types = None
        return self._connection

    def _replication(self) -> Connection:
        return self._opened.add(connect_replication(self._settings.url))

    def _catalog(self) -> list[CatalogTable]:
        connection = self._sql()
        self._types = read_types(connection, self._types)
        return read_tables(connection, self._settings.selection)

    def _described(self, catalog: Sequence[CatalogTable]) -> list[SourceTable]:
        assert self._types is not None
        names, found = {table.table for table in catalog}, []
        for table in catalog:
            name = self._loaded_names.get(str(table.oid), table.table)
            if name in names or not self._keeps(str(table.oid), table.table):
                name = table.table
            found.append(describe(table, self._types, self._settings.selection, name))
        return found

    def _keeps(self, identity: str, name: TableId) -> bool:
        """Whether a table that has this name now keeps the one with which it was loaded."""
        is_held = identity in self._loaded_names and name not in self._taken
        return is_held and self._settings.selection.takes(name)

    def _with_refused(
        self, tables: Sequence[SourceTable], looks: Mapping[int, TableLook]
    ) -> list[SourceTable]:
        """The tables, with why those cannot be captured that are not fit for it as they are. One
        that a publication of ours filters otherwise is added anew when it is loaded, and stops when
        its changes come."""
        ours: set[str] | None = None
        found: list[SourceTable] = []
        for table in tables:
            look = looks.get(int(table.identity))
            if table.refused is not None or look is None:
                found.append(table)
                continue
            refused = look.refused(table.table, captures(table), condition_of(table))
            if isinstance(refused, PublishedOtherwise):
                ours = self._replaceable() if ours is None else ours
                if look.left_out.publication in ours:
                    left = replace(look.left_out, is_filtered=None, is_filtered_otherwise=False)
                    look = replace(look, left_out=left)
                    refused = look.refused(table.table, captures(table), condition_of(table))
            found.append(replace(table, refused=refused))
        return found

    def _replaceable(self) -> set[str]:
        """The names of the publications to which we may add tables anew."""
        named = (self._settings.publication, self._settings.append_publication)
        states = [publication.state_of(self._sql(), name) for name in named]
        return {s.name for s in states if s and publication.is_replaceable(s, self._settings)}

    def _gap(self, what: str, since: LogPoint, until: LogPoint | None = None) -> SourceGap:
        """That changes behind `since` are lost, up to a point or, for None, all that there are."""
        end = until or self.current()
        assert isinstance(since, Lsn)
        assert isinstance(end, Lsn)
        size = (end.value - since.value) / MIB
        extent = f"in up to {size:,.1f} MiB of the log, from {since} to {end}," if size >= 0 else ""
        return SourceGap(
            f"{what}; changes {extent or 'in between'} are lost",
            where="PostgreSQL",
            hint=REPAIR,
        )

    def _resolve(self, oid: int, modifier: int) -> PgType:
        if self._types is None or oid not in self._types:
            with translated():
                connection = self._sql()
                self._types = read_types(connection, self._types)
        return self._types.resolve(oid, modifier)


def _published(tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Without those that are refused, which no publication need contain."""
    return [table for table in tables if table.refused is None]
