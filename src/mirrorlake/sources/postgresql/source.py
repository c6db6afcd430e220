"""PostgreSQL as a source: puts the parts of this package together."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import psycopg
import pyarrow as pa
import structlog

from mirrorlake.errors import PrerequisiteMissing, SourceGap, SourceUnavailable, UsageError
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import DIFFERS, CheckResult, CheckSeverity
from mirrorlake.sources.postgresql import publication
from mirrorlake.sources.postgresql import slot as slots
from mirrorlake.sources.postgresql.catalog import CatalogTable, describe, read_tables, read_types
from mirrorlake.sources.postgresql.checks import server_checks, table_checks
from mirrorlake.sources.postgresql.connect import (
    Connection,
    connect,
    connect_replication,
    simple_query,
    translated,
)
from mirrorlake.sources.postgresql.decoder import Decoder
from mirrorlake.sources.postgresql.objects import PostgresObjects
from mirrorlake.sources.postgresql.recognition.catalog_look import CatalogLook
from mirrorlake.sources.postgresql.recognition.recognition import Recognition
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot, at_slot, read_rows
from mirrorlake.sources.postgresql.stream import PostgresStream
from mirrorlake.sources.postgresql.types.mapping import PgType, Types
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

VALUES_REPLACED = "values_replaced"


class PostgresSource:
    """A `Source` on PostgreSQL. Connections are opened when they are needed."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self.objects = PostgresObjects(settings, self._sql, self._noted)
        self._connection: Connection | None = None
        self._types: Types | None = None
        self._look = CatalogLook(self._sql, settings)
        self._recognition: Recognition | None = None
        self._replaced: Counter[tuple[TableId, str]] = Counter()

    # -- before ---------------------------------------------------------------------------------

    def check(self) -> list[CheckResult]:
        try:
            connection = self._sql()
        except (SourceUnavailable, UsageError) as error:
            return [CheckResult("reachable", CheckSeverity.ERROR, error.what, error.hint)]
        with translated():
            findings = [
                CheckResult(
                    "reachable", CheckSeverity.OK, f"connected to {connection.info.dbname}"
                ),
                *server_checks.server(connection, self._settings),
            ]
            catalog = self._catalog()
            tables = self._described(catalog)
            findings += table_checks.tables(connection, self._settings, catalog, tables)
            if slots.slot_state(connection, self._settings.slot):
                findings += server_checks.watch(connection, self._settings, tables)
        return findings

    def discover(self) -> list[SourceTable]:
        with translated():
            catalog = self._catalog()
            tables = self._described(catalog)
            looks = self._look.tables(tables)
        if not tables:
            raise PrerequisiteMissing(
                "no table of the database is selected",
                where="source.tables",
                hint="Correct source.tables (names are case-sensitive); `mirrorlake check` lists "
                "the patterns that match nothing.",
            )
        if idle := table_checks.idle(self._settings, catalog):
            raise PrerequisiteMissing(idle[0], where="source", hint=table_checks.IDLE_HINT)
        return [
            replace(table, known=look.known().plain())
            if (look := looks.get(int(table.identity)))
            else table
            for table in tables
        ]

    def identity(self) -> Mapping[str, str]:
        with closing(connect_replication(self._settings.url)) as replication:
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

    def resume(self, since: LogPoint) -> None:
        with translated():
            state = slots.slot_state(self._sql(), self._settings.slot)
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
        findings = server_checks.watch(self._sql(), self._settings, [])
        for finding in findings:
            if finding.severity is CheckSeverity.ERROR:
                raise self._gap(finding.message, since)

    def snapshot(self) -> PostgresSnapshot:
        slot = f"mirrorlake_load_{uuid.uuid4().hex[:12]}"
        return at_slot(
            self._settings, slot, self._noted, temporary=True, recognition=self._recognition
        )

    def stream(
        self, tables: Sequence[SourceTable], since: LogPoint, *, metadata: bool = False
    ) -> PostgresStream:
        """What the slot has not been told of, and `since` does not cover either."""
        self._recognition = Recognition(
            self._look, {int(table.identity): table for table in tables}
        )
        with translated():
            decoder = Decoder(
                {table.table: table for table in tables},
                self._resolve,
                self._settings.extremes,
                self._noted,
                self._recognition,
            )
            replication = connect_replication(self._settings.url)
            try:
                return PostgresStream(
                    replication,
                    self._settings.slot,
                    publication.names_of(self._settings, tables),
                    decoder,
                    self._settings.chunk_bytes,
                    since,
                    metadata=metadata,
                )
            except BaseException as error:
                replication.close()
                if isinstance(error.__cause__, psycopg.errors.ObjectInUse):
                    raise slots.in_use(self._sql(), self._settings.slot) from error
                raise

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        with translated():
            findings = list(server_checks.watch(self._sql(), self._settings, tables))
            catalog = self._catalog()
            now = {table.table: table for table in self._described(catalog)}
            findings += table_checks.changed(tables, now)
            if self._recognition:
                findings += [
                    CheckResult(
                        check,
                        CheckSeverity.WARNING if check == DIFFERS else CheckSeverity.ERROR,
                        error.what,
                        error.hint,
                        TableId.parse(error.table),
                    )
                    for check, error in self._recognition.faults(tables)
                ]
                findings += [
                    CheckResult(
                        "columns",
                        CheckSeverity.WARNING,
                        f"columns of {table} have changed: {told}; the mirror follows with the "
                        "next change of the table",
                        table=table,
                    )
                    for table, told in self._recognition.unseen(tables)
                ]
            # Whoever lost their key can work on at once, whatever becomes of the mirror.
            keyless = [table for table in now.values() if table.append_only]
            publication.exclude(self._sql(), self._settings, keyless)
        return findings

    def current(self) -> LogPoint:
        with translated():
            row = self._sql().execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        with translated():
            return read_rows(self._sql(), table, keys, self._settings.extremes, self._noted)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- parts ----------------------------------------------------------------------------------

    def _sql(self) -> Connection:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = connect(self._settings.url)
        return self._connection

    def _catalog(self) -> list[CatalogTable]:
        self._types = read_types(self._sql())
        return read_tables(self._sql(), self._settings.selection)

    def _described(self, catalog: Sequence[CatalogTable]) -> list[SourceTable]:
        assert self._types is not None
        return [describe(table, self._types, self._settings.selection) for table in catalog]

    def _gap(self, what: str, since: LogPoint, until: LogPoint | None = None) -> SourceGap:
        """That changes behind `since` are lost, up to a point or, for None, all that there are."""
        end = until or self.current()
        assert isinstance(since, Lsn)
        assert isinstance(end, Lsn)
        size = (end.value - since.value) / (1 << 20)
        told = f"in up to {size:,.1f} MiB of the log, from {since} to {end}," if size >= 0 else ""
        return SourceGap(
            f"{what}; changes {told or 'in between'} are lost",
            where="PostgreSQL",
            hint="Run `mirrorlake reset --all` to load all tables again.",
        )

    def _resolve(self, oid: int, modifier: int) -> PgType:
        if self._types is None or oid not in self._types:
            with translated():
                self._types = read_types(self._sql())
        return self._types.resolve(oid, modifier)

    def _noted(self, table: TableId, column: str, count: int) -> None:
        """Say once per column that values were replaced, and again at every tenfold number."""
        before = self._replaced[table, column]
        self._replaced[table, column] = now = before + count
        if before == 0 or len(str(before)) != len(str(now)):
            log.warning(VALUES_REPLACED, table=str(table), column=column, values=now)
