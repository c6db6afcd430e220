"""`mirrorlake apply`"""

from __future__ import annotations

from mirrorlake.cli.options import DEFAULT, Config, Json, Log, LogJson, Once, Root, Verbose


def apply(
    config: Config = DEFAULT,
    root: Root = None,
    once: Once = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
    log: Log = None,
) -> None:
    """Apply the files of the landing zone to the Delta tables, on Spark.

    \b
    mirrorlake apply                           run until stopped, next to `mirrorlake capture`
    mirrorlake apply --once --root ./zone      a landing zone that another program fills
    """
    from mirrorlake.app.stores import store_of
    from mirrorlake.cli import logs
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import brief, project
    from mirrorlake.cli.report import finish
    from mirrorlake.cli.run_view import RunView, log_file

    settings = project(config, root)
    settings = brief(settings) if once else settings
    quiet = as_json or log_json
    file = log or (None if quiet else log_file(settings))
    is_quiet = as_json or (once and file is None)
    prepare = logs.later(verbose=verbose, quiet=is_quiet, as_json=log_json, file=file)
    view = RunView(settings.name, store_of(settings))
    with interruptible_mirror(settings, prepare, view.say) as mirror:
        mirror.check_root()
        prepare()
        with view.shown(quiet=quiet, once=once):
            view.show_log(file)
            report = mirror.apply_once(view.pending, view) if once else mirror.apply_run(view)
    finish(report, mirror.project, as_json=as_json)
