"""The page on OneLake runs as it stands, on a double of the service."""

from __future__ import annotations

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.filedatalake import FileSystemClient

from mirrorlake.storage.adls import store as adls
from mirrorlake.storage.adls.url import AzureLocation
from tests.docs.blocks import blocks
from tests.doubles.dfs import DataLake

PAGE = "how-to/publish-to-onelake.md"


@pytest.mark.clause("LZ-007", "LZ-112")
def test_its_rows_land_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(PAGE, "python")
    with DataLake() as service:
        tree = service.container("sales")

        def client_of(location: AzureLocation, *_others: object) -> FileSystemClient:
            key = AzureNamedKeyCredential("onelake", "a2V5")  # a double has no identities
            return FileSystemClient(service.url, location.container, credential=key)

        monkeypatch.setattr(adls, "client_of", client_of)
        exec(compile(code, PAGE, "exec"), {})
    folder = "shop.MountedRelationalDatabase/Files/LandingZone/shop.schema/orders"
    names = [path.removeprefix(f"{folder}/") for path in tree.nodes if path.startswith(folder)]
    assert sorted(name for name in names if name.endswith(".parquet")) == [
        "00000000000000000001.parquet",
        "00000000000000000002.parquet",
    ]
