"""By which columns a change finds its row, as of a description of the table in the stream.

A description says which columns of old rows the log contains. With identity FULL these are all, and
what stands for a key is looked up in the catalog, which may be that of a later moment. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.postgresql.recognition.known import Known, TableLook
from mirrorlake.sources.postgresql.recognition.row_identity import NO_KEY

Captures = Callable[[str], bool]
"""Whether a column of this name is captured."""

FULL = "f"


@dataclass(frozen=True, slots=True)
class RelationDescription:
    """A table as the stream describes it. columns: each with its type in the mirror; identity: as
    in `RowIdentity`; key: the columns of old rows that the log contains; texts: as
    `Attribute.text`, of each column where it is known."""

    columns: Mapping[str, str]
    identity: str = "d"
    key: tuple[str, ...] = ()
    texts: Mapping[str, int] = field(default_factory=dict)


def key_of(
    description: RelationDescription, known: Known, now: Known, look: TableLook, captures: Captures
) -> tuple[tuple[int, ...], str]:
    """The key of a table as it is described, and why it has none, as in `Known`.

    known: the table before; now: with the columns that are described.
    """
    later, reason = look.key(captures)
    is_split, identity = look.identity.is_partitioned, description.identity
    is_weak = look.identity.weak_partition is not None
    if identity == FULL or (is_split and (is_weak or not (known.key and description.key))):
        is_the_same = is_split or look.identity.identity == identity
        if is_the_same and {*later} <= now.columns.keys():
            return later, reason
        return (), ""  # it has changed since: all columns identify rows, whatever its key was
    if not description.key:
        return (), NO_KEY[identity] if later or not reason else reason
    if missing := [name for name in description.key if not captures(name)]:
        return (), f"key column {missing[0]} is not selected"
    numbers = {name: number for number, name in now.columns.items()}
    found = tuple(numbers[name] for name in description.key)
    ordered = [key for key in (later, known.key or ()) if {*key} == {*found}]
    return (ordered or [found])[0], ""


def change_of(
    known: Known, now: Known, identity: str
) -> tuple[tuple[SchemaChangeKind, str] | None, bool]:
    """What happened to the key, if anything, and whether changes may have been missed."""
    was, is_now = (known.key, bool(known.append_only)), (now.key, bool(now.append_only))
    # Where whole rows are logged, the catalog may show a key that is younger than the description.
    is_other_key = was != is_now or (identity == FULL and known.indexes != now.indexes)
    if known.key is None or not is_other_key:
        return None, False
    before, after = _words(known), _words(now)
    change = (
        SchemaChangeKind.KEY_CHANGED,
        f"changes found their rows by {before} and now by {after}",
    )
    is_missed = bool(known.append_only and not now.append_only)
    return change, is_missed or (identity == FULL and bool(now.key))


def _words(known: Known) -> str:
    if known.append_only:
        return f"nothing ({known.append_only})"
    return f"the key ({', '.join(known.key_names or ())})" if known.key else "all columns"
