"""Commands that are pointed at an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake.storage.urls import open_store
from tests.cli.conftest import Run
from tests.cli.test_apply_commands import start
from tests.conftest import Database
from tests.lint.zones import Zone, clean
from tests.objects import S3Server


@pytest.fixture
def url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in an empty bucket, which the environment says how to reach."""
    s3.described(monkeypatch)
    return f"{s3.new_bucket()}/shop"


def upload(zone: Zone, url: str) -> None:
    store = open_store(url)
    for file in zone.root.rglob("*"):
        if file.is_file():
            store.replace(str(file.relative_to(zone.root)), file.read_bytes())


class TestLint:
    @pytest.mark.parametrize("below", ["", "/Files/LandingZone", "/Files/LandingZone/orders"])
    def test_a_good_zone_is_found_good_from_any_of_its_folders(
        self, run: Run, tmp_path: Path, url: str, below: str
    ) -> None:
        upload(clean(tmp_path / "zone"), url)
        done = run("lint", url + below, "--read-all", "--json")
        assert (done.code, done.facts()["findings"]) == (0, [])
        assert done.facts()["tables"] == (1 if below.endswith("orders") else 3)

    def test_it_finds_what_it_finds_in_a_folder(self, run: Run, tmp_path: Path, url: str) -> None:
        zone = clean(tmp_path / "zone")
        zone.put("orders/_metadata.json", '{"keyColumns": ["nothing"], }')
        zone.put("orders/00000000000000000009.parquet", b"PAR1")
        zone.write("notes", 3, "id,name,__rowMarker__", "x,Anna,0")
        upload(zone, url)
        here, there = run("lint", str(zone.root), "--json"), run("lint", url, "--json")
        assert (there.code, there.facts()) == (1, here.facts())
        assert len(there.facts()["findings"]) >= 3

    def test_sarif_says_where_the_zone_lies(self, run: Run, tmp_path: Path, url: str) -> None:
        upload(clean(tmp_path / "zone"), url)
        run("lint", url, "--sarif", "found.sarif")
        log = json.loads((tmp_path / "found.sarif").read_text())
        assert log["runs"][0]["originalUriBaseIds"]["ROOT"]["uri"] == f"{url}/"

    def test_where_nothing_is_it_says_so(self, run: Run, url: str) -> None:
        done = run("lint", url)
        assert (done.code, done.error.splitlines()[0].partition(" (")[0]) == (
            2,
            "nothing was found",
        )

    def test_a_scheme_that_is_not_known_is_refused(self, run: Run) -> None:
        done = run("lint", "ftp://host/zone")
        assert done.code == 2
        assert "ftp:// is not a supported storage" in done.error


def project(folder: Path, url: str, *lines: str) -> None:
    text = ["name: p", "root: ./lake", f"landing: {{url: {url}}}", *lines]
    (folder / "mirrorlake.yaml").write_text("\n".join([*text, ""]))


class TestPublish:
    def test_files_become_batches_on_objects(self, run: Run, tmp_path: Path, url: str) -> None:
        (tmp_path / "orders.csv").write_text("id,name\n1,Ada\n2,Grace\n")
        done = run(
            "publish", "orders.csv", "-t", "s.orders", "--key", "id", "--initial", "--root", url
        )
        assert done.code == 0
        folder = open_store(url).list("Files/LandingZone/s.schema/orders")
        assert next(file.name for file in folder.files) == f"{1:020d}.parquet"
        assert run("lint", url).code == 0

    def test_a_configured_landing_zone_is_published_into(
        self, run: Run, tmp_path: Path, url: str
    ) -> None:
        (tmp_path / "mirrorlake.yaml").write_text(
            f"name: p\nroot: ./lake\nlanding: {{url: {url}}}\n"
        )
        (tmp_path / "orders.csv").write_text("id,name\n1,Ada\n")
        run("publish", "orders.csv", "-t", "orders", "--key", "id", "--initial")
        assert open_store(url).list("Files/LandingZone").folders == ("orders",)
        assert not (tmp_path / "lake/Files/LandingZone").exists()


@pytest.mark.full
@pytest.mark.postgres
def test_capture_lands_on_objects_what_the_linter_finds_good(
    run: Run, shop: Database, tmp_path: Path, url: str
) -> None:
    project(
        tmp_path, url, 'source: {type: postgresql, url: "${SOURCE}", tables: ["public.orders"]}'
    )
    assert run("capture", "--once").code == 0
    shop.execute("delete from orders where id = 1")
    assert run("capture", "--once").code == 0
    assert run("lint", url, "--read-all").code == 0
    store = open_store(url)
    folder = store.list("Files/LandingZone/public.schema/orders")
    landed = [file.name for file in folder.files if not file.name.startswith("_")]
    assert landed == [f"{number:020d}.parquet" for number in range(1, len(landed) + 1)]
    assert len(landed) >= 2
    assert store.list("Files/LandingZone/_mirrorlake/cuts").files
    assert not (tmp_path / "lake/Files/LandingZone").exists()


@pytest.mark.full
@pytest.mark.spark
def test_spark_applies_what_lies_on_objects(run: Run, tmp_path: Path, url: str) -> None:
    project(tmp_path, url, 'spark: {master: "local[2]", driver_memory: 1g}')
    (tmp_path / "orders.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    (tmp_path / "gone.csv").write_text("id\n2\n")
    orders = ("-t", "s.orders")
    run("publish", "orders.csv", *orders, "--key", "id", "--initial")
    run("publish", "gone.csv", *orders, "--operation", "delete")
    done = start(tmp_path, "apply", "--once", "--json")
    assert done.returncode == 0, done.stderr
    rows = run("sql", "select * from s.orders", "--json")
    assert rows.facts() == [{"id": 1, "name": "Ada"}]


class TestTables:
    def test_sql_says_that_it_does_not_read_objects(
        self, run: Run, tmp_path: Path, url: str
    ) -> None:
        (tmp_path / "mirrorlake.yaml").write_text(
            f"name: shop\nroot: ./lake\ntables: {{url: {url}}}\n"
        )
        done = run("sql", "select 1")
        assert done.code == 2
        assert "cannot read tables on an object store" in done.error
        assert url in done.error
