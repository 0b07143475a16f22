"""Images through files, with an engine of a few lines: what it is given to load, and above all what it is not."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster import image_archive
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_archive import (
    ImageError,
    ImageStore,
    Saved,
    contents,
    remove_saved,
)

IMAGE, OTHER = "argus-verl-mine:1", "argus-verl-other:1"
CONFIG = "1" * 64
INDEX = {"manifests": [{"digest": "d", "annotations": {"io.containerd.image.name": OTHER}}]}
# Its images are files with the JSON of `image inspect`, and what it has loaded is in "loaded".
ENGINE = """#!{python}
import json, pathlib, sys
here, command = pathlib.Path({here!r}), sys.argv[1:]
if command[0] == "info":
    print(here)
elif command[:2] == ["image", "inspect"]:
    file = here / command[2]
    print(file.read_text() if file.exists() else "[]")
    sys.exit(not file.exists())
elif command[0] == "save":
    sys.stdout.buffer.write((here / "archive").read_bytes())
    sys.exit(int((here / "fails").exists()))
elif command[0] == "load":
    content = sys.stdin.buffer.read()
    (here / "loaded").write_bytes(content)
    (here / {image!r}).write_text(json.dumps([{{"Id": (here / "becomes").read_text()}}]))
else:
    sys.exit(f"unknown: {{command}}")
"""


def archive_of(*images: str, config: str = f"blobs/sha256/{CONFIG}", **further: Any) -> bytes:
    """A file as `docker save` writes it; further: other files in it, with "_" for "."."""
    files = {"manifest_json": [{"Config": config, "RepoTags": list(images) or None, "Layers": []}], **further}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, value in files.items():
            data = json.dumps(value).encode()
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


class Scene:
    def __init__(self, root: Path) -> None:
        self.engine, self.shared = root / "engine", root / "shared"
        for directory in (self.engine, self.shared, root / "scratch"):
            directory.mkdir()
        program = root / "docker"
        program.write_text(ENGINE.format(python=sys.executable, here=str(self.engine), image=IMAGE))
        program.chmod(0o755)
        self.store = ImageStore(str(program), [str(root / "scratch")])
        self.hold(archive_of(IMAGE))
        (self.engine / IMAGE).write_text(json.dumps([{"Id": f"sha256:{CONFIG}"}]))
        (self.engine / "becomes").write_text(f"sha256:{CONFIG}")

    def hold(self, content: bytes) -> None:
        (self.engine / "archive").write_bytes(content)

    def saved(self) -> Saved:
        return self.store.save(IMAGE, self.shared, "mvp")

    def load(self, saved: Saved, *tags: str, shared: bool = True) -> Saved:
        return self.store.load(saved, IMAGE, tags, self.shared if shared else None)

    @property
    def loaded(self) -> bool:
        return (self.engine / "loaded").exists()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_one_machine_saves_another_one_loads(scene: Scene) -> None:
    content = archive_of(IMAGE)
    saved = scene.saved()
    file = Path(saved.path)
    assert file.parent == scene.shared / "images" and file.name.startswith("mvp-")
    assert file.stat().st_mode & 0o777 == 0o600
    assert saved == Saved(str(file), hashlib.sha256(content).hexdigest(), len(content), f"sha256:{CONFIG}")
    assert scene.load(saved) == saved
    assert (scene.engine / "loaded").read_bytes() == content
    assert remove_saved(saved.path, scene.shared) is True
    assert not (scene.shared / "images").exists()
    assert remove_saved(saved.path, scene.shared) is False


def test_image_that_is_gone_is_not_saved(scene: Scene) -> None:
    (scene.engine / IMAGE).unlink()
    with pytest.raises(ImageError, match="no longer here"):
        scene.saved()
    assert not (scene.shared / "images").exists()


def test_file_of_a_save_that_fails_is_removed(scene: Scene) -> None:
    (scene.engine / "fails").touch()
    with pytest.raises(ImageError, match="failed with exit code 1"):
        scene.saved()
    assert not (scene.shared / "images").exists()


def test_what_interrupted_runs_of_this_cluster_left_is_removed(scene: Scene) -> None:
    directory = scene.shared / "images"
    directory.mkdir()
    long_ago = time.time() - image_archive.LEFT_SECONDS - 60
    for name, at in (("mvp-0.tar", long_ago), ("mvp-1.tar", time.time()), ("lab-0.tar", long_ago)):
        (directory / name).touch()
        os.utime(directory / name, (at, at))
    # A job may take such a name for something else.
    (directory / "mvp-2.tar").mkdir()
    os.utime(directory / "mvp-2.tar", (long_ago, long_ago))
    saved = scene.saved()
    assert {file.name for file in directory.iterdir()} == {"mvp-1.tar", "mvp-2.tar", "lab-0.tar", Path(saved.path).name}
    # Nor is a directory removed in which something else is.
    assert remove_saved(saved.path, scene.shared) and directory.exists()


@pytest.mark.parametrize("change", [b"", b"x", archive_of(IMAGE, OTHER)])
def test_changed_file_is_not_loaded(scene: Scene, change: bytes) -> None:
    saved = scene.saved()
    Path(saved.path).write_bytes(change)
    with pytest.raises(ImageError, match="is not what it should be"):
        scene.load(saved)
    assert not scene.loaded


def test_file_that_grows_is_not_loaded(scene: Scene) -> None:
    saved = scene.saved()
    with Path(saved.path).open("ab") as file:
        file.write(b"more")
    with pytest.raises(ImageError, match="is not what it should be"):
        scene.load(saved)
    assert not scene.loaded


def test_links_and_pipes_are_not_read(scene: Scene, tmp_path: Path) -> None:
    saved = scene.saved()
    elsewhere = tmp_path / "elsewhere.tar"
    elsewhere.write_bytes(archive_of(IMAGE))
    Path(saved.path).unlink()
    Path(saved.path).symlink_to(elsewhere)
    with pytest.raises(ImageError, match="cannot be opened"):
        scene.load(saved)
    Path(saved.path).unlink()
    # Nobody writes to it: opening it must not wait.
    os.mkfifo(saved.path)
    with pytest.raises(ImageError, match="not a regular file"):
        scene.load(saved)
    Path(saved.path).unlink()
    (scene.shared / "images").rename(tmp_path / "images")
    (tmp_path / "images" / Path(saved.path).name).write_bytes(archive_of(IMAGE))
    (scene.shared / "images").symlink_to(tmp_path / "images")
    with pytest.raises(ImageError, match="cannot be opened"):
        scene.load(saved)
    with pytest.raises(OSError, match="cannot be created by the nodes' user"):
        scene.saved()
    assert not scene.loaded


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive_of(IMAGE, OTHER), f"has also the images {OTHER}"),
        (archive_of(IMAGE, index_json=INDEX), f"has also the images {OTHER}"),
        (archive_of(IMAGE, repositories={"argus-verl-other": {"1": "x"}}), f"has also the images {OTHER}"),
        (archive_of(), "has images without a name, and not"),
        (archive_of(OTHER), f"has also the images {OTHER}"),
        (archive_of(IMAGE, config="2" * 64 + ".json"), "has another image than sha256:1111"),
        (b"no tar file", "is not an image that docker save has written"),
        (archive_of(IMAGE, index_json=["x"]), "is not an image that docker save has written"),
    ],
)
def test_other_contents_are_not_loaded(scene: Scene, content: bytes, message: str) -> None:
    scene.hold(content)
    with pytest.raises(ImageError, match=message):
        scene.load(scene.saved())
    assert not scene.loaded


def test_archive_of_the_inventory(scene: Scene, tmp_path: Path) -> None:
    """It may have all images of the cluster, and only their names are known beforehand."""
    file = tmp_path / "images.tar"
    file.write_bytes(archive_of(f"docker.io/library/{IMAGE}", OTHER))
    saved = Saved(str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    with pytest.raises(ImageError, match="has also the images"):
        scene.load(saved, shared=False)
    assert scene.load(saved, OTHER, shared=False).id == f"sha256:{CONFIG}"
    with pytest.raises(ImageError, match=r"images\.tar is not what it should be"):
        scene.load(replace(saved, sha256="0" * 64), OTHER, shared=False)
    with pytest.raises(ImageError, match=r"gone\.tar cannot be opened: No such file"):
        scene.load(Saved(str(tmp_path / "gone.tar"), ""), shared=False)


def test_podman_writes_localhost_before_names(scene: Scene) -> None:
    scene.hold(archive_of(f"localhost/{IMAGE}"))
    assert scene.load(scene.saved()).id == f"sha256:{CONFIG}"


def test_ids_of_engines_with_another_store(scene: Scene) -> None:
    """containerd's images have the digest of their manifest as id, Docker's own store that of their configuration."""
    index = {"manifests": [{"digest": "sha256:manifest", "annotations": None}]}
    known = contents(io.BytesIO(archive_of(IMAGE, index_json=index)), "x")
    assert known.ids == {f"sha256:{CONFIG}", "sha256:manifest"}
    assert known.tags == {IMAGE}
    scene.hold(archive_of(IMAGE, index_json=index))
    (scene.engine / "becomes").write_text("sha256:manifest")
    assert scene.load(scene.saved()).id == "sha256:manifest"
    (scene.engine / "becomes").write_text("sha256:something-else")
    (scene.engine / IMAGE).write_text(json.dumps([{"Id": f"sha256:{CONFIG}"}]))
    with pytest.raises(ImageError, match="after loading it: it is sha256:something-else"):
        scene.load(scene.saved())


def test_room_for_the_copy_and_for_the_engine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, engine = scene.store.scratch[0], str(scene.engine)
    free = {scratch: 30 << 30, engine: 30 << 30}
    monkeypatch.setattr(image_archive, "free_bytes", free.__getitem__)
    # On the same disk: the copy, and what the engine unpacks and stores.
    assert scene.store.room(10 << 30) == scratch
    with pytest.raises(ImageError, match=r"30\.0 GiB free, and loading an image of 10\.0 GiB needs 30\.0 GiB"):
        scene.store.room((10 << 30) + 1)
    free[engine] = 31 << 30
    assert scene.store.room(10 << 30) == engine
    free.update({scratch: 5 << 30, engine: 4 << 30})
    with pytest.raises(ImageError, match=r"engine has 4\.0 GiB free"):
        scene.store.room(4 << 30)
    monkeypatch.setattr(image_archive.os, "access", lambda _path, _mode: False)
    with pytest.raises(ImageError, match="is a directory that this user can write to"):
        scene.store.room(1)


def test_file_without_room_is_not_loaded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = scene.saved()
    monkeypatch.setattr(image_archive, "free_bytes", lambda _path: 1)
    with pytest.raises(ImageError, match="GiB free"):
        scene.load(saved)
    assert not scene.loaded


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_works_as_the_nodes_user(scene: Scene, tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    os.chown(scene.shared, 61000, 61000)
    saved = scene.saved()
    file = Path(saved.path)
    assert (file.stat().st_uid, file.parent.stat().st_uid) == (61000, 61000)
    assert scene.load(saved) == saved
    # A file of root is out of reach, even where no link leads to it.
    os.chown(file, 0, 0)
    with pytest.raises(ImageError, match=r"cannot be opened: Permission denied"):
        scene.load(saved)
    assert remove_saved(saved.path, scene.shared) is True
