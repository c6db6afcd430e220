"""The program `mirrorlake`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from mirrorlake import __version__
from mirrorlake.app import extras
from mirrorlake.cli import (
    apply,
    archive,
    backfill,
    capture,
    check,
    convert,
    cut,
    dead_letters,
    demo,
    detach,
    discover,
    enable_feed,
    errors,
    feed,
    feed_views,
    files,
    history,
    init,
    lint,
    maintain,
    objects,
    plan,
    profiles,
    publish,
    read,
    recover,
    repair,
    replay,
    reset,
    serve,
    sql,
    status,
    streams,
    subscriptions,
    trace,
    verify,
    wait,
)
from mirrorlake.cli import run as run_command
from mirrorlake.cli.output import fail
from mirrorlake.errors import MirrorlakeError, StorageUnavailable

app = typer.Typer(
    name="mirrorlake",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is three times as fast
    pretty_exceptions_enable=False,
    help="Keeps Delta tables equal to operational databases, continuously and exactly once.\n\n"
    "\b\n"
    "mirrorlake demo                    try it with an embedded database\n"
    "mirrorlake init postgresql://...   create a project file for your database\n"
    "mirrorlake check                   check every prerequisite\n"
    "mirrorlake run                     mirror until stopped\n"
    "mirrorlake status                  show the state of each table\n"
    'mirrorlake sql "select ..."        query the mirrored tables\n'
    "mirrorlake feed shop.orders --follow  show the changes of a table as they come\n"
    "mirrorlake lint ./shop             check a landing zone against the specification\n"
    "\n"
    "Exit codes: 0 success, 1 problems were found, 2 wrong usage or configuration, 3 a required "
    "system is not available. The demo also uses 130 (Ctrl-C) and 143 (SIGTERM).",
)

for command in (
    demo.demo,
    init.init,
    check.check,
    discover.discover,
    plan.plan,
    run_command.run,
    capture.capture,
    apply.apply,
    status.status,
    files.files,
    sql.sql,
    feed.feed,
    feed_views.feed_views,
    enable_feed.enable_feed,
    subscriptions.subscriptions,
    recover.recover,
    cut.cut,
    wait.wait,
    trace.trace,
    history.history,
    archive.archive,
    replay.replay,
    read.read,
    backfill.backfill,
    repair.repair,
    verify.verify,
    reset.reset,
    maintain.maintain,
    detach.detach,
    publish.publish,
    convert.convert,
    lint.lint,
    serve.serve,
    streams.streams,
    profiles.profiles,
    objects.objects,
    errors.errors,
    dead_letters.dead_letters,
):
    app.command()(command)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"mirrorlake {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    from mirrorlake.cli import logs

    del version
    # Standard output is for facts; a command may configure more logging than this.
    logs.configure(quiet=True)


def run() -> None:
    """Run the program. A MirrorlakeError is printed as one sentence and sets the exit code."""
    try:
        _run()
    except SystemExit:
        try:
            _flush_output()  # Python would do it later, with an error of its own
        except BrokenPipeError:
            _discard_output()
        except OSError as error:
            _output_failed(error)
        raise
    except BrokenPipeError:  # an error was written, and nobody reads it
        _discard_output()
        sys.exit(1)
    except OSError as error:
        if StorageUnavailable.of(error) is None:
            raise
        _output_failed(error)


def _run() -> None:
    try:
        app(standalone_mode=True, prog_name="mirrorlake")
    except MirrorlakeError as error:
        fail(error, as_json="--json" in sys.argv)
    except ImportError as error:
        absent = extras.missing(error)
        if absent is None:
            raise
        fail(absent, as_json="--json" in sys.argv)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has closed the pipe.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        refused = StorageUnavailable.of(error)
        if refused is None:
            raise
        _flush_output()  # fails if it was the output that was refused
        fail(refused, as_json="--json" in sys.argv)


def _flush_output() -> None:
    # None where the process began without standard output.
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def _discard_output() -> None:
    """Drop what is left of the output, and all that follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _output_failed(error: OSError) -> NoReturn:
    _discard_output()
    hint = (StorageUnavailable.of(error) or StorageUnavailable("")).hint
    said = (error.strerror or "failed").lower()
    fail(StorageUnavailable(f"the output cannot be written: {said}", hint=hint), as_json=False)


if __name__ == "__main__":
    run()
