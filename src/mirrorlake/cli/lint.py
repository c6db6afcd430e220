"""`mirrorlake lint`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import Json, Root

if TYPE_CHECKING:
    from mirrorlake.errors import MirrorlakeError
    from mirrorlake.lint import Finding, Profile, Reading, Result, Target


class SpecVersion(StrEnum):
    """The published versions of the specification."""

    V1 = "v1"
    V2 = "v2"


def lint(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH-OR-URL]",
            help="A root, a landing zone, a schema folder or a table folder.",
            show_default=False,
        ),
    ] = None,
    root: Root = None,
    version: Annotated[
        SpecVersion,
        typer.Option("--version", help="Version of the specification that the publisher follows."),
    ] = SpecVersion.V2,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also check what only the original service requires.")
    ] = False,
    partitions: Annotated[
        bool,
        typer.Option("--partitions", help="Read partition folders, like landing.partitions: true."),
    ] = False,
    read_all: Annotated[
        bool,
        typer.Option(
            "--read-all", help="Read every row. By default large landing zones are sampled."
        ),
    ] = False,
    sarif: Annotated[
        Path | None,
        typer.Option(
            "--sarif",
            metavar="FILE",
            help="Also write the findings as SARIF 2.1.0, for code review tools.",
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="CLAUSE", help="Print the page of a finding, and exit."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report which clauses of the specification the files of a landing zone violate.

    Reads only, and needs no Spark. Exits with 1 if there are errors.

    \b
    mirrorlake lint ./shop
    mirrorlake lint --root ./shop
    mirrorlake lint ./shop/Files/LandingZone/orders --strict --read-all
    mirrorlake lint s3://bucket/shop
    mirrorlake lint ./shop --json | jq '.findings[] | select(.severity == "error")'
    mirrorlake lint --explain LZ-117
    """
    from mirrorlake.errors import UsageError
    from mirrorlake.lint import Profile, Reading, Version, of_location

    if explain is not None:
        _explain(explain)
        return
    if path is not None and root is not None:
        raise UsageError("PATH and --root cannot be used together", hint="Use one of them.")
    path = path or root
    if path is None:
        raise UsageError("no path was given", hint="Name a folder: mirrorlake lint PATH.")
    target = of_location(path)
    profile = Profile(Version(version), strict, partitions)
    result = _lint(target, path, profile, Reading(everything=read_all), sarif)
    failed = sarif and _write_sarif(result, target.root, sarif)
    if as_json:
        _print_facts(result)
    else:
        _print(result)
    if failed:
        raise failed
    if not result.is_good:
        raise typer.Exit(1)


def _lint(
    target: Target, path: str, profile: Profile, reading: Reading, sarif: Path | None
) -> Result:
    from mirrorlake import lint as linter
    from mirrorlake.cli.progress import bars
    from mirrorlake.errors import UsageError
    from mirrorlake.storage.urls import is_url

    inside = not is_url(path) and sarif and sarif.resolve().is_relative_to(Path(path).resolve())
    if inside:
        raise UsageError(
            "the linter does not write into the landing zone that it checks",
            where=str(sarif),
            hint="Write the SARIF file to another folder.",
        )
    if sarif is not None:
        _check_writable(sarif)
    with bars() as show:
        return linter.lint(
            target, profile, reading, lambda _table, done, most: show("tables", done, most)
        )


def _check_writable(file: Path) -> None:
    """Raises UsageError for a file that cannot be written: a lint may take long. Nothing is
    opened, because that ends what reads from a pipe."""
    import os

    from mirrorlake.errors import unwritable

    if file.is_dir():
        raise unwritable(file, "it is a folder")
    if not file.parent.is_dir():
        raise unwritable(file, "there is no such folder")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise unwritable(file, "permission denied")


def _write_sarif(result: Result, root: Path | str, file: Path) -> MirrorlakeError | None:
    """Returns why it could not be written, after which the findings are still printed."""
    import json

    from mirrorlake import __version__
    from mirrorlake.errors import StorageUnavailable, unwritable
    from mirrorlake.lint.sarif import log

    text = json.dumps(log(result, root, __version__), indent=2, ensure_ascii=False) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        return StorageUnavailable.of(error) or unwritable(file, error.strerror or str(error))
    return None


def _explain(clause: str) -> None:
    from mirrorlake.errors import UsageError
    from mirrorlake.lint.markdown import clauses, page

    clause_id = clause.upper()
    if clause_id not in clauses():
        raise UsageError(
            f"there is no finding {clause}",
            hint="The findings are listed in docs/reference/findings.",
        )
    typer.echo(page(clause_id), nl=False)


def _print(result: Result) -> None:
    from mirrorlake.cli.output import say

    for finding in result.findings:
        _print_finding(finding)
    for (rule, table), count in sorted(result.report.more.items(), key=str):
        typer.echo(f"{count:,} more of {rule}" + (f" in {table}" if table else ""))
    for path, why in result.unreadable:
        say(f"{path} could not be read: {why}")
    say(_summary(result))
    if unread := result.unread.summary():
        say(f"{unread} Add --read-all to read them.")


def _print_finding(finding: Finding) -> None:
    from mirrorlake.cli.output import show

    location = finding.location
    line = f":{location.line}:{location.character}" if location.line is not None else ""
    named = (("row", location.row), ("column", location.column))
    where = "".join(f", {name} {fact}" for name, fact in named if fact is not None)
    indent = " " * 8
    show(f"{finding.severity:7} {finding.rule.id}  {location.path}{line}{where}", indent)
    show(f"{indent}{finding.rule.title}: {finding.found}", indent)
    show(f"{indent}Expected: {finding.expected}", indent)
    show(f"{indent}{finding.rule.mend}", indent)


def _summary(result: Result) -> str:
    from mirrorlake.lint import Severity
    from mirrorlake.lint.finding import counted

    counts = [
        counted(count, severity)
        for severity in Severity
        if (count := result.report.count(severity))
    ]
    checked = f"{counted(result.tables, 'table')} and {counted(result.files, 'data file')}"
    return f"{', '.join(counts) or 'Nothing found'} in {checked}."


def _print_facts(result: Result) -> None:
    from mirrorlake.cli.output import print_json
    from mirrorlake.lint import Severity

    print_json(
        {
            "ok": result.is_good,
            "tables": result.tables,
            "files": result.files,
            "counts": {str(severity): result.report.count(severity) for severity in Severity},
            "findings": [finding.facts() for finding in result.findings],
            "more": [
                {"rule": rule, "table": str(table) if table else None, "count": count}
                for (rule, table), count in sorted(result.report.more.items(), key=str)
            ],
            "unread": result.unread.facts(),
            "unreadable": [{"path": path, "reason": why} for path, why in result.unreadable],
        }
    )
