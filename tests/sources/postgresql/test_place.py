"""The slot and the publications: made, reused, found again after an interruption, removed."""

from __future__ import annotations

import pytest

from mirrorlake.errors import PrerequisiteMissing, SourceGap, SourceUnavailable
from tests.conformance.scene import streaming, until
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, size int)"


def publications(captured: Captured) -> list[str]:
    names = "select pubname from pg_publication order by pubname"
    return [row[0] for row in captured.database.sql.execute(names)]


def test_what_was_made_is_named(captured: Captured) -> None:
    settings = captured.settings
    assert captured.begin(APPLES) == [
        f"replication slot {settings.slot}",
        f"publication {settings.publication}",
        f"publication {settings.append_publication}",
    ]


def test_detaching_leaves_the_publication_of_others(captured: Captured) -> None:
    captured.run(APPLES, f"create publication {captured.settings.publication} for all tables")
    made = captured.begin()
    captured.source().objects.detach(made)
    assert publications(captured) == [captured.settings.publication]


def test_detaching_leaves_the_slot_of_others_that_is_named_alike(captured: Captured) -> None:
    captured.settings = captured.database.settings(publication=captured.settings.slot)
    ours = captured.begin(APPLES)[1]
    assert captured.source().objects.detach([ours]) == [ours]
    assert captured.source().objects.occupied()


def test_detaching_twice_finds_nothing_the_second_time(captured: Captured) -> None:
    made = captured.begin(APPLES)
    captured.source().objects.detach(made)
    assert captured.source().objects.detach(made) == []


def test_what_an_interrupted_call_made_is_made_anew_and_named(captured: Captured) -> None:
    made = captured.begin(APPLES)
    assert captured.begin() == made
    captured.source().objects.detach(made)
    assert publications(captured) == []


def test_a_publication_of_another_slot_is_left_as_it_is(captured: Captured) -> None:
    captured.begin(APPLES)
    own = captured.settings.publication
    other = captured.source(slot=f"{captured.settings.slot}_other")
    made = other.objects.establish(captured.tables)
    made.snapshot.close()
    assert f"publication {own}" not in made.made
    assert len(captured.changes("insert into apples values (1, 1)")) == 1


def test_tables_are_added_to_a_publication_of_others(captured: Captured) -> None:
    captured.run(APPLES, f"create publication {captured.settings.publication}")
    captured.begin()
    assert len(captured.changes("insert into apples values (1, 1)")) == 1


def test_a_slot_that_is_read_by_another_is_not_taken(captured: Captured) -> None:
    captured.begin(APPLES)
    source = captured.source()
    with streaming(source, captured.tables, BEGINNING):
        with pytest.raises(PrerequisiteMissing, match="in use"):
            captured.source().objects.establish(captured.tables)
        with pytest.raises(SourceUnavailable, match="is still read by server process"):
            captured.source().stream(captured.tables, BEGINNING)


def test_a_stream_that_cannot_begin_leaves_no_connection(captured: Captured) -> None:
    captured.begin(APPLES)
    with streaming(captured.source(), captured.tables, BEGINNING):
        with pytest.raises(SourceUnavailable):
            captured.source().stream(captured.tables, BEGINNING)
        # The server takes note of the end of a connection in its own time.
        senders = "select count(*) from pg_stat_replication where application_name = 'mirrorlake'"
        until(lambda: captured.database.sql.execute(senders).fetchone() == (1,))


def test_a_publication_that_is_gone_is_a_gap(any_captured: Captured) -> None:
    any_captured.begin(APPLES)
    source = any_captured.source()
    any_captured.run(f"drop publication {any_captured.settings.publication}")
    with pytest.raises(SourceGap, match=r"publication .* no longer exists"):
        source.resume(source.current(), source.identity())


def test_a_table_that_cannot_be_published_leaves_nothing_behind(captured: Captured) -> None:
    with pytest.raises(PrerequisiteMissing, match="unlogged"):
        captured.begin(APPLES, "create unlogged table pears (id int primary key)")
    assert publications(captured) == []
    assert captured.source().objects.occupied() is None


def test_a_slot_and_a_publication_may_have_any_name(captured: Captured) -> None:
    settings = captured.database.settings(publication='Odd "one", two')
    captured.settings = settings
    made = captured.begin(APPLES)
    assert len(captured.changes("insert into apples values (1, 1)")) == 1
    assert len(captured.source().objects.detach(made)) == 3
