"""The real library of the hub against a hub on this machine, see tests/hub.py."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import pytest
from ansible_collections.argus.verl.plugins.module_utils.staging import copying, models, tiny
from ansible_collections.argus.verl.plugins.module_utils.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.staging.hub import files as hub_files
from ansible_collections.argus.verl.plugins.module_utils.staging.hub import library, retry
from ansible_collections.argus.verl.plugins.module_utils.staging.hub.cache import fetch, forget, missing_bytes
from ansible_collections.argus.verl.plugins.module_utils.staging.hub.repository import Repository
from ansible_collections.argus.verl.plugins.module_utils.staging.lock import Progress, read_progress
from ansible_collections.argus.verl.plugins.module_utils.staging.manifest import MANIFEST
from ansible_collections.argus.verl.plugins.module_utils.staging.models import (
    default_exclude,
    remove_model,
    request,
    source_of,
)
from ansible_collections.argus.verl.plugins.module_utils.staging.result import Staged, Status
from hub import Hub, model, safetensors
from staging_tools import manifest_json, problems, stage

NAME = "org/Name-1.5B"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
# What the library reads and writes at a time; 10 MiB are more than a test wants.
STEP = 64 * 1024
# A process that stages the model, as the module does.
CHILD = f"""
import sys
from pathlib import Path
import huggingface_hub.constants
from ansible_collections.argus.verl.plugins.module_utils.staging.models import request, source_of
from ansible_collections.argus.verl.plugins.module_utils.staging.store import stage

huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = {STEP}
root, name, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
print(stage(request(root, name, source_of("{NAME}", root, endpoint=url))).status)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of who runs the tests; what the library finds on a node, it must not use."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    monkeypatch.setattr(retry, "QUESTION_WAITS", (0.01,))
    monkeypatch.setattr(retry, "DOWNLOAD_WAITS", (0.01, 0.01))
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", STEP)


class Place(NamedTuple):
    """A shared root, and a hub with one model."""

    hub: Hub
    root: Path
    commit: str

    @property
    def target(self) -> Path:
        return self.root / "common/models/name"

    @property
    def cache(self) -> Path:
        return self.root / "hf/hub/models--org--Name-1.5B"

    def source(self, **options: Any) -> models.Source:
        return source_of(NAME, self.root, **{"endpoint": self.hub.url, **options})

    def stage(self, name: str = "name", how: Mapping[str, bool] | None = None, **options: Any) -> Staged:
        return stage(request(self.root, name, self.source(**options)), **(how or {}))

    def refused(self, **options: Any) -> str:
        with pytest.raises(StagingError) as error:
            self.stage(**options)
        return str(error.value)

    def blob(self, name: str) -> Path:
        return (self.target / name).resolve()

    def forget(self) -> None:
        """As if nobody had asked for anything."""
        self.hub.asked.clear()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Place:
    root = tmp_path / "root"
    root.mkdir()
    return Place(hub, root, hub.add(NAME, model()))


def manifest(path: Path) -> dict[str, Any]:
    return manifest_json(path)


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def damage(path: Path) -> None:
    """As a disk does that forgets: the time of change is another one too."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def child(place: Place, name: str = "name") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, place.root, name, place.hub.url], text=True, stdout=-1)


# --- From the hub ----------------------------------------------------------------------------------------------------


def test_a_model_is_a_link_into_the_hubs_cache_with_a_manifest_beside_it(place: Place) -> None:
    staged = place.stage()
    assert staged == Staged("model", "name", str(place.target), Status.STAGED)
    assert str(place.target.readlink()) == f"../../hf/hub/models--org--Name-1.5B/snapshots/{place.commit}"
    assert files(place.target) == sorted(model())
    for name, content in model().items():
        assert (place.target / name).read_bytes() == content
    said = manifest(place.target)
    assert {key: said[key] for key in ("kind", "name", "source", "revision", "commit", "endpoint")} == {
        "kind": "model",
        "name": "name",
        "source": NAME,
        "revision": "main",
        "commit": place.commit,
        "endpoint": place.hub.url,
    }
    assert {name: each["sha256"] for name, each in said["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in model().items()
    }
    # Nothing of the way is left.
    assert names(place.target.parent) == [".name.manifest.json", "name"]


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


def test_a_model_that_exists_asks_nobody(place: Place) -> None:
    place.stage()
    place.forget()
    for how in ({}, {"full": True}, {"check": True}, {"repair": True}, {"defer": True}):
        assert place.stage(how=how).status == Status.EXISTS
    assert place.hub.asked == []


def test_in_check_mode_the_hub_is_asked_whether_it_has_it(place: Place) -> None:
    assert place.stage(how={"check": True}).status == Status.STAGED
    assert [each.path for each in place.hub.asked] == [f"/api/models/{NAME}/revision/main?blobs=true"]
    assert list(place.root.iterdir()) == []


def test_what_takes_long_is_deferred(place: Place) -> None:
    assert place.stage(how={"defer": True}).status == Status.DEFERRED
    assert not place.hub.gets()


def test_the_shared_root_may_be_seen_at_another_path(place: Place) -> None:
    place.stage()
    moved = place.root.rename(place.root.with_name("elsewhere"))
    assert problems(moved / "common/models/name", full=True) == {}


def test_the_library_finds_it_offline_by_its_name(place: Place) -> None:
    """As verl asks for a reward model of which a job gives the name on the hub."""
    place.stage()
    found = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=place.cache.parent)
    assert found == str(place.cache / "snapshots" / place.commit / "config.json")


def test_a_branch_stays_where_it_was_when_it_was_first_staged(place: Place) -> None:
    place.stage()
    moved = place.hub.add(NAME, {**model(), "README.md": b"# A better one\n"})
    assert place.stage().status == Status.EXISTS
    assert place.stage(revision=place.commit).status == Status.EXISTS
    for revision in ("v2", moved):
        for check in (False, True):
            said = place.refused(revision=revision, how={"check": check, "repair": True})
            assert f"contains revision main ({place.commit}) of {NAME}, not {revision}." in said
            assert "choose another name" in said
    assert place.stage("newer").status == Status.STAGED
    assert manifest(place.root / "common/models/newer")["commit"] == moved


@pytest.mark.parametrize("by_commit", [True, False])
def test_a_revision_is_a_tag_or_a_commit(place: Place, by_commit: bool) -> None:
    old = place.hub.add(NAME, {**model(), "README.md": b"# The first\n"}, "v1")
    place.stage(revision=old if by_commit else "v1")
    assert manifest(place.target)["commit"] == old
    assert (place.target / "README.md").read_text() == "# The first\n"


def test_another_repository_has_another_name(place: Place) -> None:
    place.hub.add("org/other", model())
    place.stage()
    with pytest.raises(StagingError, match=f"contains {NAME}, not org/other"):
        stage(request(place.root, "name", source_of("org/other", place.root, endpoint=place.hub.url)))


def test_two_names_have_their_own_manifests_and_one_copy(place: Place) -> None:
    place.stage()
    place.forget()
    place.hub.add(NAME, model(), "v1")
    assert place.stage("other", revision="v1", exclude=["README.md"]).status == Status.STAGED
    assert not place.hub.gets()
    assert place.stage().status == Status.EXISTS
    other = place.target.with_name("other")
    assert [manifest(path)["revision"] for path in (place.target, other)] == ["main", "v1"]
    assert "README.md" in manifest(place.target)["files"]
    assert "README.md" not in manifest(other)["files"]
    assert (place.target / FIRST).samefile(other / FIRST)


def test_what_others_put_into_the_cache_is_not_part_of_the_model(place: Place) -> None:
    place.hub.add(NAME, {**model(), "pytorch_model.bin": b"the same once more"})
    place.stage()
    commit = manifest(place.target)["commit"]
    huggingface_hub.snapshot_download(
        NAME, revision=commit, cache_dir=place.cache.parent, endpoint=place.hub.url, token=False
    )
    assert (place.cache / "snapshots" / commit / "pytorch_model.bin").exists()
    assert place.stage(how={"full": True}).status == Status.EXISTS


# --- Which files -----------------------------------------------------------------------------------------------------


def test_weights_in_other_forms_are_left_out_where_there_are_safetensors() -> None:
    others = ["pytorch_model.bin", "original/consolidated.00.pth", "onnx/model.onnx", "model.gguf", "tf_model.h5"]
    both = [*others, "config.json", "onnx/config.json", "model.safetensors"]

    def taken(names: list[str]) -> list[str]:
        return [name for name in names if not hub_files.matches(name, default_exclude(names))]

    assert taken(both) == ["config.json", "model.safetensors"]
    assert taken(others) == others
    # These cannot be read without the others.
    assert "pytorch_model.bin" in taken(["pytorch_model.bin", "adapter.safetensors"])


def test_files_are_left_out_as_the_user_says(place: Place) -> None:
    more = {"pytorch_model.bin": b"more", "onnx/model.onnx": b"", "training/args.json": b"{}", MANIFEST: b"{}"}
    place.hub.add(NAME, {**model(), **more})
    place.stage()
    place.stage("without", exclude=["README.md", "training/"])
    place.stage("all", exclude=[])
    everything = {name: set(manifest(place.target.with_name(name))["files"]) for name in ("name", "without", "all")}
    assert everything["name"] == {*model(), MANIFEST, "training/args.json"}
    assert everything["without"] == {*model(), *more} - {"README.md", "training/args.json"}
    assert everything["all"] == {*model(), *more}
    assert place.stage("without", exclude=["README.md", "training/"]).status == Status.EXISTS
    assert "exclude does not match" in place.refused(name="without", exclude=["*.md"])
    assert place.stage("without").status == Status.EXISTS


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "a/../../b"])
def test_a_hub_that_names_files_elsewhere_is_not_believed(place: Place, name: str) -> None:
    place.hub.add(NAME, {**model(), name: b""})
    assert "does not report size and hash" in place.refused()


def test_a_mirror_that_tells_no_hashes_is_refused(place: Place) -> None:
    place.hub.tells_hashes = False
    assert "so its content cannot be verified. Set another endpoint" in place.refused()


# --- What goes wrong on the way --------------------------------------------------------------------------------------


def test_a_broken_connection_is_gone_on_with_by_a_range(place: Place) -> None:
    place.hub.fail(FIRST, drop_after=3 * STEP + 5)
    place.stage()
    first, second = place.hub.gets(FIRST)
    assert (first.range, second.range) == (None, f"bytes={3 * STEP}-")
    assert (first.status, second.status) == (200, 206)
    assert second.sent == len(model()[FIRST]) - 3 * STEP


def test_a_line_that_breaks_more_often_than_the_library_has_patience_is_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.file_download, "time", SimpleNamespace(sleep=lambda seconds: None))
    place.hub.fail(FIRST, 7, drop_after=0)
    assert place.stage().status == Status.STAGED
    assert [each.sent for each in place.hub.gets(FIRST)] == [*[0] * 7, len(model()[FIRST])]


def test_a_hub_that_is_out_of_order_now_and_then_is_asked_again(place: Place) -> None:
    place.hub.fail("/api/models", 1, status=503)
    place.hub.fail("/tree/", 1, status=502)
    place.hub.fail("/resolve/", 2, status=503)
    assert place.stage().status == Status.STAGED


def test_a_hub_that_stays_out_of_order_says_so(place: Place) -> None:
    place.hub.fail("/api/models", 100, status=503)
    place.hub.echo = "for hf_right"
    said = place.refused(token=place.hub.token)
    assert f"{NAME} on {place.hub.url}: answered with status 503 (it is out of order for …). Run it again" in said
    assert len(place.hub.asked) == 2


@pytest.mark.parametrize(
    ("how", "token", "expected"),
    [
        ({"private": True}, None, "does not exist or is private. Correct its name; if it is private, set a token"),
        ({"private": True}, "hf_wrong", "does not accept the token (401). Set the token (staging_hf_token)"),
        ({}, "hf_wrong", "does not accept the token (401)"),
        ({"gated": True}, None, "is gated, and access is denied. Accept its license on {url}/" + NAME),
        ({"gated": True}, "hf_wrong", "does not accept the token"),
    ],
)
def test_who_may_not_read_it_is_told_what_to_do(
    place: Place, how: Mapping[str, bool], token: str | None, expected: str
) -> None:
    place.hub.echo = str(token)
    place.hub.add(NAME, model(), **how)
    said = place.refused(token=token)
    assert expected.format(url=place.hub.url) in said
    assert "hf_" not in said.replace("staging_hf_token", "")
    assert not place.target.parent.exists() or list(place.target.parent.iterdir()) == []
    place.hub.echo = ""
    place.forget()
    assert place.stage(token=place.hub.token).status == Status.STAGED
    text = "".join(path.read_text(errors="replace") for path in place.root.rglob("*") if path.is_file())
    assert place.hub.token not in text


def test_a_token_is_in_no_text_of_a_source(place: Place) -> None:
    assert place.hub.token not in repr(place.source(token=place.hub.token))


@pytest.mark.parametrize(("token", "name"), [(None, "org/nobody"), ("hf_right", "org/nobody")])
def test_an_unknown_repository_is_named(place: Place, token: str | None, name: str) -> None:
    with pytest.raises(StagingError, match=f"{name} on {place.hub.url}: does not exist or is private"):
        stage(request(place.root, "x", source_of(name, place.root, endpoint=place.hub.url, token=token)))


def test_an_unknown_revision_is_named(place: Place) -> None:
    assert "has no revision v9. Give a branch, a tag, or a commit" in place.refused(revision="v9")
    assert "has no revision" in place.refused(revision="0" * 40)


def test_a_hub_that_cannot_be_reached_is_named_without_its_password(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = place.refused(endpoint=f"http://ann:geheim@127.0.0.1:{port}/")
    assert f"{NAME} on http://127.0.0.1:{port}: cannot be downloaded: ConnectionRefusedError" in said
    assert "staging_hf_endpoint, or HF_ENDPOINT on the node), or give a directory as source" in said
    assert "geheim" not in said


def test_a_hub_that_does_not_answer_is_not_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ANSWER_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = place.refused(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "cannot be downloaded: TimeoutError: timed out" in said


def test_the_environment_names_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", place.hub.url + "/")
    assert place.stage(endpoint=None).status == Status.STAGED


def test_an_offline_node_says_why(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "please unset the `HF_HUB_OFFLINE` environment variable" in place.refused()


@pytest.mark.parametrize("name", [FIRST, "config.json"])
def test_content_that_is_not_what_was_promised_never_counts(place: Place, name: str) -> None:
    content = bytearray(model()[name])
    content[-1] ^= 1
    place.hub.wrong[f"{NAME}/{name}"] = bytes(content)
    said = place.refused()
    assert (
        f"{NAME} on {place.hub.url}: sent content that does not match its size or hash: {name}. Run it again later"
        in said
    )
    assert len(place.hub.gets(name)) == 2
    assert list(place.target.parent.iterdir()) == []
    # What is wrong is missing, what is right has stayed.
    assert files(place.cache / "snapshots" / place.commit) == sorted(set(model()) - {name})
    assert len(files(place.cache / "blobs")) == len(model()) - 1
    place.hub.wrong.clear()
    place.forget()
    assert place.stage().status == Status.STAGED
    assert [each.name for each in place.hub.gets()] == [name]


def test_content_of_another_size_never_counts(place: Place) -> None:
    place.hub.wrong[f"{NAME}/{FIRST}"] = model()[FIRST][:-4]
    assert "sent content that does not match its size or hash: OSError: Consistency check failed" in place.refused()
    assert list(place.target.parent.iterdir()) == []


def test_no_room_is_not_the_hubs_fault(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    assert "name: cannot be staged: [Errno 28] No space left" in place.refused()


def test_too_little_space_is_seen_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(path: Path) -> Any:
        return shutil._ntuple_diskusage(10**9, 10**9, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    size = sum(map(len, model().values()))
    free = size - 1
    assert "513 KiB are needed" in place.refused()
    assert not place.hub.gets()
    free = size
    place.stage()
    # What is in the cache already needs no room.
    free = 0
    assert place.stage("other").status == Status.STAGED


def test_who_waits_sees_how_far_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_files, "PROGRESS_SECONDS", 0.02)
    place.hub.fail(FIRST, stall_after=2 * STEP)
    thread = threading.Thread(target=place.stage)
    thread.start()
    total, rest = sum(map(len, model().values())), len(model()[FIRST]) - 2 * STEP
    until(lambda: (report := read_progress(place.target)) is not None and report.done == total - rest)
    report = read_progress(place.target)
    assert report is not None and report.line().startswith(f"downloading {NAME} on {socket.gethostname()}, 384 KiB of ")
    place.hub.go_on.set()
    thread.join()
    assert place.stage().status == Status.EXISTS


# --- Processes that end, and several at once -------------------------------------------------------------------------


def test_a_download_that_was_killed_is_gone_on_with(place: Place) -> None:
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
    with child(place) as again:
        assert again.communicate()[0] == f"{Status.STAGED}\n"
    (only,) = place.hub.gets()
    assert (only.name == FIRST, only.range) == (True, f"bytes={2 * STEP}-")
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    assert len(files(place.cache / "blobs")) == len(model())
    assert place.stage(how={"full": True}).status == Status.EXISTS


@pytest.mark.parametrize("content", ["too long", "wrong"])
def test_what_a_killed_process_left_is_not_believed(place: Place, content: str) -> None:
    right = model()[FIRST]
    blobs = place.cache / "blobs"
    blobs.mkdir(parents=True)
    left = right + b"more" if content == "too long" else bytes(STEP)
    (blobs / f"{hashlib.sha256(right).hexdigest()}.0123abcd.incomplete").write_bytes(left)
    (blobs / f"{hashlib.sha256(right).hexdigest()}.4567abcd.incomplete").write_bytes(b"")
    assert place.stage().status == Status.STAGED
    assert (place.target / FIRST).read_bytes() == right
    assert len(files(blobs)) == len(model())


def test_a_hub_that_has_less_than_a_killed_process_left_is_named(place: Place) -> None:
    right = model()[FIRST]
    left = place.cache / "blobs" / f"{hashlib.sha256(right).hexdigest()}.0123abcd.incomplete"
    left.parent.mkdir(parents=True)
    left.write_bytes(right[: 2 * STEP])
    place.hub.wrong[f"{NAME}/{FIRST}"] = right[:STEP]
    assert "sent content that does not match its size or hash" in place.refused()
    assert not left.exists()
    place.hub.wrong.clear()
    assert place.stage().status == Status.STAGED


def test_what_somebody_is_at_work_on_is_left_to_them(place: Place) -> None:
    from filelock import FileLock

    etag = hashlib.sha256(model()[FIRST]).hexdigest()
    place.hub.add(NAME, model())
    part = place.cache / "blobs" / f"{etag}.0123abcd.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(model()[FIRST][:STEP])
    lock = place.cache.parent / ".locks" / place.cache.name / f"{etag}.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        thread = threading.Thread(target=place.stage)
        thread.start()
        until(lambda: len(place.hub.gets()) == len(model()) - 1)
        time.sleep(0.3)
        assert part.exists()
        assert not place.hub.gets(FIRST)
    thread.join()
    assert place.target.exists()


@pytest.mark.parametrize("other", ["name", "other"])
def test_two_at_once_download_once(place: Place, other: str) -> None:
    place.hub.rate = 400_000
    with child(place) as one, child(place, other) as two:
        said = sorted((one.communicate()[0].strip(), two.communicate()[0].strip()))
    assert said == ([Status.EXISTS, Status.STAGED] if other == "name" else [Status.STAGED, Status.STAGED])
    assert [len(place.hub.gets(name)) for name in (FIRST, SECOND, "config.json")] == [1, 1, 1]
    assert place.stage(other, how={"full": True}).status == Status.EXISTS


# --- What is damaged later -------------------------------------------------------------------------------------------


def test_what_is_damaged_in_the_cache_already_is_fetched_again(place: Place) -> None:
    place.stage("before")
    for name in (FIRST, "config.json"):
        damage((place.root / "common/models/before" / name).resolve())
    place.forget()
    assert place.stage().status == Status.STAGED
    assert len(place.hub.gets()) == 2
    assert (place.target / FIRST).read_bytes() == model()[FIRST]


@pytest.mark.parametrize("moved", [False, True])
def test_a_damaged_model_is_repaired_from_its_commit(place: Place, moved: bool) -> None:
    place.hub.add(NAME, {**model(), "pytorch_model.bin": b"as well"})
    place.stage(exclude=["README.md"])
    before = manifest(place.target)
    if moved:
        place.hub.add(NAME, {**model(), "config.json": b"{}"})
    damage(place.blob(FIRST))
    (place.target / "config.json").unlink()
    (place.target / "tokenizer.json").unlink()
    (place.target / "tokenizer.json").write_text("{}")
    place.forget()
    said = place.refused()
    assert f"no longer fits its manifest: config.json is missing, {FIRST} has other content, tokenizer.json has" in said
    assert "staging_repair=true" in said
    assert place.hub.asked == []
    assert place.stage(how={"repair": True, "check": True}).status == Status.REPAIRED
    repaired = place.stage(how={"repair": True})
    assert repaired.status == Status.REPAIRED
    assert len(repaired.notes) == 3
    assert sorted(each.name for each in place.hub.gets()) == [FIRST, "tokenizer.json"]
    assert manifest(place.target) == before
    place.forget()
    assert place.stage().status == Status.EXISTS
    assert place.stage(how={"full": True}).status == Status.EXISTS
    # Whose time of change is not the manifest's would be read again every time.
    assert place.blob(FIRST).stat().st_mtime_ns == before["files"][FIRST]["mtime_ns"]
    assert (place.target / "tokenizer.json").is_symlink()
    assert place.hub.asked == []


def test_a_link_that_somebody_turned_elsewhere_is_put_back(place: Place) -> None:
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
    assert names(place.target.parent) == [".name.manifest.json", ".newer.manifest.json", "name", "newer"]


def test_a_manifest_without_its_link_is_no_model(place: Place) -> None:
    place.stage()
    # As a kill between the two leaves it.
    place.target.unlink()
    assert remove_model(place.root, "name", lambda target: []).status == Status.ABSENT
    assert place.stage().status == Status.STAGED
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_a_cache_that_somebody_emptied_is_filled_again(place: Place) -> None:
    place.stage()
    shutil.rmtree(place.root / "hf")
    assert f"{FIRST} is missing" in place.refused()
    assert place.stage(how={"repair": True}).status == Status.REPAIRED
    assert place.stage(how={"full": True}).status == Status.EXISTS
    assert problems(place.target) == {}


# --- What is no whole model ------------------------------------------------------------------------------------------


def without(*names: str) -> dict[str, bytes]:
    return {name: content for name, content in model().items() if name not in names}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (without(SECOND), f"1 of 2 shards in it are not there: {SECOND}"),
        ({**model(), SECOND: model()[SECOND][:-4]}, f"{SECOND} has 262224 bytes, its header says 262228: it is cut"),
        ({**model(), SECOND: b"version https://git-lfs.github.com/spec/v1\n"}, "git-lfs pointer"),
        (without("config.json", "tokenizer.json", "tokenizer_config.json"), "config.json is not there; it has no tok"),
        (without(FIRST, SECOND, "model.safetensors.index.json"), "it has no weights"),
        ({"adapter_config.json": b"{}", "README.md": b""}, "it is a LoRA adapter, not a model"),
    ],
)
def test_what_is_no_whole_model_gets_no_name(place: Place, content: Mapping[str, bytes], expected: str) -> None:
    place.hub.add(NAME, content)
    said = place.refused()
    assert f"{place.target}: would not be a complete model: " in said
    assert expected in said
    assert ".staging-" not in said
    assert list(place.target.parent.iterdir()) == []


def test_a_base_model_without_a_chat_template_is_a_model(place: Place) -> None:
    place.hub.add(NAME, {**model(), "tokenizer_config.json": b"{}"})
    assert place.stage().status == Status.STAGED


def test_a_model_in_one_file_is_a_model(place: Place) -> None:
    one = {**without(FIRST, SECOND, "model.safetensors.index.json"), "model.safetensors": safetensors(10)}
    place.hub.add(NAME, one)
    assert place.stage().status == Status.STAGED


# --- Away ------------------------------------------------------------------------------------------------------------


def test_a_model_that_nobody_needs_is_removed_from_the_cache_too(place: Place) -> None:
    place.stage()
    assert remove_model(place.root, "name", lambda target: [], check=True).status == Status.REMOVED
    assert place.stage().status == Status.EXISTS
    assert remove_model(place.root, "name", lambda target: []).status == Status.REMOVED
    assert list(place.target.parent.iterdir()) == []
    assert not place.cache.exists()
    assert remove_model(place.root, "name", lambda target: []).status == Status.ABSENT
    place.forget()
    assert place.stage().status == Status.STAGED
    assert len(place.hub.gets()) == len(model())


def test_what_another_name_needs_stays_in_the_cache(place: Place) -> None:
    place.stage()
    place.stage("other")
    by_hand = place.target.with_name("by-hand")
    by_hand.symlink_to(os.path.relpath(place.cache / "snapshots" / place.commit, by_hand.parent))
    remove_model(place.root, "name", lambda target: [])
    assert place.stage("other", how={"full": True}).status == Status.EXISTS
    remove_model(place.root, "other", lambda target: [])
    assert (by_hand / FIRST).read_bytes() == model()[FIRST]
    by_hand.unlink()
    place.stage()
    remove_model(place.root, "name", lambda target: [])
    assert not place.cache.exists()


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_another_revision_needs_stays_in_the_cache(place: Place, is_broken: bool) -> None:
    place.stage()
    place.hub.add(NAME, {**model(), "README.md": b"# Another\n", FIRST: safetensors(64 * 1024, 7)})
    place.stage("newer")
    if is_broken:
        # The library then says that this is not a repository.
        (place.cache / "snapshots" / place.commit / "config.json").unlink()
        (place.cache / "snapshots" / place.commit / "config.json").symlink_to("nowhere")
    blobs = len(files(place.cache / "blobs"))
    remove_model(place.root, "name", lambda target: [])
    assert len(files(place.cache / "blobs")) == blobs - 2
    assert place.stage("newer", how={"full": True}).status == Status.EXISTS
    assert not (place.cache / "snapshots" / place.commit).exists()


def test_a_model_that_a_job_uses_stays(place: Place) -> None:
    place.stage()
    with pytest.raises(StagingError, match=f"{place.target}: is used by grpo-1"):
        remove_model(place.root, "name", lambda target: ["grpo-1"] if target == place.target else [])
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_nothing_is_taken_from_a_cache_that_is_not_there(tmp_path: Path) -> None:
    forget(tmp_path / "hub", "org/name", "0" * 40)
    assert remove_model(tmp_path, "name", lambda target: []).status == Status.ABSENT


# --- From a directory ------------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model as somebody has it: with what git and tools leave."""
    path = tmp_path / "mine"
    for name, content in {**model(), ".git/HEAD": b"", ".cache/x": b"", "__pycache__/y.pyc": b""}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def of_directory(root: Path, source: Path, exclude: list[str] | None = None, **how: bool) -> Staged:
    return stage(request(root, "mine", source_of(str(source), root, exclude=exclude)), **how)


@pytest.mark.parametrize("error", [None, errno.EXDEV, errno.ENOSYS, "at once"])
def test_a_directory_is_copied(
    root: Path, directory: Path, error: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is not None:
        # A file system that cannot do it between two files, and one that says that nothing is left.
        def copy(*arguments: object) -> int:
            if isinstance(error, int):
                raise OSError(error, os.strerror(error))
            return 0

        monkeypatch.setattr(os, "copy_file_range", copy)
    staged = of_directory(root, directory)
    assert staged.status == Status.STAGED
    target = Path(staged.path)
    assert files(target) == sorted([*model(), MANIFEST])
    for name, content in model().items():
        assert not (target / name).is_symlink()
        assert (target / name).read_bytes() == content
        assert manifest(target)["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest(target)["source"] == str(directory)
    assert of_directory(root, directory, full=True).status == Status.EXISTS


def test_the_hubs_own_cache_can_be_given_as_a_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.stage()
    place.forget()
    staged = of_directory(place.root, place.cache / "snapshots" / place.commit)
    assert not any(path.is_symlink() for path in Path(staged.path).iterdir())
    assert place.hub.asked == []
    assert of_directory(place.root, place.target).status == Status.EXISTS


def test_a_directory_is_compared_by_names_and_sizes_as_long_as_it_is_there(root: Path, directory: Path) -> None:
    of_directory(root, directory)
    (directory / "more.json").write_text("{}")
    (directory / "README.md").write_text("longer than before")
    (directory / "generation_config.json").unlink()
    with pytest.raises(
        StagingError, match=r"README.md has another size, generation_config.json is missing, more.json is new"
    ):
        of_directory(root, directory)
    shutil.rmtree(directory)
    assert of_directory(root, directory).status == Status.EXISTS
    with pytest.raises(StagingError, match=r"contains .*/mine, not /gone, which does not exist"):
        of_directory(root, Path("/gone"))


def test_a_copy_is_repaired_from_its_directory(root: Path, directory: Path) -> None:
    target = Path(of_directory(root, directory).path)
    damage(target / FIRST)
    assert of_directory(root, directory, repair=True).status == Status.REPAIRED
    assert (target / FIRST).read_bytes() == model()[FIRST]


def test_of_a_directory_files_are_left_out_too(root: Path, directory: Path) -> None:
    (directory / "pytorch_model.bin").write_bytes(b"more")
    (directory / MANIFEST).write_text("{}")
    assert not (Path(of_directory(root, directory).path) / "pytorch_model.bin").exists()
    with pytest.raises(StagingError, match=r"pytorch_model\.bin is new"):
        of_directory(root, directory, exclude=[])


def test_a_directory_must_be_a_whole_model(root: Path, directory: Path) -> None:
    (directory / SECOND).unlink()
    with pytest.raises(StagingError, match="1 of 2 shards in it are not there"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []
    (directory / SECOND).symlink_to("/nowhere")
    with pytest.raises(StagingError, match=f"{SECOND}: is a link to a directory, a broken link"):
        of_directory(root, directory)
    with pytest.raises(StagingError, match=r"/nowhere: is not a directory here\. Give a directory that this node sees"):
        of_directory(root, Path("/nowhere"))


def test_a_directory_that_changes_meanwhile_is_refused(
    root: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path, count: Callable[[int], None]) -> None:
        shutil.copyfile(source, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(copying, "copy_file", copy)
    with pytest.raises(StagingError, match="changed while it was copied"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []


# --- Tiny, and what is none of them ----------------------------------------------------------------------------------


def test_a_tiny_model_is_made_on_the_spot(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(target: Path) -> None:
        for name, content in model().items():
            (target / name).write_bytes(content)

    monkeypatch.setattr(tiny, "build_model", build)
    monkeypatch.setattr(tiny, "MODEL_LIBRARIES", ())
    staged = stage(request(root, "tiny", source_of("tiny", root)), defer=True)
    assert staged.status == Status.STAGED
    assert manifest(Path(staged.path))["source"] == "tiny"
    assert stage(request(root, "tiny", source_of("tiny", root))).status == Status.EXISTS
    with pytest.raises(StagingError, match="contains tiny, not org/name"):
        stage(request(root, "tiny", source_of("org/name", root)))


def test_a_tiny_model_needs_its_libraries(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "MODEL_LIBRARIES", ("json", "no_such_library"))
    with pytest.raises(StagingError, match=r"no_such_library: cannot be imported\. Run this inside a node"):
        stage(request(root, "tiny", source_of("tiny", root)))


@pytest.mark.parametrize("text", ["gpt2", "./here", "https://huggingface.co/org/name", "org/name/file", "", "-/x"])
def test_what_is_no_source_is_refused(root: Path, text: str) -> None:
    with pytest.raises(StagingError, match=r"is not a source of models\. Give a repository of the hub"):
        source_of(text, root)


def test_an_endpoint_is_an_address(root: Path) -> None:
    with pytest.raises(StagingError, match=r'endpoint: "hf-mirror\.example\.com" is not an address'):
        source_of("org/name", root, endpoint="hf-mirror.example.com")


def test_a_library_that_is_missing_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "huggingface_hub: cannot be imported" in place.refused()


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b"])
def test_a_name_is_a_directory_below_the_models(root: Path, name: str) -> None:
    with pytest.raises(StagingError, match=f'name: the name "{name}" is not allowed'):
        request(root, name, models.TinySource())
    with pytest.raises(StagingError, match=f'name: the name "{name}" is not allowed'):
        remove_model(root, name, lambda target: [])


# --- Datasets, which the same library fetches ------------------------------------------------------------------------


def test_a_repository_may_be_of_another_kind(hub: Hub, tmp_path: Path) -> None:
    content = {"main/train.parquet": b"rows" * 1000, "README.md": b"# Data\n"}
    commit = hub.add("org/data", content, kind="datasets")
    repository = Repository("org/data", "main", tmp_path / "hub", hub.url, kind="dataset", exclude=["*.md"])
    assert missing_bytes(repository) == 4000
    assert list(fetch(repository, Progress())) == ["main/train.parquet"]
    assert missing_bytes(repository) == 0
    assert (repository.snapshot / "main/train.parquet").read_bytes() == b"rows" * 1000
    forget(tmp_path / "hub", "org/data", commit, "dataset")
    assert not repository.storage.exists()
