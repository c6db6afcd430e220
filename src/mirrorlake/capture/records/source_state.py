"""How the source stands now: whether it answers, for what it waits, what it keeps of its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import AWAITED, OUTAGE, RETAINED, WAITING_EVENTS
from mirrorlake.model.landed import format_time, parse_time, readable_time
from mirrorlake.sources.base import AwaitedTransaction


@dataclass(frozen=True, slots=True)
class Outage:
    """`outage.json`. since: when the source was first found not to answer; again: when the next
    attempt is; reason, hint: what it or the socket said last, and what to do about it."""

    since: datetime
    again: datetime
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return (
            f"the source is unreachable since {readable_time(self.since)}: {self.reason}; "
            f"the next attempt is at {self.again:%H:%M:%S}"
        )

    def facts(self) -> dict[str, Any]:
        return {
            "since": format_time(self.since),
            "again": format_time(self.again),
            "reason": self.reason,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class SnapshotWait:
    """`awaited.json`. since: when it was found that a snapshot waits for the transaction."""

    since: datetime
    transaction: AwaitedTransaction

    @property
    def hint(self) -> str:
        return self.transaction.remedy

    def facts(self) -> dict[str, Any]:
        awaited = self.transaction
        return {
            "since": format_time(self.since),
            "transaction": awaited.name,
            "began": format_time(awaited.began) if awaited.began else None,
            "hint": awaited.remedy,
            **awaited.facts,
        }

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `facts` gives."""
        began = parse_time(facts["began"]) if facts["began"] else None
        ours = ("since", "transaction", "began", "hint")
        parts = {name: str(fact) for name, fact in facts.items() if name not in ours}
        found = AwaitedTransaction(facts["transaction"], began, facts["hint"], parts)
        return cls(parse_time(facts["since"]), found)


class SourceStateRecords(RecordFiles):
    """`outage.json`, `awaited.json`, `retained.json` and `waiting_events.json`."""

    __slots__ = ()

    def retained(self) -> dict[str, Any] | None:
        """What the source kept of its log at the last look, as `Retention.facts` gives it."""
        found: dict[str, Any] | None = self._read(RETAINED).get("log")
        return found

    def write_retained(self, facts: Mapping[str, Any]) -> None:
        self._write(RETAINED, {"log": dict(facts)})

    def waiting_events(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Of each destination of event files, of each table: the oldest event that was read and is
        not written. When it was committed in the source and when it was read, in milliseconds."""
        return {
            destination: {table: (committed, read) for table, (committed, read) in tables.items()}
            for destination, tables in self._read(WAITING_EVENTS).get("destinations", {}).items()
        }

    def write_waiting_events(
        self, destination: str, waiting: Mapping[str, tuple[int, int]]
    ) -> None:
        known = self.waiting_events()
        if known.get(destination) or waiting:
            self._write(WAITING_EVENTS, {"destinations": known | {destination: dict(waiting)}})

    def outage(self) -> Outage | None:
        """What is known of the source while it does not answer."""
        found = self._read(OUTAGE)
        if not found:
            return None
        since, again = parse_time(found["since"]), parse_time(found["again"])
        return Outage(since, again, found["reason"], found["hint"])

    def begin_outage(self, outage: Outage) -> None:
        self._write(OUTAGE, outage.facts())

    def end_outage(self) -> None:
        self.store.delete(f"{self.folder}/{OUTAGE}")

    def awaited(self) -> SnapshotWait | None:
        """For what a snapshot waits now."""
        found = self._read(AWAITED)
        return SnapshotWait.parse(found["wait"]) if found else None

    def begin_wait(self, wait: SnapshotWait) -> None:
        self._write(AWAITED, {"wait": wait.facts()})

    def end_wait(self) -> None:
        self.store.delete(f"{self.folder}/{AWAITED}")
