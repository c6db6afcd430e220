"""Tables built from change feeds, where Spark writes the source, and reads and compacts them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import archive, history, replay
from mirrorlake.spark.session.spark_session import Spark
from tests.spark import reading
from tests.spark.test_feed import PROPERTIES

pytestmark = [pytest.mark.spark, pytest.mark.full]


def counted(spark: Spark, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in spark.session.sql(query).collect())


@pytest.mark.clause("CF-198", "CF-199", "CF-202", "CF-209", "CF-196", "CF-214")
def test_targets_of_a_table_that_spark_writes_and_compacts(spark: Spark, tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    named = reading.sql_name(orders)
    paths = {name: tmp_path / name for name in ("every", "newest", "changes", "copy")}
    targets = {name: reading.sql_name(path) for name, path in paths.items()}
    expected: dict[int, Counter[tuple[Any, ...]]] = {}
    for version, statement in enumerate(
        (
            (
                f"create table {named} (id bigint, name string) using delta "
                f"tblproperties ({PROPERTIES})"
            ),
            f"insert into {named} values (1, 'a'), (2, 'b'), (3, null)",
            f"update {named} set name = 'c' where id = 1",
            f"update {named} set id = id + 10 where id < 3",
            f"delete from {named} where id = 3",
            f"optimize {named}",
            f"insert into {named} values (3, 'again'), (4, 'd')",
            (
                f"merge into {named} t using (select 4 as id, 'e' as name union all "
                "select 11, 'x') s on t.id = s.id when matched then update set * "
                "when not matched then insert *"
            ),
            f"insert overwrite {named} values (4, 'e'), (5, 'f')",
        )
    ):
        spark.session.sql(statement).collect()
        expected[version] = counted(spark, f"select id, name from {named}")
        history(orders, paths["every"])
        history(orders, paths["newest"], type=1)
        archive(orders, paths["changes"])
        replay(orders, paths["copy"])
        if version in {4, 6}:
            for target in targets.values():
                spark.session.sql(f"optimize {target}").collect()
        for name in ("newest", "copy"):
            assert counted(spark, f"select id, name from {targets[name]}") == expected[version]
    for version, rows in expected.items():
        as_of = f"__START_AT <= {version} and (__END_AT > {version} or __END_AT is null)"
        assert counted(spark, f"select id, name from {targets['every']} where {as_of}") == rows
        rebuilt = (
            f"select id, name from {targets['changes']} where commit_version <= {version} "
            "group by all having sum(if(change_type in ('insert', 'update_postimage'), 1, -1)) > 0"
        )
        assert counted(spark, rebuilt) == rows
