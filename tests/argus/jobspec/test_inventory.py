from __future__ import annotations

from typing import Any

import pytest
from jobs import findings_of, jobspec

from argus.jobspec.spec_checks import inventory_findings

INVENTORY = {"shared_root": "/mnt/", "ray": {"address": "http://10.0.0.5:8265"}}


def refused(defaults: dict[str, Any], **changes: Any) -> list[str]:
    return [finding.key for finding in inventory_findings(jobspec(**changes), defaults)]


# --- The address ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:8265", "http://127.255.0.1:1", "https://[::1]:8265", "http://LOCALHOST"),
        *("http://127.0.0.1:8265/", "http://10.0.0.5:8265"),
    ],
)
def test_the_token_goes_to_the_head_itself_or_to_the_address_of_the_inventory(address: str) -> None:
    assert refused(INVENTORY, shared_root="/mnt", ray={"address": address}) == []


@pytest.mark.parametrize(
    "address",
    [
        *("http://evil.example:8265", "http://10.0.0.5:8266", "https://10.0.0.5:8265", "http://10.0.0.5"),
        *("http://127.0.0.1.evil.example", "http://localhost.evil.example", "http://0.0.0.0:8265"),
        *("http://2130706433", "http://127.1", "http://0177.0.0.1", "http://localhost.", "http://[::ffff:10.0.0.6]:80"),
    ],
)
def test_the_token_goes_nowhere_else(address: str) -> None:
    assert refused(INVENTORY, shared_root="/mnt", ray={"address": address}) == ["ray.address"]


@pytest.mark.parametrize(
    "address",
    [
        *("", "127.0.0.1:8265", "file:///etc/passwd", "ray://127.0.0.1:10001", "HTTP://127.0.0.1", "http://"),
        *("http://127.0.0.1@evil.example", "http://user:pw@127.0.0.1:8265", "http://127.0.0.1:8265@evil.example"),
        *("http://127.0.0.1:8265/path", "http://127.0.0.1:8265/?a=b", "http://127.0.0.1#@evil.example"),
        *("http://127.0.0.1:8265\\@evil.example", "http://127.0.0.1\t.evil.example", "http://127.0.0.1\n"),
        *("http://127.0.0.1:0", "http://127.0.0.1:65536", "http://127.0.0.1:\uff18\uff12", "http://[::1%25eth0]"),
        *("http://%31%32%37.0.0.1", "http://\u217cocalhost", "http://127.0.0.1, http://evil.example"),
    ],
)
def test_what_is_no_address(address: str) -> None:
    assert [finding.key for finding in findings_of({"ray": {"address": address}})] == ["ray.address"]


def test_without_an_address_of_the_inventory_only_the_head_itself_is_left() -> None:
    for defaults in ({}, {"ray": None}, {"ray": {"address": None}}, {"ray": "x"}):
        assert refused(defaults) == []
        assert refused(defaults, ray={"address": "http://head:8265"}) == ["ray.address"]


# --- The shared root --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["/mnt", "/mnt/", "//mnt", "/mnt//", "///mnt///"])
def test_the_shared_root_of_the_inventory(root: str) -> None:
    assert refused(INVENTORY, shared_root=root, model="/mnt/m") == []
    assert jobspec(shared_root=root).inputs.model == "/mnt/common/models/tiny-qwen2"


@pytest.mark.parametrize("root", ["/", "/private", "/mnt/sub", "/mnt2", "/MNT", "/etc", "/mnt/."])
def test_another_shared_root(root: str) -> None:
    assert refused(INVENTORY, shared_root=root) == ["shared_root"]
