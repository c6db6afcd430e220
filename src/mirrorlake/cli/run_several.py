"""`mirrorlake run` of a project file with several mirrors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import typer

from mirrorlake.app.mirror import Mirror
from mirrorlake.cli.check import say_findings
from mirrorlake.cli.interruptible_mirror import interruptible_mirrors
from mirrorlake.cli.output import print_json, say
from mirrorlake.cli.report import CommandOutcome
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError

Prepare = Callable[[], None]


def run_until_stopped(projects: Sequence[Project], prepare: Prepare) -> None:
    """Run all mirrors side by side. Exits with 1 if one of them cannot continue."""
    from mirrorlake.app.running.several import SeveralMirrors

    with interruptible_mirrors(projects, prepare) as mirrors:
        for mirror in mirrors:
            try:
                _check(mirror)
            except MirrorlakeError as error:
                _say_error(
                    mirror.project.name, error
                )  # the others run, and this mirror may recover
        lost = SeveralMirrors(projects, mirrors[0].stop, prepare, _say_error).run()
    if lost:
        raise typer.Exit(1)


def run_once(projects: Sequence[Project], prepare: Prepare, *, as_json: bool) -> None:
    """Run the mirrors one after another. Exits with the largest of their codes."""
    results: dict[str, Any] = {}
    code = 0
    with interruptible_mirrors(projects, prepare) as mirrors:
        for mirror in mirrors:
            name = mirror.project.name
            try:
                _check(mirror)
                if mirror.project.source is not None:
                    mirror.capture_once()
                outcome = CommandOutcome.of(mirror.apply_once(), mirror.project, captured=True)
            except MirrorlakeError as error:
                results[name], code = {"error": error.facts()}, max(code, error.exit_code)
                _say_error(name, error)
                continue
            results[name], code = outcome.facts(), max(code, outcome.exit_code)
            if not as_json:
                outcome.show(name)
    if as_json:
        print_json({"mirrors": results})
    if code:
        raise typer.Exit(code)


def _check(mirror: Mirror) -> None:
    """Print the findings of `check`. A landing zone that another program fills has no source."""
    project = mirror.project
    if project.source is not None or project.events is not None:
        mirror.preflight(partial(say_findings, mirror=project.name))


def _say_error(mirror: str, error: MirrorlakeError) -> None:
    say(f"{mirror}: {error}")
