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
    from mirrorlake.sources.base import REACHABLE, URL_CHECK, CheckSeverity

    if sql and as_json:
        raise UsageError("--sql and --json cannot be used together", hint="Use one of them.")
    findings = Mirror(project(config)).check()
    failed = [f for f in findings if f.severity is CheckSeverity.ERROR]
    if as_json:
        print_json(
            {
                "ok": not failed,
                "findings": [facts_of(finding) for finding in findings],
            }
        )
    else:
        if sql:
            typer.echo("\n".join(_script(findings)))
        else:
            show_findings(findings)
        say(f"{len(failed)} of {len(findings)} checks failed." if failed else "All checks passed.")
    if failed:
        checks = {finding.check for finding in failed}
        raise typer.Exit(2 if URL_CHECK in checks else 3 if REACHABLE in checks else 1)


INDENT = " " * 9
"""Indentation of the lines below the severity of a finding."""


def show_findings(findings: Sequence[CheckResult]) -> None:
    """Print all findings."""
    from mirrorlake.cli.output import show

    for line in finding_lines(findings):
        show(line, INDENT)


def facts_of(finding: CheckResult) -> dict[str, str | None]:
    """A finding in JSON."""
    return {
        "check": finding.check,
        "table": str(finding.table) if finding.table else None,
        "severity": str(finding.severity),
        "message": finding.message,
        "remedy": finding.remedy or None,
    }


def say_findings(findings: Sequence[CheckResult], mirror: str = "") -> None:
    """Print the warnings and errors to standard error. mirror: its name, if there are several."""
    from mirrorlake.cli.output import say
    from mirrorlake.sources.base import CheckSeverity

    for line in finding_lines([f for f in findings if f.severity is not CheckSeverity.OK]):
        say(f"{mirror}: {line}" if mirror else line, INDENT)


def finding_lines(findings: Sequence[CheckResult]) -> Iterator[str]:
    """The lines of each finding, with its remedy below. The names of tables are from outside."""
    from mirrorlake.errors import printable
    from mirrorlake.sources.base import CheckSeverity

    for finding in findings:
        yield f"{finding.severity:8} {_sentence(finding)}"
        if finding.severity is not CheckSeverity.OK and finding.remedy:
            yield f"{INDENT}{printable(finding.remedy)}"


def _sentence(finding: CheckResult) -> str:
    from mirrorlake.errors import printable

    location = f"{printable(finding.table)}: " if finding.table else ""
    return f"{location}{finding.check}: {printable(finding.message)}"


def _script(findings: Sequence[CheckResult]) -> Iterator[str]:
    """Each remedy as a comment, followed by its SQL if that is a complete statement. If there are
    two remedies, the first is the statement. Or the script of the finding."""
    from mirrorlake.errors import printable
    from mirrorlake.sources.base import CheckSeverity

    written: set[str] = set()
    for finding in findings:
        if finding.severity is not CheckSeverity.OK and finding.remedy:
            yield f"-- {finding.severity}: {printable(_sentence(finding))}"
            yield f"-- {printable(finding.remedy)}"
            statement = re.search(r"`((?:alter|create|grant) [^`]*)`", finding.remedy)
            if statement and _is_whole(statement[1]) and statement[1] not in written:
                written.add(statement[1])
                yield f"{statement[1]};"
            if finding.script:
                yield finding.script
            yield ""


def _is_whole(statement: str) -> bool:
    """Whether the text is exactly one statement. Names in it may contain any character."""
    outside = re.sub(r"\"[^\"]*\"|'[^']*'", "", statement)
    return not re.search(r"[\"';\n]|--|/\*|\.\.\.", outside)
