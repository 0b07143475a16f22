"""The address of the hub, and what may be sent there."""

from __future__ import annotations

import pytest

from argus.staging.hub import ENDPOINT, resolve_endpoint
from argus.staging.options import StagingError


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)


@pytest.mark.parametrize("address", ["https://mirror.example.com", "http://127.0.0.1:8080", "http://[::1]:1", None])
def test_an_address_that_a_token_may_be_sent_to(address: str | None) -> None:
    assert resolve_endpoint(address, "hf_secret") == (address or ENDPOINT)


def test_a_token_is_not_sent_without_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://mirror.example.com"
    with pytest.raises(StagingError, match="would get the token unencrypted"):
        resolve_endpoint(address, "hf_secret")
    # Files are compared with the hashes of the hub; without a token there is nothing to lose.
    assert resolve_endpoint(address) == address
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(StagingError, match="would get the token unencrypted"):
        resolve_endpoint(None, "hf_secret")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("https://ann:geheim@host", "has a user or a password. Remove them"),
        ("https://token@host", "has a user or a password. Remove them"),
        *((text, "is not an address") for text in ("ftp://host", "host", "https://", "https://a b", "file:///etc")),
        *((text, "is not an address") for text in ("https://[::1", "https://host:port", "https://a\x1bb")),
        *((text, "is not an address") for text in ("https://host?x=1", "https://host#x", "https://host?")),
    ],
)
def test_what_is_no_address_of_a_hub(address: str, why: str) -> None:
    with pytest.raises(StagingError) as refused:
        resolve_endpoint(address)
    assert why in str(refused.value)
    assert "geheim" not in str(refused.value)
