"""Update masks: only the named fields are overwritten; without a mask, all are (ST-346)."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.alias_generators import to_camel, to_snake

from mirrorlake.errors import InvalidRequest, printable

_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")

Document = Mapping[str, Any]

Paths = Sequence[tuple[str, ...]]
"""Of fields, each with the names from the outermost one on."""


def parse_mask(text: str) -> list[tuple[str, ...]]:
    """The paths of a mask, in lower camel case; empty for none. Raises InvalidRequest."""
    paths = []
    for part in (one.strip() for one in text.split(",")):
        if part in ("", "*"):
            continue
        if len(part) > 1_000 or not _PATH.fullmatch(part):
            raise InvalidRequest(
                f"{printable(part[:80])} is not a path of an update mask",
                where="updateMask",
                hint="Write field names with dots between them, as in displayName,labels.",
            )
        paths.append(tuple(to_camel(name) for name in part.split(".")))
    return paths


def overlaid(
    current: Document, sent: Document, mask: Paths, output: Sequence[str]
) -> dict[str, Any]:
    """The document after an update. A field in the mask that was not sent is cleared (FD-068).

    output: output-only fields, which keep their values.
    """
    if not mask:
        kept = {name: current[name] for name in output if name in current}
        return {**{name: value for name, value in sent.items() if name not in output}, **kept}
    result = copy.deepcopy(dict(current))
    for path in mask:
        if path[0] in output:
            raise InvalidRequest(
                f"{'.'.join(path)} cannot be changed",
                where="updateMask",
                hint="Leave it out of the update mask.",
            )
        _copy(result, sent, path)
    return result


def _copy(target: dict[str, Any], sent: Document, path: tuple[str, ...]) -> None:
    value: Any = sent
    for name in path:
        value = _either(value, name) if isinstance(value, Mapping) else None
    for name in path[:-1]:
        inner = target.get(name)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = target[name] = {}
        target = inner
    if value is None:
        target.pop(path[-1], None)
    else:
        target[path[-1]] = copy.deepcopy(value)


def _either(sent: Mapping[str, Any], name: str) -> Any:
    """A field in either spelling."""
    return sent.get(name, sent.get(to_snake(name)))
