"""The page on the Python API, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import mirrorlake
from mirrorlake import landing

FOR_PUBLISHERS = ["Partner", "Published", "Publisher", "TextFormat"]

HEAD = """\
# Python API

Every public name, generated from the code. [Python](python.md) shows how to begin.
"""


def page() -> str:
    lines = [HEAD.rstrip(), "", "## mirrorlake"]
    for name in mirrorlake.__all__:
        lines += _described(mirrorlake, name)
    lines += ["", "## mirrorlake.landing"]
    for name in FOR_PUBLISHERS:
        lines += _described(landing, name)
    return "\n".join(lines) + "\n"


def _described(module: ModuleType, name: str) -> Iterator[str]:
    found = getattr(module, name)
    yield from ("", f"### {name}")
    if not inspect.isclass(found):
        yield from _call(name, found, found)
        return
    if issubclass(found, Exception):
        yield from ("", *_text(found.__doc__), "", f"`code`: `{found.code}`")  # type: ignore[attr-defined]
        return
    yield from _call(name, found.__init__, found)
    if dataclasses.is_dataclass(found):
        yield from ("", "| Field | Type | Default |", "| --- | --- | --- |")
        for field in dataclasses.fields(found):
            if not field.name.startswith("_"):
                yield f"| `{field.name}` | `{_cell(field.type)}` | {_default(field)} |"
    for member, value in sorted(_own(found).items()):
        if isinstance(value, property):
            kind = _annotation(inspect.signature(value.fget).return_annotation)  # type: ignore[arg-type]
            yield from ("", f"#### {name}.{member}", "", f"`{kind}`")
            yield from _with_text(value.__doc__)
        else:
            yield from ("", f"#### {name}.{member}")
            yield from _call(member, getattr(found, member), value)


def _own(kind: type) -> dict[str, Any]:
    """The public properties and methods of a class, those of its bases of ours too."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("mirrorlake"):
            found |= vars(base)
    shown = (property, classmethod, staticmethod)
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, shown))
    }


def _call(name: str, called: Any, documented: Any) -> Iterator[str]:
    """The signature on lines of at most 100 characters, and the text."""
    signature = inspect.signature(called)
    parts = [_parameter(p) for p in signature.parameters.values() if p.name != "self"]
    only = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    if only:
        parts.insert(next(i for i, p in enumerate(parts) if p.startswith(f"{only[0]}:")), "*")
    result = signature.return_annotation
    answer = "" if result in (inspect.Signature.empty, "None", None) else _annotation(result)
    after = f" -> {answer}" if answer else ""
    line = f"{name}({', '.join(parts)}){after}"
    if len(line) > 90:
        inner = "".join(f"    {part},\n" for part in parts)
        line = f"{name}(\n{inner}){after}"
    yield from ("", "```text", *line.splitlines(), "```")
    yield from _with_text(documented.__doc__)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    kind = _annotation(parameter.annotation)
    shown = f"{stars.get(parameter.kind, '')}{parameter.name}" + (f": {kind}" if kind else "")
    if parameter.default is inspect.Parameter.empty:
        return shown
    return f"{shown} = {_value(parameter.default)}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _value(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value)
    is_plain = value is None or isinstance(value, str | int | float | bool | tuple)
    return repr(value) if is_plain else "..."


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_cell(_value(field.default))}`"
    return "" if field.default_factory is dataclasses.MISSING else "a new one"


def _cell(text: Any) -> str:
    return _annotation(text).replace("|", "\\|")


def _with_text(doc: str | None) -> Iterator[str]:
    if doc and doc.strip():
        yield from ("", *_text(doc))


def _text(doc: str | None) -> list[str]:
    """A docstring; names of fields at the begin of what it says of them stay as they are."""
    return [line.replace("<", "&lt;") for line in inspect.cleandoc(doc or "").splitlines()]
