"""Which column is which, against a table whose history is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition import columns
from mirrorlake.sources.postgresql.recognition.columns import Followed
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook, is_before

NAMES = "abcd"


@dataclass
class Table:
    """A table that is altered, as the catalog shows it; every act is a transaction."""

    transaction: int = 100
    names: dict[int, str | None] = field(default_factory=lambda: {1: "a", 2: "b"})
    written: dict[int, int] = field(default_factory=lambda: {1: 100, 2: 100})

    def alter(self, random: Random) -> None:
        self.transaction += 1
        alive = [number for number, name in self.names.items() if name]
        free = [name for name in NAMES if name not in self.names.values()]
        act = random.choice(["add", "drop", "rename", "rewrite"])
        number = random.choice(alive) if alive else None
        if act == "add" and free:
            number = len(self.names) + 1
            self.names[number] = random.choice(free)
        elif act == "drop" and number:
            self.names[number] = None
        elif act == "rename" and free and number:
            self.names[number] = random.choice(free)
        if number:
            self.written[number] = self.transaction

    def look(self) -> TableLook:
        found = [Attribute(n, name, self.written[n]) for n, name in self.names.items()]
        return TableLook(Lsn(0), len(self.names), 1, tuple(found))


def everything(_name: str) -> bool:
    return True


@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 4), max_size=8), st.integers(0, 4))
def test_a_column_that_goes_on_is_the_one_that_it_was(seed: int, rows: list[int], lag: int) -> None:
    """rows: how often the table is altered before each; lag: how much later the catalog is seen."""
    random, table = Random(seed), Table()
    known = table.look().known()
    values: dict[str, int] = {name: number for number, name in known.columns.items()}
    described = []
    for times in rows:
        for _ in range(times):
            table.alter(random)
        table.transaction += 1
        described.append((table.look().columns, table.transaction))
    for _ in range(lag):
        table.alter(random)
    look = table.look()
    if columns.altered(known, look, everything):
        return
    for then, transaction in described:
        found = columns.followed(known, look, list(then.values()), transaction, everything)
        if isinstance(found, str):
            return
        assert found.known.columns == then
        now = {}
        for number, name in then.items():
            # Values come with the column, whatever it was called; a new one has none of another:
            # it is filled, or read again.
            if name in found.copied:
                now[name] = values[found.copied[name]]
            elif name in {*found.filled, *found.differs} or name not in values:
                now[name] = number
            else:
                now[name] = values[name]
            assert now[name] == number
        values |= now
        known = Known.of(found.known.plain())
        assert known == found.known
        if columns.altered(known, look, everything):
            return


@given(st.integers(0, 1 << 32), st.integers(0, 30))
def test_a_table_that_only_gets_and_loses_columns_goes_on(seed: int, times: int) -> None:
    random, table = Random(seed), Table()
    known = table.look().known()
    for turn in range(times):
        for _ in range(random.randrange(3)):
            table.transaction += 1
            number = random.choice(list(table.names))
            if random.random() < 0.5:
                number = len(table.names) + 1
            table.names[number] = None if number in table.names else f"{turn}-{number}"
            table.written[number] = table.transaction
        table.transaction += 1
        look = table.look()
        assert columns.altered(known, look, everything) is None
        names = list(look.columns.values())
        found = columns.followed(known, look, names, table.transaction, everything)
        assert isinstance(found, Followed)
        assert found.copied == {}
        known = found.known


@given(st.integers(3, (1 << 32) - 1), st.integers(1, (1 << 31) - 1))
def test_transactions_are_in_order_when_their_numbers_begin_again(one: int, more: int) -> None:
    later = (one + more) & 0xFFFFFFFF
    if later > 2:
        assert is_before(one, later)
        assert not is_before(later, one)
    assert not is_before(one, one)
    assert is_before(2, one)
