"""Which column is which: by its number, which a description in the stream does not contain.

The stream describes a table as it was at some change, by names in the order of their numbers; the
catalog is looked at later. A number is given once and columns never come back, so the number of
columns that were described often says which they were. Where it does not, nothing is assumed: what
earlier rows have in these columns counts as unknown, and the table is read again. No I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.position import Lsn
from mirrorlake.model.types import DataType, is_wider
from mirrorlake.sources.postgresql.recognition import keys
from mirrorlake.sources.postgresql.recognition.keys import Captures, RelationDescription
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook, is_before

_UNCERTAIN = (
    SchemaChangeKind.COLUMN_ADDED,
    "a transaction changed rows, dropped a column and added another",
)
_UNIDENTIFIED = (
    SchemaChangeKind.COLUMN_ADDED,
    "its columns were changed several times before capture could see how",
)
_WITHOUT_COLUMNS = (
    SchemaChangeKind.COLUMN_ADDED,
    "it had no columns that are mirrored, and so none of its rows was",
)
_UNLOGGED = "the log does not contain the values of older rows"


@dataclass(frozen=True, slots=True)
class Followed:
    """A table as a change describes it. copied, filled, saved, changes: as in `Alteration`, with
    texts. differs: columns of which earlier rows have unknown values, "" for the rows themselves,
    with the kind of change and why, in words. key, whole_rows, emptied, gone: as in
    `Alteration`. is_former: it is described as it was before it was loaded, for changes that the
    load has."""

    known: Known
    copied: Mapping[str, str] = field(default_factory=dict)
    filled: Mapping[str, str | None] = field(default_factory=dict)
    changes: tuple[tuple[SchemaChangeKind, str], ...] = ()
    differs: Mapping[str, tuple[SchemaChangeKind, str]] = field(default_factory=dict)
    saved: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    whole_rows: bool = False
    emptied: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_former: bool = False

    @property
    def is_change(self) -> bool:
        """Whether anything changed."""
        return bool(self.changes or self.differs or self.emptied) or self.key is not None


def altered(known: Known, look: TableLook, captures: Captures) -> str | None:
    """What was done to the table that cannot be derived from the log and the catalog; None for
    nothing."""
    for number, name in look.columns.items():
        if (reason := _taken(known, number, name, captures)) is not None:
            return reason
    return None


def generated(
    known: Known, look: TableLook, description: RelationDescription, transaction: int
) -> str | None:
    """A generated column that a change of `transaction` describes; None for none. Where it was
    written since, and so was an ordinary column that has not its name now, that one had the name:
    it is a column of another number."""
    later = [column for column in look.attributes if not is_before(column.changed, transaction)]
    for name in sorted({*description.columns} & look.generated.keys() - {*known.columns.values()}):
        is_older = is_before(look.generated[name], transaction)
        if is_older or not any(column.name != name for column in later):
            return name
    return None


def unseen(known: Known, look: TableLook, captures: Captures) -> tuple[str, bool]:
    """How columns, or the key, were altered since the last change of a row, in words, empty if they
    were not; and whether rows have other values by that, or may have."""
    now = replace(known, columns=look.columns, types=look.types, texts=look.texts)
    found = _change(known, now, look, captures)
    if isinstance(found, str):
        return "", False
    key, append_only = look.key(captures)
    key_change, is_missed = keys.change_of(
        known, replace(now, key=key, append_only=append_only), look.identity.identity
    )
    told = [what for _kind, what in (*found.changes, *([key_change] if key_change else []))]
    retexted = (_retexted(known, now, n) for n, name in look.columns.items() if captures(name))
    filled = any(value is not None for value in found.filled.values())
    alters = bool(found.copied or found.differs or filled or (key_change and is_missed))
    return ", ".join([*told, *filter(None, retexted)]), alters


def rewritten(known: Known, look: TableLook, captures: Captures) -> Followed | None:
    """The table as it is now, if nothing has happened to it since its last change but that values
    were rewritten."""
    now = look.columns, look.types, look.texts
    if now != (known.columns, known.types, known.texts):
        return None
    found = _change(known, replace(known, node=look.node, written=look.written), look, captures)
    return found if isinstance(found, Followed) and found.differs else None


def with_texts(known: Known, look: TableLook) -> Known:
    """The table with the texts of its columns, which an earlier release did not note: they count as
    unchanged, like its columns."""
    is_now = (look.columns, look.types) == (known.columns, known.types)
    return replace(known, texts=look.texts) if is_now and not known.texts else known


def followed(
    known: Known,
    look: TableLook,
    description: RelationDescription,
    transaction: int,
    captures: Captures,
    after: Lsn | None = None,
) -> Followed | str:
    """The table as a change of `transaction` describes it; what was done to it, when it cannot go
    on: a column is captured under one of its names only.

    look: of a later moment, with nothing `altered` by then. after: where the transaction stands.
    """
    names = [*description.columns]
    # After one that could not be identified, a number of columns says nothing.
    counts = min(known.columns, default=0) >= 0
    numbers = _standing(known, look, len(names)) if counts else None
    is_guessed = False
    if counts and numbers is None:
        numbers = _standing(known, look, len(names), transaction)
        if numbers and not _are_named(look, dict(zip(numbers, names, strict=True)), transaction):
            numbers = None
        is_guessed = numbers is not None and _may_be_a_dropped_one(known, look, numbers)
    uncertain = _UNCERTAIN if is_guessed or numbers is None else None
    is_identified = True
    if numbers is None:
        numbers = _by_names(known, look, description)
    if numbers is None:
        numbers, uncertain, is_identified = _unidentified(known, look, names), _UNIDENTIFIED, False
    found = _numbered(known, look, description, numbers, captures, after, is_identified)
    if isinstance(found, str):
        return found
    if uncertain:
        found = replace(found, differs={"": uncertain, **found.differs})
    return _with_key(known, found, description, captures)


def looked_at(
    known: Known,
    look: TableLook,
    description: RelationDescription,
    captures: Captures,
    after: Lsn,
) -> Followed | str:
    """As `followed`, of a description of the very columns of the look."""
    found = _numbered(known, look, description, [*look.columns], captures, after)
    return found if isinstance(found, str) else _with_key(known, found, description, captures)


def _numbered(
    known: Known,
    look: TableLook,
    description: RelationDescription,
    numbers: Sequence[int],
    captures: Captures,
    after: Lsn | None,
    is_identified: bool = True,
) -> Followed | str:
    """The table as it is described, by columns of these numbers."""
    names = [*description.columns]
    described = dict(zip(numbers, names, strict=True))
    types = {number: description.columns[name] for number, name in described.items()}
    is_now = types == look.types
    former = {*known.former, *known.columns.values()} - set(names)
    texts = {number: description.texts.get(name, 0) for number, name in described.items()}
    now = replace(
        known,
        columns=described,
        former=frozenset(former),
        # Behind this, a column counts as one that is added with values that are known.
        last=look.last if is_now or not is_identified else max([known.last, *numbers]),
        node=look.node if is_now else known.node,
        types=types,
        written=look.written if is_now else known.written,
        texts={number: text for number, text in texts.items() if text},
    )
    key, append_only = keys.key_of(description, known, now, look, captures)
    now = replace(now, key=key, append_only=append_only, indexes=look.identity.indexes)
    return _change(known, now, look, captures, after or known.at)


def _with_key(
    known: Known, found: Followed, description: RelationDescription, captures: Captures
) -> Followed:
    """The table, with the change of its key."""
    now = found.known
    key_change, is_missed = keys.change_of(known, now, description.identity)
    if key_change is not None:
        found = replace(found, changes=(*found.changes, key_change))
    if key_change is not None and is_missed:
        missed = f"{key_change[1]}; changes may be missing"
        found = replace(found, differs={**found.differs, "": (key_change[0], missed)})
    if now.is_whole:
        # A row that changes is looked for by all columns that the mirror has.
        former = {*known.columns.values(), *(() if known.is_whole else known.former)}
        gone = {*filter(captures, former)} - {*now.columns.values()}
        found = replace(found, emptied=tuple(sorted(gone)))
    if known.key is not None and (key_change or known.key_names != now.key_names):
        found = replace(found, key=now.key_names, whole_rows=now.is_whole)
    return found


def _change(
    known: Known, now: Known, look: TableLook, captures: Captures, after: Lsn | None = None
) -> Followed | str:
    """How the columns were altered."""
    for number, name in now.columns.items():
        if (reason := _taken(known, number, name, captures)) is not None:
            return reason
    found = _Changes(known, now, look, after)
    for number, name in now.columns.items():
        if captures(name):
            found.stands(number, name) if number in known.columns else found.comes(number, name)
    if found.changes and not any(map(captures, known.columns.values())):
        found.differs[""] = _WITHOUT_COLUMNS
    for number, name in known.columns.items():
        if number not in now.columns and captures(name):
            found.changes.append((SchemaChangeKind.COLUMN_DROPPED, f"column {name} was dropped"))
    gone = {*filter(captures, known.columns.values())} - {*now.columns.values()}
    return Followed(
        now,
        found.copied,
        found.filled,
        tuple(found.changes),
        found.differs,
        found.saved,
        gone=tuple(sorted(gone)),
    )


class _Changes:
    """How columns were altered, one after the other; as in `Followed`."""

    def __init__(self, known: Known, now: Known, look: TableLook, after: Lsn | None) -> None:
        self._known, self._now, self._look, self._after = known, now, look, after
        self._missing = {column.number: column.missing for column in look.attributes}
        self._dropped = {column.number for column in look.attributes if column.name is None}
        self._earlier = {*known.former, *known.columns.values()}
        self._gone = {n for number, n in known.columns.items() if number not in now.columns}
        self.copied = dict[str, str]()
        self.filled = dict[str, str | None]()
        self.saved = dict[str, str]()
        self.differs = dict[str, tuple[SchemaChangeKind, str]]()
        self.changes: list[tuple[SchemaChangeKind, str]] = []

    def stands(self, number: int, name: str) -> None:
        """A column was there before, under this name or another."""
        if (former := self._known.columns[number]) != name:
            self.copied[name] = former
            what = f"column {former} was renamed to {name}"
            self.changes.append((SchemaChangeKind.COLUMN_RENAMED, what))
        if retyped := _retyped(self._known, self._now, number):
            self.changes.append(retyped)
            if retyped[0] is SchemaChangeKind.TYPE_CHANGED:
                self._save(name, former)
        if rewritten := _rewritten(self._known, self._now, self._look, number, retyped):
            self.differs[name] = rewritten

    def comes(self, number: int, name: str) -> None:
        """A column was not there before, but perhaps one of its name."""
        self.changes.append((SchemaChangeKind.COLUMN_ADDED, f"column {name} was added"))
        values, is_again = self._missing.get(number, ()), name in self._gone
        reason = _differs(self._known, self._look, name, values, is_again=is_again)
        if number <= self._known.last:  # it was generated, or not published
            reason = f"column {name} was not captured before; {_UNLOGGED}"
        if self._now.is_whole and number in self._dropped:  # rows are looked for by its values
            reason = f"column {name} was added, and dropped before its default could be read"
        if reason:
            self.differs[name] = (SchemaChangeKind.COLUMN_ADDED, reason)
            if name in self._earlier:  # perhaps of another type
                self._save(name, name)
        elif values or name in self._earlier:
            self.filled[name] = values[0] if values else None

    def _save(self, name: str, former: str) -> None:
        """No other column has ever had the name under which former values stay."""
        saved = f"{former}_before_{str(self._after).replace('/', '_')}"
        while saved in {*self._earlier, *self._now.columns.values()}:
            saved += "_"
        self.saved[name] = saved


def _retyped(known: Known, now: Known, number: int) -> tuple[SchemaChangeKind, str] | None:
    """How the type of a column was changed; None where it is the same in the mirror."""
    before, after = known.types.get(number), now.types[number]
    if before is None or before == after:
        return None
    widened = is_wider(DataType.parse(after), DataType.parse(before))
    kind = SchemaChangeKind.TYPE_WIDENED if widened else SchemaChangeKind.TYPE_CHANGED
    return kind, f"the type of column {now.columns[number]} was changed from {before} to {after}"


def _rewritten(
    known: Known,
    now: Known,
    look: TableLook,
    number: int,
    retyped: tuple[SchemaChangeKind, str] | None,
) -> tuple[SchemaChangeKind, str] | None:
    """Why earlier rows may have other values in a column: `alter column type` computes them by any
    expression, which is not logged. It writes all rows anew, unless their bytes stay the same. Then
    only digits can have been added: of other types the same bytes may mean something else.
    """
    is_rewritten = _has_other_files(known, look)
    if retyped is not None:
        kind, what = retyped
        has_more_digits = known.types[number].startswith("decimal")
        is_same = kind is SchemaChangeKind.TYPE_WIDENED and has_more_digits and not is_rewritten
        return None if is_same else (kind, f"{what}; {_UNLOGGED}")
    if retexted := _retexted(known, now, number):
        return SchemaChangeKind.TYPE_CHANGED, retexted
    if not is_rewritten or look.written.get(number) in {None, known.written.get(number)}:
        return None
    name = now.columns[number]
    return SchemaChangeKind.TYPE_CHANGED, f"column {name} and the rows were rewritten; {_UNLOGGED}"


def _retexted(known: Known, now: Known, number: int) -> str | None:
    """Why the same bytes of a column have another text, as a `cidr` has that becomes an `inet`.
    Arrays are written anew for that."""
    before, after = known.texts.get(number), now.texts.get(number)
    if not (before and after) or before == after:
        return None
    name = now.columns[number]
    return f"the type of column {name} was changed to one that writes its values in another way"


def _has_other_files(known: Known, look: TableLook) -> bool:
    if known.partitions is None or look.leaves is None:
        return known.node != look.node
    leaves = look.leaves
    return any(leaves[oid].node != node for oid, node in known.partitions.items() if oid in leaves)


def _differs(
    known: Known, look: TableLook, name: str, missing: tuple[str, ...], *, is_again: bool
) -> str | None:
    """Why the values of earlier rows in an added column are unknown; None when they are known.
    is_again: no change came between a column of this name and this one."""
    if is_again:
        return f"column {name} was dropped and added again"
    if len(missing) > 1:
        return f"column {name} was added with a default that differs between partitions"
    if look.node != known.node and not missing:
        return f"column {name} was added and the table rewritten; {_UNLOGGED}"
    return None


def _taken(known: Known, number: int, name: str, captures: Captures) -> str | None:
    """Why a column is captured under one of its names only."""
    former = known.columns.get(number, name)
    return f"column {former} was renamed to {name}" if captures(former) != captures(name) else None


def _are_named(look: TableLook, described: Mapping[int, str], transaction: int) -> bool:
    """Whether columns that were written before a transaction have the names that it gives them."""
    return all(
        column.name is None or described.get(column.number, column.name) == column.name
        for column in look.attributes
        if is_before(column.changed, transaction)
    )


def _may_be_a_dropped_one(known: Known, look: TableLook, numbers: Sequence[int]) -> bool:
    """Whether a column that was added since, one of these, may be another one that was added since
    and is dropped by now. A transaction that began before another may have dropped it after that
    one, and nothing says so."""
    later = (column for column in look.attributes if column.number > known.last)
    is_dropped = any(column.name is None for column in later)
    return is_dropped and any(number > known.last for number in numbers)


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


def _by_names(known: Known, look: TableLook, description: RelationDescription) -> list[int] | None:
    """The numbers of the columns if they are named as they are now, or as they were, None for
    neither: a transaction may have changed rows, columns and rows again, and the catalog shows the
    end of it. This is wrong where names were exchanged too, so the rows are read again, as soon as
    the numbers are those of the catalog."""
    described = [*description.columns.items()]
    for columns, types in ((look.columns, look.types), (known.columns, known.types)):
        numbers = sorted(columns)
        if described == [
            (columns[n], types.get(n, description.columns.get(columns[n]))) for n in numbers
        ]:
            return numbers
    return None


def _unidentified(known: Known, look: TableLook, names: Sequence[str]) -> list[int]:
    """Numbers for columns of which it cannot be told which they are. One that is named now as it
    was before keeps its number; another gets one that no column has, so that it counts as new, and
    as another one as soon as it is recognised."""
    before = {name: number for number, name in known.columns.items()}
    kept = {n: number for n, number in before.items() if look.columns.get(number, n) == n}
    unused = itertools.count(min([0, *known.columns]) - 1, -1)
    return [kept[name] if name in kept else next(unused) for name in names]


def _is_later(changed: int, transaction: int | None) -> bool:
    return transaction is not None and is_before(transaction, changed)
