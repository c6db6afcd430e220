"""Project files: one mirror, or a list of mirrors that share one Spark session.

`FILE#NAME` selects one mirror of a file with several.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml
from pydantic import Field

from mirrorlake.config.project import Project
from mirrorlake.config.reading import parsed, read, section
from mirrorlake.config.sections import SparkSection
from mirrorlake.errors import ConfigError
from mirrorlake.sources.section import Section

MIRRORS = "mirrors"


class SharedSections(Section):
    """The sections beside the list of mirrors."""

    spark: SparkSection = Field(default_factory=SparkSection)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """Read the mirror of a project file. Raises ConfigError, also when the file has several and
    none is selected."""
    found = load_all(path, environment)
    if len(found) > 1:
        names = [project.name for project in found]
        raise ConfigError(
            f"the file lists several mirrors: {', '.join(names)}",
            where=str(path),
            hint=f"Name one, for example `--config '{path}#{names[0]}'`.",
        )
    return found[0]


def load_all(path: Path, environment: Mapping[str, str] = os.environ) -> list[Project]:
    """Read the mirrors of a project file, in order. Raises ConfigError."""
    file, name = _file_and_name(path)
    node = parsed(file)
    listed = next((value for key, value in node.value if key.value == MIRRORS), None)
    if listed is not None:
        return _several(file, node, _mappings(file, listed), name, environment)
    found = read(file, node, environment)
    if name not in (None, found.name):
        raise _unknown(file, name, [found.name])
    return [found]


def _several(
    file: Path,
    node: yaml.MappingNode,
    mirrors: Sequence[yaml.MappingNode],
    name: str | None,
    environment: Mapping[str, str],
) -> list[Project]:
    beside = [pair for pair in node.value if pair[0].value != MIRRORS]
    outer = yaml.MappingNode(node.tag, beside, node.start_mark, node.end_mark)
    shared, _unset = section(file, outer, environment, SharedSections)
    names = [_name_of(one) for one in mirrors]
    if name is not None and name not in names:
        raise _unknown(file, name, names)
    spark = shared.spark.settings(file)
    found = [
        replace(read(file, one, environment), spark=spark)
        for one, its_name in zip(mirrors, names, strict=True)
        if name in (None, its_name)
    ]
    _check_apart(file, found)
    return found


def _mappings(file: Path, listed: yaml.Node) -> list[yaml.MappingNode]:
    """Raises ConfigError."""
    found = listed.value if isinstance(listed, yaml.SequenceNode) else []
    wrong = [one for one in found if not isinstance(one, yaml.MappingNode)]
    if wrong or not found:
        node = next(iter(wrong), listed)
        raise ConfigError(
            "a list of mirrors is expected, each with the settings of a project file",
            where=f"{file}, line {node.start_mark.line + 1}, field {MIRRORS}",
            hint="Write `- name: ...` for each mirror.",
        )
    for one in found:
        for key, _value in one.value:
            if key.value == "spark":
                raise ConfigError(
                    "all mirrors of a file share one Spark",
                    where=f"{file}, line {key.start_mark.line + 1}, field {MIRRORS}.spark",
                    hint=f"Move the section out of the list, beside `{MIRRORS}:`.",
                )
    return found


def _check_apart(file: Path, found: Sequence[Project]) -> None:
    """Raises ConfigError when two mirrors share a name or a root."""
    for what, taken in (
        ("name", (project.name for project in found)),
        ("root", map(_real_root, found)),
    ):
        if (same := _repeated(taken)) is not None:
            raise ConfigError(
                f"two mirrors have the same {what}, {same}",
                where=f"{file}, field {MIRRORS}.{what}",
                hint=f"Give each mirror its own {what}.",
            )
    reached = {where.options for project in found if (where := project.tables_elsewhere)}
    if len(reached) > 1:
        raise ConfigError(
            "the tables are on object stores that are reached in different ways, and one Spark "
            "reaches one of them",
            where=f"{file}, field {MIRRORS}",
            hint="Put these mirrors into files of their own.",
        )


def _real_root(project: Project) -> str:
    return str(project.root.resolve()) if isinstance(project.root, Path) else project.where


def _repeated(texts: Iterable[str]) -> str | None:
    (text, count), *_ = Counter(texts).most_common(1)
    return text if count > 1 else None


def _file_and_name(path: Path) -> tuple[Path, str | None]:
    file, separator, name = str(path).rpartition("#")
    if not separator or path.exists():
        return path, None
    return Path(file), name


def _name_of(mirror: yaml.MappingNode) -> str:
    """The unresolved name of a mirror, as written in the file."""
    return next((str(value.value) for key, value in mirror.value if key.value == "name"), "")


def _unknown(file: Path, name: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"the file has no mirror {name}", where=str(file), hint=f"It has: {', '.join(known)}."
    )
