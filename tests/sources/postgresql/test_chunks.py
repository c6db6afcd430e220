"""Wherever a stream is cut into chunks, the same changes come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.change import Marker
from mirrorlake.model.position import Lsn
from tests.conformance.scene import TRUNCATE, UNCHANGED, events, told
from tests.sources.postgresql import wire

NAMES = ("apples", "pears", "log")
SELECTED = ("apples", "pears")
OIDS = {name: number for number, name in enumerate(NAMES, start=100)}

KEYS = st.integers(0, 9)
NOTES = st.none() | st.text(max_size=5)


@dataclass
class History:
    """Messages, and the plain meaning of each, written down while they are made."""

    messages: list[bytes] = field(default_factory=list)
    changes: list[tuple[Any, ...]] = field(default_factory=list)
    ordinals: list[tuple[str, int, Lsn]] = field(default_factory=list)
    _columns: dict[str, int] = field(default_factory=dict)

    def transaction(self, draw: st.DrawFn) -> None:
        begun = 100 * (len(self.messages) + 1)
        end = Lsn(begun + 50)
        self.messages.append(wire.begin(begun))
        for ordinal in range(1, draw(st.integers(0, 5)) + 1):
            name = draw(st.sampled_from(NAMES))
            self._describe(draw, name)
            for meaning in self._change(draw, name):
                if name in SELECTED:
                    self.changes.append(meaning)
                    self.ordinals.append((name, ordinal, end))
        self.messages.append(wire.commit(begun, end.value))

    def _describe(self, draw: st.DrawFn, name: str) -> None:
        """A relation comes before its first change, and again whenever its columns change."""
        width = draw(st.integers(2, 3))
        if self._columns.get(name) != width or draw(st.booleans()):
            columns = [*wire.COLUMNS, ("size", wire.INT4)][:width]
            self.messages.append(wire.relation(name, OIDS[name], columns))
            self._columns[name] = width

    def _change(self, draw: st.DrawFn, name: str) -> list[tuple[Any, ...]]:
        """Add a change. Returns what it means."""
        oid, key, old = OIDS[name], draw(KEYS), draw(KEYS)
        size = draw(st.lists(KEYS, min_size=1, max_size=1))[: self._columns[name] - 2]
        rest = [str(number) for number in size]
        note = draw(NOTES)
        match draw(st.sampled_from("IUUDT")):
            case "I":
                self.messages.append(wire.insert(oid, [str(key), note, *rest]))
                return [(Marker.INSERT, key, note, *size)]
            case "D":
                kept = [str(key), *[None] * (self._columns[name] - 1)]
                self.messages.append(wire.delete(oid, key=kept))
                return [(Marker.DELETE, key)]
            case "T":
                self.messages.append(wire.truncate(oid))
                return [(TRUNCATE,)]
            case _:
                return self._update(draw, oid, key, old, [note, *rest], [note, *size])

    def _update(
        self, draw: st.DrawFn, oid: int, key: int, old: int, sent: list[Any], values: list[Any]
    ) -> list[tuple[Any, ...]]:
        told_before = draw(st.sampled_from(["nothing", "key", "row"]))
        new = [str(key), *sent]
        if draw(st.booleans()):
            new[1], values = UNCHANGED, [UNCHANGED, *values[1:]]
        before = {
            "nothing": {},
            "key": {"key": [str(old), *[None] * len(sent)]},
            "row": {"old": [str(old), "former", *sent[1:]]},
        }[told_before]
        self.messages.append(wire.update(oid, new, **before))
        if told_before == "row" and values[0] == UNCHANGED:
            values = ["former", *values[1:]]
        if told_before == "nothing" or key == old:
            return [(Marker.UPDATE, key, *values)]
        return [(Marker.DELETE, old), (Marker.INSERT, key, *values)]


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    for _ in range(draw(st.integers(1, 5))):
        history.transaction(draw)
    return history


@given(histories())
def test_one_chunk_has_the_changes_in_their_plain_meaning(history: History) -> None:
    decoder = wire.decoder(*(wire.table(name, OIDS[name]) for name in SELECTED))
    found = events([decoder.decode(history.messages)])
    assert told(found) == history.changes
    assert [(event.table, event.ordinal, event.end) for event in found] == history.ordinals


@given(histories(), st.data())
def test_chunks_have_the_same_changes_wherever_they_are_cut(
    history: History, data: st.DataObject
) -> None:
    locations = data.draw(st.sets(st.integers(1, len(history.messages) - 1), max_size=8))
    cuts = [0, *sorted(locations), len(history.messages)]
    decoder = wire.decoder(*(wire.table(name, OIDS[name]) for name in SELECTED))
    chunks = [decoder.decode(history.messages[a:b]) for a, b in pairwise(cuts)]
    found = events(chunks)
    assert told(found) == history.changes
    assert [(event.table, event.ordinal, event.end) for event in found] == history.ordinals


@given(histories())
def test_every_message_may_be_a_chunk_of_its_own(history: History) -> None:
    decoder = wire.decoder(*(wire.table(name, OIDS[name]) for name in SELECTED))
    chunks = [decoder.decode([message]) for message in history.messages]
    assert told(events(chunks)) == history.changes
