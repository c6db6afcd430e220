"""Partitions that are altered by themselves, against a table whose history is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.recognition.known import Attribute, Leaf, TableLook
from mirrorlake.sources.postgresql.recognition.recognition import Recognition
from mirrorlake.sources.table import SourceTable
from tests.sources.postgresql.wire import table

OID = 7
ROW, TRUNCATION, SILENT, EMPTIED = "row", "truncation", "silent", "emptied"


@dataclass
class Partitioned:
    """A table with partitions, as a catalog that is looked at, and its log: each transaction by
    what it did."""

    random: Random
    leaves: dict[int, Leaf] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)  # and to which partition
    filled: set[int] = field(default_factory=set)  # partitions that were attached with rows
    oids: int = 100

    def __post_init__(self) -> None:
        for _ in range(self.random.choice([1, 2])):
            self.make()
        self.log.clear()

    @property
    def transaction(self) -> int:
        return 1000 + len(self.log)

    def tables(self, tables: Sequence[SourceTable]) -> Mapping[int, TableLook]:
        at = Lsn(len(self.log))
        attributes = (Attribute(1, "id", 1), Attribute(2, "note", 1))
        look = TableLook(at, 2, 0, attributes, dict(self.leaves))
        return {int(each.identity): look for each in tables}

    def loses_additions(self) -> bool:
        return False

    def misses_attachments(self) -> bool:
        return False

    def await_visible(self, _transactions: Collection[int]) -> None:
        pass

    def was_partition(self, _oid: int) -> bool:
        return False

    def was_empty(
        self, oid: int, _name: TableId, _links: Mapping[int, int], *, has_rows: bool
    ) -> bool:
        return oid not in self.filled

    def was_made(self, oid: int, _links: Mapping[int, int]) -> bool:
        return oid not in self.filled

    def make(self, told: str = ROW) -> None:
        self.oids += 1
        self.leaves[self.oids] = Leaf(TableId("s", str(self.oids)), self.oids, self.transaction)
        if told == SILENT:
            self.filled.add(self.oids)
        self.log.append((told, self.oids))

    def empty(self, oids: Sequence[int], told: str) -> None:
        for oid in oids:
            self.oids += 1
            self.leaves[oid] = replace(self.leaves[oid], node=self.oids, changed=self.transaction)
        self.log.append((told, oids[0] if oids else 0))

    def untold(self) -> list[int]:
        """The transactions that the log does not tell. Whoever truncates all makes good for a
        partition that was truncated before, and whoever detaches what was attached, for that."""
        rows = {leaf for what, leaf in self.log if what == ROW}
        passed = self.filled - self.leaves.keys() - rows
        last = max(
            (at for at, (what, _leaf) in enumerate(self.log) if what == TRUNCATION), default=-1
        )
        return [
            1000 + at
            for at, (what, leaf) in enumerate(self.log)
            if leaf not in passed and (what == SILENT or (what == EMPTIED and at > last))
        ]

    def act(self, *, may_be_silent: bool) -> None:
        acts = [ROW, ROW, ROW, "make", TRUNCATION]
        act = self.random.choice(acts + ["empty", "remove", "fill"] * may_be_silent)
        if act == ROW and self.leaves:
            self.log.append((ROW, self.random.choice(list(self.leaves))))
        elif act == "make" or not self.leaves:
            self.make()
        elif act == TRUNCATION:
            self.empty(list(self.leaves), TRUNCATION)
        elif act == "fill":
            self.make(SILENT)
        elif self.leaves:
            oid = self.random.choice(list(self.leaves))
            if act == "empty":
                self.empty([oid], EMPTIED)
            else:
                del self.leaves[oid]
                self.log.append((SILENT, oid))


@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 3), max_size=12), st.booleans())
def test_no_row_passes_that_came_after_something_that_the_log_does_not_tell(
    seed: int, chunks: list[int], may_be_silent: bool
) -> None:
    """chunks: how many transactions there are between two readings."""
    random = Random(seed)
    database = Partitioned(random)
    (look,) = database.tables([table("apples", OID)]).values()
    known = replace(table("apples", OID), known=look.known().plain())
    recognition = Recognition(database, {OID: known})
    read, stopped = 0, False
    for acts in [*chunks, 0]:
        for _ in range(acts):
            database.act(may_be_silent=may_be_silent)
        stopped = stopped or bool(
            random.random() < 0.3 and list(recognition.faults(recognition.catalog.tables([known])))
        )
        stop = len(database.log) if acts == 0 else random.randint(read, len(database.log))
        taken = {1000 + at: database.log[at] for at in range(read, stop)}
        rows = {by: leaf for by, (what, leaf) in taken.items() if what == ROW}
        recognition.begin([OID] if rows else [], [OID] if rows else [])
        for by, (what, _leaf) in taken.items():
            if what == TRUNCATION:
                recognition.truncated(OID, by)
        told = [
            recognition.described_leaf(OID, leaf, None, Lsn(by - 1001)) for by, leaf in rows.items()
        ]
        if recognition.is_looked_at(OID):
            told.append(recognition.changed(OID, rows.keys(), frozenset(taken)))
        stopped = stopped or any(told)
        recognition.reached, read = Lsn(stop), stop
        untold = database.untold()
        if stopped:
            assert {SILENT, EMPTIED} & dict(database.log).keys()
            return
        assert not any(untold and by > untold[0] for by in rows)
    found = [
        *recognition.faults(recognition.catalog.tables([known])),
        *recognition.faults(recognition.catalog.tables([known])),
    ]
    assert bool(found) == bool(database.untold())
