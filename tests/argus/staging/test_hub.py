"""Downloads and answers of the hub, with the real library against a hub on this machine, see tests/hub.py."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Mapping

import huggingface_hub
import huggingface_hub.constants
import pytest
from hub import model
from staging_models import FIRST, NAME, SECOND, STEP, Place, child, files, names
from staging_store import until

from argus.staging import hub as staging_hub
from argus.staging.hub import ENDPOINT, resolve_endpoint
from argus.staging.manifest import Status
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


def test_without_a_token_none_of_the_node_is_used(place: Place) -> None:
    place.stage()
    assert {each.token for each in place.hub.asked} == {None}
    assert place.hub.token not in repr(place.source(token=place.hub.token))
    assert staging_hub.without_token("hf_secret at https://host/x", "hf_secret\n") == "… at https://host/x"


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "a/../../b", ""])
def test_what_cannot_be_verified_is_refused(place: Place, name: str) -> None:
    if name:
        place.hub.add(NAME, {**model(), name: b""})
    else:
        place.hub.tells_hashes = False
    assert "so its content cannot be verified" in place.refused()


@pytest.mark.parametrize(
    ("how", "token", "expected"),
    [
        ({"private": True}, None, "Correct its name; if it is private, set a token"),
        ({"private": True}, "hf_wrong", "401"),
        ({"gated": True}, None, "Accept its license on {url}/" + NAME),
    ],
)
def test_missing_access_is_reported_with_what_to_do(
    place: Place, how: Mapping[str, bool], token: str | None, expected: str
) -> None:
    place.hub.echo = str(token)
    place.hub.add(NAME, model(), **how)
    said = place.refused(token=token)
    assert expected.format(url=place.hub.url) in said
    assert token is None or token not in said
    assert not place.target.parent.exists() or list(place.target.parent.iterdir()) == []
    place.hub.echo = ""
    place.forget()
    assert place.stage(token=place.hub.token).status == Status.STAGED
    # Large files are redirected to another host.
    assert {each.token for each in place.hub.asked if "/cdn/" in each.path} == {None}
    assert {each.token for each in place.hub.asked if "/cdn/" not in each.path} == {place.hub.token}
    text = "".join(path.read_text(errors="replace") for path in place.root.rglob("*") if path.is_file())
    assert place.hub.token not in text


def test_a_hub_that_does_not_serve_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for revision in ("v9", "0" * 40):
        assert "Give a branch, a tag, or a commit" in place.refused(revision=revision)
    place.hub.fail("/api/models", 100, status=503)
    place.hub.echo = "for hf_right"
    said = place.refused(token=place.hub.token)
    assert "503" in said and "run it again" in said and place.hub.token not in said
    monkeypatch.setattr(staging_hub, "ANSWER_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"{NAME} on {url}: cannot be downloaded: ConnectionRefusedError" in place.refused(endpoint=f"{url}/")
        silent.listen()
        assert "cannot be downloaded: TimeoutError" in place.refused(endpoint=url)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "huggingface_hub: cannot be imported" in place.refused()


def test_a_full_disk_is_not_reported_as_an_error_of_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    assert "name: cannot be staged: [Errno 28] No space left" in place.refused()


# --- Its address ------------------------------------------------------------------------------------------------------

PLAIN = "http://mirror.example.com"


@pytest.mark.parametrize(
    ("address", "token", "why"),
    [
        *(
            (address, "hf_x", "")
            for address in ("https://mirror.example.com", "http://127.0.0.1:8080", "http://[::1]:1")
        ),
        (None, "hf_x", ""),
        # Files are compared with the hashes of the hub; without a token there is nothing to lose.
        (PLAIN, None, ""),
        (PLAIN, "hf_x", "would get the token unencrypted"),
        ("https://ann:geheim@host", None, "has a user or a password"),
        ("https://token@host", None, "has a user or a password"),
        *((text, None, "is not an address") for text in ("ftp://host", "host", "https://", "https://a b")),
        *((text, None, "is not an address") for text in ("https://[::1", "https://host:port", "https://a\x1bb")),
        *((text, None, "is not an address") for text in ("https://host?x=1", "https://host#x", "https://host?")),
    ],
)
def test_the_address_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, address: str | None, token: str | None, why: str
) -> None:
    for variable, given in ((None, address), (address, None)):
        if variable is not None:
            monkeypatch.setenv("HF_ENDPOINT", variable + "/")
        if not why:
            assert resolve_endpoint(given, token) == (address or ENDPOINT)
            continue
        with pytest.raises(StagingError) as refused:
            resolve_endpoint(given, token)
        assert why in str(refused.value) and "geheim" not in str(refused.value)


# --- Downloads into its cache -----------------------------------------------------------------------------------------


def test_others_share_the_cache(place: Place) -> None:
    place.stage()
    # As verl requests a reward model that a job names by its name on the hub.
    found = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=place.cache.parent)
    assert found == str(place.cache / "snapshots" / place.commit / "config.json")
    (place.cache / "snapshots" / place.commit / "pytorch_model.bin").write_text("of another")
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_a_broken_or_stalled_download_is_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    place.hub.fail(FIRST, drop_after=3 * STEP + 5)
    place.hub.fail(SECOND, stall_after=10)
    # A list of the files, which the library would request without a timeout.
    place.hub.fail("/tree/", 100, silent=True)
    place.stage()
    first, second = place.hub.gets(FIRST)
    assert (first.range, second.range) == (None, f"bytes={3 * STEP}-")
    assert (second.status, second.sent) == (206, len(model()[FIRST]) - 3 * STEP)
    assert len(place.hub.gets(SECOND)) == 2


@pytest.mark.parametrize("name", [FIRST, "config.json"])
def test_content_with_another_hash_is_rejected(place: Place, name: str) -> None:
    content = bytearray(model()[name])
    content[-1] ^= 1
    place.hub.wrong[f"{NAME}/{name}"] = bytes(content)
    assert f"{NAME} on {place.hub.url}: sent content that does not match its size or hash: {name}." in place.refused()
    assert len(place.hub.gets(name)) == 2
    assert list(place.target.parent.iterdir()) == []
    # What is wrong is missing, what is right has stayed.
    assert files(place.cache / "snapshots" / place.commit) == sorted(set(model()) - {name})
    assert len(files(place.cache / "blobs")) == len(model()) - 1
    place.hub.wrong.clear()
    place.forget()
    assert place.stage().status == Status.STAGED
    assert [each.name for each in place.hub.gets()] == [name]


def test_a_killed_download_continues_with_the_missing_files(place: Place) -> None:
    place.hub.fail(FIRST, stall_after=2 * STEP + 10)
    with child(place) as killed:
        rest = {*model()} - {FIRST}
        until(lambda: set(files(place.cache / "snapshots")) == {f"{place.commit}/{name}" for name in rest})
        until(lambda: [path.stat().st_size for path in place.cache.glob("blobs/*.incomplete")] == [2 * STEP])
        killed.kill()
    assert not place.target.exists()
    place.hub.go_on.set()
    until(lambda: place.hub.gets(FIRST))
    place.forget()
    assert place.stage().status == Status.STAGED
    assert [each.name for each in place.hub.gets()] == [FIRST]
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    assert len(files(place.cache / "blobs")) == len(model())
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_two_at_once_download_once(place: Place) -> None:
    place.hub.rate = 400_000
    with child(place, "other") as other:
        until(lambda: place.hub.asked)
        assert place.stage().status == Status.STAGED
        assert other.communicate()[0].strip() == Status.STAGED
    assert [len(place.hub.gets(name)) for name in (FIRST, SECOND, "config.json")] == [1, 1, 1]
