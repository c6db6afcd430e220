"""The section `source:` of a project file, for PostgreSQL."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, PositiveInt, SecretStr

from mirrorlake.sources.postgresql.settings import PostgresSettings, TriggerPolicy
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.section import Section, SourceSection
from mirrorlake.sources.selection import Selection

_SLOT = r"^[a-z0-9_]{1,63}$"


class ExtremesSection(Section):
    dates: Literal["clamp", "null", "error"] = "clamp"
    numbers: Literal["null", "error"] = "error"


class PostgresSection(SourceSection):
    type: Literal["postgresql"]
    url: SecretStr = Field(min_length=1)
    tables: list[str] = Field(default=["*.*"], min_length=1)
    columns: dict[str, list[str]] = Field(default_factory=dict)
    rows: dict[str, str] = Field(default_factory=dict)
    slot: str | None = Field(default=None, pattern=_SLOT)
    publication: str | None = Field(default=None, min_length=1, max_length=56)
    failover: bool = True
    streaming: bool = False
    binary: Literal["auto", False] = "auto"
    event_trigger: bool | Literal["auto"] = "auto"
    extremes: ExtremesSection = Field(default_factory=ExtremesSection)
    load_workers: PositiveInt = 2

    def settings(self, name: str) -> PostgresSettings:
        own = "mirrorlake_" + re.sub(r"[^a-z0-9_]", "_", name.lower())[:40]
        return PostgresSettings(
            url=self.url.get_secret_value(),
            selection=Selection(tuple(self.tables), self.columns, self.rows),
            slot=self.slot or own,
            publication=self.publication or own,
            failover=self.failover,
            streaming=self.streaming,
            binary=bool(self.binary),
            event_trigger=TriggerPolicy(str(self.event_trigger).lower()),
            extremes=Extremes(self.extremes.dates, self.extremes.numbers),
            load_workers=self.load_workers,
        )
