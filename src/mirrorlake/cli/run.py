"""`mirrorlake run`"""

from __future__ import annotations

from mirrorlake.cli.options import DEFAULT, Config, Json, LogJson, Once, Verbose


def run(
    config: Config = DEFAULT,
    once: Once = False,
    as_json: Json = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Mirror the source into Delta tables until stopped: capture and apply in one command.

    \b
    mirrorlake run
    mirrorlake run --once      stop when everything committed by now is readable in Delta
    """
    from mirrorlake.cli import logs
    from mirrorlake.cli.options import project
    from mirrorlake.cli.progress import apply_progress, load_progress
    from mirrorlake.cli.report import finish
    from mirrorlake.cli.working import working

    prepare = logs.configure(verbose=verbose, quiet=as_json, as_json=log_json)
    with working(project(config), prepare) as mirror:
        if once:
            with load_progress() as loading:
                mirror.capture_once(loading)
            with apply_progress() as applying:
                report = mirror.apply_once(applying)
        else:
            report = mirror.run()
    finish(report, mirror.project, as_json=as_json)
