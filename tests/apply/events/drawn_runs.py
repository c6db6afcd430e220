"""Runs of the consumer: events of some tables come as files, in batches, and processes die.

A case is the events of a few keys with an order of arrival and cuts of its own. The cases of a run
share files, two tables and the deaths of processes, because a cycle costs as much for one as for
ten; no event of one case says anything of another, but for truncations, which empty a table.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from mirrorlake.apply.events import file_reader, journal, lookups
from mirrorlake.apply.events.batches import divided
from mirrorlake.apply.events.columns import delta_type
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.delta.schema import parse
from mirrorlake.events import types
from mirrorlake.events.decode.json import events as json_events
from mirrorlake.events.types import UnifiedType
from mirrorlake.events.wider import joined
from mirrorlake.mirror.compaction import small_files
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.apply.events import drawn_files
from tests.apply.events.bucket import Bucket
from tests.apply.events.drawn_files import PLACES, Kinds, as_event, as_written, content
from tests.apply.events.repeating import Repeating
from tests.doubles.memory_store import Crash
from tests.mirror.event_order import drawn
from tests.mirror.event_order.model import Event, place, table_of

CASES = 25
"""Of a run."""
TABLES = ("orders", "items")
KEYS, LARGEST = range(1, 4), 5
"""Keys of a case, beside 10 times its number, and LARGE in one of five cases; and the largest
value."""
MINUTES = ("", "2026/11/20/10/05", "2026/11/21/23/59", "2026/11/23/12/00")
FOLDERS = ("one", "other")
FORMS = ("jsonl", "jsonl.gz", "avro")
OF_COLUMNS = [CrashPoint.COLUMNS_WRITTEN, CrashPoint.COLUMNS_ALTERED]
POINTS = [
    CrashPoint.KEYS_WRITTEN,
    CrashPoint.EVENTS_COMMITTED,
    CrashPoint.EVENT_FILES_RECORDED,
    CrashPoint.FILES_COMPACTED,
    CrashPoint.COMPACTION_COMMITTED,
    *OF_COLUMNS,
]
"""All that a consumer passes."""
OF_KEYS = [types.INTEGER, types.LONG, types.decimal(12, 0)]
OF_VALUES = [types.INTEGER, types.LONG, types.decimal(14, 2), types.decimal(20, 3)]
"""Types of columns in Avro files, of which any are in one run; beside LONG, which a file of JSON
may make of them. The first ones have small numbers alone."""
OF_FLOATS = [types.INTEGER, types.FLOAT, types.DOUBLE]
"""The same of values in one in five runs, which has no JSON and no large values."""
OF_LAYOUTS, LARGE = 5, 2**33
DEATHS = 6
"""Of processes of a run."""
Row = tuple[int | None, int | None]


@dataclass(frozen=True)
class Case:
    """events: without duplicates; batches: as they arrive."""

    number: int
    table: str
    events: Sequence[Event]
    batches: Sequence[Sequence[Event]]


@dataclass(frozen=True)
class Death:
    """A process dies at its nth passage of a point. fails: it is an error instead, of which the
    process may survive."""

    point: CrashPoint
    passage: int
    fails: bool


@dataclass(frozen=True)
class Run:
    """layout: the seed of what else may vary: files and their types, sizes of parts, settings.
    keeps_all: whether the tables keep every event; otherwise the last row of each key."""

    source: str
    cases: Sequence[Case]
    deaths: Sequence[Death]
    layout: int
    keeps_all: bool = False

    @property
    def has_floats(self) -> bool:
        return not self.layout % OF_LAYOUTS

    @property
    def key(self) -> tuple[str, ...]:
        """That of the events."""
        return () if self.keeps_all and self.layout // OF_LAYOUTS % 3 else ("id",)

    @property
    def is_append(self) -> bool:
        return self.keeps_all and self.layout // OF_LAYOUTS % 3 != 1


@dataclass
class Seen:
    """What runs have gone through. crashed: the cases, of which some event waited in a file when a
    process died; died: how often at each point."""

    crashed: set[str] = field(default_factory=set)
    died: Counter[CrashPoint] = field(default_factory=Counter)


@st.composite
def runs(draw: st.DrawFn, source: str, *, keeps_all: bool = False) -> Run:
    alone = draw(st.integers(1, CASES - 1))
    is_emptied = draw(st.integers(0, 3)) == 3 and not keeps_all
    layout = draw(st.integers(0, 2**16))
    cases = [
        draw(_cases(source, number, TABLES[number >= alone], truncates=is_emptied and not number))
        for number in range(CASES)
    ]
    if layout % OF_LAYOUTS:
        cases = [_with_large_values(case) for case in cases]
    if keeps_all:
        cases = [_with_own_uuids(case) for case in cases]
    fails = st.integers(0, 3).map(lambda one: one == 3)
    death = st.builds(Death, st.sampled_from(POINTS), st.integers(1, 2), fails)
    deaths = draw(st.lists(death, min_size=DEATHS, max_size=DEATHS))
    if layout % 2:  # columns get most of their types in the first files
        deaths.sort(key=lambda one: one.point not in OF_COLUMNS)
    return Run(source, cases, deaths, layout, keeps_all)


@st.composite
def _cases(draw: st.DrawFn, source: str, number: int, table: str, *, truncates: bool) -> Case:
    events, batches = draw(drawn.arrivals(source))
    for one in draw(st.lists(drawn.event(source), min_size=1, max_size=2)) if truncates else ():
        emptied = {**one, "key": None, "backfill": False, "deletion": True, "truncation": True}
        events.append(emptied)
        for _time in range(draw(st.integers(1, 2))):
            batch = draw(st.sampled_from(batches))
            batch.insert(draw(st.integers(0, len(batch))), emptied)
    own = {id(event): _own(event, number) for event in events}
    return Case(
        number, table, [*own.values()], [[own[id(event)] for event in one] for one in batches]
    )


def _own(event: Event, number: int) -> Event:
    """The event with a key and a transaction that no other case has."""
    key, transaction = event["key"], event["tx_id"]
    return event | {
        "key": None if key is None else _key(number, key),
        "tx_id": None if transaction is None else f"{transaction}{number}",
    }


def _with_large_values(case: Case) -> Case:
    """The case with a number of more than 32 bits in the place of the largest one."""
    return _changed(
        case,
        (
            {"payload": LARGE + LARGEST} if event["payload"] >= LARGEST else {}
            for event in case.events
        ),
    )


def _with_own_uuids(case: Case) -> Case:
    """The case with a uuid in each event that no other one has; one in four has none."""
    own = (f"u{case.number}-{n}" if n % 4 else None for n in range(len(case.events)))
    return _changed(case, ({"uuid": uuid} for uuid in own))


def _changed(case: Case, changes: Iterable[Event]) -> Case:
    """The case with other fields of its events."""
    both = zip(case.events, changes, strict=True)
    own = {id(event): event | changed for event, changed in both}
    batches = [[own[id(event)] for event in batch] for batch in case.batches]
    return replace(case, events=[*own.values()], batches=batches)


def _key(case: int, key: int) -> int:
    return 10 * case + key + (0 if case % 5 else LARGE)


def _is_large(event: Mapping[str, Any]) -> bool:
    """Whether a number of an event is too large for an INTEGER."""
    return any((value or 0) >= LARGE for value in event["payload"].values())


def expected(run: Run, table: str) -> Counter[Row]:
    """The rows that all events together make. A truncation is a deletion of each key, of no
    transaction."""
    if run.keeps_all:
        return _every_event(run, table)
    cases = [case for case in run.cases if case.table == table]
    keys = [_key(case.number, key) for case in cases for key in KEYS]
    found: list[Event] = []
    for event in as_written([event for case in cases for event in case.events]):
        if event.get("truncation"):
            found += [event | {"key": key, "tx_id": None, "row_id": None} for key in keys]
        else:
            found.append(event)
    return Counter(table_of(run.source, found).items())


def _every_event(run: Run, table: str) -> Counter[Row]:
    """A row of each event. Those with one uuid are one, and those without any that have one place,
    time and content."""
    found: dict[object, Row] = {}
    for event in (one for case in run.cases if case.table == table for one in case.events):
        row = (event["key"], event["payload"])
        at = None if event["backfill"] else place(run.source, event)
        unnamed = (event["backfill"], at, event["source_timestamp"], event["deletion"], row)
        found[event["uuid"] or unnamed] = row
    return Counter(found.values())


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder for a test that asks nothing of the disk: in memory where the system has that."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@contextmanager
def small_sizes(random: Random) -> Iterator[None]:
    """Have a few events do what many do otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_reader, "MOST_TOGETHER", random.choice([1, 64 << 20, 64 << 20]))
        patch.setattr(json_events, "_MOST_TOGETHER", random.choice([20, 20_000]))
        patch.setattr(lookups, "MANY", random.choice([0, 50_000]))
        patch.setattr(small_files, "SMALLEST", random.choice([2, 3, 16]))
        patch.setattr(small_files, "FANOUT", random.choice([2, 8]))
        patch.setattr(journal, "MOST_RECORDS", random.choice([1, 64]))
        patch.setattr(divided, "BATCH_FILES", random.choice([2, 1_000, 1_000, 1_000]))
        yield


def play(run: Run, seen: Seen) -> None:
    """Play a run, and compare its tables."""
    with quick_folder() as folder, small_sizes(Random(run.layout)):
        bucket = Bucket(folder)
        player = _Player(run, bucket, seen)
        player.play()
        assert FileJournals(LocalStore(bucket.root)).read().dead == []
        for table in TABLES:
            rows = bucket.rows(f"shop/{table}")
            found = Counter((_whole(row["id"]), _whole(row["v"])) for row in rows)
            assert found == expected(run, table)
            player.check_types(table)


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


class _Player:
    def __init__(self, run: Run, bucket: Bucket, seen: Seen) -> None:
        self._run, self._bucket, self._seen = run, bucket, seen
        self._deaths = [*run.deaths]
        self._process: _Process | None = None
        self._waiting = set[str]()  # the cases that have events in files that are not recorded
        self._written: list[tuple[str, bytes]] = []
        # In files of Avro, by column.
        self._kinds = {
            table: {name: set[UnifiedType]() for name in Kinds._fields} for table in TABLES
        }
        self._has_json = set[str]()  # the tables
        random = self._random("settings")
        flags = {name: random.random() < 0.25 for name in ("metadata_columns", "keeps_changes")}
        bucket.settings = drawn_files.settings(
            run.source, bucket.folder, is_append=run.is_append, **flags
        )
        if random.random() < 0.25:
            bucket.runner = Repeating(random)

    def _random(self, *of: object) -> Random:
        """The same for each part of a run, whatever other parts have drawn."""
        return Random(repr((self._run.layout, *of)))

    def play(self) -> None:
        for step in range(max(len(case.batches) for case in self._run.cases)):
            random = self._random(step)
            self._write(step, random)
            while not self._cycle() and random.random() < 0.5:
                pass
            if random.random() < 0.25:
                self._process = None
        while not self._cycle():
            pass
        self._bucket.cycle(anew=True)

    def _write(self, step: int, random: Random) -> None:
        """Put the batches of all cases into files, and perhaps an earlier file once more."""
        source = self._run.source
        files: list[list[dict[str, Any]]] = [[] for _file in range(random.choice([1, 2, 3]))]
        for case in self._run.cases:
            of_case = self._random(step, case.number)
            for event in case.batches[step] if step < len(case.batches) else ():
                self._waiting.add(repr(case))
                of_event = as_event(source, event, self._run.key, case.table)
                of_case.choice(files).append(of_event)
        written = []
        for events in filter(None, files):
            for form, kinds, some in self._typed(random, events):
                self._note(form, kinds, some)
                written.append((_path(step, form, random), content(source, some, form, kinds)))
        if self._written and random.random() < 0.5:
            path, again = random.choice(self._written)
            name = _path(step, path.partition(".")[2], random)
            written.append((random.choice([path, name]), again))
        self._written += written
        for path, told in written:
            target = self._bucket.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(told)

    def _typed(
        self, random: Random, events: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[str, Kinds, Sequence[dict[str, Any]]]]:
        """The events in files of which each has types for its columns: the form, and the types.
        Large numbers are in Avro, because other files do not tell that a column may have them."""
        of_values = OF_FLOATS if self._run.has_floats else OF_VALUES
        form = "avro" if self._run.has_floats else random.choice(FORMS)
        kinds = Kinds(random.choice(OF_KEYS), random.choice(of_values))
        large = [one for one in events if _is_large(one)]
        if not large or (form == "avro" and types.INTEGER not in kinds):
            yield form, kinds, events
            return
        wide = Kinds(random.choice(OF_KEYS[1:]), random.choice(of_values[1:]))
        files = [("avro", wide, large), (form, kinds, [one for one in events if one not in large])]
        yield from (file for file in random.sample(files, 2) if file[2])

    def _note(self, form: str, kinds: Kinds, events: Sequence[dict[str, Any]]) -> None:
        """Remember which types the columns of tables have in a file. A truncation has no row. In a
        file of one table a column has its type whether or not there is a value: a deletion of
        Oracle may have no key. In one of several tables it may be a column of another one."""
        _, name = PLACES[self._run.source]
        tables = {one["source_metadata"][name] for one in events}
        for one in events:
            table = one["source_metadata"][name]
            if one["source_metadata"]["change_type"] == "TRUNCATE":
                continue
            if form != "avro":
                self._has_json.add(table)
                continue
            for column in one["payload"] if len(tables) > 1 else kinds._fields:
                self._kinds[table][column].add(getattr(kinds, column))

    def check_types(self, table: str) -> None:
        """Each column has the least type that has the values of all types in files."""
        snapshot = self._bucket.log(f"shop/{table}").snapshot()
        if not snapshot.exists:
            return
        found = parse(snapshot.metadata).schema
        for name, given in self._kinds[table].items():
            if not given:
                continue
            # What a file of JSON is read as depends on what the table has already.
            sets = [given, given | {types.LONG}] if table in self._has_json else [given]
            least = [str(delta_type(reduce(_joined, one))) for one in sets]
            assert str(found[name].type) in least

    def _cycle(self) -> bool:
        """Apply what is there, by the process that lives or a new one. Returns whether nothing has
        gone wrong."""
        process, is_new = self._process, self._process is None
        if process is None:
            process = _Process(self._deaths.pop(0) if self._deaths else None)
        self._process = process
        try:
            self._bucket.cycle(*([process.reached] if is_new else []), anew=is_new)
        except (Crash, Failed):
            self._process = None
        if process.ended_at is None:
            self._waiting.clear()
        elif not process.is_told:
            process.is_told = True
            self._seen.died[process.ended_at] += 1
            self._seen.crashed |= self._waiting
            return False
        return True


def _joined(first: UnifiedType, second: UnifiedType) -> UnifiedType:
    found = joined(first, second)
    assert found is not None
    return found


def _path(step: int, form: str, random: Random) -> str:
    minute, folder = random.choice(MINUTES), random.choice(FOLDERS)
    name = f"{random.randrange(10**6):06}-{step}.{form}"
    return f"{folder}/{minute}/{name}" if minute else name


class Failed(Exception):
    """An error of which a process may survive."""


@dataclass
class _Process:
    death: Death | None
    passed: int = 0
    ended_at: CrashPoint | None = None
    is_told: bool = False

    def reached(self, point: CrashPoint) -> None:
        if self.death is None or point is not self.death.point:
            return
        self.passed += 1
        if self.passed == self.death.passage:
            self.ended_at = point
            raise Failed if self.death.fails else Crash


def shrunk(run: Run, fails: Callable[[Run], bool]) -> Run:
    """The run without the cases, deaths and events that it fails without: each is left out in turn,
    which is faster than what hypothesis does with that many choices."""
    while (less := next(filter(fails, _smaller(run)), None)) is not None:
        run = less
    return run


def _smaller(run: Run) -> Iterator[Run]:
    for at in range(len(run.cases) if len(run.cases) > 1 else 0):
        yield replace(run, cases=[*run.cases[:at], *run.cases[at + 1 :]])
    for at in range(len(run.deaths)):
        yield replace(run, deaths=[*run.deaths[:at], *run.deaths[at + 1 :]])
    for at, case in enumerate(run.cases):
        for gone in case.events if len(case.events) > 1 else ():
            batches = [[one for one in batch if one is not gone] for batch in case.batches]
            events = [one for one in case.events if one is not gone]
            less = replace(case, events=events, batches=batches)
            yield replace(run, cases=[*run.cases[:at], less, *run.cases[at + 1 :]])
