"""The contract over the protocol of Azure Blob Storage."""

from __future__ import annotations

import pytest

from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store
from tests.azure_blobs import AzureBlobs
from tests.conformance.store import StorageContract


@pytest.mark.full
class TestAzureBlobs(StorageContract):
    @pytest.fixture
    def store(self, azure: AzureBlobs) -> Store:
        return open_store(f"{azure.new_container()}/some/prefix", azure.options)
