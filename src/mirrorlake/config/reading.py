"""Reads the settings of a mirror: YAML with line numbers, and variables from the environment."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import structlog
import yaml
from pydantic import BaseModel, ValidationError

from mirrorlake.config.project import Project
from mirrorlake.config.sections import ProjectFile
from mirrorlake.config.sources import SECTIONS
from mirrorlake.errors import ConfigError

log = structlog.get_logger()

S = TypeVar("S", bound=BaseModel)

SETTING_RENAMED = "setting_renamed"

_RENAMED = {("capture", "settle_seconds"): "debounce_seconds"}
"""Old names of settings, by section; they still work, with a warning."""

_CONNECTS = ("source", "url")
"""The field that only commands that connect need; its variable may be unset for the others."""

_OF_NAMES = {("source", "tables"), ("source", "columns")}
"""Settings with names of tables and columns. No variables here: the environment could select other
tables than the file shows."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read(path: Path, node: yaml.MappingNode, environment: Mapping[str, str]) -> Project:
    """The mirror in a mapping of a project file. Raises ConfigError."""
    found, unset = section(path, node, environment, ProjectFile)
    return replace(found.project(path), unset=unset)


def section(
    path: Path, node: yaml.MappingNode, environment: Mapping[str, str], shape: type[S]
) -> tuple[S, ConfigError | None]:
    """A mapping validated against a model, and the error of an unset URL of the source, if any.
    Raises ConfigError."""
    interpolated, unset = _interpolated(path, node, environment)
    content = _renamed(interpolated)
    try:
        return shape.model_validate(content), unset
    except ValidationError as error:
        raise _refusal(path, node, content, error, shape) from None


def parsed(path: Path) -> yaml.MappingNode:
    """The top-level mapping of a project file. Raises ConfigError."""
    return _parsed(path, _text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = "the project file does not exist"
        hint = (
            "Create it with `mirrorlake init`, name another with `--config`, or use `--root "
            "FOLDER` instead."
        )
    except UnicodeDecodeError as error:
        what = f"the file is not UTF-8 from byte {error.start + 1} on"
        hint = "Save the file as UTF-8."
    except OSError as error:
        what = f"the project file cannot be read: {error.strerror}"
        hint = "Use --config to name a file that you may read."
    raise ConfigError(what, where=str(path), hint=hint)


def _parsed(path: Path, text: str) -> yaml.MappingNode:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        what, hint = f"the file is not valid YAML: {problem}", "Correct the file."
        raise ConfigError(what, where=where, hint=hint) from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            "the file contains no settings",
            where=str(path),
            hint="Run `mirrorlake init` to create a file to start from.",
        )
    return node


def _interpolated(
    path: Path, node: yaml.Node, environment: Mapping[str, str]
) -> tuple[Any, ConfigError | None]:
    """The content with every `${NAME}` replaced from the environment.

    Also returns the error when a variable in the URL of the source is not set; the URL is left as
    written. Raises ConfigError for any other unset variable.
    """
    unset: list[ConfigError] = []

    def variable(match: re.Match[str], line: int) -> str:
        value = environment.get(match[1])
        if value is None or not value.strip():
            # With an empty URL, libpq would connect to its default database.
            raise ConfigError(
                f"environment variable {match[1]} is {'not set' if value is None else 'empty'}",
                where=f"{path}, line {line}",
                hint=f"Set it: export {match[1]}=...",
            )
        return value

    def walk(part: yaml.Node, field: tuple[str, ...] = ()) -> Any:
        if isinstance(part, yaml.MappingNode):
            names = [(_name(path, key), value) for key, value in part.value]
            return {name: walk(value, (*field, name)) for name, value in names}
        if isinstance(part, yaml.SequenceNode):
            return [walk(value, (*field, "")) for value in part.value]
        line = part.start_mark.line + 1
        if "${" not in part.value:
            return _value(path, part)
        if field[:2] in _OF_NAMES and (found := _VARIABLE.search(part.value)):
            raise ConfigError(
                f"{found[0]} is not replaced in names of tables and columns",
                where=f"{path}, line {line}, field {'.'.join(filter(None, field))}",
                hint=f"Write the name itself. If {found[0]} is part of a name, write "
                f"{found[0].replace('$', '?')} there: `?` matches any character.",
            )
        try:
            return _VARIABLE.sub(lambda match: variable(match, line), part.value)
        except ConfigError as error:
            if field != _CONNECTS:
                raise
            unset.append(error)
            return part.value

    return walk(node), next(iter(unset), None)


def _value(path: Path, part: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(part)
    except (yaml.YAMLError, ValueError):  # an unknown tag, or a day that does not exist
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


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the new names of settings. An old name beside a new one is left as
    unknown."""
    for (section, old), new in _RENAMED.items():
        part = content.get(section)
        if isinstance(part, dict) and old in part and new not in part:
            part[new] = part.pop(old)
            log.warning(SETTING_RENAMED, setting=f"{section}.{old}", use=f"{section}.{new}")
    return content


def _refusal(
    path: Path, node: yaml.Node, content: Any, error: ValidationError, shape: type[BaseModel]
) -> ConfigError:
    """The first error, with its line: an unknown setting before a missing one, because it may be
    the missing one misspelt."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    unknown = (one for one in problems if one["type"] == "extra_forbidden")
    problem = next(unknown, problems[0])
    location = ".".join(str(part) for part in problem["loc"])
    what = problem["msg"][0].lower() + problem["msg"][1:]
    hint = "See docs/reference/configuration.md."
    if problem["type"] == "extra_forbidden":
        known = _fields(content, problem["loc"][:-1], shape)
        what = "there is no such setting"
        hint = f"{_near(problem['loc'], known)}The settings here are: {', '.join(known)}."
    where = f"{path}, line {_line(node, problem['loc'])}, field {location}"
    return ConfigError(what, where=where, hint=hint)


def _near(location: Sequence[int | str], known: Sequence[str]) -> str:
    """The setting that was probably meant, as a question: one with a similar name, or of another
    section."""
    *around, name = (str(part) for part in location)
    elsewhere = (
        f"{section}.{name}"
        for section, field in ProjectFile.model_fields.items()
        if section != "root"  # mostly a text
        for model in (SECTIONS.values() if section == "source" else _models(field.annotation))
        if name in model.model_fields
    )
    close = [".".join([*around, one]) for one in difflib.get_close_matches(name, known, n=1)]
    found = next(iter(close), None) or next(elsewhere, None)
    return f"Did you mean {found}? " if found else ""


def _fields(content: Any, location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """The settings of the section at `location` below a model."""
    for name in (name for name in location if isinstance(name, str)):
        if model is ProjectFile and name == "source":
            model = SECTIONS[content["source"]["type"]]
        else:
            model = next(_models(model.model_fields[name].annotation))
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models of sections in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _line(node: yaml.Node, location: Sequence[int | str]) -> int:
    """The line of a field, or of the innermost part around it that is in the file."""
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
