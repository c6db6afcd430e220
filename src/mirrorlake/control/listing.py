"""Lists of resources: pages, filters and sort orders (ST-342).

A filter is a series of comparisons joined by AND; OR and parentheses are not supported:
`state=RUNNING AND labels.team="data"`. `:` tests whether a text contains another, or whether a
field exists (`labels.team:*`).
"""

from __future__ import annotations

import base64
import binascii
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from mirrorlake.errors import InvalidRequest, printable

DEFAULT_SIZE, LARGEST_SIZE = 50, 1_000

_COMPARISON = re.compile(
    r"""\s*(?P<not>NOT\s+|-)?(?P<field>[A-Za-z][\w.-]*)\s*(?P<op>!=|<=|>=|=|<|>|:)\s*"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|[^\s"()]+)\s*"""
)


_COMPARED: Mapping[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition of a filter."""

    path: tuple[str, ...]
    operator: str
    value: str
    is_negated: bool = False

    def holds(self, document: Mapping[str, Any]) -> bool:
        return self._compared(_at(document, self.path)) != self.is_negated

    def _compared(self, found: object) -> bool:
        if self.operator == ":":
            if self.value == "*":
                return found is not None
            if isinstance(found, Mapping):
                return self.value in found
            return found is not None and self.value.lower() in str(found).lower()
        text = (
            "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)
        )
        return _COMPARED[self.operator](text, self.value)


def parse_filter(text: str) -> list[Comparison]:
    """Raises InvalidRequest."""
    found: list[Comparison] = []
    position, text = 0, text.strip()
    while position < len(text):
        if found:
            joined = re.compile(r"\s*AND\s+").match(text, position)
            position = joined.end() if joined else position
        match = _COMPARISON.match(text, position)
        if match is None or len(found) >= 20:
            raise _refused(
                "filter", text, 'Write comparisons as in state="RUNNING" AND labels.a=b.'
            )
        value = match["value"]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        path = tuple(match["field"].split("."))
        found.append(Comparison(path, match["op"], value, bool(match["not"])))
        position = match.end()
    return found


def parse_order(text: str) -> list[tuple[tuple[str, ...], bool]]:
    """Paths, each with whether it is descending. Raises InvalidRequest."""
    orders: list[tuple[tuple[str, ...], bool]] = []
    for part in (one.strip() for one in text.split(",")):
        if not part:
            continue
        match = re.fullmatch(r"([A-Za-z][\w.-]*)(\s+(asc|desc))?", part)
        if match is None or len(orders) >= 8:
            raise _refused("orderBy", text, "Write field names as in displayName desc,name.")
        orders.append((tuple(match[1].split(".")), match[3] == "desc"))
    return orders


def ordered(
    documents: Sequence[Mapping[str, Any]], orders: Sequence[tuple[tuple[str, ...], bool]]
) -> list[Mapping[str, Any]]:
    """Sorted by the orders, then by name."""
    found = sorted(documents, key=lambda one: str(one["name"]))
    for path, is_descending in reversed(orders):
        found.sort(key=lambda one, path=path: _text(one, path), reverse=is_descending)  # type: ignore[misc]
    return found


def _text(document: Mapping[str, Any], path: tuple[str, ...]) -> str:
    found = _at(document, path)
    return "" if found is None else str(found)


def _at(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path, whose fields may be written in either spelling; labels in their own."""
    found: Any = document
    for name in path:
        found = found.get(name, found.get(to_camel(name))) if isinstance(found, Mapping) else None
    return found


def page_size(asked: int) -> int:
    """The effective page size: 0 means the default, larger values are capped. Raises
    InvalidRequest."""
    if asked < 0:
        raise InvalidRequest(
            "a page size cannot be negative", where="pageSize", hint="Use 1 to 1000."
        )
    return min(asked, LARGEST_SIZE) or DEFAULT_SIZE


def page_token(offset: int, query: str) -> str:
    """The token of the page at an offset of the result of a query."""
    return base64.urlsafe_b64encode(f"{offset}:{query}".encode()).decode()


def offset_of(token: str, query: str) -> int:
    """The offset in a page token. Raises InvalidRequest for a token of another query."""
    if not token:
        return 0
    try:
        offset, _, asked = (
            base64.b64decode(token, altchars=b"-_", validate=True).decode().partition(":")
        )
        if asked == query and re.fullmatch(r"[0-9]{1,9}", offset):
            return int(offset)
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequest(
        "the page token does not belong to this list",
        where="pageToken",
        hint="Send the nextPageToken of the answer before, with the same filter and order.",
    )


def _refused(where: str, text: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"{printable(text[:80])} cannot be read", where=where, hint=hint)
