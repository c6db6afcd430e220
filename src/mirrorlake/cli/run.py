"""`mirrorlake run`"""

from __future__ import annotations

from mirrorlake.cli.options import DEFAULT, Config, Json, Log, LogJson, Once, Verbose


def run(
    config: Config = DEFAULT,
    once: Once = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
    log: Log = None,
) -> None:
    """Mirror the source into Delta tables until stopped: capture and apply in one command.
    A project file may list several mirrors, which run side by side.

    Performs the checks of `mirrorlake check` first. On a terminal it shows a live view and writes
    the log to Files/Mirrorlake/run.log below the root; elsewhere it logs lines.

    \b
    mirrorlake run
    mirrorlake run --once      stop when everything committed by now is readable in Delta
    """
    from mirrorlake.app.stores import store_of
    from mirrorlake.cli import logs
    from mirrorlake.cli.check import say_findings
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import brief, projects
    from mirrorlake.cli.report import finish
    from mirrorlake.cli.run_several import run_once, run_until_stopped
    from mirrorlake.cli.run_view import RunView, log_file

    settings, *others = map(brief, projects(config)) if once else projects(config)
    if others:
        prepare = logs.configure(verbose=verbose, quiet=as_json, as_json=log_json, file=log)
        if once:
            run_once([settings, *others], prepare, as_json=as_json)
        else:
            run_until_stopped([settings, *others], prepare)
        return
    quiet = as_json or log_json
    file = log or (None if quiet else log_file(settings))
    prepare = logs.later(verbose=verbose, quiet=as_json, as_json=log_json, file=file)
    view = RunView(settings.name, store_of(settings))
    with interruptible_mirror(settings, prepare, view.say) as mirror:
        mirror.preflight(say_findings)
        prepare()
        with view.shown(quiet=quiet, once=once):
            view.show_log(file)
            if once:
                view.step("Reading the source")
                mirror.capture_once(view.loading)
                report = mirror.apply_once(view.pending, view)
            else:
                report = mirror.run(view)
    finish(report, mirror.project, as_json=as_json, captured=once)
