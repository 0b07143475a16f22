"""Answers of the hub, with the real library against a hub on this machine, see tests/hub.py."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping

import pytest
from hub import model
from staging_models import FIRST, NAME, SECOND, Place

from argus.staging import hub as staging_hub
from argus.staging.hub import without_token
from argus.staging.manifest import Status

pytestmark = pytest.mark.usefixtures("environment")


def test_large_files_are_redirected_to_a_host_that_does_not_see_the_token(place: Place) -> None:
    place.hub.add(NAME, model(), private=True)
    place.stage(token=place.hub.token)
    redirected = [each for each in place.hub.gets() if each.path.startswith("/cdn/")]
    assert sorted(each.name for each in redirected) == [FIRST, SECOND]
    assert {each.token for each in redirected} == {None}
    assert {each.token for each in place.hub.asked if "/cdn/" not in each.path} == {place.hub.token}


def test_without_a_token_none_of_the_node_is_used(place: Place) -> None:
    place.stage()
    assert {each.token for each in place.hub.asked} == {None}


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "a/../../b"])
def test_file_names_that_leave_the_directory_are_rejected(place: Place, name: str) -> None:
    place.hub.add(NAME, {**model(), name: b""})
    assert "does not report size and hash" in place.refused()


def test_a_mirror_that_tells_no_hashes_is_refused(place: Place) -> None:
    place.hub.tells_hashes = False
    assert "so its content cannot be verified. Set another endpoint" in place.refused()


def test_a_hub_that_is_out_of_order_is_reported_without_the_token(place: Place) -> None:
    place.hub.fail("/api/models", 100, status=503)
    place.hub.echo = "for hf_right"
    said = place.refused(token=place.hub.token)
    assert "503" in said and "run it again" in said and place.hub.token not in said


@pytest.mark.parametrize(
    ("how", "token", "expected"),
    [
        ({"private": True}, None, "Correct its name; if it is private, set a token"),
        ({"private": True}, "hf_wrong", "401"),
        ({}, "hf_wrong", "401"),
        ({"gated": True}, None, "Accept its license on {url}/" + NAME),
        ({"gated": True}, "hf_wrong", "401"),
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
    text = "".join(path.read_text(errors="replace") for path in place.root.rglob("*") if path.is_file())
    assert place.hub.token not in text


def test_a_token_is_in_no_text_of_a_source(place: Place) -> None:
    assert place.hub.token not in repr(place.source(token=place.hub.token))


def test_the_token_is_removed_from_texts_of_others() -> None:
    assert without_token("hf_secret at https://host/x", "hf_secret\n") == "… at https://host/x"
    assert without_token("nothing", None) == "nothing"


def test_an_unknown_revision_is_named(place: Place) -> None:
    for revision in ("v9", "0" * 40):
        assert "Give a branch, a tag, or a commit" in place.refused(revision=revision)


def test_a_hub_that_cannot_be_reached_is_named(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = place.refused(endpoint=f"http://127.0.0.1:{port}/")
    assert f"{NAME} on http://127.0.0.1:{port}: cannot be downloaded: ConnectionRefusedError" in said
    assert "staging_hf_endpoint" in said


def test_a_hub_that_does_not_answer_causes_a_timeout(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_hub, "ANSWER_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = place.refused(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "cannot be downloaded: TimeoutError: timed out" in said


def test_the_environment_names_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", place.hub.url + "/")
    assert place.stage(endpoint=None).status == Status.STAGED


def test_a_library_that_is_missing_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "huggingface_hub: cannot be imported" in place.refused()
