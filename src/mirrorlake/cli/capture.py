"""`mirrorlake capture`"""

from __future__ import annotations

from mirrorlake.cli.options import DEFAULT, Config, Log, LogJson, Once, Verbose


def capture(
    config: Config = DEFAULT,
    once: Once = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
    log: Log = None,
) -> None:
    """Write the changes of the source to the landing zone. Needs no JVM.

    \b
    mirrorlake capture           run until stopped, next to `mirrorlake apply`
    mirrorlake capture --once    stop when everything committed by now is written
    """
    from mirrorlake.app.stores import store_of
    from mirrorlake.cli import logs
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.report import finish_capture
    from mirrorlake.cli.run_view import RunView, log_file

    settings = project(config)
    file = log or (None if log_json else log_file(settings))
    prepare = logs.later(verbose=verbose, quiet=False, as_json=log_json, file=file)
    view = RunView(settings.name, store_of(settings))
    with interruptible_mirror(settings, prepare, view.say) as mirror:
        mirror.check_root()
        prepare()
        with view.shown(quiet=log_json, once=once):
            view.show_log(file)
            view.step("Reading the source" if once else "capturing; Ctrl-C stops")
            if once:
                mirror.capture_once(view.loading)
            else:
                mirror.capture_run(view.loading, view.retained)
    if once:
        finish_capture(mirror.project)
