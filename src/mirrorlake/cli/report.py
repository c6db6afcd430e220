"""What `run --once`, `apply` and `capture` print at the end, and their exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

from mirrorlake import root
from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.capture.backfill.jobs import BackfillJob
from mirrorlake.cli.output import print_json, print_table, say, show
from mirrorlake.config import Project
from mirrorlake.errors import NotSelected
from mirrorlake.model.table import TableId

Stopped = Mapping[str, Mapping[str, Any]]
"""Table name to the error that stopped its capture."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The result of a command for a mirror. errors: why tables have stopped; targets: why tables
    that are built from change feeds have stopped; due: backfills that are not complete, without
    which tables differ."""

    project: Project
    tables: Mapping[str, TableReport]
    errors: Stopped
    targets: Stopped
    due: Mapping[str, BackfillJob]

    @classmethod
    def of(cls, report: ApplyReport, project: Project, *, captured: bool) -> CommandOutcome:
        """captured: the command was to capture everything that was committed."""
        from mirrorlake.app.status import mirror_status

        stopped = mirror_status.stopped(project)
        tables = {str(table.table): table for table in report.tables.values()}
        # The error of capture comes first: it is the cause if both have stopped.
        failed = {name: table.error.facts() for name, table in tables.items() if table.error}
        due = mirror_status.due(project) if captured else {}
        names = sorted(tables.keys() | stopped.keys() | due.keys())
        found = {name: tables.get(name) or TableReport(TableId.parse(name), "") for name in names}
        targets = {str(name): error.facts() for name, error in report.stopped_targets.items()}
        return cls(project, found, {**failed, **stopped}, targets, due)

    def facts(self) -> dict[str, Any]:
        tables = [
            _facts(table, self.errors.get(name)) | {"differs": name in self.due}
            for name, table in self.tables.items()
        ]
        return {"tables": tables, "stopped_targets": self.targets}

    def show(self, title: str = "") -> None:
        """Print the result, and why tables have stopped. title: printed above the table."""
        from mirrorlake.app.events.status import dead_events
        from mirrorlake.app.stores import store_of

        project = self.project
        if self.tables:
            rows = [_row(table, self.errors.get(name)) for name, table in self.tables.items()]
            header = ["table", "version", "files", "inserts", "updates", "deletes", ""]
            if title:
                show(f"{title}:")
            print_table(header, rows)
        elif project.events is not None:
            say(f"{project.events.described} contains no new events to apply.")
        elif not project.lands:
            for destination in project.destinations:
                say(f"Event files are in {destination.described}.")
        else:
            say(f"The landing zone {store_of(project).location(root.LANDING)} contains no tables.")
        if project.events is not None and (dead := dead_events(store_of(project))):
            say(f"{dead:,} events could not be applied: mirrorlake dead-letters")
        _say({**self.errors, **self.targets}, self.due)

    @property
    def exit_code(self) -> int:
        return _exit_code({**self.errors, **self.targets}, self.due)


def finish(report: ApplyReport, project: Project, *, as_json: bool, captured: bool = False) -> None:
    """Print the result; exit code 1 if apply or capture of a table has stopped, and where all was
    to be `captured`, if a table still has to be read again."""
    outcome = CommandOutcome.of(report, project, captured=captured)
    if as_json:
        print_json(outcome.facts())
    else:
        outcome.show()
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def finish_capture(project: Project) -> None:
    """Print the tables that are no longer captured, or still have to be read again; exit code 1 if
    there are any."""
    from mirrorlake.app.status import mirror_status

    stopped, due = mirror_status.stopped(project), mirror_status.due(project)
    _say(stopped, due)
    if code := _exit_code(stopped, due):
        raise typer.Exit(code)


def _say(errors: Stopped, due: Mapping[str, BackfillJob]) -> None:
    for name in sorted(errors):
        say(f"{name}: {errors[name]['message']}")
    for name in sorted(due.keys() - errors.keys()):
        why = due[name].message or due[name].request.reason
        say(f"{name}: differs from its source until it has been read again: {why}")


def _exit_code(errors: Stopped, due: Mapping[str, BackfillJob]) -> int:
    # A table that was removed from the selection stops by intention, also before it is read again.
    is_due = bool(due.keys() - errors.keys())
    return int(is_due or any(error["code"] != NotSelected.code for error in errors.values()))


def _facts(table: TableReport, error: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "table": str(table.table),
        "path": table.path or None,
        "version": table.version,
        "last_file": table.last_file or None,
        "applied": {"insert": table.inserts, "update": table.updates, "delete": table.deletes},
        "commits": table.commits,
        "duplicates": table.duplicates,
        "waiting": table.waiting or None,
        "error": error,
    }


def _row(table: TableReport, error: Mapping[str, Any] | None) -> list[Any]:
    counts = [table.inserts, table.updates, table.deletes]
    note = f"stopped: {error['code']}" if error else table.waiting
    if not note and not table.commits:
        note = "no new files"
    return [table.table, table.version, table.last_file or None, *counts, note]
