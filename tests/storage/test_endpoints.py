"""The address of a storage in the environment."""

from __future__ import annotations

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import open_store

VARIABLES = {
    "AWS_ENDPOINT_URL_S3": "s3://bucket",
    "AWS_ENDPOINT_URL": "s3a://bucket/path",
    "AWS_ENDPOINT": "s3://bucket",
    "GOOGLE_BASE_URL": "gs://bucket",
    "AZURE_STORAGE_ENDPOINT": "az://bucket",
    "AZURE_ENDPOINT": "az://bucket",
}


@pytest.fixture(autouse=True)
def _no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")


@pytest.mark.parametrize(
    "given", ["http://user:hunter2@127.0.0.1:1", "http://127.0.0.1:1?k=hunter2"]
)
@pytest.mark.parametrize("name", VARIABLES)
def test_an_address_with_credentials_is_rejected_and_not_shown(
    name: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, given)
    with pytest.raises(UsageError) as caught:
        open_store(VARIABLES[name])
    assert caught.value.where == name
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_no_address_for_the_storage_has_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT", "http://user:hunter2@127.0.0.1:1")
    with pytest.raises(UsageError, match="more than an address"):
        open_store("s3://bucket")


@pytest.mark.parametrize("name", VARIABLES)
def test_the_address_of_the_options_replaces_that_of_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://user:hunter2@127.0.0.1:1")
    open_store(VARIABLES[name], ObjectOptions("http://127.0.0.1:2"))


def test_the_address_of_another_storage_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:1")
    open_store("gs://bucket", ObjectOptions(anonymous=True))
    open_store("az://bucket")


@pytest.mark.parametrize(
    ("url", "variables", "why"),
    [
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT_KEY": '"hunter2"'}, "unable to decode"),
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT_KEY": "hunter2"}, "unable to decode"),
        (
            "gs://bucket",
            {
                "GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "hunter2", "private_key_id": "1",'
                ' "client_email": "a@b"}'
            },
            "error reading pem file",
        ),
        ("gs://bucket", {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such.json"}, "/no/such.json"),
        ("az://bucket", {"AZURE_STORAGE_ACCOUNT_NAME": None}, "account must be specified"),
        ("az://bucket", {"AZURE_STORAGE_ACCOUNT_KEY": "!hunter2"}, "invalid Access Key"),
    ],
)
def test_credentials_that_cannot_be_used_are_a_mistake_and_not_shown(
    url: str, variables: dict[str, str | None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=why) as caught:
        open_store(url)
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__cause__}"
    assert caught.value.hint.startswith("Set ")
