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
from staging_models import FIRST, NAME, SECOND, Place, damage, files, manifest, names, of_directory, source_of, without
from staging_snapshots import put
from staging_tools import stage

from argus.checks.model import ModelRef, read_config
from argus.staging import files as staging_files
from argus.staging import models, tiny
from argus.staging.hub import matches
from argus.staging.manifest import MANIFEST, Staged, Status
from argus.staging.models import (
    exclusion_patterns,
    remove_model,
    request,
)
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


def test_a_model_is_a_link_into_the_hubs_cache_with_a_manifest_beside_it(place: Place) -> None:
    staged = place.stage()
    assert staged == Staged("model", "name", str(place.target), Status.STAGED)
    assert str(place.target.readlink()) == f"../../hf/hub/models--org--Name-1.5B/snapshots/{place.commit}"
    assert files(place.target) == sorted(model())
    for name, content in model().items():
        assert (place.target / name).read_bytes() == content
    said = manifest(place.target)
    source = {"source": NAME, "revision": "main", "commit": place.commit, "endpoint": place.hub.url}
    assert {"kind": "model", "name": "name", **source}.items() <= said.items()
    assert {name: each["sha256"] for name, each in said["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in model().items()
    }
    # Nothing of the way is left.
    assert names(place.target.parent) == [".name.manifest.json", "name"]


def test_an_existing_model_causes_no_request(place: Place) -> None:
    place.stage()
    place.forget()
    for how in ({}, {"full": True}, {"check": True}, {"repair": True}):
        assert place.stage(how=how).status == Status.EXISTS
    assert place.hub.asked == []


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


def test_other_formats_are_excluded_if_there_are_safetensors() -> None:
    others = ["pytorch_model.bin", "original/consolidated.00.pth", "onnx/model.onnx", "model.gguf", "tf_model.h5"]
    both = [*others, "config.json", "onnx/config.json", "model.safetensors"]

    def taken(names: list[str]) -> list[str]:
        return [name for name in names if not matches(name, exclusion_patterns(None, names))]

    assert taken(both) == ["config.json", "model.safetensors"]
    assert taken(others) == others
    # These cannot be read without the others.
    assert "pytorch_model.bin" in taken(["pytorch_model.bin", "adapter.safetensors"])


def test_excluded_files_are_omitted(place: Place) -> None:
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
    # The content of the other files is still in the cache.
    assert [each.name for each in place.hub.gets()] == [FIRST]
    assert manifest(place.target) == before
    place.forget()
    assert place.stage().status == Status.EXISTS
    assert place.stage(how={"full": True}).status == Status.EXISTS
    # Whose time of change is not the manifest's would be read again every time.
    assert place.blob(FIRST).stat().st_mtime_ns == before["files"][FIRST]["mtime_ns"]
    assert (place.target / "tokenizer.json").is_symlink()
    assert place.hub.asked == []


def test_a_changed_link_is_restored(place: Place) -> None:
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
    assert remove_model(place.root, "name").status == Status.ABSENT
    assert place.stage().status == Status.STAGED
    assert place.stage(how={"full": True}).status == Status.EXISTS


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (without(SECOND), f"1 of 2 shards in it are missing: {SECOND}"),
        (
            {**model(), SECOND: model()[SECOND][:-4]},
            f"{SECOND} has 262224 bytes, but its header declares 262228: it is truncated",
        ),
        ({**model(), SECOND: b"version https://git-lfs.github.com/spec/v1\n"}, "Git LFS pointer"),
        (
            without("config.json", "tokenizer.json", "tokenizer_config.json"),
            "config.json does not exist; it has no tok",
        ),
        (without(FIRST, SECOND, "model.safetensors.index.json"), "it has no weights"),
        ({"adapter_config.json": b"{}", "README.md": b""}, "it is a LoRA adapter, not a model"),
    ],
)
def test_an_incomplete_model_is_not_staged(place: Place, content: Mapping[str, bytes], expected: str) -> None:
    place.hub.add(NAME, content)
    said = place.refused()
    assert f"{place.target}: would not be a complete model: " in said
    assert expected in said
    assert ".staging-" not in said
    assert list(place.target.parent.iterdir()) == []


def test_the_hubs_own_cache_can_be_given_as_a_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.stage()
    place.forget()
    staged = stage(request(place.root, "copy", source_of(str(place.cache), place.root)))
    assert not any(path.is_symlink() for path in Path(staged.path).iterdir())
    assert manifest(Path(staged.path))["source"] == str(place.cache / "snapshots" / place.commit)
    assert place.hub.asked == []
    assert of_directory(place.root, place.target).status == Status.STAGED
    (place.cache / "snapshots" / ("0" * 40)).mkdir()
    with pytest.raises(StagingError, match=f"2 commits.*: {place.cache}/snapshots/{place.commit}, "):
        source_of(str(place.cache), place.root)
    _config, (finding,) = read_config(ModelRef(place.cache, "model", "model"))
    assert f"give {place.cache}/snapshots/{place.commit} or " in finding.todo


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


def test_files_of_a_directory_are_excluded_too(root: Path, directory: Path) -> None:
    (directory / "pytorch_model.bin").write_bytes(b"more")
    (directory / MANIFEST).write_text("{}")
    # What the hub's library keeps about its downloads.
    (directory / ".cache" / "huggingface").mkdir(parents=True)
    (directory / ".cache" / "huggingface" / "gone").symlink_to("/nowhere")
    assert not (Path(of_directory(root, directory).path) / "pytorch_model.bin").exists()
    with pytest.raises(StagingError, match=r"pytorch_model\.bin is new"):
        of_directory(root, directory, exclude=[])


def test_a_directory_must_be_a_complete_model(root: Path, directory: Path) -> None:
    (directory / SECOND).unlink()
    with pytest.raises(StagingError, match="1 of 2 shards in it are missing"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []
    (directory / SECOND).symlink_to("/nowhere")
    with pytest.raises(StagingError, match=f"{SECOND}: is a link to a directory, a broken link"):
        of_directory(root, directory)
    with pytest.raises(StagingError, match=r"/nowhere: is not a directory here\. Give a directory that this node sees"):
        of_directory(root, Path("/nowhere"))


def test_a_tiny_model_is_generated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(target: Path) -> None:
        for name, content in model().items():
            (target / name).write_bytes(content)

    monkeypatch.setattr(tiny, "build_model", build)
    staged = stage(request(root, "tiny", source_of("tiny", root)))
    assert staged.status == Status.STAGED
    assert manifest(Path(staged.path))["source"] == "tiny"
    assert stage(request(root, "tiny", source_of("tiny", root))).status == Status.EXISTS
    with pytest.raises(StagingError, match="contains tiny, not org/name"):
        stage(request(root, "tiny", source_of("org/name", root)))


@pytest.mark.parametrize("text", ["gpt2", "./here", "https://huggingface.co/org/name", "org/name/file", "", "-/x"])
def test_an_unknown_source_is_rejected(root: Path, text: str) -> None:
    with pytest.raises(StagingError, match=r"is not a source of models\. Give a repository of the hub"):
        source_of(text, root)


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b"])
def test_a_name_is_a_directory_below_the_models(root: Path, name: str) -> None:
    with pytest.raises(StagingError, match=f'name: the name "{name}" is not allowed'):
        request(root, name, models.TinySource())
    with pytest.raises(StagingError, match=f'name: the name "{name}" is not allowed'):
        remove_model(root, name)


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


def test_files_of_another_revision_stay_in_the_cache(place: Place) -> None:
    place.stage()
    place.hub.add(NAME, {**model(), "README.md": b"# Another\n", FIRST: safetensors(64 * 1024, 7)})
    place.stage("newer")
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


@pytest.mark.parametrize("error", [None, errno.EXDEV, errno.ENOSYS, "at once"])
def test_a_directory_is_copied(
    root: Path, directory: Path, error: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is not None:
        # A file system that cannot do it between two files, and one that reports that nothing is left.
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


def test_a_directory_that_changes_meanwhile_is_refused(
    root: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path, count: Callable[[int], None]) -> None:
        shutil.copyfile(source, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(staging_files, "copy_file", copy)
    with pytest.raises(StagingError, match="changed while it was copied"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []
