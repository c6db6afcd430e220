"""Parses and checks the schema in the header of an Avro file into a tree of types.

The schema is untrusted: its size and depth are bounded, and it is refused if it uses a name before
its definition or a type that Avro does not have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.events.decode.errors import UnreadableEvents

MOST_TYPES = 20_000
"""Maximum number of types in one schema: ten thousand nullable columns."""

MOST_NAMED = 200_000
"""The same with what the names in it stand for: each has a column when events are decoded, and a
few records that name each other in turn would have billions."""

MOST_LEVELS = 64

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(slots=True)
class AvroType:
    """A type.

    kind: of Avro. schema: as in the header.
    members: the fields of a record, the branches of a union, or the element type of an array or
        map.
    names: of the fields, or the symbols of an enumeration.
    size: of a fixed.
    count, levels: how many types it has, and levels of them, itself and what it names included.
    is_recursive: whether it is a record that contains itself.
    """

    kind: str
    schema: Any
    members: list[AvroType] = field(default_factory=list, repr=False)
    names: list[str] = field(default_factory=list)
    size: int = 0
    count: int = 1
    levels: int = 1
    is_recursive: bool = False

    @property
    def optional(self) -> AvroType | None:
        """The other branch of a union of null and one type."""
        others = [branch for branch in self.members if branch.kind != "null"]
        is_optional = self.kind == "union" and len(self.members) == 2 and len(others) == 1
        return others[0] if is_optional else None

    def member(self, name: str) -> AvroType | None:
        """The type of a field of a record."""
        return self.members[self.names.index(name)] if name in self.names else None


def parse_schema(text: bytes) -> AvroType:
    """Parse a schema, which has to be a record. Raises UnreadableEvents."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableEvents(
            f"the schema in the header is not JSON: {str(error)[:200]}"
        ) from None
    tree = _Parser().type(found, "", 0)
    if tree.kind != "record":
        raise UnreadableEvents("the schema in the header is not a record")
    return tree


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._open = set[int]()  # records whose fields are being parsed
        self._count = 0

    def type(self, schema: Any, namespace: str, level: int) -> AvroType:
        self._count += 1
        if self._count > MOST_TYPES or level > MOST_LEVELS:
            raise UnreadableEvents(
                f"the schema has more than {MOST_TYPES} types, or {MOST_LEVELS} levels of them"
            )
        match schema:
            case str() if schema in PRIMITIVES:
                return AvroType(schema, schema)
            case str():
                for name in (schema, f"{namespace}.{schema}"):
                    if (known := self._named.get(name)) is not None:
                        known.is_recursive |= id(known) in self._open
                        return known
                raise UnreadableEvents(f"the schema names the type {schema[:100]!r}, which is not")
            case list():
                members = [self.type(one, namespace, level + 1) for one in schema]
                return _counted(AvroType("union", schema, members))
            case dict():
                return self._object(schema, namespace, level)
        raise UnreadableEvents("the schema has a type that is neither a name nor an object")

    def _object(self, schema: dict[str, Any], namespace: str, level: int) -> AvroType:
        kind = schema.get("type")
        if kind in {"record", "error"}:
            return self._record(schema, namespace, level)
        if kind in {"array", "map"}:
            inner = schema.get("items" if kind == "array" else "values")
            return _counted(AvroType(kind, schema, [self.type(inner, namespace, level + 1)]))
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise UnreadableEvents("an enumeration of the schema has no symbols")
            return self._name(AvroType("enum", schema, names=list(symbols)), namespace)
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= 1 << 20:
                raise UnreadableEvents(f"a fixed of the schema has the size {size!r}")
            return self._name(AvroType("fixed", schema, size=size), namespace)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return AvroType(kind, schema)
        return self.type(kind, namespace, level + 1)

    def _record(self, schema: dict[str, Any], namespace: str, level: int) -> AvroType:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise UnreadableEvents("a record of the schema has no fields")
        found = self._name(AvroType("record", schema), namespace)
        own = str(schema.get("namespace", namespace))
        self._open.add(id(found))
        taken: set[str] = set()
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise UnreadableEvents("a field of the schema has no name")
            if one["name"] in taken:
                raise UnreadableEvents(f"the schema has two fields {one['name'][:100]!r}")
            taken.add(one["name"])
            found.names.append(one["name"])
            found.members.append(self.type(one.get("type"), own, level + 1))
        self._open.remove(id(found))
        return _counted(found)

    def _name(self, kind: AvroType, namespace: str) -> AvroType:
        name = kind.schema.get("name")
        if not isinstance(name, str) or not name:
            raise UnreadableEvents("a type of the schema has no name")
        space = str(kind.schema.get("namespace", namespace))
        self._named[name if "." in name or not space else f"{space}.{name}"] = kind
        return kind


def _counted(kind: AvroType) -> AvroType:
    """The type with the number of its types and levels. Raises UnreadableEvents."""
    kind.count += sum(member.count for member in kind.members)
    kind.levels += max((member.levels for member in kind.members), default=0)
    if kind.count > MOST_NAMED or kind.levels > MOST_LEVELS + 1:
        raise UnreadableEvents(
            f"the schema has more than {MOST_NAMED} types, or {MOST_LEVELS} levels of them, with "
            "those that it names"
        )
    return kind
