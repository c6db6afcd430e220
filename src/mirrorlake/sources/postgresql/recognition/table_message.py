"""A logical message of ours in the log, which describes a table that was altered: columns or key.

PostgreSQL describes a table to a stream before the next row of it, which may never come. So what
the catalog shows is written to the log. The stream comes to it there as to any other change, behind
every row from before the alteration, and again after a restart, in the same place.

Whoever may connect to the database may write such messages, so each is signed with a secret of the
stream. PostgreSQL documentation: "Logical Decoding", "pg_logical_emit_message".
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Self

import psycopg

from mirrorlake.model.keys import ColumnBounds
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.protocol import MESSAGE, Relation, RelationColumn
from mirrorlake.sources.postgresql.recognition.keys import FULL
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, Leaf, TableLook
from mirrorlake.sources.postgresql.recognition.row_identity import RowIdentity

PREFIX = "mirrorlake_table"

_BEGINNING = PREFIX.encode() + b"\0"
_BEGINS_AT = 10  # in a Message, behind type, flags and place
_NUMBER_BYTES = 4  # in a block of a transaction in progress, behind the type

_FORMAT = 1
_DIGEST = hashlib.sha256
_SIGNATURE_BYTES = _DIGEST().digest_size * 2  # in hexadecimal digits

_REFUSED = (
    psycopg.ProgrammingError,  # the privilege is missing
    psycopg.InternalError,  # the server only reads
    psycopg.errors.ObjectNotInPrerequisiteState,
)


@dataclass(frozen=True, slots=True)
class ColumnState:
    """The columns of a table: names, types and texts by number, and the highest number given; and
    by which of them a change finds its row: key as in `Known`, append_only: it finds none."""

    columns: Mapping[int, str]
    types: Mapping[int, str]
    last: int
    texts: Mapping[int, int] = field(default_factory=dict)
    key: tuple[int, ...] | None = None
    append_only: bool = False

    @classmethod
    def of(cls, table: Known) -> Self:
        key = table.key, bool(table.append_only)
        return cls(table.columns, table.types, table.last, table.texts, *key)


@dataclass(frozen=True, slots=True)
class TableMessage:
    """before: the table as the stream had described it; without that state it says nothing. look:
    the table in the catalog, at some time before the message was written."""

    oid: int
    before: ColumnState
    look: TableLook

    def is_like(self, other: TableMessage) -> bool:
        """Whether it says the same of columns and key as a message about the same table."""
        one, another = self.look, other.look
        same = one.attributes == another.attributes and one.last == another.last
        return same and one.identity == another.identity and self.before == other.before

    def relation(self, name: TableId) -> Relation:
        """The description that PostgreSQL would send before a row."""
        identity = self.look.identity
        logged = {"d": identity.primary, "i": identity.index}.get(identity.identity, ())
        if not {*logged} <= {column.name for column in self.look.attributes}:
            logged = ()  # a generated column, which is not published, identifies nothing
        columns = tuple(
            RelationColumn(
                column.name,
                column.type_oid,
                column.modifier,
                identity.identity == FULL or column.name in logged,
            )
            for column in self.look.attributes
            if column.name is not None
        )
        return Relation(self.oid, name.schema, name.name, identity.identity, columns)

    def write(self, connection: Connection, secret: str) -> Lsn | None:
        """Write it to the log. Returns a place behind it; None where that is not permitted."""
        content = signed(self, secret)
        try:
            with connection.transaction():
                # A standby that does not answer must not keep us waiting.
                connection.execute("set local synchronous_commit = local")
                query = "select pg_logical_emit_message(true, %s, %s)"
                connection.execute(query, [PREFIX, content])
        except _REFUSED:
            return None
        ((end,),) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()
        return Lsn.parse(end)

    @classmethod
    def parse(cls, content: bytes, secret: str) -> Self | None:
        """The message; None where it is not of this stream."""
        signature, plain = content[:_SIGNATURE_BYTES], content[_SIGNATURE_BYTES:]
        if not secret or not hmac.compare_digest(signature, _signature(plain, secret)):
            return None
        said = json.loads(plain)
        if said["format"] != _FORMAT:
            return None
        before = said["before"]
        numbered = (_numbered(before.get(name, {})) for name in ("columns", "types", "texts"))
        names, types, texts = numbered  # an earlier release wrote no texts, and no key
        key = None if before.get("key") is None else tuple(before["key"])
        is_append_only = before.get("append_only", False)
        state = ColumnState(names, types, before["last"], texts, key, is_append_only)
        return cls(said["table"], state, _look(said["look"]))

    def plain(self) -> dict[str, Any]:
        """As JSON can carry it."""
        look = self.look
        leaves: dict[int, list[Any]] | None = None
        if look.leaves is not None:
            leaves = {oid: _plain_leaf(leaf) for oid, leaf in look.leaves.items()}
        identity = asdict(replace(look.identity, partitions={}))
        identity["partitions"] = [
            [name.schema, name.name, None if logged is None else sorted(logged)]
            for name, logged in look.identity.partitions.items()
        ]
        return {
            "format": _FORMAT,
            "table": self.oid,
            "before": asdict(self.before),
            "look": {
                "at": str(look.at),
                "last": look.last,
                "node": look.node,
                "attributes": [astuple(column) for column in look.attributes],
                "leaves": leaves,
                "published": sorted(look.published),
                "links": dict(look.links),
                "identity": identity,
            },
        }


def is_ours(message: memoryview | bytes, *, in_block: bool = False) -> bool:
    """Whether a message of pgoutput is one of these, or says so. in_block: in a block of a
    transaction in progress."""
    if message[0] != MESSAGE:
        return False
    at = _BEGINS_AT + in_block * _NUMBER_BYTES
    return bytes(message[at : at + len(_BEGINNING)]) == _BEGINNING


def signed(message: TableMessage, secret: str) -> str:
    """What is written to the log; ASCII, which every encoding of a database has."""
    plain = json.dumps(message.plain())
    return _signature(plain.encode(), secret).decode() + plain


def _look(plain: Mapping[str, Any]) -> TableLook:
    leaves = plain["leaves"]
    identity = dict(plain["identity"])
    identity |= {name: tuple(identity[name]) for name in ("primary", "index", "unique", "indexes")}
    identity["partitions"] = {
        TableId(schema, name): None if logged is None else frozenset(logged)
        for schema, name, logged in identity["partitions"]
    }
    return TableLook(
        at=Lsn.parse(plain["at"]),
        last=plain["last"],
        node=plain["node"],
        attributes=tuple(
            Attribute(number, name, changed, tuple(missing), *types)
            for number, name, changed, missing, *types in plain["attributes"]
        ),
        leaves=leaves if leaves is None else {int(oid): _leaf(*leaves[oid]) for oid in leaves},
        published=frozenset(plain["published"]),
        links=_numbered(plain["links"]),
        identity=RowIdentity(**identity),
    )


def _leaf(schema: str, name: str, node: int, changed: int, bounds: list[Any] | None) -> Leaf:
    return Leaf(TableId(schema, name), node, changed, ColumnBounds(*bounds) if bounds else None)


def _plain_leaf(leaf: Leaf) -> list[Any]:
    bounds = [*astuple(leaf.bounds)] if leaf.bounds else None
    return [leaf.name.schema, leaf.name.name, leaf.node, leaf.changed, bounds]


def _numbered(plain: Mapping[str, Any]) -> dict[int, Any]:
    return {int(number): value for number, value in plain.items()}


def _signature(plain: bytes, secret: str) -> bytes:
    return hmac.new(secret.encode(), plain, _DIGEST).hexdigest().encode()
