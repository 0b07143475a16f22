"""Downloads into the hub's cache, with the real library against a hub on this machine, see tests/hub.py."""

from __future__ import annotations

import errno

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import pytest
from hub import model
from staging_models import FIRST, NAME, SECOND, STEP, Place, child, files, manifest, names, until

from argus.staging.manifest import Status

pytestmark = pytest.mark.usefixtures("environment")


def test_the_library_finds_it_offline_by_its_name(place: Place) -> None:
    """As verl requests a reward model that a job names by its name on the hub."""
    place.stage()
    found = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=place.cache.parent)
    assert found == str(place.cache / "snapshots" / place.commit / "config.json")


def test_other_files_in_the_cache_are_not_part_of_the_model(place: Place) -> None:
    place.hub.add(NAME, {**model(), "pytorch_model.bin": b"the same once more"})
    place.stage()
    commit = manifest(place.target)["commit"]
    huggingface_hub.snapshot_download(
        NAME, revision=commit, cache_dir=place.cache.parent, endpoint=place.hub.url, token=False
    )
    assert (place.cache / "snapshots" / commit / "pytorch_model.bin").exists()
    assert place.stage(how={"full": True}).status == Status.EXISTS


def test_a_broken_connection_is_resumed_with_a_range(place: Place) -> None:
    place.hub.fail(FIRST, drop_after=3 * STEP + 5)
    place.stage()
    first, second = place.hub.gets(FIRST)
    assert (first.range, second.range) == (None, f"bytes={3 * STEP}-")
    assert (first.status, second.status) == (200, 206)
    assert second.sent == len(model()[FIRST]) - 3 * STEP


@pytest.mark.parametrize("name", [FIRST, "config.json"])
def test_content_with_another_hash_is_rejected(place: Place, name: str) -> None:
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


def test_a_full_disk_is_not_reported_as_an_error_of_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    assert "name: cannot be staged: [Errno 28] No space left" in place.refused()


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
    with child(place) as again:
        assert again.communicate()[0] == f"{Status.STAGED}\n"
    (only,) = place.hub.gets()
    assert only.name == FIRST
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    assert len(files(place.cache / "blobs")) == len(model())
    assert place.stage(how={"full": True}).status == Status.EXISTS


@pytest.mark.parametrize("other", ["name", "other"])
def test_two_at_once_download_once(place: Place, other: str) -> None:
    place.hub.rate = 400_000
    with child(place) as one, child(place, other) as two:
        said = sorted((one.communicate()[0].strip(), two.communicate()[0].strip()))
    assert said == ([Status.EXISTS, Status.STAGED] if other == "name" else [Status.STAGED, Status.STAGED])
    assert [len(place.hub.gets(name)) for name in (FIRST, SECOND, "config.json")] == [1, 1, 1]
    assert place.stage(other, how={"full": True}).status == Status.EXISTS
