"""`mirrorlake plan`"""

from __future__ import annotations

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def plan(config: Config = DEFAULT, root: Root = None, as_json: Json = False) -> None:
    """Show what `apply` would do now. Changes nothing, and needs no JVM.

    \b
    mirrorlake plan
    mirrorlake plan --root ./zone --json
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, show
    from mirrorlake.mirror.explain import as_fact, explain

    planned = Mirror(project(config, root)).plan()
    if as_json:
        print_json(
            {
                "tables": [
                    {
                        "table": str(table.table),
                        "state": str(table.state),
                        "path": table.path,
                        "steps": [as_fact(step) for step in table.steps],
                        "waiting": table.waiting or None,
                        "error": table.error.facts() if table.error else None,
                    }
                    for table in planned
                ]
            }
        )
    else:
        for line in explain(planned) or ["Nothing to do: no landed file is waiting."]:
            show(line)
    if any(table.error for table in planned):
        raise typer.Exit(1)
