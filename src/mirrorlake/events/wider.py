"""Unified types whose values another one has, and the least type that has those of two.

The join of types is commutative, associative and idempotent, so that the type of a column depends
on the types of its values, and not on their order. Not all types have a join: microseconds are no
count, and an ISO 8601 time is no other text (ST-262).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from mirrorlake.events import types
from mirrorlake.events.types import UnifiedKind, UnifiedType

_DIGITS: Mapping[UnifiedKind, int] = {UnifiedKind.INTEGER: 10, UnifiedKind.LONG: 19}
"""Digits of the longest number."""
_EXACT = {*_DIGITS, UnifiedKind.DECIMAL}
_BINARY: Mapping[UnifiedKind, Set[UnifiedKind]] = {
    UnifiedKind.LONG: {UnifiedKind.INTEGER},
    UnifiedKind.DOUBLE: {UnifiedKind.INTEGER, UnifiedKind.FLOAT},
}
"""Types of numbers with the others of which they have every value."""
_TEXTS = {UnifiedKind.STRING, UnifiedKind.VARCHAR}
_MOMENTS = {UnifiedKind.DATETIME, UnifiedKind.TIMESTAMP}
_JOINS: Mapping[UnifiedType, Set[UnifiedKind]] = {
    types.STRING: {*_TEXTS, UnifiedKind.NUMBER},
    types.TIMESTAMP: _MOMENTS,
    types.LONG: {UnifiedKind.LONG, *_BINARY[UnifiedKind.LONG]},
    types.DOUBLE: {UnifiedKind.DOUBLE, *_BINARY[UnifiedKind.DOUBLE]},
}
"""The join of any two of some types that have no parameters."""


def has_every_value(column: UnifiedType, given: UnifiedType) -> bool:
    """Whether a column of one unified type can have every value of another one, and in it the same
    meaning. A VARCHAR has texts of any length: only the source checks it."""
    kinds = {column.kind, given.kind}
    if column == given or kinds <= _TEXTS or kinds <= _MOMENTS:
        return True
    if column.element is not None and given.element is not None:
        return has_every_value(column.element, given.element)
    if column.kind is UnifiedKind.STRING:
        return given.kind is UnifiedKind.NUMBER
    if column.kind is UnifiedKind.DECIMAL and given.kind in _EXACT:
        return column.scale >= given.scale and whole_digits(column) >= whole_digits(given)
    return given.kind in _BINARY.get(column.kind, ())


def joined(first: UnifiedType, second: UnifiedType) -> UnifiedType | None:
    """The least type that has every value of both; None if there is none."""
    if first == second:
        return first
    if first.element is not None and second.element is not None:
        element = joined(first.element, second.element)
        return None if element is None else types.array(element)
    kinds = {first.kind, second.kind}
    if kinds == {UnifiedKind.VARCHAR}:
        return types.varchar(max(first.length, second.length))
    if UnifiedKind.DECIMAL in kinds and kinds <= _EXACT:
        scale = max(first.scale, second.scale)
        return types.decimal(max(whole_digits(first), whole_digits(second)) + scale, scale)
    return next((wider for wider, others in _JOINS.items() if kinds <= others), None)


def whole_digits(kind: UnifiedType) -> int:
    """Digits before the point of an INTEGER, a LONG or a DECIMAL."""
    return _DIGITS.get(kind.kind, kind.precision - kind.scale)
