"""`mirrorlake check`"""

from __future__ import annotations

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json


def check(config: Config = DEFAULT, as_json: Json = False) -> None:
    """Check every prerequisite of the source, and print a remedy for each one that is not met.

    \b
    mirrorlake check
    mirrorlake check --json | jq '.findings[] | select(.severity != "ok")'
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, say
    from mirrorlake.sources.base import CheckSeverity

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
        for finding in findings:
            location = f"{finding.table}: " if finding.table else ""
            typer.echo(f"{finding.severity:8} {location}{finding.check}: {finding.message}")
            if finding.severity is not CheckSeverity.OK and finding.remedy:
                typer.echo(f"         {finding.remedy}")
        say(f"{len(failed)} of {len(findings)} checks failed." if failed else "All checks passed.")
    if failed:
        raise typer.Exit(3 if any(f.check == "reachable" for f in failed) else 1)
