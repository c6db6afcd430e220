"""`feed('shop.orders', 10, 20)` in SQL: rows of the change feed, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa

from mirrorlake.delta import sql
from mirrorlake.errors import FeedError, UsageError, check_utf8, tables_like
from mirrorlake.feed.bounds import FeedArguments, FeedRequest, end_named, start_named
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.model.table import TableId, named

NAME = "feed"
_STRING = re.compile(r"'(?:[^']|'')*'")
_WORD = re.compile(r"[\w.]+|:=|=>|.", re.DOTALL)
_VALUES: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}

Value = str | int | bool | None


def run(
    root: Path,
    query: str,
    versions: Mapping[Path, int] | None = None,
    tell: Callable[[str, Feed], None] = lambda _table, _feed: None,
    *,
    verify: bool = True,
) -> duckdb.DuckDBPyRelation | None:
    """The result of a query that may read feeds; None for a statement without a result.

    versions: versions as of which tables are read. tell: called with the table and the range of
    each feed. verify: verify the page checksums of tables before; those of feeds always are. Raises
    UsageError, FeedError, and ForeignTable for a damaged file of a table.
    """
    check_utf8(query, "the query")
    text, tables = query.encode(), {}
    for number, call in enumerate(reversed(list(_calls(text)))):
        name = f"__feed_{number}"
        tables[name] = _read(root, call, tell)
        text = text[: call.start] + f'"{name}"'.encode() + text[call.end :]
    return sql.run(root, text.decode(), tables, versions, verify=verify)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of `feed`: its first byte in the query, the byte after it, and its arguments."""

    start: int
    end: int
    arguments: list[tuple[str, Value]]


def _calls(text: bytes) -> Iterator[_Call]:
    found = duckdb.tokenize(text.decode())
    ends = pairwise([*(offset for offset, _kind in found), len(text)])
    known = [
        (offset, _token(text[offset:end].decode()))
        for (offset, end), (_offset, kind) in zip(ends, found, strict=True)
        if kind != duckdb.token_type.comment
    ]
    offsets, tokens = [offset for offset, _token in known], [token for _offset, token in known]
    for index, token in enumerate(tokens[:-1]):
        is_name = token.casefold() == NAME and (index == 0 or tokens[index - 1] != ".")
        if is_name and tokens[index + 1] == "(":
            close = next((i for i in range(index, len(tokens)) if tokens[i] == ")"), None)
            if close is None:
                raise _refused("the arguments have no closing parenthesis")
            arguments = list(_arguments(tokens[index + 2 : close]))
            yield _Call(offsets[index], offsets[close] + 1, arguments)


def _token(text: str) -> str:
    """A token without the spaces and comments after it."""
    match = _STRING.match(text) or _WORD.match(text)
    return match[0] if match else text


def _arguments(tokens: list[str]) -> Iterator[tuple[str, Value]]:
    """The name, "" for none, and the value of each argument."""
    while tokens:
        name = ""
        if len(tokens) > 2 and tokens[1] in {":=", "=>"}:
            name, tokens = tokens[0].casefold(), tokens[2:]
        value, tokens = _value(tokens)
        yield name, value
        if tokens and tokens[0] != ",":
            raise _refused("its arguments are constants, with commas between them")
        tokens = tokens[1:]


def _value(tokens: list[str]) -> tuple[Value, list[str]]:
    token, *rest = tokens
    if _STRING.fullmatch(token):
        return token[1:-1].replace("''", "'"), rest
    if token in {"-"} and rest and rest[0].isdecimal():
        return -int(rest[0]), rest[1:]
    if token.isdecimal():
        return int(token), rest
    if token.casefold() in _VALUES:
        return _VALUES[token.casefold()], rest
    raise _refused(
        "its arguments are constants: texts, whole numbers, true, false and null, and not "
        f"{token.strip() or 'nothing'}"
    )


def _read(root: Path, call: _Call, tell: Callable[[str, Feed], None]) -> pa.Table:
    positional = [value for name, value in call.arguments if not name]
    if not positional or not isinstance(positional[0], str) or len(positional) > 3:
        raise _refused("it takes the name of a table, a start and an end")
    path = _path(root, positional[0])
    given: FeedArguments = {}
    for start_or_end, bound in zip((start_named, end_named), positional[1:], strict=False):
        given |= start_or_end(str(bound)) if bound is not None else {}
    others: dict[str, Value] = {}
    for name, value in call.arguments:
        if name and (name in given or name in others):
            raise _refused(f"{name} is given twice")
        others |= {name: value} if name else {}
    if isinstance(key := others.get("key"), str):
        others = {**others, "key": key.split(",")}  # type: ignore[dict-item]
    given |= cast("FeedArguments", others)
    feed = Feed(FeedRequest.of(str(path), **given))
    tell(positional[0], feed)
    return feed.to_arrow()


def _path(root: Path, table: str) -> Path:
    known = {
        str(TableId("" if schema == "main" else schema, name)): path
        for schema, name, path in sql.tables(root)
    }
    table = named(table, known, where="the query")
    alike = [path for name, path in known.items() if name.casefold() == table.casefold()]
    if table in known or len(alike) == 1:
        return known.get(table) or alike[0]
    raise UsageError(
        f"there is no table {table}",
        where="the query",
        hint=tables_like(table, known, "none yet"),
    )


def _refused(what: str) -> FeedError:
    return FeedError(
        f"feed(...) is not understood: {what}",
        reason=FeedReason.INVALID_ARGUMENT,
        table="",
        hint="Write feed('schema.table', start, end), or name arguments, as in "
        "feed('schema.table', from_time := '2026-11-23', on_gap := 'report').",
    )
