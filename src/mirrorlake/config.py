"""The door: `mirrorlake.yaml` and the environment in, frozen settings of each part out.

Every refusal names file, line, field and rule, and never the value: it may be a secret. Nothing
below this file reads the environment.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import structlog
import yaml
from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    PositiveInt,
    SecretStr,
    ValidationError,
)

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.strategy import Wanted
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.selection import Selection
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import StorageLocation, check_url

log = structlog.get_logger()

SETTING_RENAMED = "setting_renamed"
_RENAMED = {("capture", "settle_seconds"): "debounce_seconds"}
"""Names of settings before this release, by section; they still work, with a warning."""

FILE = "mirrorlake.yaml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SLOT = r"^[a-z0-9_]{1,63}$"
ON_OBJECTS = ("s3", "s3a")
"""Schemes of URLs below which tables are written."""
_SAFE_DAYS = 7
_LONGEST_DAYS, _LONGEST_SECONDS = 36_500, 86_400


@dataclass(frozen=True, slots=True)
class Project:
    """A mirror: what it is called, where it lies, and the settings of its parts.

    source: None for a landing zone that others fill. landing, tables: where `Files/LandingZone` and
    `Tables` lie when they are not below root.
    """

    name: str
    root: Path
    source: PostgresSettings | None = None
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    mirror: MirrorSettings = field(default_factory=MirrorSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    landing: StorageLocation | None = None
    tables: StorageLocation | None = None

    @classmethod
    def of_root(cls, root: Path) -> Project:
        """A mirror of a landing zone that somebody else fills, with nothing configured."""
        return cls(name=root.absolute().name, root=root)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """Read a project file. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "the project file does not exist",
            where=str(path),
            hint="Create it with `mirrorlake init`, name another with `--config`, or use `--root "
            "FOLDER` instead.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the file is not UTF-8 from byte {error.start + 1} on",
            where=str(path),
            hint="Save the file as UTF-8.",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the project file cannot be read: {error.strerror}",
            where=str(path),
            hint="Use --config to name a file that you may read.",
        ) from None
    node = _parsed(path, text)
    content = _renamed(_interpolated(path, node, environment))
    try:
        read = _File.model_validate(content)
    except ValidationError as error:
        raise _refusal(path, node, error) from None
    return read.project(path)


# -- the shape of the file ------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Extremes(_Part):
    dates: Literal["clamp", "null", "error"] = "clamp"
    numbers: Literal["null", "error"] = "error"


class _Source(_Part):
    type: Literal["postgresql"]
    url: SecretStr = Field(min_length=1)
    tables: list[str] = Field(default=["*.*"], min_length=1)
    columns: dict[str, list[str]] = Field(default_factory=dict)
    rows: dict[str, str] = Field(default_factory=dict)
    slot: str | None = Field(default=None, pattern=_SLOT)
    publication: str | None = Field(default=None, min_length=1, max_length=56)
    extremes: _Extremes = Field(default_factory=_Extremes)
    load_workers: PositiveInt = 2

    def settings(self, name: str) -> PostgresSettings:
        own = "mirrorlake_" + re.sub(r"[^a-z0-9_]", "_", name.lower())[:40]
        return PostgresSettings(
            url=self.url.get_secret_value(),
            selection=Selection(tuple(self.tables), self.columns, self.rows),
            slot=self.slot or own,
            publication=self.publication or own,
            extremes=Extremes(self.extremes.dates, self.extremes.numbers),
            load_workers=self.load_workers,
        )


_CAPTURE, _MIRROR = CaptureSettings(), MirrorSettings()


class _Capture(_Part):
    roll_bytes: ByteSize = ByteSize(_CAPTURE.roll_bytes)
    roll_seconds: float = Field(default=_CAPTURE.roll_seconds, gt=0, le=_LONGEST_SECONDS)
    debounce_seconds: float = Field(default=_CAPTURE.debounce_seconds, ge=0, le=_LONGEST_SECONDS)
    heartbeat_seconds: float = Field(default=_CAPTURE.heartbeat_seconds, gt=0, le=_LONGEST_SECONDS)


class _Elsewhere(_Part):
    """Where a part of a mirror lies, when that is not below root."""

    url: str | None = Field(default=None, min_length=1)
    endpoint: str | None = Field(default=None, min_length=1)
    region: str | None = Field(default=None, min_length=1)
    anonymous: bool = False

    def location_in(
        self, path: Path, section: str, account: str | None = None
    ) -> StorageLocation | None:
        """The place that a section of a project file names. Raises ConfigError."""
        reached = {
            "endpoint": self.endpoint,
            "region": self.region,
            "account": account,
            "anonymous": self.anonymous,
        }
        named = next((name for name, value in reached.items() if value), None)
        if self.url is None:
            if named is not None:
                raise ConfigError(
                    "this setting describes how to access a URL, but no URL is set",
                    where=f"{path}, field {section}.{named}",
                    hint=f"Set {section}.url as well, or remove this setting.",
                )
            return None
        try:
            options = ObjectOptions(self.endpoint, self.region, account, self.anonymous)
            check_url(self.url, options)
            return StorageLocation(self.url, options)
        except UsageError as error:
            raise ConfigError(
                error.what, where=f"{path}, field {section}.{_field_of(error)}", hint=error.hint
            ) from None


class _Landing(_Elsewhere):
    account: str | None = Field(default=None, min_length=1)
    strict: bool = False
    metadata_required: bool = True
    strict_text: bool = False
    partitions: bool = False
    retention_days: float = Field(default=7, gt=0, le=_LONGEST_DAYS)

    def location(self, path: Path) -> StorageLocation | None:
        return self.location_in(path, "landing", self.account)


class _Tables(_Elsewhere):
    def location(self, path: Path) -> StorageLocation | None:
        found = self.location_in(path, "tables")
        if found is None or found.url.partition("://")[0].lower() in ON_OBJECTS:
            return found
        raise ConfigError(
            "tables can be stored only in a folder or on S3 (or a compatible storage)",
            where=f"{path}, field tables.url",
            hint="Write s3://bucket/path, or remove the setting: tables are then stored below "
            "root, which may be a mounted folder.",
        )


class _Mirror(_Part):
    # One value each for now; the others are refused rather than ignored.
    change_feed: Literal[True] = True
    metadata_columns: Literal[False] = False
    deletes: Literal["hard"] = "hard"
    schema_change: Literal["evolve"] = "evolve"
    strategy: Literal["auto", "direct", "merge"] = "auto"
    compaction: bool = True
    strict_keys: bool = False
    file_bytes: ByteSize = ByteSize(RowChecks().file_bytes)
    drop_tables: bool = True
    drop_after_seconds: float = Field(default=60, ge=0, le=_LONGEST_DAYS * _LONGEST_SECONDS)
    max_tables: PositiveInt | None = None
    max_bytes_per_day: ByteSize | None = Field(default=None, gt=0)
    vacuum_days: float | None = Field(default=7, gt=0, le=_LONGEST_DAYS)
    vacuum_early: bool = False


class _Spark(_Part):
    master: str | None = "local[*]"
    jars: Path | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    driver_memory: str = "2g"


class _File(_Part):
    name: str = Field(min_length=1)
    root: str = Field(min_length=1)
    default_schema: str | None = None
    source: _Source | None = None
    capture: _Capture = Field(default_factory=_Capture)
    landing: _Landing = Field(default_factory=_Landing)
    tables: _Tables = Field(default_factory=_Tables)
    mirror: _Mirror = Field(default_factory=_Mirror)
    spark: _Spark = Field(default_factory=_Spark)

    def project(self, path: Path) -> Project:
        if "://" in self.root:
            raise ConfigError(
                "root is a URL, but a mirror keeps its own state in a local or mounted folder",
                where=f"{path}, field root",
                hint="Name a folder. To store the landing zone or the tables elsewhere, set "
                "landing.url or tables.url.",
            )
        source = self.source.settings(self.name) if self.source else None
        capture = CaptureSettings(
            roll_bytes=int(self.capture.roll_bytes),
            roll_seconds=self.capture.roll_seconds,
            debounce_seconds=self.capture.debounce_seconds,
            heartbeat_seconds=self.capture.heartbeat_seconds,
            strict=self.landing.strict,
        )
        mirror = MirrorSettings(
            default_schema=self.default_schema,
            metadata_required=self.landing.metadata_required,
            strict_text=self.landing.strict_text,
            partitions=self.landing.partitions,
            # Where a look is a request that is paid for, a pause is a pause.
            look_seconds=math.inf if self.landing.url else _MIRROR.look_seconds,
            retention=timedelta(days=self.landing.retention_days),
            strategy=Wanted(self.mirror.strategy),
            compaction=self.mirror.compaction,
            row_checks=RowChecks(self.mirror.strict_keys, int(self.mirror.file_bytes)),
            drop_tables=self.mirror.drop_tables,
            drop_after=timedelta(seconds=self.mirror.drop_after_seconds),
            max_tables=self.mirror.max_tables,
            max_bytes_per_day=self._daily(),
            vacuum=self._vacuum(path),
        )
        spark = SparkSettings(
            master=self.spark.master,
            jars=_beside(path, self.spark.jars) if self.spark.jars else None,
            conf=self.spark.conf,
            driver_memory=self.spark.driver_memory,
        )
        if source is not None:
            capture = replace(capture, load_workers=source.load_workers)
        root = _beside(path, Path(self.root))
        landing, tables = self.landing.location(path), self.tables.location(path)
        return Project(self.name, root, source, capture, mirror, spark, landing, tables)

    def _daily(self) -> int | None:
        most = self.mirror.max_bytes_per_day
        return None if most is None else int(most)

    def _vacuum(self, path: Path) -> timedelta | None:
        days = self.mirror.vacuum_days
        if days is not None and days < _SAFE_DAYS and not self.mirror.vacuum_early:
            raise ConfigError(
                f"less than {_SAFE_DAYS} days removes files that readers of older versions, or "
                "writers that run longer than that, still need",
                where=f"{path}, field mirror.vacuum_days",
                hint="Set it to 7 or more, or also set mirror.vacuum_early: true.",
            )
        return None if days is None else timedelta(days=days)


def _field_of(error: UsageError) -> str:
    return error.where if error.where in {"endpoint", "region", "account", "anonymous"} else "url"


def _beside(path: Path, found: Path) -> Path:
    """A relative path in a project file starts at that file."""
    return (path.parent / found.expanduser()).absolute()


# -- reading --------------------------------------------------------------------------------------


def _parsed(path: Path, text: str) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(
            "the file is not valid YAML: "
            f"{getattr(error, 'problem', None) or 'it cannot be parsed'}",
            where=f"{path}, line {mark.line + 1}" if mark else str(path),
            hint="Correct the file.",
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            "the file contains no settings",
            where=str(path),
            hint="Run `mirrorlake init` to create a file to start from.",
        )
    return node


def _interpolated(path: Path, node: yaml.Node, environment: Mapping[str, str]) -> Any:
    """The content with every `${NAME}` replaced from the environment."""

    def variable(match: re.Match[str], line: int) -> str:
        if match[1] not in environment:
            raise ConfigError(
                f"environment variable {match[1]} is not set",
                where=f"{path}, line {line}",
                hint=f"Set it: export {match[1]}=...",
            )
        if not environment[match[1]].strip():
            # An empty URL would mean whatever database libpq finds by itself.
            raise ConfigError(
                f"environment variable {match[1]} is empty",
                where=f"{path}, line {line}",
                hint=f"Set it: export {match[1]}=...",
            )
        return environment[match[1]]

    def walk(part: yaml.Node) -> Any:
        if isinstance(part, yaml.MappingNode):
            return {_name(path, key): walk(value) for key, value in part.value}
        if isinstance(part, yaml.SequenceNode):
            return [walk(value) for value in part.value]
        line = part.start_mark.line + 1
        if "${" in part.value:
            return _VARIABLE.sub(lambda match: variable(match, line), part.value)
        return _value(path, part)

    return walk(node)


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the new names of settings. Old names beside new ones are left: unknown."""
    for (section, old), new in _RENAMED.items():
        part = content.get(section)
        if isinstance(part, dict) and old in part and new not in part:
            part[new] = part.pop(old)
            log.warning(SETTING_RENAMED, setting=f"{section}.{old}", use=f"{section}.{new}")
    return content


def _value(path: Path, part: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(part)
    except (yaml.YAMLError, ValueError):  # a tag that we do not know, a day that does not exist
        raise ConfigError(
            "the value cannot be read",
            where=f"{path}, line {part.start_mark.line + 1}",
            hint="If it is text, put it in quotes.",
        ) from None


def _name(path: Path, key: yaml.Node) -> str:
    if isinstance(key, yaml.ScalarNode):
        return str(key.value)
    raise ConfigError(
        "the name of a setting must be plain text",
        where=f"{path}, line {key.start_mark.line + 1}",
        hint="Correct the file.",
    )


def _refusal(path: Path, node: yaml.Node, error: ValidationError) -> ConfigError:
    """The first thing that is wrong, with its line."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    location = ".".join(str(part) for part in problem["loc"])
    line = _line(node, problem["loc"])
    hint = "See docs/reference/configuration.md."
    if problem["type"] == "extra_forbidden":
        known = ", ".join(_fields(problem["loc"][:-1]))
        return ConfigError(
            "there is no such setting",
            where=f"{path}, line {line}, field {location}",
            hint=f"The settings here are: {known}.",
        )
    message = problem["msg"][0].lower() + problem["msg"][1:]
    return ConfigError(message, where=f"{path}, line {line}, field {location}", hint=hint)


def _fields(location: Sequence[int | str]) -> list[str]:
    model: type[BaseModel] = _File
    parts: dict[str, type[BaseModel]] = {
        "source": _Source,
        "capture": _Capture,
        "landing": _Landing,
        "tables": _Tables,
        "mirror": _Mirror,
        "spark": _Spark,
        "extremes": _Extremes,
    }
    for name in location:
        model = parts.get(str(name), model)
    return list(model.model_fields)


def _line(node: yaml.Node, location: Sequence[int | str]) -> int:
    """The line of a field, or of the nearest thing around it that stands in the file."""
    line = node.start_mark.line + 1
    for part in location:
        following = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    line, following = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            following = node.value[part]
            line = following.start_mark.line + 1
        if following is None:
            return line
        node = following
    return line


TEMPLATE = """\
# A mirror: keeps Delta tables equal to a database. docs/reference/configuration.md has every field.
name: {name}
root: {root}                # Files/LandingZone and Tables lie below it; relative to this file
source:
  type: postgresql
  url: {url}
  tables: ["public.*"]      # patterns; "!public.audit_*" takes tables away again
spark:
  master: local[*]          # or spark://..., or leave out inside an existing session
"""
"""What `mirrorlake init` writes."""
