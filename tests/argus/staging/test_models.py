"""Models from the hub, from directories, and tiny ones."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub import model, safetensors
from staging_models import FIRST, NAME, SECOND, Place, damage, files, names, of_directory, source_of, without
from staging_tools import manifest_json, stage

from argus.checks.model import ModelRef, read_config
from argus.staging import files as staging_files
from argus.staging import models, tiny
from argus.staging.manifest import MANIFEST, Staged, Status
from argus.staging.models import exclusion_patterns, remove_model, request
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


def test_a_model_is_a_link_into_the_hubs_cache_with_a_manifest_beside_it(place: Place) -> None:
    staged = place.stage()
    assert staged == Staged("model", "name", str(place.target), Status.STAGED)
    assert str(place.target.readlink()) == f"../../hf/hub/models--org--Name-1.5B/snapshots/{place.commit}"
    assert {name: (place.target / name).read_bytes() for name in files(place.target)} == model()
    said = manifest_json(place.target)
    source = {"source": NAME, "revision": "main", "commit": place.commit, "endpoint": place.hub.url}
    assert {"kind": "model", "name": "name", **source}.items() <= said.items()
    assert {name: each["sha256"] for name, each in said["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in model().items()
    }
    # Nothing of the way is left, and what exists causes no request.
    assert names(place.target.parent) == [".name.manifest.json", "name"]
    place.forget()
    for how in ({}, {"full": True}, {"check": True}, {"repair": True}):
        assert place.stage(how=how).status == Status.EXISTS
    assert place.hub.asked == []


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
    assert [each.name for each in place.hub.gets()] == ["pytorch_model.bin"]
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
    assert place.hub.asked == []
    assert place.stage(how={"repair": True, "check": True}).status == Status.REPAIRED
    repaired = place.stage(how={"repair": True})
    assert (repaired.status, len(repaired.notes)) == (Status.REPAIRED, 3)
    # The content of the other files is still in the cache.
    assert [each.name for each in place.hub.gets()] == [FIRST]
    assert manifest_json(place.target) == before
    place.forget()
    assert place.stage().status == place.stage(how={"full": True}).status == Status.EXISTS
    # Whose time of change is not the manifest's would be read again every time.
    assert place.blob(FIRST).stat().st_mtime_ns == before["files"][FIRST]["mtime_ns"]
    assert (place.target / "tokenizer.json").is_symlink() and place.hub.asked == []


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
    # As a kill between the two leaves it.
    place.target.unlink()
    assert remove_model(place.root, "name").status == Status.ABSENT
    assert place.stage(revision=place.commit).status == Status.STAGED
    assert names(place.target.parent) == [".name.manifest.json", ".newer.manifest.json", "name", "newer"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (without(SECOND), f"1 of 2 shards in it are missing: {SECOND}"),
        ({**model(), SECOND: model()[SECOND][:-4]}, f"{SECOND} has 262224 bytes, but its header declares 262228"),
        (
            without("config.json", "tokenizer.json", "tokenizer_config.json"),
            "config.json does not exist; it has no tok",
        ),
        ({"adapter_config.json": b"{}", "README.md": b""}, "it is a LoRA adapter, not a model"),
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
    staged = stage(request(place.root, "copy", source_of(str(place.cache), place.root)))
    assert not any(path.is_symlink() for path in Path(staged.path).iterdir())
    assert manifest_json(Path(staged.path))["source"] == str(place.cache / "snapshots" / place.commit)
    assert place.hub.asked == []
    (place.cache / "snapshots" / ("0" * 40)).mkdir()
    with pytest.raises(StagingError, match=f"2 commits.*: {place.cache}/snapshots/{place.commit}, "):
        source_of(str(place.cache), place.root)
    _config, (finding,) = read_config(ModelRef(place.cache, "model", "model"))
    assert f"give {place.cache}/snapshots/{place.commit} or " in finding.remedy


def test_a_directory_is_compared_by_names_and_sizes_as_long_as_it_is_there(root: Path, directory: Path) -> None:
    for name in (MANIFEST, "pytorch_model.bin"):
        (directory / name).write_text("{}")
    # What the hub's library keeps about its downloads.
    (directory / ".cache" / "gone").symlink_to("/nowhere")
    assert not (Path(of_directory(root, directory).path) / "pytorch_model.bin").exists()
    with pytest.raises(StagingError, match=r"pytorch_model\.bin is new"):
        of_directory(root, directory, exclude=[])
    (directory / "more.json").write_text("{}")
    (directory / "README.md").write_text("longer than before")
    (directory / "generation_config.json").unlink()
    what = r"README.md has another size, generation_config.json is missing, more.json is new"
    with pytest.raises(StagingError, match=what):
        of_directory(root, directory)
    (directory / FIRST).unlink()
    (directory / FIRST).symlink_to("/nowhere")
    with pytest.raises(StagingError, match="broken link"):
        of_directory(root, directory)
    shutil.rmtree(directory)
    assert of_directory(root, directory).status == Status.EXISTS
    with pytest.raises(StagingError, match=r"contains .*/mine, not /gone, which does not exist"):
        of_directory(root, Path("/gone"))


def test_a_tiny_model_is_generated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(target: Path) -> None:
        for name, content in model().items():
            (target / name).write_bytes(content)

    monkeypatch.setattr(tiny, "build_model", build)
    assert stage(request(root, "tiny", source_of("tiny", root))).status == Status.STAGED
    assert stage(request(root, "tiny", source_of("tiny", root))).status == Status.EXISTS
    with pytest.raises(StagingError, match="contains tiny, not org/name"):
        stage(request(root, "tiny", source_of("org/name", root)))


def test_wrong_sources_and_names(root: Path) -> None:
    for text in ("gpt2", "./here", "https://huggingface.co/org/name", "org/name/file", "", "-/x"):
        with pytest.raises(StagingError, match="is not a source of models"):
            source_of(text, root)
    for name in ("../x", ".hidden", "a/b"):
        for work in (lambda name: request(root, name, models.TinySource()), lambda name: remove_model(root, name)):
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
    staged = of_directory(root, directory)
    target, said = Path(staged.path), manifest_json(Path(staged.path))
    assert (staged.status, said["source"], files(target)) == (
        Status.STAGED,
        str(directory),
        [*sorted([*model(), MANIFEST])],
    )
    for name, content in model().items():
        assert not (target / name).is_symlink() and (target / name).read_bytes() == content
        assert said["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
    assert of_directory(root, directory, full=True).status == Status.EXISTS


def test_a_directory_that_changes_meanwhile_is_refused(
    root: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path, count: Callable[[int], Any]) -> None:
        shutil.copyfile(source, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(staging_files, "copy_file", copy)
    with pytest.raises(StagingError, match="changed while it was copied"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []
