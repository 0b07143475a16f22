"""Fixtures for the tests in this directory."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import pytest
from hub import Hub, model
from staging_models import NAME, STEP, Place
from staging_snapshots import IGNORED, LEFT, TAKEN, commit, git, plain_git, put
from staging_store import MIB, NOBODY, asked
from staging_tools import stage

from argus.common.shared_root import SNAPSHOTS


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Something staged."""
    stage(asked(tmp_path / "tiny"))
    return tmp_path / "tiny"


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A directory of a user other than root; directories of pytest are only for root."""
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
        yield Path(directory)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    image, disk = tmp_path / "disk.img", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    ways = (
        [["mkfs.ext4", "-q", "-F", str(image)], ["mount", "-o", "loop", str(image), str(disk)]],
        [["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(disk)]],
    )
    for commands in ways:
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        break
    else:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the user who runs the tests; the library must not use a token of the node."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", STEP)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Place:
    root = tmp_path / "root"
    root.mkdir()
    return Place(hub, root, hub.add(NAME, model()))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model of a user, with files of git and other tools."""
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


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_git(monkeypatch)


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    root = tmp_path / "shared"
    root.mkdir()
    return root


@pytest.fixture
def snapshots(shared_root: Path) -> Path:
    """Where the snapshots of the shared root lie."""
    return shared_root / SNAPSHOTS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree of verl, with all that a snapshot must not take."""
    return put(tmp_path / "src", {**TAKEN, **LEFT, **IGNORED})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository of verl, with one commit on main."""
    repository = tmp_path / "team" / "verl"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch=main")
    commit(repository, {**TAKEN, **LEFT})
    return repository


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """What a user puts over verl."""
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})
