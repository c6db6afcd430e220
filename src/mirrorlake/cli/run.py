"""`mirrorlake run`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlake.cli.options import DEFAULT, Config, Json, Log, LogJson, Once, Verbose

if TYPE_CHECKING:
    from mirrorlake.app.mirror import Mirror


def run(
    config: Config = DEFAULT,
    once: Once = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
    log: Log = None,
) -> None:
    """Mirror the source into Delta tables until stopped: capture and apply in one command.

    Checks what `mirrorlake check` checks first. A terminal shows one view of what goes on, and
    the log is written to Files/Mirrorlake/run.log below the root; elsewhere lines are logged.

    \b
    mirrorlake run
    mirrorlake run --once      stop when everything committed by now is readable in Delta
    """
    from mirrorlake.app.stores import store_of
    from mirrorlake.cli import logs
    from mirrorlake.cli.options import project
    from mirrorlake.cli.progress import apply_progress, load_progress
    from mirrorlake.cli.report import finish
    from mirrorlake.cli.run_view import RunView, log_file
    from mirrorlake.cli.working import working

    settings = project(config)
    quiet = as_json or log_json
    file = log or (None if once or quiet else log_file(settings))
    prepare = logs.later(verbose=verbose, quiet=as_json, as_json=log_json, file=file)
    view = RunView(settings.name, store_of(settings))
    with working(settings, prepare, view.say) as mirror:
        _check(mirror)
        prepare()
        with view.shown(quiet=quiet, once=once):
            if once:
                with load_progress() as loading:
                    mirror.capture_once(loading)
                with apply_progress() as applying:
                    report = mirror.apply_once(applying)
            else:
                view.told_log(file)
                report = mirror.run(view)
    finish(report, mirror.project, as_json=as_json)


def _check(mirror: Mirror) -> None:
    """Say what `check` finds, before anything is made or started."""
    from mirrorlake.cli.check import finding_lines
    from mirrorlake.cli.output import say
    from mirrorlake.cli.terminal import folded
    from mirrorlake.sources.base import CheckSeverity

    findings = [f for f in mirror.preflight() if f.severity is not CheckSeverity.OK]
    for line in finding_lines(findings):
        say(folded(line))
