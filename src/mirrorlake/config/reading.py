"""Reading a project file: YAML with line numbers, and the environment put in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import structlog
import yaml
from pydantic import BaseModel, ValidationError

from mirrorlake.config.project import Project
from mirrorlake.config.sections import ProjectFile
from mirrorlake.config.sources import SECTIONS
from mirrorlake.errors import ConfigError

log = structlog.get_logger()

SETTING_RENAMED = "setting_renamed"

_RENAMED = {("capture", "settle_seconds"): "debounce_seconds"}
"""Names of settings before this release, by section; they still work, with a warning."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """Read a project file. Raises ConfigError."""
    node = _parsed(path, _text(path))
    content = _renamed(_interpolated(path, node, environment))
    try:
        read = ProjectFile.model_validate(content)
    except ValidationError as error:
        raise _refusal(path, node, content, error) from None
    return read.project(path)


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


def _parsed(path: Path, text: str) -> yaml.Node:
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


def _interpolated(path: Path, node: yaml.Node, environment: Mapping[str, str]) -> Any:
    """The content with every `${NAME}` replaced from the environment."""

    def variable(match: re.Match[str], line: int) -> str:
        value = environment.get(match[1])
        if value is None or not value.strip():
            # An empty URL would mean whatever database libpq finds by itself.
            raise ConfigError(
                f"environment variable {match[1]} is {'not set' if value is None else 'empty'}",
                where=f"{path}, line {line}",
                hint=f"Set it: export {match[1]}=...",
            )
        return value

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


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the new names of settings. Old names beside new ones are left: unknown."""
    for (section, old), new in _RENAMED.items():
        part = content.get(section)
        if isinstance(part, dict) and old in part and new not in part:
            part[new] = part.pop(old)
            log.warning(SETTING_RENAMED, setting=f"{section}.{old}", use=f"{section}.{new}")
    return content


def _refusal(path: Path, node: yaml.Node, content: Any, error: ValidationError) -> ConfigError:
    """The first thing that is wrong, with its line."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    location = ".".join(str(part) for part in problem["loc"])
    what = problem["msg"][0].lower() + problem["msg"][1:]
    hint = "See docs/reference/configuration.md."
    if problem["type"] == "extra_forbidden":
        known = ", ".join(_fields(content, problem["loc"][:-1]))
        what, hint = "there is no such setting", f"The settings here are: {known}."
    where = f"{path}, line {_line(node, problem['loc'])}, field {location}"
    return ConfigError(what, where=where, hint=hint)


def _fields(content: Any, location: Sequence[int | str]) -> list[str]:
    """The settings of the section at `location`."""
    model: type[BaseModel] = ProjectFile
    for name in location:
        if model is ProjectFile and name == "source":
            model = SECTIONS[content["source"]["type"]]
        else:
            model = next(_models(model.model_fields[str(name)].annotation))
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The shapes of sections that an annotation names."""
    for found in (annotation, *get_args(annotation)):
        if isinstance(found, type) and issubclass(found, BaseModel):
            yield found


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
