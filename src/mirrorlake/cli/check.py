"""`mirrorlake check`"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json

if TYPE_CHECKING:
    from mirrorlake.sources.base import CheckResult


def check(
    config: Config = DEFAULT,
    as_json: Json = False,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the remedies as one SQL script, to review and run."),
    ] = False,
) -> None:
    """Check every prerequisite of the source, and print a remedy for each one that is not met.

    \b
    mirrorlake check
    mirrorlake check --sql > remedies.sql
    mirrorlake check --json | jq '.findings[] | select(.severity != "ok")'
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, say
    from mirrorlake.errors import UsageError
    from mirrorlake.sources.base import CheckSeverity

    if sql and as_json:
        raise UsageError("--sql and --json cannot be used together", hint="Use one of them.")
    findings = Mirror(project(config)).check()
    failed = [f for f in findings if f.severity is CheckSeverity.ERROR]
    if as_json:
        print_json(
            {
                "ok": not failed,
                "findings": [
                    {
                        "check": f.check,
                        "table": str(f.table) if f.table else None,
                        "severity": str(f.severity),
                        "message": f.message,
                        "remedy": f.remedy or None,
                    }
                    for f in findings
                ],
            }
        )
    else:
        for line in _script(findings) if sql else finding_lines(findings):
            typer.echo(line)
        say(f"{len(failed)} of {len(findings)} checks failed." if failed else "All checks passed.")
    if failed:
        raise typer.Exit(3 if any(f.check == "reachable" for f in failed) else 1)


def finding_lines(findings: Sequence[CheckResult]) -> Iterator[str]:
    """Each finding, and below it its remedy."""
    from mirrorlake.sources.base import CheckSeverity

    for finding in findings:
        yield f"{finding.severity:8} {_said(finding)}"
        if finding.severity is not CheckSeverity.OK and finding.remedy:
            yield f"         {finding.remedy}"


def _said(finding: CheckResult) -> str:
    location = f"{finding.table}: " if finding.table else ""
    return f"{location}{finding.check}: {finding.message}"


def _script(findings: Sequence[CheckResult]) -> Iterator[str]:
    """Every remedy as a comment, and below it its statement, where it is a whole one. Of two ways
    the first is the statement."""
    from mirrorlake.errors import printable
    from mirrorlake.sources.base import CheckSeverity

    for finding in findings:
        if finding.severity is not CheckSeverity.OK and finding.remedy:
            yield f"-- {finding.severity}: {printable(_said(finding))}"
            yield f"-- {printable(finding.remedy)}"
            statement = re.search(r"`((?:alter|create|grant) [^`]*)`", finding.remedy)
            if statement and _is_whole(statement[1]):
                yield f"{statement[1]};"
            yield ""


def _is_whole(statement: str) -> bool:
    """Whether it is one statement and nothing else: names in it may hold anything."""
    outside = re.sub(r"\"[^\"]*\"|'[^']*'", "", statement)
    return not re.search(r"[\"';\n]|--|/\*|\.\.\.", outside)
