"""Options that several commands share, and the settings that they select."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mirrorlake.config import Project

Config = Annotated[
    Path,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Project file; FILE#NAME is one mirror of several."
    ),
]
Root = Annotated[
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


def _size(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is no size, such as 20MiB") from None


BytesPerSecond = Annotated[
    int | None,
    typer.Option(
        "--max-bytes-per-second",
        metavar="SIZE",
        parser=_size,
        help="Backfill no more bytes of rows than this, such as 20MiB.",
    ),
]

NoVerify = Annotated[
    bool,
    typer.Option("--no-verify", help="Read the tables without verifying their page checksums."),
]

DEFAULT = Path("mirrorlake.yaml")


def project(config: Path, root: str | None = None) -> Project:
    """The settings for a command. Raises ConfigError."""
    from mirrorlake import config as door
    from mirrorlake.app.own_root import of_root
    from mirrorlake.errors import UsageError

    if root is None:
        return door.load(config)
    if config != DEFAULT:
        raise UsageError("--config and --root cannot be used together", hint="Use one of them.")
    return of_root(root)


def projects(config: Path, root: str | None = None) -> list[Project]:
    """The settings of all mirrors of the file. Raises ConfigError."""
    from mirrorlake import config as door

    return door.load_all(config) if root is None else [project(config, root)]


def brief(project: Project) -> Project:
    """The settings for a short command."""
    return replace(project, spark=replace(project.spark, brief=True))


def folder_of_tables(project: Project, instead: str) -> Path:
    """The root of a mirror whose tables are in a folder. instead: hint for tables elsewhere. Raises
    UsageError."""
    from mirrorlake.errors import UsageError
    from mirrorlake.storage.local import check_folder

    if isinstance(project.root, Path) and project.tables is None:
        check_folder(project.root)
        return project.root
    raise UsageError(
        "this command cannot read tables on an object store",
        where=project.tables.url if project.tables else project.where,
        hint=instead,
    )
