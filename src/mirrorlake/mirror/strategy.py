"""Chooses the strategy of a batch, from facts about the table, Spark, the batch and the settings.

With `direct`, mirrorlake writes the files itself, so it must know everything that Delta does when
it writes. With `merge`, Delta writes them. `direct` is used only if all features of the table are
known to work with it. Tables with features that make even the log unreliable are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.schema import type_changes

SUPPORTED_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "invariants",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Table features that `direct` supports. It could violate any other."""

READABLE_FEATURES = frozenset(
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
"""Reader features with which the log still has the versions and transactions that we read."""

CATALOG_FEATURES = frozenset(
    {"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"}
)
"""Features with which a catalog may know commits before they are in the log."""

LENGTH = "__CHAR_VARCHAR_TYPE_STRING"

CHECKED = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    LENGTH: "has a length",
}
"""What Delta checks or computes when it writes a column, by the member of the column's metadata."""

PLAIN = frozenset({"boolean", "byte", "short", "integer", "long", "string", "date"})
"""Types, besides decimals, whose values have a unique text. The text of a timestamp may depend on
the time zone of the session, and the text of a floating point number on the writer."""

APPEND_ONLY = "delta.appendOnly"
RECORDED_FOR = "delta.setTransactionRetentionDuration"
REFUSED_PROPERTIES = (RECORDED_FOR, APPEND_ONLY)

COMPUTED = frozenset({"delta.generationExpression", "delta.identity.start"})


NOTHING_REQUIRED = "no feature of this table requires Delta's MERGE"


class StrategyName(StrEnum):
    """How a batch is written."""

    DIRECT = "direct"
    MERGE = "merge"


class StrategySetting(StrEnum):
    """The setting `mirror.strategy`."""

    AUTO = "auto"
    DIRECT = "direct"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts in the log of a table that determine how it can be written.

    readers, writers: table features; fields: of the schema, as in the log; unknown: kinds of
    actions that are not in the protocol.
    """

    readers: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[Mapping[str, Any]] = ()
    partitions: Sequence[str] = ()
    unknown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: TableSnapshot) -> Self:
        """The facts of a table, which must exist."""
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
        """Why no strategy can write the table, as text; "" if one can."""
        if unread := sorted((self.readers - READABLE_FEATURES) | (CATALOG_FEATURES & self.writers)):
            return f"the table uses feature {unread[0]}"
        for column in self.fields:
            length = str((column.get("metadata") or {}).get(LENGTH, ""))
            if length.startswith("char("):
                name = column["name"]
                return f"its column {name} is {length}, whose values Delta pads with blanks"
        if RECORDED_FOR in self.properties:
            return f"{RECORDED_FOR} is set, so Delta would remove the recorded progress"
        if self.properties.get(APPEND_ONLY, "").lower() == "true":
            return f"{APPEND_ONLY} is set, so Delta allows no updates and deletions"
        return ""

    @property
    def delegated(self) -> str:
        """Why only Delta can write the table, as text; "" if `direct` can."""
        if unknown := sorted((self.readers | self.writers) - SUPPORTED_FEATURES):
            return f"the table uses feature {unknown[0]}"
        if self.unknown:
            return (
                f"its log has an action {min(self.unknown)}, which the Delta protocol does "
                "not define"
            )
        return self._ambiguous_partitions() or self._delta_checks() or self._unsupported_settings()

    def _ambiguous_partitions(self) -> str:
        """Whether writers may use different texts for the same partition value."""
        kinds = {column["name"]: column["type"] for column in self.fields}
        for name in self.partitions:
            kind = str(kinds.get(name, "column that is not in its schema"))
            if kind not in PLAIN and not kind.startswith("decimal"):
                return f"it is partitioned by {name}, a {kind}"
        return ""

    def _delta_checks(self) -> str:
        """What Delta checks on a write."""
        for name in sorted(self.properties):
            if name.startswith("delta.constraints."):
                return f"it has the constraint {name.removeprefix('delta.constraints.')}"
        for column in self.fields:
            if not column["nullable"]:
                return f"its column {column['name']} is NOT NULL"
            if any(change.get("fromType") == "float" for change in type_changes(column)):
                return f"its column {column['name']} was a float in some files"
            for member, check in CHECKED.items():
                if member in (column.get("metadata") or {}):
                    return f"its column {column['name']} {check}"
        return ""

    def _unsupported_settings(self) -> str:
        """Settings of the table that `direct` does not support."""
        vectors = self.properties.get("delta.enableDeletionVectors", "").lower() == "true"
        if not vectors or "deletionVectors" not in self.writers:
            return "it has no deletion vectors"
        return ""

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns that Delta computes, which no batch may write."""
        return tuple(
            str(column["name"])
            for column in self.fields
            if COMPUTED & set(column.get("metadata") or {})
        )


@dataclass(frozen=True, slots=True)
class StrategyFacts:
    """The facts that determine the strategy.

    setting: the configured strategy; platform, table: why `direct` is not possible with this Spark
    and for this table, as text; appends: whether the batch only inserts, as far as known before its
    rows are read; large: whether the batch is a background job.
    """

    setting: StrategySetting = StrategySetting.AUTO
    platform: str = ""
    table: str = ""
    appends: bool = False
    large: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy of a batch, and its reason.

    appends: the batch is appended without a key lookup; large: it is a background job, spread over
    the free tasks; refused: why the configured strategy is not possible, as text.
    """

    strategy: StrategyName
    reason: str
    appends: bool = False
    refused: str = ""
    large: bool = False

    def as_fact(self) -> dict[str, Any]:
        """As plain data, for `plan --json`."""
        return {
            "strategy": str(self.strategy),
            "reason": self.reason,
            "appends": self.appends,
            "large": self.large,
        }


def choose_strategy(facts: StrategyFacts) -> Choice:
    """Choose the strategy of a batch."""
    impossible = facts.table or facts.platform
    strategy, reason, refused = StrategyName.DIRECT, NOTHING_REQUIRED, ""
    if facts.setting is StrategySetting.MERGE:
        strategy, reason = StrategyName.MERGE, "mirror.strategy is merge"
    elif facts.setting is StrategySetting.DIRECT:
        reason, refused = "mirror.strategy is direct", impossible
    elif impossible:
        strategy, reason = StrategyName.MERGE, impossible
    return Choice(strategy, reason, facts.appends, refused, facts.large)
