"""What a project leaves out: columns and rows."""

from __future__ import annotations

import pytest

from mirrorlake.errors import PrerequisiteMissing
from mirrorlake.model.change import Marker
from tests.conformance.scene import told
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

CONDITIONS_SINCE = 150_000
APPLES = "create table apples (id int primary key, size int)"


def test_only_selected_columns_come(any_captured: Captured) -> None:
    any_captured.select("public.apples", columns={"public.*": ["*", "!secret_*"]})
    any_captured.begin("create table apples (id int primary key, secret_note text, size int)")
    found = any_captured.changes("insert into apples values (1, 'x', 2)")
    assert told(found) == [(Marker.INSERT, 1, 2)]
    assert any_captured.snapshot("apples") == [{"id": 1, "size": 2}]


def test_a_column_added_later_comes_when_it_is_selected(captured: Captured) -> None:
    captured.select("public.apples", columns={"public.*": ["*", "!secret_*"]})
    captured.begin(APPLES)
    found = captured.changes(
        "alter table apples add secret_note text, add colour text",
        "insert into apples values (1, 2, 'x', 'red')",
    )
    assert found[0].row == {"id": 1, "size": 2, "colour": "red"}


def test_a_key_that_is_not_selected_makes_a_table_append_only(captured: Captured) -> None:
    captured.select("public.apples", columns={"public.apples": ["size"]})
    captured.begin(APPLES)
    assert captured.tables[0].append_only == "key column id is not selected"
    found = captured.changes("insert into apples values (1, 2)", "update apples set size = 3")
    assert [event.row for event in found] == [{"size": 2}]


@pytest.fixture
def conditional(any_captured: Captured) -> Captured:
    """A server that can publish some rows of a table."""
    if any_captured.database.sql.info.server_version < CONDITIONS_SINCE:
        pytest.skip("this version publishes whole tables only")
    return any_captured


def test_only_rows_that_meet_the_condition_come(conditional: Captured) -> None:
    conditional.select("public.apples", rows={"public.apples": "id % 2 = 1"})
    conditional.begin(APPLES)
    found = conditional.changes("insert into apples select n, n from generate_series(1, 5) n")
    assert [event.row["id"] for event in found] == [1, 3, 5]
    assert [row["id"] for row in conditional.snapshot("apples")] == [1, 3, 5]


def test_a_row_that_begins_or_ceases_to_meet_the_condition_is_inserted_or_deleted(
    conditional: Captured,
) -> None:
    conditional.select("public.apples", rows={"public.apples": "size > 5"})
    conditional.begin(APPLES, "alter table apples replica identity full")
    found = conditional.changes(
        "insert into apples values (1, 1)",
        "update apples set size = 9",
        "update apples set size = 8",
        "update apples set size = 2",
    )
    assert told(found) == [(Marker.INSERT, 1, 9), (Marker.UPDATE, 1, 8), (Marker.DELETE, 1)]


@pytest.mark.parametrize("adding", ["at the beginning", "later"])
def test_a_condition_that_would_block_the_updates_of_others_is_refused(
    captured: Captured, adding: str
) -> None:
    if adding == "later":
        captured.begin("create table pears (id int primary key)")
    captured.select("public.*", rows={"public.apples": "size > 5"})
    captured.run(APPLES, "insert into apples values (1, 1)")
    source = captured.source()
    action = source.objects.include if adding == "later" else source.objects.establish
    with pytest.raises(PrerequisiteMissing, match="uses size, which is not in the replica"):
        action(source.discover())
    captured.run("update apples set size = 9")
