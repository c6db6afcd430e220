"""Columns that are renamed by column mapping instead of being copied under another name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.model.change import Alteration
from mirrorlake.model.table import Schema
from mirrorlake.model.types import is_wider


def renamed_columns(known: Schema, found: Schema, altered: Alteration) -> dict[str, str]:
    """The new names of columns of the table, by their present ones.

    found: the columns of the file with the alteration. Empty if names alone cannot express it, so
    that values have to be copied: a column that stays in the table has a new name already, or a
    column gets another type that cannot hold its values and does not keep them.
    """
    names = dict[str, str]()
    for new, former in altered.copied.items():
        present = next(iter(match_columns(known.names, [former])), None)
        if present is None or present.casefold() == new.casefold():
            continue
        there = match_columns([new], found.names).get(new)
        if there is None:
            continue  # it was renamed again, or dropped
        kinds = found[there].type, known[present].type
        if present in names or not (
            kinds[0] == kinds[1] or is_wider(*kinds) or new in altered.saved
        ):
            return {}
        names[present] = new
    after = [names.get(name, name).casefold() for name in known.names]
    return names if len({*after}) == len(after) else {}


def with_names(known: Schema, names: Mapping[str, str]) -> Schema:
    """The columns of the table with other names."""
    return Schema.of(
        [replace(column, name=names.get(column.name, column.name)) for column in known]
    )


def after_renaming(altered: Alteration, names: Mapping[str, str]) -> Alteration:
    """What is left of an alteration when columns have their new names. names: as of
    `renamed_columns`, of the same alteration."""
    former = {name.casefold() for name in names}
    # A column that the table never had, whose name another one has now: it has no values.
    unknown = {name.casefold() for name in names.values()} - former
    copied, emptied = dict[str, str](), list(altered.emptied)
    for new, source in altered.copied.items():
        if source.casefold() in unknown:
            emptied.append(new)
        elif source.casefold() not in former:
            copied[new] = source
    return replace(altered, copied=copied, emptied=tuple(emptied))
