"""What we make in PostgreSQL: a replication slot, publications, and an event trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from mirrorlake.errors import PrerequisiteMissing, printable
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import (
    CheckResult,
    CheckSeverity,
    Established,
    Inclusion,
    RetainedLog,
)
from mirrorlake.sources.postgresql.changed_rows import NotedIn
from mirrorlake.sources.postgresql.connect import Connection, OpenConnections, patiently
from mirrorlake.sources.postgresql.publishing import event_trigger, publication, rejected
from mirrorlake.sources.postgresql.recognition.catalog_look import CatalogLook
from mirrorlake.sources.postgresql.recognition.known import Known
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.replication import history
from mirrorlake.sources.postgresql.replication import slot as slots
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.snapshot import at_slot
from mirrorlake.sources.table import KnownTables, SourceTable


class PostgresObjects:
    """The `ManagedObjects` of one PostgreSQL source."""

    def __init__(
        self,
        settings: PostgresSettings,
        sql: Callable[[], Connection],
        noted: NotedIn,
        look: CatalogLook,
        opened: OpenConnections,
    ) -> None:
        """opened: takes up the connections of snapshots."""
        self._settings, self._sql, self._noted, self._look = settings, sql, noted, look
        self._opened = opened

    def occupied(self, home: str = "") -> CheckResult | None:
        slot = self._settings.slot
        with translated():
            state = slots.slot_state(self._sql(), slot)
            if state is None:
                return None
            made = publication.state_of(self._sql(), self._settings.publication)
        noted = publication.home_of(made, self._settings) if made else None
        message = f"{_slot_words(slot)} exists, but was not created for this landing zone"
        hint = "Set root to the folder of that landing zone, or choose another name in source.slot."
        unused = "If the slot is not used any more, run `mirrorlake detach` in that folder."
        if noted is not None and noted == home:
            message = (
                f"{_slot_words(slot)} was made for this landing zone, in which nothing is known of "
                "it any more"
            )
            hint = (
                "Restore the folder from a backup, and run `mirrorlake repair` if capture then "
                f"finds a gap. To begin anew, run `select pg_drop_replication_slot('{slot}')`, and "
                "delete what is left in the folder."
            )
        elif noted is not None:
            message = f"{_slot_words(slot)} belongs to the landing zone {printable(noted)}"
            hint = f"{hint} {unused}"
        elif not state.active_pid:
            hint = (
                f"{hint} {unused} Only if that folder is lost, run `select pg_drop_replication_slot"
                f"('{slot}')`: a mirror that needs the slot would lose changes."
            )
        if state.active_pid:
            message += "; a running mirror reads it"
        return CheckResult("slot", CheckSeverity.ERROR, message, hint)

    def intended(self) -> Sequence[str]:
        connection, settings = self._sql(), self._settings
        with translated():
            publications = [
                name
                for name in (settings.publication, settings.append_publication)
                if publication.state_of(connection, name) is None
            ]
        return [_slot_words(settings.slot), *map(_publication_words, publications)]

    def establish(
        self, tables: Sequence[SourceTable], beyond: LogPoint | None = None
    ) -> Established:
        connection, settings = self._sql(), self._settings
        with translated():
            state = slots.slot_state(connection, settings.slot)
            if state and state.active_pid:
                raise PrerequisiteMissing(
                    f"replication slot {settings.slot} is in use by process {state.active_pid}",
                    where="PostgreSQL",
                    hint="Choose another name in source.slot. What a killed mirrorlake has left "
                    "ends with the transaction for which it waits, or by `select "
                    f"pg_terminate_backend({state.active_pid})`.",
                )
            if beyond is not None:
                history.reach(connection, beyond)
            publications = patiently(lambda: publication.create(connection, settings, tables))
            event_trigger.KeysTrigger(settings).follow(
                connection
            )  # `watch` reports if that is refused
            slots.drop_slot(connection, settings.slot)
        snapshot = at_slot(settings, settings.slot, self._noted, self._opened, temporary=False)
        made = [_slot_words(settings.slot), *map(_publication_words, publications)]
        try:
            return Established(snapshot, made, self._known(tables))
        except BaseException:
            snapshot.close()
            raise

    def _known(self, tables: Sequence[SourceTable]) -> KnownTables:
        """By what these tables are recognised: as before, in the publications that are made now."""
        looks = self._look.tables(tables)
        found: dict[TableId, Mapping[str, Any]] = {}
        for table in tables:
            if (look := looks.get(int(table.identity))) is not None:
                now = look.known()
                known = Known.of(table.known) if table.known else now
                found[table.table] = replace(known, published=now.published).plain()
        return found

    def include(self, tables: Sequence[SourceTable]) -> None:
        with translated():
            patiently(lambda: publication.include(self._sql(), self._settings, tables))

    def include_again(self, table: SourceTable) -> Inclusion:
        connection, settings = self._sql(), self._settings
        with translated():
            state = publication.state_of(connection, publication.name_of(settings, table))
            if state is None:
                return Inclusion.REFUSED
            if not publication.is_ours(state, settings):
                return Inclusion.AWAITED
            try:
                rejected.include(connection, settings, table)
            except psycopg.errors.LockNotAvailable:
                return Inclusion.LOCKED
            except PrerequisiteMissing:
                return Inclusion.REFUSED
        return Inclusion.ADDED

    def name_home(self, home: str) -> None:
        with translated():
            publication.name_home(self._sql(), self._settings, home)

    def rejects_changes(self) -> bool:
        with translated():
            return rejected.rejects_changes(self._sql(), self._settings)

    def retained(self) -> RetainedLog | None:
        with translated():
            return slots.retained(self._sql(), self._settings.slot)

    def release(self) -> None:
        with translated():
            slots.drop_unused(self._sql(), self._settings.slot)

    def left(self, home: str) -> Sequence[str]:
        connection, settings = self._sql(), self._settings
        with translated():
            if slots.slot_state(connection, settings.slot):
                return []  # a mirror whose folder is restored needs them
            return [
                _publication_words(name)
                for name in (settings.publication, settings.append_publication)
                if (state := publication.state_of(connection, name)) is not None
                and publication.home_of(state, settings) == home
            ]

    def detach(self, made: Sequence[str]) -> list[str]:
        connection, settings = self._sql(), self._settings
        removed = []
        with translated():
            ours = _slot_words(settings.slot)
            if ours in made and slots.slot_state(connection, settings.slot):
                slots.drop_unused(connection, settings.slot)
                removed.append(ours)
            for name in (settings.publication, settings.append_publication):
                ours = _publication_words(name)
                state = publication.state_of(connection, name) if ours in made else None
                if state is not None and publication.is_ours(state, settings):
                    publication.drop(connection, name)
                    removed.append(ours)
            removed += event_trigger.remove(connection, settings)
        return removed


def _slot_words(name: str) -> str:
    return f"replication slot {name}"


def _publication_words(name: str) -> str:
    return f"publication {name}"
