"""Which files are found, read again, and remembered; what cannot be applied."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from datetime import timedelta
from itertools import chain, count, repeat
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.apply.events import file_reader, reading
from mirrorlake.apply.events import journal as journals
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.table import EventTable
from mirrorlake.errors import EventRecordsUnreadable
from mirrorlake.events.decode.json import events as json_events
from tests.apply.events.bucket import Bucket, event
from tests.events.decode.files import avro
from tests.events.decode.files import event as golden


@pytest.mark.clause("ST-178", "ST-179", "ST-182")
def test_late_files_are_found_within_the_look_back_and_old_folders_are_not_listed(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="2026/11/01/00/00")
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="2026/11/20/10/05")
    bucket.put("marker.jsonl", minute="2026/11/20/10/06")  # of zero bytes
    assert bucket.cycle() == 2
    bucket.opened.clear()
    bucket.put("late.jsonl", event(3, {"id": 3}), minute="2026/11/17/00/00")
    bucket.put("too_late.jsonl", event(4, {"id": 4}), minute="2026/11/16/23/59")
    assert bucket.cycle() == 1
    assert [one for one in bucket.opened if one.endswith(".jsonl")] == [
        "public_orders/2026/11/17/00/00/late.jsonl"
    ]
    assert "public_orders/2026/11/01" not in bucket.opened
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3]
    assert bucket.cycle() == 0
    assert bucket.cycle(anew=True) == 0


def test_a_look_back_reaches_from_the_last_look_where_that_was_earlier(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="2999/01/01/00/00")  # from a wrong clock
    bucket.cycle()
    bucket.clock.moment += timedelta(days=30)
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="2026/11/21/00/00")
    assert bucket.cycle(anew=True) == 1


def test_a_longer_look_back_finds_what_a_shorter_one_did_not(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    bucket.put("late.jsonl", event(2, {"id": 2}), minute="2026/11/10/00/00")
    assert bucket.cycle() == 0
    bucket.settings = replace(bucket.settings, look_back=timedelta(days=30))
    assert bucket.cycle(anew=True) == 1
    assert bucket.cycle() == bucket.cycle(anew=True) == 0
    assert bucket.plain() == [{"id": 1}, {"id": 2}]


def test_a_consumer_that_has_to_stop_stops_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    for number in range(3):
        one = event(1, {"id": number}), event(1, {"id": number}, table="others")
        bucket.put(f"{number}.jsonl", *one)
    for calls in range(8):  # after each object of a file, and before each of the tables
        answers = chain(repeat(False, calls), repeat(True))  # to two readers at once
        assert bucket.consumer(ended=answers.__next__).cycle() == 0
    assert bucket.log().snapshot().exists
    assert not (bucket.root / "Tables/public/others").exists()
    assert bucket.cycle(anew=True) == 3
    assert len(bucket.rows()) == len(bucket.rows("public/others")) == 3
    assert bucket.log().snapshot().version == 0


def test_digits_that_are_no_minute_do_not_hold_the_look_back(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("odd.jsonl", event(1, {"id": 1}), minute="2026/11/31/99/99")
    bucket.put("a.jsonl", event(2, {"id": 2}))
    bucket.cycle()
    assert bucket.consumer()._journal.horizon == "20261117"
    assert bucket.cycle(anew=True) == 0


def test_a_minute_of_long_ago_hides_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="0500/01/01/00/00")
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2}))
    assert bucket.cycle() == 1


def test_what_is_remembered_does_not_grow_with_the_age_of_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_RECORDS", 6)
    bucket = Bucket(tmp_path)
    for number in range(15):
        day = f"2026/01/{1 + number:02}/00/00"
        bucket.put("a.jsonl", event(number + 1, {"id": number}), minute=day)
        bucket.cycle()
    journal = bucket.consumer()._journal
    assert len(journal.numbers) <= 6
    assert len(journal.files) < 12
    assert len(bucket.rows()) == 15


@pytest.mark.clause("ST-253")
def test_what_cannot_be_applied_is_told_and_everything_else_goes_on(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1}),
        event(2, {"id": 2}, "MOVE"),
        event(3, {"id": None}),
        event(4, {}),
        event(5, {"id": 5}, lsn="nowhere"),
        event(6, {"id": 6}, table=None),
        "no JSON",
        event(7, {"id": 7}, key=(None,)),
        event(8, {"id": 8, "\ud800": 1}),
        event(9, {"id": 9}),
    )
    (bucket.folder / "b.avro").write_bytes(b"Obj\x01 and no header")
    (bucket.folder / "c.jsonl.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9])
    assert bucket.cycle() == 3
    assert bucket.plain() == [{"id": 1}, {"id": 9}]
    dead = {file.path.rpartition("/")[2]: file for file in bucket.consumer()._journal.dead}
    assert {row for one in dead["a.jsonl"].letters for row in one.rows} == {*range(1, 9)}
    assert [one.is_file for one in dead["b.avro"].letters] == [True]
    assert [one.is_file for one in dead["c.jsonl.gz"].letters] == [True]


@pytest.mark.clause("ST-253", "ST-254")
def test_a_replay_applies_what_was_mended_and_obeys_the_order(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1, "v": 1}),
        event(3, {"id": 2, "v": 3}, "PUT"),
        event(2, {"id": 3, "v": 2}),
    )
    bucket.cycle()
    bucket.put("b.jsonl", event(9, {"id": 3, "v": 9}))
    bucket.cycle()
    consumer = bucket.consumer()
    assert consumer.replay() == 1
    assert [file.retries for file in consumer._journal.dead] == [1]
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1, "v": 1}),
        event(3, {"id": 2, "v": 3}),
        event(2, {"id": 3, "v": 2}),
    )
    assert bucket.consumer().replay() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 3}, {"id": 3, "v": 9}]
    assert bucket.consumer()._journal.dead == []


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"format": 2, "horizon": "", "files": []}'])
def test_a_journal_that_cannot_be_read_is_refused_and_can_be_removed(
    tmp_path: Path, text: str
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    folder = bucket.root / "Files/Mirrorlake/events/files"
    next(folder.iterdir()).write_text(text)
    with pytest.raises(EventRecordsUnreadable, match="which event files were applied"):
        bucket.cycle(anew=True)
    shutil.rmtree(folder)
    assert bucket.cycle(anew=True) == 1
    assert bucket.plain() == [{"id": 1}]


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    first, second = event(1, {"id": 1}), event(2, {"id": 2})
    bucket.put("a.jsonl", first)
    bucket.cycle()
    bucket.put("a.jsonl", first, second)
    assert bucket.cycle() == 1
    assert [row["id"] for row in bucket.plain()] == [1, 2]


def test_values_without_a_schema_file_have_the_type_that_holds_all_of_them(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 1.5}))
    bucket.put("c.jsonl", event(3, {"id": 3, "v": None}))
    bucket.cycle()
    bucket.put("d.jsonl", event(4, {"id": 4, "v": 4}))
    bucket.cycle(anew=True)
    assert [row["v"] for row in bucket.plain()] == ["1", "1.5", None, "4"]


def test_a_text_is_no_number_or_boolean_without_a_schema_file(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "n": 1.5, "b": True}))
    texts = [event(1, {"id": 1}, table="texts"), event(2, {"id": "01"}, table="texts")]
    bucket.put("b.jsonl", texts[0], texts[1])
    bucket.cycle()
    rows = [{"id": "01"}, {"id": 2, "n": "abc"}, {"id": 2, "b": 1}, {"id": 2, "b": "true"}]
    good = {"id": "3", "n": "1" * 30, "b": False}
    bucket.put("c.jsonl", *(event(n + 2, row) for n, row in enumerate(rows)), event(9, good))
    bucket.cycle(anew=True)
    expected = [{"id": 1, "n": "1.5", "b": True}, {"id": 3, "n": "1" * 30, "b": False}]
    assert bucket.plain() == expected
    assert bucket.plain("public/texts") == [{"id": "01"}, {"id": "1"}]
    (file,) = bucket.consumer()._journal.dead
    told = {row: letter.reason for letter in file.letters for row in letter.rows}
    assert told == {
        0: "the value of column id is no LONG: as a number, the text would lose its leading zeros",
        1: "the value of column n is no NUMBER",
        2: "the value of column b is no BOOLEAN",
        3: "the value of column b is no BOOLEAN",
    }


@pytest.mark.parametrize("is_anew", [False, True])
def test_types_of_one_table_are_not_those_of_another_in_the_same_folder(
    tmp_path: Path, is_anew: bool
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    bucket.put("b.jsonl", event(1, {"id": "x", "v": 1.5}, table="others"))
    bucket.put("c.jsonl", event(1, {"id": 7, "v": "7"}, table="texts"))
    bucket.put("d.jsonl", event(2, {"id": 2, "v": 2}))
    bucket.cycle(anew=is_anew)
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert bucket.plain("public/others") == [{"id": "x", "v": "1.5"}]
    assert bucket.plain("public/texts") == [{"id": 7, "v": "7"}]


@pytest.mark.parametrize("is_large", [False, True])
def test_tables_in_one_file_have_the_types_of_their_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(file_reader, "MOST_TOGETHER", 100)
        monkeypatch.setattr(json_events, "_MOST_TOGETHER", 4)
    bucket = Bucket(tmp_path)
    rows = [
        (event(n, {"id": n, "v": n}), event(n, {"id": str(n), "v": {"a": n}}, table="others"))
        for n in range(1, 8)
    ]
    bucket.put("a.jsonl", *chain(*rows[:5]))
    bucket.put("b.jsonl", event(8, {"id": 8, "v": None}), rows[5][1], "{", rows[5][0])
    bucket.cycle()
    bucket.put("c.jsonl", *rows[6])
    bucket.cycle(anew=True)
    expected = [{"id": n, "v": n} for n in range(1, 8)] + [{"id": 8, "v": None}]
    assert bucket.plain() == expected
    assert bucket.plain("public/others") == [
        {"id": str(n), "v": f'{{"a":{n}}}'} for n in range(1, 8)
    ]
    (file,) = bucket.consumer()._journal.dead
    (letter,) = file.letters
    assert list(letter.rows) == [2]
    assert "not JSON" in letter.reason


def test_tables_in_one_file_have_the_columns_of_their_own_events(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    other = event(1, {"id": 1, "name": "x"}, table="others")
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}), other)
    bucket.cycle()
    bucket.put(
        "b.jsonl", event(2, {"id": 2, "v": 2}), event(2, {"id": 1}, "DELETE", table="others")
    )
    bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    bucket.put("c.jsonl", event(3, {"id": 3, "name": "y"}, table="others"))
    bucket.cycle()
    assert bucket.plain("public/others") == [{"id": 3, "name": "y"}]


def test_a_dead_letter_names_the_table_that_it_is_missing_in(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, prefix="crm")
    told = {"schema": "a-b"}
    moved, keyless = event(2, {"id": 2}, "MOVE", **told), event(3, {"id": None}, **told)
    bucket.put("a.jsonl", event(1, {"id": 1}, **told), moved, keyless)
    bucket.cycle()
    (file,) = bucket.consumer()._journal.dead
    tables = {str(table) for table, _done in bucket.done}
    assert {letter.table for letter in file.letters} == tables == {"crm_a_b.orders"}
    assert len(file.letters) == 2


@pytest.mark.parametrize("is_append", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_file_that_does_not_fit_in_memory_is_read_twice_and_applied_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_append: bool, is_cut: bool
) -> None:
    monkeypatch.setattr(file_reader, "MOST_TOGETHER", 10_000)
    monkeypatch.setattr(json_events, "_MOST_TOGETHER", 50)
    bucket = Bucket(tmp_path, is_append=is_append)
    rows = [event(n, {"id": n % 300, "v": n}, uuid=f"u{n}") for n in range(1, 400)]
    rows[120:120] = [event(1, {"id": 5}, "MOVE"), event(1, {"id": 1}, table="others")]
    # The column of the key is not in the first part, and the type of v only in the last.
    dead = [event(n, {"v": n}, "DELETE", uuid=f"d{n}") for n in range(60)]
    rows = [*dead, *rows, event(500, {"id": 7, "v": 1.5}, uuid="last")]
    content = gzip.compress("".join(f"{json.dumps(one)}\n" for one in rows).encode())
    (bucket.folder / "a.jsonl.gz").write_bytes(content[:-9] if is_cut else content)
    bucket.put("b.jsonl", event(1, {"id": 1}, table="small"))
    assert bucket.cycle() == 2
    assert not bucket.errors
    assert bucket.plain("public/small") == [{"id": 1}]
    (file,) = bucket.consumer()._journal.dead
    if is_cut:
        assert [one.is_file for one in file.letters] == [True]
        assert not (bucket.root / "Tables/public/orders").exists()
        return
    assert {one.reason: one.count for one in file.letters} == {
        "the event has no key column id": 50,
        "the key column id is null": 10,
        "change_type 'MOVE' is not known": 1,
    }
    assert bucket.log().snapshot().version > 2
    found = {row["id"]: row["v"] for row in bucket.rows()}
    assert len(bucket.rows()) == (400 if is_append else 300)
    assert found.keys() == set(range(300))
    if not is_append:
        assert (found[7], found[8], found[200]) == ("1.5", "308", "200")
    assert bucket.cycle(anew=True) == 0


@pytest.mark.parametrize("together", [10_000, 64 << 20])
def test_parts_that_are_large_stay_until_their_file_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    # After such a part, memory is released before the next one is read.
    monkeypatch.setattr(reading, "LARGE", 0)
    monkeypatch.setattr(file_reader, "MOST_TOGETHER", together)
    monkeypatch.setattr(json_events, "_MOST_TOGETHER", 50)
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", *(event(n, {"id": n}, uuid=f"u{n}") for n in range(230)))
    assert bucket.cycle() == 1
    assert sorted(row["id"] for row in bucket.rows()) == list(range(230))


@pytest.mark.parametrize(("most", "commits"), [(1, 4), (160 << 20, 2)])
def test_files_that_do_not_fit_in_memory_together_are_applied_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, commits: int
) -> None:
    monkeypatch.setattr(file_reader, "MOST_OF_FILES", most)
    monkeypatch.setattr(file_reader, "MOST_TOGETHER", 10_000)
    bucket = Bucket(tmp_path)
    for number, events in enumerate([1, 1, 100, 1]):
        (bucket.folder / f"{number}.avro").write_bytes(
            avro([golden(100 * number + one) for one in range(events)])
        )
    assert bucket.cycle() == 4
    assert len(bucket.rows("ea_main/my_table")) == 103
    assert bucket.log("ea_main/my_table").snapshot().version + 1 == commits
    assert bucket.cycle(anew=True) == 0


def test_files_are_read_two_at_once_but_not_while_a_table_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What files are read with, the types of a table, may change then.
    monkeypatch.setattr(file_reader, "MOST_OF_FILES", 1)
    together, both = Barrier(2, timeout=30), list[int]()
    reading = list[str]()
    read, apply = FileReader._first, EventTable.apply

    def noted(self: FileReader, file: FoundFile, of_table: Any) -> Any:
        reading.append(file.path)
        try:
            if len(both) < 2:
                both.append(together.wait())
            return read(self, file, of_table)
        finally:
            reading.remove(file.path)

    def alone(self: EventTable, events: Any) -> Any:
        assert not reading
        return apply(self, events)

    monkeypatch.setattr(FileReader, "_first", noted)
    monkeypatch.setattr(EventTable, "apply", alone)
    bucket = Bucket(tmp_path)
    for number in range(5):
        (bucket.folder / f"{number}.avro").write_bytes(avro([golden(number)]))
    assert bucket.cycle() == 5
    assert sorted(both) == [0, 1]
    assert bucket.log("ea_main/my_table").snapshot().version + 1 == 5


@pytest.mark.parametrize("after", [0, 1, 2])
def test_reading_ends_when_asked_also_in_the_file_ahead(tmp_path: Path, after: int) -> None:
    bucket = Bucket(tmp_path)
    for number in range(6):
        (bucket.folder / f"{number}.avro").write_bytes(avro([golden(number)]))
    asked = count()
    assert bucket.consumer(ended=lambda: next(asked) >= after).cycle() == 0
    assert not (bucket.root / "Tables").exists()
    assert bucket.cycle(anew=True) == 6


def test_files_elsewhere_than_in_minute_folders_are_found(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="")
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="part=1/2026")
    bucket.cycle()
    folders = ["part=1/2026", "2019", "2019/12", "2019/x/2026/11/20/10/05"]
    for number, folder in enumerate(folders):
        bucket.put("c.jsonl", event(3, {"id": 3 + number}), minute=folder)
    bucket.cycle(anew=True)
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.clause("ST-164", "ST-165")
def test_an_object_whose_name_begins_with_an_underscore_is_read_and_other_folders_are_told_once(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    files = {
        "_raw_orders/2026/11/20/10/05": True,
        "below/_raw_orders/2026/11/20/10/05": True,
        "_raw_orders": True,
        "_raw_orders/x": True,
        "_temporary/0/2026/11/20/10/05": False,
        "_delta_log": False,
        ".hidden/2026/11/20/10/05": False,
        "_done": False,
        "public_orders/2026/11/20/_done": False,
    }
    for number, folder in enumerate(files):
        path = bucket.folder / folder / "a.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(event(number, {"id": number})) + "\n")
    with capture_logs() as logs:
        bucket.cycle()
        bucket.cycle()
    read = [number for number, is_read in enumerate(files.values()) if is_read]
    assert [row["id"] for row in bucket.plain()] == read
    skipped = [one["folder"] for one in logs if one["event"] == "event_folder_skipped"]
    assert skipped == ["_done", "public_orders/2026/11/20/_done"]


@pytest.mark.clause("ST-225", "ST-232")
@pytest.mark.parametrize("mode", ["merge", "keyless", "append"])
def test_a_duplicate_changes_nothing_however_long_after_the_event_it_comes(
    tmp_path: Path, mode: str
) -> None:
    """Up to the retention, which is set; the last event of a key is known as long as its row."""
    asked = timedelta(days=40)
    bucket = Bucket(tmp_path, is_append=mode == "append", retention=asked)
    now = int(bucket.clock.moment.timestamp() * 1000)
    key = [] if mode == "keyless" else ["id"]
    events = [
        event(now, {"id": 1, "v": 1}, key=key, uuid="u1"),
        event(now + 1, {"id": 1, "v": 2}, "UPDATE", key=key, uuid="u2"),
        event(now + 2, {"id": 2, "v": 1}, key=key, uuid="u3"),
        event(now + 3, {"id": 2, "v": 1}, "DELETE", key=key, uuid="u4"),
    ]
    bucket.put("first.jsonl", *events)
    bucket.cycle()
    for minutes in (29, 31, 24 * 60, 38 * 24 * 60):
        later = timedelta(minutes=minutes)
        bucket.clock.moment += later
        now += later // timedelta(milliseconds=1)
        bucket.put(f"{minutes}.jsonl", event(now, {"id": 3}, key=key, uuid=f"l{minutes}"))
        bucket.cycle(anew=True)
        rows, version = bucket.rows(), bucket.log().snapshot().version
        bucket.put(f"again{minutes}.jsonl", *reversed(events))
        bucket.cycle(anew=True)
        assert (bucket.rows(), bucket.log().snapshot().version) == (rows, version)
        if mode == "merge":  # known by their position, whatever they are called
            values = bucket.plain()
            named = (one | {"uuid": f"x{minutes}"} for one in events)
            bucket.put(f"named{minutes}.jsonl", *named)
            bucket.cycle(anew=True)
            assert bucket.plain() == values
    assert len(rows) == {"merge": 2, "keyless": 8, "append": 8}[mode]


@pytest.mark.clause("ST-175")
def test_a_schema_file_at_the_root_of_the_bucket_is_found(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    key = "9" * 40
    columns = [
        {"name": "id", "type": ["null", "string"]},
        {"name": "v", "type": ["null", "double"]},
    ]
    payload = {"type": "record", "name": "payload", "fields": columns}
    told = {"type": "record", "name": "e", "fields": [{"name": "payload", "type": payload}]}
    bucket.put(f"{key}_a_1_0_0.jsonl", event(1, {"id": 1, "v": 2}), minute="")
    (bucket.folder / f"{key}.avsc").write_text(json.dumps(told))
    assert bucket.cycle() == 1
    assert bucket.plain() == [{"id": "1", "v": 2.0}]


@pytest.mark.clause("ST-108", "ST-247")
@pytest.mark.parametrize("keys", [{"key": ["id"]}, {"primary_keys": None}], ids=["named", "set"])
def test_a_deletion_needs_its_key_alone(tmp_path: Path, keys: dict[str, Any]) -> None:
    """The type of a column is that of the first values; what does not fit is a dead letter."""
    bucket = Bucket(tmp_path, keys={"public.orders": ["id"]})
    bucket.put("a.jsonl", *(event(n, {"id": n, "price": 10 * n}, **keys) for n in (1, 2)))
    bucket.cycle()
    bucket.put(
        "b.jsonl",
        event(3, {"id": 1, "price": "ten"}, "UPDATE", **keys),
        event(4, {"id": 2, "price": "x"}, "DELETE", **keys),
        event(5, {"id": [2], "price": 20}, "DELETE", **keys),
        minute="2026/11/20/10/06",
    )
    bucket.cycle()
    assert [(row["id"], row["price"]) for row in bucket.plain()] == [(1, 10)]
    (file,) = bucket.consumer()._journal.dead
    assert {one.reason: list(one.rows) for one in file.letters} == {
        "the value of column price is no LONG": [0],
        "the value of column id is no LONG": [2],
    }


@pytest.mark.clause("ST-239")
def test_a_deletion_that_is_kept_as_a_row_needs_every_value(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    bucket.put("a.jsonl", event(1, {"id": 1, "price": 10}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 1, "price": "ten"}, "DELETE"), minute="2026/11/20/10/06")
    bucket.cycle()
    (file,) = bucket.consumer()._journal.dead
    assert [one.reason for one in file.letters] == ["the value of column price is no LONG"]
    assert len(bucket.plain()) == 1
