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

RENAMED = {"capture": {"settle_seconds": "debounce_seconds"}}
"""Settings of the release before under their names of now, by section."""

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
        raise ConfigError(
            "there is no project file",
            where=str(path),
            hint="`mirrorlake init` writes one; `--config` names another; `--root FOLDER` does "
            "without.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"not UTF-8 from byte {error.start + 1} on", where=str(path), hint="Mend the file."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the project file cannot be read: {error.strerror}",
            where=str(path),
            hint="Name a file that you may read with --config.",
        ) from None


def _parsed(path: Path, text: str) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(
            f"not YAML: {getattr(error, 'problem', None) or 'it cannot be parsed'}",
            where=f"{path}, line {mark.line + 1}" if mark else str(path),
            hint="Mend the file.",
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            "the file holds no settings",
            where=str(path),
            hint="`mirrorlake init` writes a file to start from.",
        )
    return node


def _interpolated(path: Path, node: yaml.Node, environment: Mapping[str, str]) -> Any:
    """The content with every `${NAME}` replaced from the environment."""

    def variable(match: re.Match[str], line: int) -> str:
        if match[1] not in environment:
            raise ConfigError(
                f"the environment has no {match[1]}",
                where=f"{path}, line {line}",
                hint=f"Set it: export {match[1]}=...",
            )
        if not environment[match[1]].strip():
            # An empty URL would mean whatever database libpq finds by itself.
            raise ConfigError(
                f"{match[1]} is empty in the environment",
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


def _value(path: Path, part: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(part)
    except (yaml.YAMLError, ValueError):  # a tag that we do not know, a day that does not exist
        raise ConfigError(
            "the value cannot be read",
            where=f"{path}, line {part.start_mark.line + 1}",
            hint="Put it into quotes if it is a text.",
        ) from None


def _name(path: Path, key: yaml.Node) -> str:
    if isinstance(key, yaml.ScalarNode):
        return str(key.value)
    raise ConfigError(
        "the name of a setting must be a plain text",
        where=f"{path}, line {key.start_mark.line + 1}",
        hint="Mend the file.",
    )


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with settings of the release before under the names that they have now."""
    for name, renamed in RENAMED.items():
        section = content.get(name)
        for old, new in renamed.items():
            if isinstance(section, dict) and old in section and new not in section:
                log.warning(SETTING_RENAMED, setting=f"{name}.{old}", now=f"{name}.{new}")
                section[new] = section.pop(old)
    return content


def _refusal(path: Path, node: yaml.Node, content: Any, error: ValidationError) -> ConfigError:
    """The first thing that is wrong, with its line."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    location = ".".join(str(part) for part in problem["loc"])
    line = _line(node, problem["loc"])
    hint = "See docs/reference/configuration.md."
    if problem["type"] == "extra_forbidden":
        known = ", ".join(_fields(content, problem["loc"][:-1]))
        return ConfigError(
            "there is no such setting",
            where=f"{path}, line {line}, field {location}",
            hint=f"Settings here: {known}.",
        )
    message = problem["msg"][0].lower() + problem["msg"][1:]
    return ConfigError(message, where=f"{path}, line {line}, field {location}", hint=hint)


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
