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
    from mirrorlake.cli import logs
    from mirrorlake.cli.options import project
    from mirrorlake.cli.progress import load_progress
    from mirrorlake.cli.report import finish_capture
    from mirrorlake.cli.working import working

    logs.configure(verbose=verbose, as_json=log_json, file=log)
    with working(project(config)) as mirror, load_progress() as progress:
        if once:
            mirror.capture_once(progress)
        else:
            mirror.capture_run(progress)
    if once:
        finish_capture(mirror.project)
