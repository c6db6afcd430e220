"""By which way a batch is applied, from facts: of the table, the Spark, the batch and the setting.

`direct` writes files itself, and so must know everything that Delta would do on a write. `merge`
leaves the writing to Delta. Whatever is not known to be right with `direct` goes by `merge`; what
neither can keep right, because even the reading of the log may mislead, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from mirrorlake.delta.log.table_log import TableSnapshot

SUPPORTED_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "invariants",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Table features that our own way of writing keeps right. Any other could be broken by it."""

READ = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Reader features under which the log still says what we take from it: versions, and numbers."""

ELSEWHERE = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})
"""Features under which commits may be known to a catalog before they stand in the log."""

LENGTH = "__CHAR_VARCHAR_TYPE_STRING"

CHECKED = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    LENGTH: "has a length",
}
"""What Delta checks or fills in when it writes a column, by the member of the column's metadata."""

PLAIN = frozenset({"boolean", "byte", "short", "integer", "long", "string", "date"})
"""Types, besides decimals, whose values have one text each. That of a timestamp may depend on the
time zone of a session, that of a floating point number on who prints it."""

COMPUTED = frozenset({"delta.generationExpression", "delta.identity.start"})


NOTHING_REQUIRED = "no feature of this table requires Delta's MERGE"


class Way(StrEnum):
    """The strategies."""

    DIRECT = "direct"
    MERGE = "merge"


class Wanted(StrEnum):
    """What a project asks for (`mirror.strategy`)."""

    AUTO = "auto"
    DIRECT = "direct"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the log of a table says of how it wants to be written.

    readers, writers: features; fields: of the schema, as the log has them; unknown: kinds of
    actions that the protocol does not name.
    """

    readers: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[Mapping[str, Any]] = ()
    partitions: Sequence[str] = ()
    unknown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: TableSnapshot) -> Self:
        """Of a table that exists."""
        protocol, metadata = snapshot.protocol, snapshot.metadata
        return cls(
            readers=frozenset(protocol.get("readerFeatures") or ()),
            writers=frozenset(protocol.get("writerFeatures") or ()),
            properties=snapshot.properties,
            fields=json.loads(metadata["schemaString"])["fields"],
            partitions=tuple(metadata.get("partitionColumns") or ()),
            unknown=frozenset(snapshot.unknown),
        )

    @property
    def refused(self) -> str:
        """Why no way can write it, in words; empty when one can."""
        if unread := sorted((self.readers - READ) | (ELSEWHERE & self.writers)):
            return f"the table uses feature {unread[0]}"
        for one in self.fields:
            length = str((one.get("metadata") or {}).get(LENGTH, ""))
            if length.startswith("char("):
                return f"its column {one['name']} is {length}, whose values Delta pads with blanks"
        if "delta.setTransactionRetentionDuration" in self.properties:
            return (
                "delta.setTransactionRetentionDuration is set, so Delta would remove the "
                "recorded progress"
            )
        return ""

    @property
    def delegated(self) -> str:
        """Why only Delta itself may write it, in words; empty when we may."""
        if unknown := sorted((self.readers | self.writers) - SUPPORTED_FEATURES):
            return f"the table uses feature {unknown[0]}"
        if self.unknown:
            return (
                f"its log has an action {min(self.unknown)}, which the Delta protocol does "
                "not define"
            )
        return self._partitioned() or self._checked() or self._written_differently()

    def _partitioned(self) -> str:
        """Whether values of partitions have texts that not every writer makes alike."""
        kinds = {one["name"]: one["type"] for one in self.fields}
        for name in self.partitions:
            kind = str(kinds.get(name, "column that is not in its schema"))
            if kind not in PLAIN and not kind.startswith("decimal"):
                return f"it is partitioned by {name}, a {kind}"
        return ""

    def _checked(self) -> str:
        """What Delta would check on a write."""
        for name in sorted(self.properties):
            if name.startswith("delta.constraints."):
                return f"it has the constraint {name.removeprefix('delta.constraints.')}"
        for one in self.fields:
            if not one["nullable"]:
                return f"its column {one['name']} is NOT NULL"
            for member, told in CHECKED.items():
                if member in (one.get("metadata") or {}):
                    return f"its column {one['name']} {told}"
        return ""

    def _written_differently(self) -> str:
        """What the table has another way for than we do."""
        if self.properties.get("delta.appendOnly", "").lower() == "true":
            return "it is append-only"
        vectors = self.properties.get("delta.enableDeletionVectors", "").lower() == "true"
        if not vectors or "deletionVectors" not in self.writers:
            return "it has no deletion vectors"
        return ""

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns that Delta fills in, and that no batch may write."""
        return tuple(
            str(one["name"]) for one in self.fields if COMPUTED & set(one.get("metadata") or {})
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the choice rests on.

    platform, table: why the direct way is not open with this Spark, and for this table, in words;
    appends: the batch does nothing but insert, as far as is known before its rows are read; large:
    it has so many that no other table should wait for it.
    """

    wanted: Wanted = Wanted.AUTO
    platform: str = ""
    table: str = ""
    appends: bool = False
    large: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A way, and why. appends: the batch is added without a look at the rows of the table.

    large: it goes on beside the cycles, spread over the tasks that are free; refused: why it cannot
    be done, where the project asks for a way that is not open.
    """

    way: Way
    reason: str
    appends: bool = False
    refused: str = ""
    large: bool = False

    def as_fact(self) -> dict[str, Any]:
        """As plain data, for `plan --json`."""
        return {
            "strategy": str(self.way),
            "reason": self.reason,
            "appends": self.appends,
            "large": self.large,
        }


def way_of(facts: Facts) -> Choice:
    """The way of a batch."""
    closed = facts.table or facts.platform
    way, reason, refused = Way.DIRECT, NOTHING_REQUIRED, ""
    if facts.wanted is Wanted.MERGE:
        way, reason = Way.MERGE, "mirror.strategy is merge"
    elif facts.wanted is Wanted.DIRECT:
        reason, refused = "mirror.strategy is direct", closed
    elif closed:
        way, reason = Way.MERGE, closed
    return Choice(way, reason, facts.appends, refused, facts.large)
