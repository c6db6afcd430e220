"""What we make in PostgreSQL: a replication slot, and publications."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirrorlake.errors import PrerequisiteMissing, printable
from mirrorlake.sources.base import CheckResult, CheckSeverity, Established
from mirrorlake.sources.postgresql import publication
from mirrorlake.sources.postgresql import slot as slots
from mirrorlake.sources.postgresql.connect import Connection, translated
from mirrorlake.sources.postgresql.decoder import NotedIn
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.snapshot import at_slot
from mirrorlake.sources.table import SourceTable


class PostgresObjects:
    """The `ManagedObjects` of one PostgreSQL source."""

    def __init__(
        self, settings: PostgresSettings, sql: Callable[[], Connection], noted: NotedIn
    ) -> None:
        self._settings, self._sql, self._noted = settings, sql, noted

    def occupied(self) -> CheckResult | None:
        slot = self._settings.slot
        with translated():
            state = slots.slot_state(self._sql(), slot)
            if state is None:
                return None
            made = publication.state_of(self._sql(), self._settings.publication)
        home = publication.home_of(made, self._settings) if made else None
        message = f"{_slot_words(slot)} already exists"
        hint = (
            "Set root to the folder for which it was created, or choose another name in "
            "source.slot."
        )
        unused = "If the slot is not used any more, drop it with `mirrorlake detach` there"
        if home is not None:
            message = f"{_slot_words(slot)} was created for the landing zone {printable(home)}"
            hint = f"{hint} {unused}."
        elif not state.active_pid:
            hint = f"{hint} {unused}, or with `select pg_drop_replication_slot('{slot}')`."
        if state.active_pid:
            message += ", and a running mirror reads it"
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

    def establish(self, tables: Sequence[SourceTable]) -> Established:
        connection, settings = self._sql(), self._settings
        with translated():
            state = slots.slot_state(connection, settings.slot)
            if state and state.active_pid:
                raise PrerequisiteMissing(
                    f"replication slot {settings.slot} is in use by process {state.active_pid}",
                    where="PostgreSQL",
                    hint="Choose another name in source.slot.",
                )
            publications = publication.create(connection, settings, tables)
            slots.drop_slot(connection, settings.slot)
        snapshot = at_slot(settings, settings.slot, self._noted, temporary=False)
        made = [_slot_words(settings.slot), *map(_publication_words, publications)]
        return Established(snapshot, made)

    def include(self, tables: Sequence[SourceTable]) -> None:
        with translated():
            publication.include(self._sql(), self._settings, tables)

    def name_home(self, home: str) -> None:
        with translated():
            publication.name_home(self._sql(), self._settings, home)

    def retained(self) -> int | None:
        with translated():
            return slots.retained(self._sql(), self._settings.slot)

    def detach(self, made: Sequence[str]) -> list[str]:
        connection, settings = self._sql(), self._settings
        removed = []
        with translated():
            ours = _slot_words(settings.slot)
            if ours in made and slots.slot_state(connection, settings.slot):
                slots.drop_slot(connection, settings.slot)
                removed.append(ours)
            for name in (settings.publication, settings.append_publication):
                ours = _publication_words(name)
                if ours in made and publication.state_of(connection, name):
                    publication.drop(connection, name)
                    removed.append(ours)
        return removed


def _slot_words(name: str) -> str:
    return f"replication slot {name}"


def _publication_words(name: str) -> str:
    return f"publication {name}"
