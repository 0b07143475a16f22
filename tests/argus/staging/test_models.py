"""Models from directories and the hub: the real library against a hub on this machine, see tests/hub.py."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
from hub import model, safetensors
from staging_models import FIRST, NAME, SECOND, STEP, Place, child, damage, files, names, source_of, stage_copy, without
from staging_store import manifest_json, stage, until

from argus.checks.model import ModelRef, read_config
from argus.staging import files as staging_files
from argus.staging import hub as staging_hub
from argus.staging import models
from argus.staging.hub import DEFAULT_ENDPOINT, resolve_endpoint
from argus.staging.manifest import MANIFEST, StageResult, Status
from argus.staging.models import build_request, exclusion_patterns, remove_model
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


def test_a_model_is_a_link_into_the_hubs_cache_with_a_manifest_beside_it(place: Place) -> None:
    assert place.stage() == StageResult("model", "name", str(place.target), Status.STAGED)
    assert str(place.target.readlink()) == f"../../hf/hub/models--org--Name-1.5B/snapshots/{place.commit}"
    assert {name: (place.target / name).read_bytes() for name in files(place.target)} == model()
    said = manifest_json(place.target)
    source = {"source": NAME, "revision": "main", "commit": place.commit, "endpoint": place.hub.url}
    assert {"kind": "model", "name": "name", **source}.items() <= said.items()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in model().items()}
    assert {name: file["sha256"] for name, file in said["files"].items()} == hashes
    # No temporary files are left, and an existing model causes no request.
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    place.forget()
    for how in ({}, {"full": True}, {"check": True}, {"repair": True}):
        assert place.stage(how=how).status == Status.EXISTS
    assert place.hub.requests == []


def test_a_branch_stays_where_it_was_when_it_was_first_staged(place: Place) -> None:
    place.stage()
    moved = place.hub.add(NAME, {**model(), "README.md": b"# A better one\n"})
    assert place.stage().status == place.stage(revision=place.commit).status == Status.EXISTS
    for revision in ("v2", moved):
        for check in (False, True):
            said = place.refused(revision=revision, how={"check": check, "repair": True})
            assert f"contains revision main ({place.commit}) of {NAME}, not {revision}." in said
    for name, revision in (("newer", "main"), ("by-commit", moved)):
        assert place.stage(name, revision=revision).status == Status.STAGED
        assert manifest_json(place.target.with_name(name))["commit"] == moved


def test_names_have_their_own_manifests_and_one_copy(place: Place) -> None:
    more = {"pytorch_model.bin": b"more", "training/args.json": b"{}", MANIFEST: b"{}"}
    # Without weights that jobs read, no format is left out; these cannot be read without the others.
    assert not exclusion_patterns(None, ["pytorch_model.bin", "adapter.safetensors"])
    place.hub.add(NAME, {**model(), **more}, "v1")
    place.stage(revision="v1")
    place.forget()
    some = {"revision": "v1", "exclude": ["README.md", "training/"]}
    for name, exclude in (("without", some["exclude"]), ("all", [])):
        assert place.stage(name, revision="v1", exclude=exclude).status == Status.STAGED
    assert [request.name for request in place.hub.gets()] == ["pytorch_model.bin"]
    everything = {
        name: set(manifest_json(place.target.with_name(name))["files"]) for name in ("name", "without", "all")
    }
    assert everything["name"] == {*model(), MANIFEST, "training/args.json"}
    assert everything["without"] == {*model(), *more} - {"README.md", "training/args.json"}
    assert everything["all"] == {*model(), *more}
    assert (place.target / FIRST).samefile(place.target.with_name("without") / FIRST)
    assert place.stage("without", **some).status == place.stage("without", revision="v1").status == Status.EXISTS
    assert "exclude does not match" in place.refused(name="without", revision="v1", exclude=["*.md"])


def test_too_little_space_is_seen_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, free))
    size = sum(map(len, model().values()))
    free = size - 1
    assert "513 KiB are needed" in place.refused()
    assert not place.hub.gets()
    free = size
    place.stage()
    # What is in the cache already needs no room.
    free = 0
    assert place.stage("other").status == Status.STAGED


def test_a_damaged_model_is_repaired_from_its_commit(place: Place) -> None:
    place.hub.add(NAME, {**model(), "pytorch_model.bin": b"as well"})
    place.stage(exclude=["README.md"])
    before = manifest_json(place.target)
    place.hub.add(NAME, {**model(), "config.json": b"{}"})
    damage(place.blob(FIRST))
    (place.target / "config.json").unlink()
    (place.target / "tokenizer.json").unlink()
    (place.target / "tokenizer.json").write_text("{}")
    place.forget()
    said = place.refused()
    assert f"no longer fits its manifest: config.json is missing, {FIRST} has other content, tokenizer.json has" in said
    assert place.hub.requests == []
    assert place.stage(how={"repair": True, "check": True}).status == Status.REPAIRED
    repaired = place.stage(how={"repair": True})
    assert (repaired.status, len(repaired.notes)) == (Status.REPAIRED, 3)
    # The content of the other files is still in the cache.
    assert [request.name for request in place.hub.gets()] == [FIRST]
    assert manifest_json(place.target) == before
    place.forget()
    assert place.stage().status == place.stage(how={"full": True}).status == Status.EXISTS
    # A file with another modification time than in the manifest would be read again every time.
    assert place.blob(FIRST).stat().st_mtime_ns == before["files"][FIRST]["mtime_ns"]
    assert (place.target / "tokenizer.json").is_symlink() and place.hub.requests == []


def test_a_changed_link_is_restored_and_a_missing_one_made(place: Place) -> None:
    place.stage()
    right = place.target.readlink()
    newer = place.hub.add(NAME, {**model(), "README.md": b"# Newer\n"})
    place.stage("newer", revision=newer)
    place.target.unlink()
    place.target.symlink_to(place.target.with_name("newer").readlink())
    assert "README.md has" in place.refused()
    assert place.stage(how={"repair": True}).status == Status.REPAIRED
    assert place.target.readlink() == right
    assert place.stage("newer", revision=newer, how={"full": True}).status == Status.EXISTS
    # A kill between the two leaves this state.
    place.target.unlink()
    assert remove_model(place.root, "name").status == Status.ABSENT
    assert place.stage(revision=place.commit).status == Status.STAGED
    assert names(place.target.parent) == [".name.manifest.json", ".newer.manifest.json", "name", "newer"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({**model(), SECOND: model()[SECOND][:-4]}, f"{SECOND} has 262224 bytes, but its header declares 262228"),
        (without("config.json", "tokenizer.json"), "config.json does not exist; it has no tok"),
    ],
)
def test_an_incomplete_model_is_not_staged(place: Place, content: Mapping[str, bytes], expected: str) -> None:
    place.hub.add(NAME, content)
    said = place.refused()
    assert said.startswith(f"{place.target}: would not be a complete model: ") and expected in said
    assert list(place.target.parent.iterdir()) == []


def test_the_hubs_own_cache_can_be_given_as_a_directory(place: Place) -> None:
    place.stage()
    place.forget()
    staged = Path(stage(build_request(place.root, "copy", source_of(str(place.cache), place.root))).path)
    assert not any(path.is_symlink() for path in staged.iterdir())
    assert manifest_json(staged)["source"] == str(place.cache / "snapshots" / place.commit)
    assert place.hub.requests == []
    (place.cache / "snapshots" / ("0" * 40)).mkdir()
    with pytest.raises(StagingError, match="2 commits"):
        source_of(str(place.cache), place.root)
    _config, (finding,) = read_config(ModelRef(place.cache, "model", "model"))
    assert f"give {place.cache}/snapshots/{place.commit} or " in finding.remedy


def test_a_directory_is_compared_by_names_and_sizes_as_long_as_it_is_there(root: Path, directory: Path) -> None:
    for name in (MANIFEST, "pytorch_model.bin"):
        (directory / name).write_text("{}")
    # What the hub's library keeps about its downloads.
    (directory / ".cache" / "gone").symlink_to("/nowhere")
    assert not (Path(stage_copy(root, directory).path) / "pytorch_model.bin").exists()
    with pytest.raises(StagingError, match=r"pytorch_model\.bin is new"):
        stage_copy(root, directory, exclude=[])
    (directory / "more.json").write_text("{}")
    (directory / "README.md").write_text("longer than before")
    (directory / "generation_config.json").unlink()
    problems = r"README.md has another size, generation_config.json is missing, more.json is new"
    with pytest.raises(StagingError, match=problems):
        stage_copy(root, directory)
    (directory / FIRST).unlink()
    (directory / FIRST).symlink_to("/nowhere")
    with pytest.raises(StagingError, match="broken link"):
        stage_copy(root, directory)
    shutil.rmtree(directory)
    assert stage_copy(root, directory).status == Status.EXISTS
    with pytest.raises(StagingError, match=r"contains .*/mine, not /gone, which does not exist"):
        stage_copy(root, Path("/gone"))


def test_wrong_sources_and_names(root: Path) -> None:
    for text in ("gpt2", "./here", "https://huggingface.co/org/name", "org/name/file", ""):
        with pytest.raises(StagingError, match="is not a source of models"):
            source_of(text, root)
    for name in ("../x", ".hidden", "a/b"):
        for work in (lambda it: build_request(root, it, models.TinySource()), lambda it: remove_model(root, it)):
            with pytest.raises(StagingError, match="is not allowed"):
                work(name)


def test_an_unused_model_is_removed_from_the_cache_unless_another_name_has_it(place: Place) -> None:
    place.stage()
    assert remove_model(place.root, "name", check=True).status == Status.REMOVED
    assert place.stage("other").status == place.stage().status.STAGED
    by_hand = place.target.with_name("by-hand")
    by_hand.symlink_to(os.path.relpath(place.cache / "snapshots" / place.commit, by_hand.parent))
    assert remove_model(place.root, "name").status == Status.REMOVED
    assert place.stage("other", how={"full": True}).status == Status.EXISTS
    remove_model(place.root, "other")
    assert (by_hand / FIRST).read_bytes() == model()[FIRST]
    by_hand.unlink()
    place.stage()
    place.hub.add(NAME, {**model(), "README.md": b"# Another\n", FIRST: safetensors(64 * 1024, 7)})
    place.stage("newer")
    # Files of another revision stay.
    blobs = len(files(place.cache / "blobs"))
    remove_model(place.root, "name")
    assert len(files(place.cache / "blobs")) == blobs - 2
    assert place.stage("newer", how={"full": True}).status == Status.EXISTS
    assert not (place.cache / "snapshots" / place.commit).exists()
    remove_model(place.root, "newer")
    assert list(place.target.parent.iterdir()) == [] and not place.cache.exists()
    assert remove_model(place.root, "name").status == Status.ABSENT


@pytest.mark.parametrize("error", [None, errno.EXDEV, "at once"])
def test_a_directory_is_copied(
    root: Path, directory: Path, error: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file system that cannot do it between two files, and one that reports that nothing is left.
    def copy(*arguments: object) -> int:
        if isinstance(error, int):
            raise OSError(error, os.strerror(error))
        return 0

    if error is not None:
        monkeypatch.setattr(os, "copy_file_range", copy)
    target = Path(stage_copy(root, directory).path)
    said = manifest_json(target)
    assert (said["source"], files(target)) == (str(directory), sorted([*model(), MANIFEST]))
    assert {name: (target / name).read_bytes() for name in model()} == model()
    assert not any(path.is_symlink() for path in target.iterdir())
    assert stage_copy(root, directory, full=True).status == Status.EXISTS


def test_a_directory_that_changes_meanwhile_is_refused(
    root: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path, count: Callable[[int], Any]) -> None:
        shutil.copyfile(source, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(staging_files, "copy_file", copy)
    with pytest.raises(StagingError, match="changed while it was copied"):
        stage_copy(root, directory)
    assert list((root / "common/models").iterdir()) == []


def test_without_a_token_none_of_the_node_is_used(place: Place) -> None:
    place.stage()
    assert {request.token for request in place.hub.requests} == {None}
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
    assert {request.token for request in place.hub.requests if "/cdn/" in request.path} == {None}
    assert {request.token for request in place.hub.requests if "/cdn/" not in request.path} == {place.hub.token}
    text = "".join(path.read_text(errors="replace") for path in place.root.rglob("*") if path.is_file())
    assert place.hub.token not in text


def test_a_hub_that_does_not_serve_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for revision in ("v9", "0" * 40):
        assert "Give a branch, a tag, or a commit" in place.refused(revision=revision)
    place.hub.fail("/api/models", 100, status=503)
    place.hub.echo = "for hf_right"
    said = place.refused(token=place.hub.token)
    assert "503" in said and "run it again" in said and place.hub.token not in said
    monkeypatch.setattr(staging_hub, "REQUEST_TIMEOUT_SECONDS", 0.2)
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
            for address in (None, "https://mirror.example.com", "http://127.0.0.1:1", "http://[::1]:1")
        ),
        # Files are compared with the hashes of the hub; without a token there is nothing to lose.
        (PLAIN, None, ""),
        (PLAIN, "hf_x", "would get the token unencrypted"),
        ("https://ann:geheim@host", None, "has a user or a password"),
        ("https://token@host", None, "has a user or a password"),
        *((text, None, "is not an address") for text in ("ftp://host", "host", "https://", "https://a b")),
        *((text, None, "is not an address") for text in ("https://[::1", "https://host:port", "https://a\x1bb")),
        *((text, None, "is not an address") for text in ("https://host#x", "https://host?")),
    ],
)
def test_the_address_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, address: str | None, token: str | None, why: str
) -> None:
    for variable, endpoint in ((None, address), (address, None)):
        if variable is not None:
            monkeypatch.setenv("HF_ENDPOINT", variable + "/")
        if not why:
            assert resolve_endpoint(endpoint, token) == (address or DEFAULT_ENDPOINT)
            continue
        with pytest.raises(StagingError) as refused:
            resolve_endpoint(endpoint, token)
        assert why in str(refused.value) and "geheim" not in str(refused.value)


# --- Downloads into its cache -----------------------------------------------------------------------------------------


def test_a_broken_or_stalled_download_is_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
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
    place.hub.corrupted[f"{NAME}/{name}"] = bytes(content)
    assert f"{NAME} on {place.hub.url}: sent content that does not match its size or hash: {name}." in place.refused()
    assert len(place.hub.gets(name)) == 2
    assert list(place.target.parent.iterdir()) == []
    # The rejected file is missing, and the others have stayed.
    assert files(place.cache / "snapshots" / place.commit) == sorted(set(model()) - {name})
    assert len(files(place.cache / "blobs")) == len(model()) - 1
    place.hub.corrupted.clear()
    place.forget()
    assert place.stage().status == Status.STAGED
    assert [request.name for request in place.hub.gets()] == [name]


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
    assert [request.name for request in place.hub.gets()] == [FIRST]
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    assert len(files(place.cache / "blobs")) == len(model())
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_two_at_once_download_once(place: Place) -> None:
    place.hub.rate = 400_000
    with child(place, "other") as other:
        until(lambda: place.hub.requests)
        assert place.stage().status == Status.STAGED
        assert other.communicate()[0].strip() == Status.STAGED
    assert [len(place.hub.gets(name)) for name in (FIRST, SECOND, "config.json")] == [1, 1, 1]
