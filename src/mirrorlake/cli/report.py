"""What commands that work say at the end, and their exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from mirrorlake import root
from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.cli.output import print_json, print_table, say
from mirrorlake.config import Project
from mirrorlake.errors import NotSelected
from mirrorlake.model.table import TableId

Stopped = Mapping[str, Mapping[str, Any]]
"""Table name to the error that stopped its capture."""


def finish(report: ApplyReport, project: Project, *, as_json: bool) -> None:
    """Print what was done; exit code 1 when a table stands still, in apply or in capture."""
    from mirrorlake.app.status import mirror_status
    from mirrorlake.app.stores import store_of

    stopped = mirror_status.stopped(project)
    tables = {str(table.table): table for table in report.tables.values()}
    # What stopped the capture of a table lies deeper than what stops its apply.
    failed = {name: table.error.facts() for name, table in tables.items() if table.error}
    errors: Stopped = {**failed, **stopped}
    targets = {str(name): error.facts() for name, error in report.stopped_targets.items()}
    names = sorted(tables.keys() | stopped.keys())
    found = {name: tables.get(name) or TableReport(TableId.parse(name), "") for name in names}
    if as_json:
        told = [_facts(found[name], errors.get(name)) for name in names]
        print_json({"tables": told, "stopped_targets": targets})
    elif names:
        print_table(
            ["table", "version", "files", "inserts", "updates", "deletes", ""],
            [_row(found[name], errors.get(name)) for name in names],
        )
    elif project.events is not None:
        say(f"{project.events.described} contains no event files that are new.")
    elif project.destination is not None:
        say(f"Event files are in {project.destination.described}.")
    else:
        say(f"The landing zone {store_of(project).location(root.LANDING)} contains no tables.")
    _end({**errors, **targets}, silent=as_json)


def finish_capture(project: Project) -> None:
    """Say which tables are no longer captured; exit code 1 when there are any."""
    from mirrorlake.app.status import mirror_status

    _end(mirror_status.stopped(project))


def _end(errors: Stopped, *, silent: bool = False) -> None:
    for name in [] if silent else sorted(errors):
        say(f"{name}: {errors[name]['message']}")
    # What somebody takes out of the selection is meant to stand still.
    if any(error["code"] != NotSelected.code for error in errors.values()):
        raise typer.Exit(1)


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
    said = f"stopped: {error['code']}" if error else table.waiting
    return [table.table, table.version, table.last_file or None, *counts, said]
