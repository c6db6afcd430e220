"""Options that several commands share, and the settings behind them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mirrorlake.config import Project

Config = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="Project file.")]
Root = Annotated[
    Path | None,
    typer.Option("--root", metavar="FOLDER", help="Use this root, without a project file."),
]
Folder = Annotated[
    str | None,
    typer.Option("--root", metavar="FOLDER-OR-URL", help="Use this root, without a project file."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Once = Annotated[
    bool,
    typer.Option("--once", help="Process what exists now, then stop."),
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON, one object on each line.")]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append the log to this file."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step.")]

DEFAULT = Path("mirrorlake.yaml")


def project(config: Path, root: Path | None = None) -> Project:
    """The settings that a command works with. Raises ConfigError."""
    from mirrorlake import config as door
    from mirrorlake.app.own_root import of_root
    from mirrorlake.errors import UsageError

    if root is None:
        return door.load(config)
    if config != DEFAULT:
        raise UsageError("--config and --root cannot be used together", hint="Use one of them.")
    return of_root(root)
