"""Tables of a session that has Delta's properties for new tables (`properties.defaults`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.engine import Applied, Conflicted
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.model import types
from mirrorlake.model.table import Column
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.tables import DEFAULTS
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.creation import first
from tests.conformance.apply.scenario import delete, insert, update
from tests.spark import reading
from tests.spark.test_first_batch import table

pytestmark = pytest.mark.spark

OTHERS = {
    "appendOnly": "true",
    "checkpointPolicy": "v2",
    "dataSkippingNumIndexedCols": "0",
    "enableChangeDataFeed": "false",
    "enableDeletionVectors": "false",
    "enableIcebergCompatV2": "true",
    "enableInCommitTimestamps": "false",
    "enableRowTracking": "true",
    "isolationLevel": "Serializable",
    "logRetentionDuration": "interval 0 days",
}


@pytest.fixture
def defaults(spark: Spark) -> Iterator[None]:
    """In the session and in those that are made of it, as by the settings of a project."""
    context = spark.session.sparkContext._jsc.sc().conf()
    for name, value in OTHERS.items():
        spark.session.conf.set(DEFAULTS + name, value)
        context.set(DEFAULTS + name, value)
    yield
    for name in OTHERS:
        spark.session.conf.unset(DEFAULTS + name)
        context.remove(DEFAULTS + name)


@pytest.mark.full
@pytest.mark.usefixtures("defaults")
@pytest.mark.parametrize("template", TableTemplate)
def test_tables_are_mirrored_whatever_a_session_says_of_new_ones(
    spark: Spark, store: LocalStore, template: TableTemplate
) -> None:
    new = table(spark, store, template=template)
    assert isinstance(new.run(first(new, [insert(1, "a"), insert(2, "b")])), Applied)
    new.apply([update(1, "x"), delete(2, None)])
    new.add_columns(Column("more", types.LONG))
    new.apply([insert(3, "c", 5)])
    assert sorted(new.rows()) == [(1, "x", None), (3, "c", 5)]
    facts = TableFacts.of(TableLog(store.location(new.path)).snapshot())
    assert facts.properties["delta.checkpointPolicy"] == "v2"  # these defaults have an effect
    if template is TableTemplate.FAST:
        assert facts.delegated == ""


def test_a_table_that_became_append_only_is_refused_until_that_is_undone(
    spark: Spark, store: LocalStore
) -> None:
    new = table(spark, store)
    assert isinstance(new.run(first(new, [insert(1, "a")])), Applied)
    name = reading.sql_name(store.location(new.path))
    spark.session.sql(f"alter table {name} set tblproperties ('delta.appendOnly' = 'true')")
    assert "delta.appendOnly is set" in new.engine.progress(new.path).unsupported
    assert isinstance(new.run(new.step([update(1, "x")])), Conflicted)
    spark.session.sql(f"alter table {name} unset tblproperties ('delta.appendOnly')")
    new.apply([update(1, "x")])
    assert new.rows() == [(1, "x")]
