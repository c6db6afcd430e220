"""The page on types says what the code does, and forgets no type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.demo.server import EmbeddedServer
from tests.conftest import database_on
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "postgresql-types.md"
EXAMPLES = {"(p,s)": "(10,2)", "(n)": "(5)"}

# They have no input, so no user's table has values of them.
WITHOUT_VALUES = {
    "gtsvector",
    "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_ndistinct",
    "pg_node_tree",
}


def rows() -> Iterator[tuple[str, str]]:
    """Each type that the page lists, as SQL, with what it says it becomes."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and not cells[0].startswith("`source."):
            for name in re.findall("`([^`]+)`", cells[0]):
                yield example(name), example(cells[1])


def example(text: str) -> str:
    for general, special in EXAMPLES.items():
        text = text.replace(general, special)
    return text


ROWS = dict(rows())


@pytest.fixture(scope="module")
def listed(postgres18: EmbeddedServer) -> Iterator[Captured]:
    """A table `listed` with a column of each type of the page."""
    for database in database_on(postgres18):
        captured = Captured(database, database.settings())
        columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(ROWS))
        captured.run(f"create table listed ({columns})")
        yield captured
        captured.close()


def test_the_page_lists_types() -> None:
    assert len(ROWS) > 80


def test_every_type_becomes_what_the_page_says(listed: Captured) -> None:
    columns = listed.discovered("listed").schema
    assert {type_: str(c.type) for type_, c in zip(ROWS, columns, strict=True)} == ROWS


def test_no_type_of_the_server_is_forgotten(listed: Captured) -> None:
    known = listed.database.sql.execute(
        "select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace "
        "and typtype in ('b', 'r', 'm') and typcategory <> 'A'"
    )
    found = listed.database.sql.execute(
        "select typname from pg_attribute a join pg_type t on t.oid = a.atttypid "
        "where a.attrelid = 'listed'::regclass and a.attnum > 0"
    )
    assert {name for (name,) in known} - {name for (name,) in found} == WITHOUT_VALUES
