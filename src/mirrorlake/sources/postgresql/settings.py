"""The settings of a PostgreSQL source."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.selection import Selection

MIB = 1 << 20


class TriggerPolicy(StrEnum):
    """Whether an event trigger lets tables that lose their key be updated at once."""

    NEVER = "false"
    AUTO = "auto"  # where our user may create it
    ALWAYS = "true"  # who may not is told by capture too


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Where the database is, what is mirrored of it, and the names of what we make in it.

    `url` may hold a password and is never printed.
    """

    product: ClassVar[str] = "PostgreSQL"
    monitored_as: ClassVar[str] = "PostgreSql"

    url: str = field(repr=False)
    selection: Selection = field(default_factory=Selection)
    slot: str = "mirrorlake"
    publication: str = "mirrorlake"
    failover: bool = True  # from PostgreSQL 17 on: standbys keep a copy of the slot
    streaming: bool = False  # of transactions in progress; as a whole they come faster
    binary: bool = True  # values come in binary format where all types can be read so
    event_trigger: TriggerPolicy = TriggerPolicy.AUTO
    extremes: Extremes = field(default_factory=Extremes)
    load_workers: int = 2  # connections that read at the same time during a load
    part_bytes: int = 256 * MIB  # of heap per piece; a crash loses what is read of a piece
    chunk_bytes: int = 8 * MIB  # of messages decoded together: enough to make vectors pay

    @property
    def append_publication(self) -> str:
        """The publication of tables whose updates and deletions cannot be captured."""
        return f"{self.publication}_append"
