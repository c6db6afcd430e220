"""Options that several commands share, and the settings behind them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mirrorlake.config import Project

Config = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The project file.")]
Root = Annotated[
    Path | None,
    typer.Option("--root", metavar="FOLDER", help="Work on this root, without a project file."),
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--root", metavar="FOLDER-OR-URL", help="Work on this root, without a project file."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]
Once = Annotated[
    bool,
    typer.Option("--once", help="Stop when everything that is there now is done."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step.")]

DEFAULT = Path("mirrorlake.yaml")


def project(config: Path, root: Path | None = None) -> Project:
    """The settings that a command works with. Raises ConfigError."""
    from mirrorlake import config as door
    from mirrorlake.errors import UsageError

    if root is None:
        return door.load(config)
    if config != DEFAULT:
        raise UsageError("--config and --root exclude each other", hint="Give one of them.")
    if not root.is_dir():
        raise UsageError(
            "there is no such folder",
            where=str(root),
            hint="Name the folder that holds Files/LandingZone. One at a URL needs a project file, "
            "with landing.url.",
        )
    return door.Project.of_root(root)
