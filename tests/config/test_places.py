"""Where the mirrors of a project file keep what they have, and several mirrors in one file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mirrorlake.config import load, load_all
from mirrorlake.errors import ConfigError
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import StorageLocation
from tests.config.project_files import refused, write


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        (".", True),
        ("..", True),
        ("b", True),
        ("b/Tables/x", True),
        ("b/Files/Mirrorlake/events", True),
        ("b/inbox", False),
        ("bucket", False),
    ],
)
def test_event_files_and_what_is_made_of_them_lie_apart(
    tmp_path: Path, url: str, is_refused: bool
) -> None:
    text = f"name: a\nroot: b\nsource: {{type: events, url: {url}}}\n"
    if is_refused:
        assert refused(tmp_path, text).where.endswith("field source.url")
    else:
        assert load(write(tmp_path, text), {}).events is not None


def test_a_root_may_be_a_url_and_say_how_it_is_reached(tmp_path: Path) -> None:
    project = load(write(tmp_path, "name: a\nroot: s3://bucket/x\n"), {})
    assert project.root == project.tables_elsewhere == StorageLocation("s3://bucket/x")
    assert (project.where, project.mirror.look_seconds) == ("s3://bucket/x", math.inf)
    reached = "{url: '${BUCKET}/x', endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: {reached}\n"), {"BUCKET": "s3://bucket"})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert project.root == StorageLocation("s3://bucket/x", options)
    tables = "root: gs://bucket/x\ntables: {url: s3://bucket/tables}\n"
    project = load(write(tmp_path, f"name: a\n{tables}"), {})
    assert project.root == StorageLocation("gs://bucket/x")
    assert project.tables_elsewhere == StorageLocation("s3://bucket/tables")
    assert load(write(tmp_path, "name: a\nroot: {url: b}\n"), {}).root == tmp_path / "b"


@pytest.mark.parametrize(
    ("root", "field"),
    [
        ("gs://bucket/x", "root"),
        ("abfss://c@account.dfs.core.windows.net/x", "root"),
        ("ftp://bucket/x", "root.url"),
        ("s3://", "root.url"),
        ("s3://key:hunter2@bucket", "root.url"),
        ("s3://bucket/../x", "root.url"),
        ("{url: s3://bucket, endpoint: 'http://me:hunter2@host'}", "root.endpoint"),
        ("{url: s3://bucket, account: me}", "root.account"),
        ("{url: ./folder, endpoint: 'http://host'}", "root.endpoint"),
        ("{url: s3://bucket, secret_access_key: hunter2}", "root.secret_access_key"),
        ("{endpoint: 'http://host'}", "root.url"),
        ("''", "root.url"),
        ("[s3://bucket]", "root.url"),
    ],
)
def test_a_root_that_cannot_be_is_refused(tmp_path: Path, root: str, field: str) -> None:
    error = refused(tmp_path, f"name: a\nroot: {root}\n")
    assert error.where.endswith(f"field {field}")
    assert error.hint
    assert "hunter2" not in str(error)


def test_files_may_be_landed_at_a_url(tmp_path: Path) -> None:
    landing = "{url: s3://bucket/shop, endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: b\nlanding: {landing}\n"), {})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert project.landing == StorageLocation("s3://bucket/shop", options)
    assert load(write(tmp_path, "name: a\nroot: b\n"), {}).landing is None


@pytest.mark.parametrize(
    ("landing", "field"),
    [
        ("{url: ./folder}", "landing.url"),
        ("{url: 'ftp://host/path'}", "landing.url"),
        ("{url: 's3://key:hunter2@bucket'}", "landing.url"),
        ("{url: 's3://bucket/path?token=hunter2'}", "landing.url"),
        ("{url: 's3://'}", "landing.url"),
        ("{url: 's3://bucket', endpoint: 'http://me:hunter2@host'}", "landing.endpoint"),
        ("{region: eu-west-1}", "landing.region"),
        ("{url: 'gs://bucket', endpoint: 'https://me:hunter2@host'}", "landing.endpoint"),
        ("{url: 'gs://bucket', region: eu-west-1}", "landing.region"),
        ("{url: 's3://bucket', account: me}", "landing.account"),
        ("{anonymous: true}", "landing.anonymous"),
        ("{url: 's3://bucket', secret_access_key: hunter2}", "landing.secret_access_key"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_repeating_a_secret(
    tmp_path: Path, landing: str, field: str
) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\nlanding: {landing}\n")
    assert f"field {field}" in error.where
    assert error.hint
    assert "hunter2" not in str(error)


def test_tables_may_lie_at_a_url(tmp_path: Path) -> None:
    tables = "{url: s3://bucket/shop, endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: b\ntables: {tables}\n"), {})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert (project.tables, project.landing) == (StorageLocation("s3://bucket/shop", options), None)
    assert load(write(tmp_path, "name: a\nroot: b\n"), {}).tables is None


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ("{url: ./folder}", "tables.url"),
        ("{url: 'gs://bucket/shop'}", "tables.url"),
        ("{url: 'az://container/shop'}", "tables.url"),
        ("{url: 'abfss://c@account.dfs.core.windows.net/shop'}", "tables.url"),
        ("{url: 's3://key:hunter2@bucket'}", "tables.url"),
        ("{url: 's3://bucket', endpoint: 'http://me:hunter2@host'}", "tables.endpoint"),
        ("{endpoint: 'http://host:9000'}", "tables.endpoint"),
        ("{url: 's3://bucket', account: me}", "tables.account"),
        ("{url: 's3://bucket', secret_access_key: hunter2}", "tables.secret_access_key"),
    ],
)
def test_a_place_where_tables_cannot_lie_is_refused(
    tmp_path: Path, tables: str, field: str
) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\ntables: {tables}\n")
    assert f"field {field}" in error.where
    assert error.hint
    assert "hunter2" not in str(error)


SEVERAL = """\
spark: {master: "local[2]"}
mirrors:
  - name: shop
    root: ./shop
    source: {type: postgresql, url: "${SHOP_URL}"}
  - name: crm
    root: ./crm
"""


def test_a_file_lists_several_mirrors_that_share_one_spark(tmp_path: Path) -> None:
    path = write(tmp_path, SEVERAL)
    shop, crm = load_all(path, {"SHOP_URL": "postgresql://c"})
    assert (shop.name, crm.name) == ("shop", "crm")
    assert shop.spark.master == crm.spark.master == "local[2]"
    assert (shop.root, crm.source) == (tmp_path / "shop", None)
    named = path.with_name(f"{path.name}#crm")
    assert load(named, {}) == crm  # what the other one needs of the environment is not asked for
    with pytest.raises(ConfigError, match="several mirrors: shop, crm") as error:
        load(path, {})
    assert "mirrorlake.yaml#shop" in error.value.hint
    with pytest.raises(ConfigError, match="no mirror nobody"):
        load(path.with_name(f"{path.name}#nobody"), {})
    only = write(tmp_path, "name: a\nroot: b\n")
    assert load(only.with_name(f"{only.name}#a"), {}).name == "a"
    with pytest.raises(ConfigError, match="no mirror b"):
        load(only.with_name(f"{only.name}#b"), {})


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("name: crm", "name: shop", "field mirrors.name"),
        ("root: ./crm", "root: crm/../shop", "field mirrors.root"),
        ("root: ./crm", "root: ./crm\n    spark: {}", "line 8, field mirrors.spark"),
        ("root: ./crm", "rot: ./crm", "line 7, field rot"),
        ("spark: {master", "spark: {mater", "line 1, field spark.mater"),
        ("spark:", "name: shop\nspark:", "line 1, field name"),
        (SEVERAL, "mirrors: []", "line 1, field mirrors"),
        (SEVERAL, "mirrors: {shop: {}}", "line 1, field mirrors"),
        (SEVERAL, "mirrors:\n- shop", "line 2, field mirrors"),
        (SEVERAL, "mirrors:\n- {}", "line 2, field name"),
    ],
)
def test_a_wrong_list_of_mirrors_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, where: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_all(write(tmp_path, SEVERAL.replace(old, new)), {"SHOP_URL": "postgresql://c"})
    assert where in error.value.where
    assert error.value.hint


def test_tables_on_object_stores_of_one_spark_are_reached_in_one_way(tmp_path: Path) -> None:
    def mirror(name: str, region: str) -> str:
        return f"- {{name: {name}, root: {{url: 's3://{name}/x', region: {region}}}}}\n"

    assert load_all(write(tmp_path, f"mirrors:\n{mirror('aa1', 'eu')}{mirror('bb1', 'eu')}"), {})
    with pytest.raises(ConfigError, match="different ways"):
        load_all(write(tmp_path, f"mirrors:\n{mirror('aa1', 'eu')}{mirror('bb1', 'us')}"), {})
