"""`mirrorlake apply`"""

from __future__ import annotations

from mirrorlake.cli.options import DEFAULT, Config, Json, LogJson, Once, Root, Verbose


def apply(
    config: Config = DEFAULT,
    root: Root = None,
    once: Once = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Apply the files of the landing zone to the Delta tables, on Spark.

    \b
    mirrorlake apply                           run until stopped, next to `mirrorlake capture`
    mirrorlake apply --once --root ./zone      a landing zone that another program fills
    """
    from mirrorlake.cli import logs
    from mirrorlake.cli.options import project
    from mirrorlake.cli.progress import apply_progress
    from mirrorlake.cli.report import finish
    from mirrorlake.cli.working import working

    logs.configure(verbose=verbose, quiet=as_json or once, as_json=log_json)
    with working(project(config, root)) as mirror, apply_progress() as progress:
        report = mirror.apply_once(progress) if once else mirror.apply_run()
    finish(report, mirror.project, as_json=as_json)
