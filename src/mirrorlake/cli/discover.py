"""`mirrorlake discover`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json

if TYPE_CHECKING:
    from mirrorlake.sources.base import CheckResult
    from mirrorlake.sources.table import SourceTable


def discover(
    config: Config = DEFAULT,
    columns: Annotated[bool, typer.Option("--columns", help="Also show the columns.")] = False,
    as_json: Json = False,
) -> None:
    """Show the selected tables with their keys and columns, and the Delta type of each column.

    Settings that name columns and tables that are gone are named too.

    \b
    mirrorlake discover --columns
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.check import facts_of, say_findings
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.sources.base import CheckSeverity

    findings: list[CheckResult] = []
    tables = Mirror(project(config)).discover(findings.extend)
    findings = [one for one in findings if one.severity is not CheckSeverity.OK]
    if as_json:
        print_json(
            {
                "tables": [
                    {
                        "table": str(t.table),
                        "key": list(t.key),
                        "whole_rows": t.whole_rows,
                        "append_only": t.append_only or None,
                        "refused": t.refused.what if t.refused else None,
                        "rows": t.rows,
                        "columns": [
                            {
                                "name": column.name,
                                "type": str(column.type),
                                "source_type": str(t.source_types[column.name]),
                            }
                            for column in t.schema
                        ],
                    }
                    for t in tables
                ],
                "findings": [facts_of(one) for one in findings],
            }
        )
        return
    print_table(
        ["table", "key", "columns", "rows"],
        [
            [t.table, _key(t), len(t.schema), "" if t.rows is None else f"~{t.rows:,}"]
            for t in tables
        ],
    )
    say_findings(findings)
    if columns:
        rows = [[t.table, c.name, t.source_types[c.name], c.type] for t in tables for c in t.schema]
        print_table(["table", "column", "in the source", "in Delta"], rows)


def _key(table: SourceTable) -> str:
    if table.refused:
        return f"refused: {table.refused.what}"
    if table.whole_rows:
        return "none: all columns"
    return ", ".join(table.key) or f"append-only: {table.append_only}"
