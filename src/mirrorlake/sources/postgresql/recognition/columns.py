"""Which column is which: by its number, which a description in the stream does not tell.

The stream describes a table as it was at some change, by names in the order of their numbers; the
catalog is looked at later. A number is given once and columns never come back, so the number of
columns that were described often says which they were. Where it does not, nothing is assumed: the
table stops. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook, is_before

Captures = Callable[[str], bool]
"""Whether a column of this name is captured."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A table as a change describes it. copied, filled, changes: as in `Alteration`, with texts.
    differs: columns of which earlier rows have values that nothing tells, and why, in words."""

    known: Known
    copied: Mapping[str, str] = field(default_factory=dict)
    filled: Mapping[str, str | None] = field(default_factory=dict)
    changes: tuple[tuple[SchemaChangeKind, str], ...] = ()
    differs: Mapping[str, str] = field(default_factory=dict)

    @property
    def altered(self) -> set[str]:
        """The columns of which earlier rows have other values now, or that go by another name."""
        return {*self.copied, *self.copied.values(), *self.filled, *self.differs}


def altered(known: Known, look: TableLook, captures: Captures) -> str | None:
    """What was done to the table that cannot be told from the log and the catalog; None for
    nothing."""
    for number, name in look.columns.items():
        if (told := _taken(known, number, name, captures)) is not None:
            return told
    return None


def unseen(known: Known, look: TableLook, captures: Captures) -> str:
    """What became of columns since the last change of the table, in words; empty for nothing."""
    found = _change(known, replace(known, columns=look.columns), look, captures)
    return "" if isinstance(found, str) else ", ".join(what for _kind, what in found.changes)


def followed(
    known: Known, look: TableLook, names: Sequence[str], transaction: int, captures: Captures
) -> Followed | str:
    """The table as a change of `transaction` describes it; what was done to it, when it cannot go
    on.

    names: the columns as described. look: of a later moment, with nothing `altered` by then.
    """
    numbers = _standing(known, look, len(names))
    if numbers is None:
        numbers = _standing(known, look, len(names), transaction)
        if numbers and not _are_named(look, dict(zip(numbers, names, strict=True)), transaction):
            numbers = None
    if numbers is None:
        return "its columns were changed again before capture could see how"
    described = dict(zip(numbers, names, strict=True))
    is_now = described.keys() == look.columns.keys()
    former = {*known.former, *known.columns.values()} - set(names)
    now = replace(
        known,
        columns=described,
        former=frozenset(former),
        last=look.last if is_now else max([known.last, *numbers]),
        node=look.node if is_now else known.node,
    )
    return _change(known, now, look, captures)


def _change(known: Known, now: Known, look: TableLook, captures: Captures) -> Followed | str:
    """What became of the columns."""
    copied, filled, differs = dict[str, str](), dict[str, str | None](), dict[str, str]()
    changes: list[tuple[SchemaChangeKind, str]] = []
    missing = {column.number: column.missing for column in look.attributes}
    earlier = {*known.former, *known.columns.values()}
    gone = {name for number, name in known.columns.items() if number not in now.columns}
    for number, name in now.columns.items():
        if (told := _taken(known, number, name, captures)) is not None:
            return told
        former = known.columns.get(number)
        if former == name or not captures(name):
            continue
        if former is not None:
            copied[name] = former
            what = f"column {former} was renamed to {name}"
            changes.append((SchemaChangeKind.COLUMN_RENAMED, what))
            continue
        if told := _differs(known, look, name, missing.get(number, ()), is_again=name in gone):
            differs[name] = told
        elif values := missing.get(number) or ((None,) if name in earlier else ()):
            filled[name] = values[0]
        changes.append((SchemaChangeKind.COLUMN_ADDED, f"column {name} was added"))
    for number, name in known.columns.items():
        if number not in now.columns and captures(name):
            changes.append((SchemaChangeKind.COLUMN_DROPPED, f"column {name} was dropped"))
    return Followed(now, copied, filled, tuple(changes), differs)


def _differs(
    known: Known, look: TableLook, name: str, missing: tuple[str, ...], *, is_again: bool
) -> str | None:
    """Why nothing tells what earlier rows have in a column that was added; None when it is told.
    is_again: no change came between a column of this name and this one."""
    if is_again:
        return f"column {name} was dropped and added again"
    if len(missing) > 1:
        return f"column {name} was added with a default that differs between partitions"
    if look.node != known.node and not missing:
        return (
            f"column {name} was added and the table rewritten; the log does not tell what older "
            "rows have in it"
        )
    return None


def _taken(known: Known, number: int, name: str, captures: Captures) -> str | None:
    """Why a column has older values that were never captured."""
    former = known.columns.get(number)
    if former == name:
        return None
    if former is not None:
        # Which columns are captured is asked by name, of those that were and those that are.
        if captures(former) != captures(name):
            return f"column {former} was renamed to {name}"
        return None
    if number <= known.last and captures(name):
        return f"column {name} was not captured before; its older values are missing"
    return None


def _are_named(look: TableLook, described: Mapping[int, str], transaction: int) -> bool:
    """Whether columns that were written before a transaction have the names that it gives them."""
    return all(
        column.name is None or described.get(column.number, column.name) == column.name
        for column in look.attributes
        if is_before(column.changed, transaction)
    )


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
