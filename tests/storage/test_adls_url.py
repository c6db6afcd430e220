"""Addresses of a data lake: what they mean, what is refused, and with what right we come."""

from __future__ import annotations

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.identity import DefaultAzureCredential

from mirrorlake.errors import UsageError
from mirrorlake.storage.adls.store import AdlsStore
from mirrorlake.storage.adls.url import (
    AzureLocation,
    credential_of,
    handles,
    location_of,
    split,
)

ACCOUNT = "acme.dfs.core.windows.net"
ONELAKE = "onelake.dfs.fabric.microsoft.com"
ITEM = "shop.MountedRelationalDatabase"

PLACES = {
    f"abfss://zone@{ACCOUNT}/in/orders": AzureLocation("acme", ACCOUNT, "zone", "in/orders"),
    f"abfss://zone@{ACCOUNT}/in/orders/": AzureLocation("acme", ACCOUNT, "zone", "in/orders"),
    f"abfss://zone@{ACCOUNT}": AzureLocation("acme", ACCOUNT, "zone", ""),
    f"https://{ACCOUNT}/zone/in/orders": AzureLocation("acme", ACCOUNT, "zone", "in/orders"),
    f"https://{ACCOUNT}:443/zone": AzureLocation("acme", ACCOUNT, "zone", ""),
    f"https://{ACCOUNT}/zone/a%20b/%255Fx": AzureLocation("acme", ACCOUNT, "zone", "a b/%5Fx"),
    f"abfss://zone@{ACCOUNT}/a b/%5Fx": AzureLocation("acme", ACCOUNT, "zone", "a b/%5Fx"),
    f"https://{ONELAKE}/sales/{ITEM}": AzureLocation("onelake", ONELAKE, "sales", ITEM),
    f"https://{ONELAKE}/My%20Sales/{ITEM}/x": AzureLocation(
        "onelake", ONELAKE, "My Sales", f"{ITEM}/x"
    ),
    f"abfss://sales@{ONELAKE}/{ITEM}": AzureLocation("onelake", ONELAKE, "sales", ITEM),
    f"abfss://8f1c@westeurope-{ONELAKE}/77aa": AzureLocation(
        "westeurope-onelake", f"westeurope-{ONELAKE}", "8f1c", "77aa"
    ),
}


@pytest.mark.parametrize("url", PLACES)
def test_an_address_has_one_location(url: str) -> None:
    assert handles(url)
    assert location_of(url) == PLACES[url]


@pytest.mark.parametrize("location", PLACES.values(), ids=str)
def test_a_location_is_parsed_from_its_printed_form(location: AzureLocation) -> None:
    assert location_of(str(location)) == location


def test_a_host_is_read_in_any_case() -> None:
    assert location_of(f"ABFSS://Zone@{ACCOUNT.upper()}/A") == AzureLocation(
        "acme", ACCOUNT, "Zone", "A"
    )


@pytest.mark.parametrize(
    "url",
    [
        "/data/zone",
        "zone",
        "",
        "C:\\zone",
        "s3://bucket/zone",
        "https://example.com/zone",
        "https://acme.blob.core.windows.net/zone",
        f"https://example.com/{ACCOUNT}",
        f"file:///{ACCOUNT}",
        f"https://{ACCOUNT}.example.com/zone",
    ],
)
def test_other_addresses_are_not_handled(url: str) -> None:
    assert not handles(url)


@pytest.mark.parametrize(
    "url",
    [
        f"abfs://zone@{ACCOUNT}/in",  # not encrypted
        f"abfss://{ACCOUNT}/in",
        f"https://{ACCOUNT}/",
        f"https://{ONELAKE}/sales",
        f"https://{ONELAKE}/sales/",
        f"abfss://sales@{ONELAKE}",
        f"https://{ACCOUNT}:8443/zone",
        f"https://me@{ACCOUNT}/zone",
        f"https://{ACCOUNT}/zone/a/../b",
        f"https://{ACCOUNT}/zone/a//b",
        f"https://{ACCOUNT}/zone/%2e%2e/b",
        "abfss://zone@acme.dfs.example.com/in",  # our token is not sent just anywhere
        "abfss://zone@acme.blob.core.windows.net/in",
        "abfss://zone@[::1/in",
    ],
)
def test_an_address_that_is_wrong_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        location_of(url)


@pytest.mark.parametrize(
    "url",
    [
        f"https://{ACCOUNT}/zone?sv=2026-01-01&sig=c2VjcmV0",
        f"abfss://zone@{ACCOUNT}/in?sig=c2VjcmV0",
        f"https://{ACCOUNT}/zone/in#c2VjcmV0",
        f"abfss://zone:c2VjcmV0@{ACCOUNT}/in",
        f"https://me:c2VjcmV0@{ACCOUNT}/zone",
        f"https://{ACCOUNT}:c2VjcmV0/zone",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        AdlsStore.of_url(url)
    assert "c2VjcmV0" not in f"{caught.value} {caught.value!r} {caught.value.facts()}"


def test_a_location_is_split_at_its_container() -> None:
    assert split(f"abfss://sales@{ONELAKE}/{ITEM}/a?b/%5F#") == (
        f"abfss://sales@{ONELAKE}",
        f"{ITEM}/a?b/%5F#",
    )
    assert location_of(f"abfss://sales@{ONELAKE}", whole=True).root == ""


KEY = {"AZURE_STORAGE_KEY": "a2V5"}
ACME = location_of(f"abfss://zone@{ACCOUNT}")
LAKE = location_of(f"abfss://sales@{ONELAKE}/{ITEM}")


class TestCredentials:
    def test_is_the_identity_of_the_process(self) -> None:
        for location in (ACME, LAKE):
            assert isinstance(credential_of(location, {}, {}), DefaultAzureCredential)

    @pytest.mark.parametrize("name", ["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"])
    def test_is_the_key_of_the_environment(self, name: str) -> None:
        found = credential_of(ACME, {}, {name: "a2V5"})
        assert isinstance(found, AzureNamedKeyCredential)
        assert tuple(found.named_key) == ("acme", "a2V5")

    def test_is_the_signature_of_the_environment(self) -> None:
        assert credential_of(ACME, {}, {"AZURE_STORAGE_SAS_TOKEN": "?sig=x"}) == "sig=x"

    def test_is_what_is_given_rather_than_the_environment(self) -> None:
        assert credential_of(ACME, {"sas_token": "sig=x"}, KEY) == "sig=x"

    def test_to_one_account_is_not_shown_to_another(self) -> None:
        other = {**KEY, "AZURE_STORAGE_ACCOUNT": "other"}
        assert isinstance(credential_of(ACME, {}, other), DefaultAzureCredential)
        own = {**KEY, "AZURE_STORAGE_ACCOUNT": "acme"}
        assert isinstance(credential_of(ACME, {}, own), AzureNamedKeyCredential)

    def test_to_an_account_is_not_shown_to_onelake(self) -> None:
        assert isinstance(credential_of(LAKE, {}, KEY), DefaultAzureCredential)
        own = {"AZURE_STORAGE_ACCOUNT": "onelake", "AZURE_STORAGE_SAS_TOKEN": "sig=x"}
        assert credential_of(LAKE, {}, own) == "sig=x"


@pytest.mark.parametrize("location", PLACES.values(), ids=str)
def test_a_store_is_where_its_address_says(location: AzureLocation) -> None:
    store = AdlsStore.of_url(str(location), {"account_key": "a2V5"})
    assert repr(store) == f"AdlsStore({str(location)!r})"
    assert store.location("a/%5Fb") == f"{location}/a/%5Fb"
    assert store._container.url.startswith(f"https://{location.host}/")
