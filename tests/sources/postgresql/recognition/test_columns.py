"""Which column is which, against a table whose history is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition import columns
from mirrorlake.sources.postgresql.recognition.columns import Followed
from mirrorlake.sources.postgresql.recognition.keys import RelationDescription
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook, is_before

NAMES = "abcd"
TYPES = ("integer", "long", "string", "decimal(9,2)", "decimal(12,2)")


@dataclass
class Table:
    """A table that is altered, as the catalog shows it; every act is a transaction.

    values: which column, and how often its values were computed anew.
    """

    transaction: int = 100
    node: int = 1
    names: dict[int, str | None] = field(default_factory=lambda: {1: "a", 2: "b"})
    types: dict[int, str] = field(default_factory=lambda: {1: "integer", 2: "string"})
    written: dict[int, int] = field(default_factory=lambda: {1: 100, 2: 100})
    values: dict[int, tuple[int, int]] = field(default_factory=lambda: {1: (1, 0), 2: (2, 0)})

    def alter(self, random: Random) -> None:
        self.transaction += 1
        alive = [number for number, name in self.names.items() if name]
        free = [name for name in NAMES if name not in self.names.values()]
        act = random.choice(["add", "drop", "rename", "rewrite", "retype", "vacuum"])
        number = random.choice(alive) if alive else None
        if act == "add" and free:
            number = len(self.names) + 1
            self.names[number] = random.choice(free)
            self.types[number], self.values[number] = random.choice(TYPES), (number, 0)
        elif act == "drop" and number:
            self.names[number] = None
        elif act == "rename" and free and number:
            self.names[number] = random.choice(free)
        elif act in {"rewrite", "retype"} and number:
            self.retype(number, random.choice(TYPES) if act == "retype" else self.types[number])
        elif act == "vacuum":
            self.node, number = self.node + 1, None
        if number:
            self.written[number] = self.transaction

    def retype(self, number: int, kind: str) -> None:
        """As `alter column type` does, which need not write rows anew to add digits."""
        column, times = self.values[number]
        if (self.types[number], kind) != ("decimal(9,2)", "decimal(12,2)"):
            self.node, times = self.node + 1, times + 1
        self.types[number], self.values[number] = kind, (column, times)

    def described(self) -> dict[str, str]:
        return {name: self.types[number] for number, name in self.names.items() if name}

    def told(self) -> dict[str, tuple[int, int]]:
        return {name: self.values[number] for number, name in self.names.items() if name}

    def look(self) -> TableLook:
        found = [
            Attribute(n, name, self.written[n], type=self.types[n] if name else "")
            for n, name in self.names.items()
        ]
        return TableLook(Lsn(0), len(self.names), self.node, tuple(found))


def everything(_name: str) -> bool:
    return True


ROUNDS = st.lists(
    st.tuples(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 4)), min_size=1, max_size=3
)


@given(st.integers(0, 1 << 32), ROUNDS)
def test_a_column_that_goes_on_is_the_one_that_it_was(
    seed: int, rounds: list[tuple[list[int], int]]
) -> None:
    """rounds: how often the table is altered before each row, and how much later the catalog is
    seen than the last of them. Where that leaves open which columns they are, the table is read as
    soon as the catalog shows what the stream describes, and columns are what they were since."""
    random, table = Random(seed), Table()
    known, values, is_unread = table.look().known(), table.told(), False
    for rows, lag in rounds:
        described = []
        for times in rows:
            for _ in range(times):
                table.alter(random)
            table.transaction += 1
            described.append((table.described(), table.told(), table.transaction))
        for _ in range(lag):
            table.alter(random)
        look = table.look()
        # The columns that are read again, and those that are gone, whose last values nothing tells.
        again = {number for number, name in table.names.items() if name is None}
        if columns.altered(known, look, everything):
            return
        for then, told, transaction in described:
            description = RelationDescription(then)
            found = columns.followed(known, look, description, transaction, everything)
            assert isinstance(found, Followed)
            assert list(found.known.columns.values()) == list(then)
            assert list(found.known.types.values()) == list(then.values())
            again |= {told[name][0] for name in found.differs if name}
            if "" in found.differs:
                again |= {*table.names}
                is_unread = is_unread or min(found.known.columns, default=0) < 0
            assert {*found.saved} <= {*found.differs}
            # Values come with the column, whatever it was called; a new one has none of another:
            # it is filled, or read again.
            now = {
                name: told[name]
                if is_unread or name in found.filled or told[name][0] in again
                else values.get(found.copied.get(name, name), told[name])
                for name in then
            }
            assert now == told
            values |= now
            known = Known.of(found.known.plain())
            assert known == found.known
            if columns.altered(known, look, everything):
                return
        values |= {name: table.values[n] for n, name in known.columns.items() if n in again}
        if described and described[-1][0] == table.described():
            values, is_unread = values | table.told() if is_unread else values, False


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
            table.types[number], table.written[number] = "integer", table.transaction
        table.transaction += 1
        look = table.look()
        assert columns.altered(known, look, everything) is None
        then = table.described()
        found = columns.followed(
            known, look, RelationDescription(then), table.transaction, everything
        )
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
