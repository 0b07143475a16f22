"""Removal of models from the hub's cache."""

from __future__ import annotations

import os

import pytest
from hub import model, safetensors
from staging_models import FIRST, NAME, Place, files
from staging_snapshots import put

from argus.staging.manifest import Status
from argus.staging.models import remove_model
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


def test_an_unused_model_is_removed_from_the_cache_too(place: Place) -> None:
    place.stage()
    assert remove_model(place.root, "name", check=True).status == Status.REMOVED
    assert place.stage().status == Status.EXISTS
    assert remove_model(place.root, "name").status == Status.REMOVED
    assert list(place.target.parent.iterdir()) == []
    assert not place.cache.exists()
    assert remove_model(place.root, "name").status == Status.ABSENT
    place.forget()
    assert place.stage().status == Status.STAGED
    assert len(place.hub.gets()) == len(model())


def test_files_of_another_name_stay_in_the_cache(place: Place) -> None:
    place.stage()
    place.stage("other")
    by_hand = place.target.with_name("by-hand")
    by_hand.symlink_to(os.path.relpath(place.cache / "snapshots" / place.commit, by_hand.parent))
    remove_model(place.root, "name")
    assert place.stage("other", how={"full": True}).status == Status.EXISTS
    remove_model(place.root, "other")
    assert (by_hand / FIRST).read_bytes() == model()[FIRST]
    by_hand.unlink()
    place.stage()
    remove_model(place.root, "name")
    assert not place.cache.exists()


@pytest.mark.parametrize("is_broken", [False, True])
def test_files_of_another_revision_stay_in_the_cache(place: Place, is_broken: bool) -> None:
    place.stage()
    place.hub.add(NAME, {**model(), "README.md": b"# Another\n", FIRST: safetensors(64 * 1024, 7)})
    place.stage("newer")
    if is_broken:
        # The library then reports that this is not a repository.
        (place.cache / "snapshots" / place.commit / "config.json").unlink()
        (place.cache / "snapshots" / place.commit / "config.json").symlink_to("nowhere")
    blobs = len(files(place.cache / "blobs"))
    remove_model(place.root, "name")
    assert len(files(place.cache / "blobs")) == blobs - 2
    assert place.stage("newer", how={"full": True}).status == Status.EXISTS
    assert not (place.cache / "snapshots" / place.commit).exists()


def test_a_model_that_a_job_uses_stays(place: Place) -> None:
    place.stage()
    put(place.root / "jobs" / "grpo-1", {"config/job_spec.json": '{"model": "name", "shared_root": "/private"}'})
    with pytest.raises(StagingError, match=f"{place.target}: is used by grpo-1"):
        remove_model(place.root, "name")
    assert place.stage(how={"full": True}).status == Status.EXISTS
