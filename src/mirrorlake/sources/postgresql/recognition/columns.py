"""Which column is which: by its number, which a description in the stream does not tell.

The stream describes a table as it was at some change, by names in the order of their numbers; the
catalog is looked at later. A number is given once and columns never come back, so the number of
columns that were described often says which they were. Where it does not, nothing is assumed: the
table stops. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook, is_before

Captures = Callable[[str], bool]
"""Whether a column of this name is captured."""


def altered(known: Known, look: TableLook, captures: Captures) -> str | None:
    """What was done to the table that the log does not tell; None for nothing."""
    if told := _taken(known, look.columns, captures):
        return told
    for column in look.attributes:
        if column.number <= known.last or column.name is None or not captures(column.name):
            continue
        if column.has_missing:
            return f"column {column.name} was added with a default, which the log does not tell"
        if look.node != known.node:
            return (
                f"column {column.name} was added and the table rewritten; the log does not tell "
                "what older rows have in it"
            )
    return None


def followed(
    known: Known, look: TableLook, names: Sequence[str], transaction: int, captures: Captures
) -> Known | str:
    """The table as a change of `transaction` describes it; what was done to it, when it cannot go
    on.

    names: the columns as described. look: of a later moment, with nothing `altered` by then.
    """
    numbers = _standing(known, look, len(names)) or _standing(known, look, len(names), transaction)
    if numbers is None:
        return "its columns were changed again before capture could see how"
    described = dict(zip(numbers, names, strict=True))
    if told := _taken(known, described, captures):
        return told
    is_now = described.keys() == look.columns.keys()
    dropped = {**known.dropped, **known.columns}
    return replace(
        known,
        columns=described,
        dropped={number: name for number, name in dropped.items() if number not in described},
        last=look.last if is_now else max([known.last, *numbers]),
        node=look.node if is_now else known.node,
    )


def _taken(known: Known, columns: Mapping[int, str], captures: Captures) -> str | None:
    """Why columns are not what their names say."""
    before = {name: number for number, name in {**known.dropped, **known.columns}.items()}
    for number, name in columns.items():
        former = known.columns.get(number)
        if former == name:
            continue
        if former is not None:
            if not (captures(former) or captures(name)):
                continue
            if columns.get(before.get(name, 0)) == former:
                return f"columns {former} and {name} exchanged their names"
            return f"column {former} was renamed to {name}"
        if not captures(name):
            continue
        if name in before:
            return f"column {name} was dropped and added again"
        if number <= known.last:
            return f"column {name} was not captured before; its older values are missing"
    return None


def _standing(
    known: Known, look: TableLook, count: int, transaction: int | None = None
) -> list[int] | None:
    """The numbers of the columns that stood when `count` of them did; None when more than one
    answer is possible.

    transaction: what was written of a column before it counts as known by then, and a column that
    was dropped later as still there.
    """
    certain: list[int] = []
    possible: list[Attribute] = []
    for column in look.attributes:
        is_known = column.number in known.columns
        if transaction is not None and is_before(column.changed, transaction):
            certain += [column.number] if column.name is not None else []
        elif is_known and (column.name is not None or _is_later(column.changed, transaction)):
            certain.append(column.number)
        elif is_known or column.name is not None or column.number > known.last:
            possible.append(column)
    both = sorted([*certain, *(column.number for column in possible)])
    if count == len(certain):
        return certain
    if count == len(both):
        return both
    # Columns come in the order of their numbers.
    if len(certain) < count < len(both) and all(c.name is not None for c in possible):
        return both[:count] if set(certain) <= set(both[:count]) else None
    return None


def _is_later(changed: int, transaction: int | None) -> bool:
    return transaction is not None and is_before(transaction, changed)
