"""`mirrorlake demo`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import Json

if TYPE_CHECKING:
    from mirrorlake.demo.demo import Demo, DemoResult
    from mirrorlake.demo.verify import Verdict


def demo(
    rows: Annotated[
        int, typer.Option(min=1_000, help="Number of rows to load, over all tables.")
    ] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of changes to mirror.")] = 30,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Folder to work in. Default: a new temporary folder."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder even if the demo is stopped or fails.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Mirror a sample database while it changes, and verify the result row by row.

    Starts an embedded PostgreSQL, loads a sample shop, mirrors it into Delta tables while it
    changes, and compares every row and value at the end. Exits with 1 if there is any difference.
    The tables are kept so that you can query them. Ctrl-C stops the demo with exit code 130 and
    removes everything except a folder given with --dir.

    \b
    mirrorlake demo
    mirrorlake demo --rows 100000 --seconds 10 --dir ./demo
    """
    import tempfile

    from mirrorlake.cli import logs
    from mirrorlake.cli.output import print_json
    from mirrorlake.cli.stage import stage
    from mirrorlake.cli.stop import exit_at_once
    from mirrorlake.demo.demo import Demo, DemoSettings

    prepare = logs.configure(quiet=True)
    keep = keep or folder is not None
    if folder is not None:
        _check_empty(folder)
    location = (folder or Path(tempfile.mkdtemp(prefix="mirrorlake-demo-"))).absolute()
    with stage() as shown:
        run = Demo(location, DemoSettings(rows, seconds), shown, prepare)
        exit_at_once(
            lambda: _abandon(run, location, keep=keep), _closing_message(location, keep=keep)
        )
        try:
            result = run.run()
        except BaseException:
            _abandon(run, location, keep=keep)
            raise
    if as_json:
        print_json(result.facts())
    else:
        _show(result, is_temporary=folder is None)
    if not result.verified:
        raise typer.Exit(1)


def _abandon(run: Demo, location: Path, *, keep: bool) -> None:
    import shutil
    import time

    run.abandon()
    for _ in range(0 if keep else 20):  # Spark's workers may write for a moment after its end
        shutil.rmtree(location, ignore_errors=True)
        time.sleep(0.05)
        if not location.exists():
            break


def _closing_message(location: Path, *, keep: bool) -> str:
    left = f"its folder is {location}" if keep else "its tables were removed"
    return f"The demo and its PostgreSQL were stopped; {left}."


def _check_empty(folder: Path) -> None:
    from mirrorlake.errors import UsageError

    if (folder / "lake").exists():
        raise UsageError(
            "the folder contains an earlier demo",
            where=str(folder / "lake"),
            hint="Delete it, or choose another folder.",
        )


def _show(result: DemoResult, *, is_temporary: bool) -> None:
    from mirrorlake.cli.output import print_table

    typer.echo("")
    print_table(
        ["table", "rows", "inserts", "updates", "deletes", "versions", "verified"],
        [
            [
                t.verdict.table,
                f"{t.verdict.rows:,}",
                f"{t.inserts:,}",
                f"{t.updates:,}",
                f"{t.deletes:,}",
                t.versions,
                "yes" if t.verdict.verified else _differences(t.verdict),
            ]
            for t in result.tables
        ],
    )
    fresh = result.freshness
    typer.echo("")
    typer.echo(f"load        {result.load_rows_per_second:,.0f} rows/s, PostgreSQL to Delta")
    typer.echo(f"changes     {result.changes_per_second:,.0f} rows/s, at the rate of the workload")
    typer.echo(
        f"freshness   p50 {_seconds(fresh.p50)}, p99 {_seconds(fresh.p99)}, max "
        f"{_seconds(fresh.max)}, commit to readable"
    )
    typer.echo("")
    if result.verified:
        typer.echo("Every row and value of the mirror, and its change feed, match PostgreSQL.")
    else:
        typer.echo("The mirror DIFFERS from PostgreSQL.")
    _show_next_commands(result.root, is_temporary=is_temporary)


def _show_next_commands(root: Path, *, is_temporary: bool) -> None:
    """Print commands that work unchanged in the folder where the demo was started."""
    import shlex

    from mirrorlake.cli.output import program

    name, at = program(), shlex.quote(str(root))
    by_status = "select status, count(*), sum(total) from shop.orders group by 1"
    typer.echo("\nTo explore the result:")
    typer.echo(f"  {name} status --root {at}")
    typer.echo(f'  {name} sql --root {at} "{by_status}"')
    typer.echo(f'  {name} sql --root {at} --json "from shop.products limit 3"')
    if is_temporary:
        typer.echo("\nThe tables are kept until you delete them:")
        typer.echo(f"  rm -r {shlex.quote(str(root.parent))}")


def _differences(verdict: Verdict) -> str:
    return (
        f"NO: {verdict.missing} rows missing or different, {verdict.unexpected} unexpected, "
        f"{verdict.feed_differs} differences in the feed"
    )


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"
