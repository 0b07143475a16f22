from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import pytest
from hub import Hub, model
from staging_models import NAME, STEP, Place
from staging_snapshots import IGNORED, LEFT, TAKEN, commit, git, plain_git, put
from staging_store import build_of, stage

from argus.common.shared_root import CODE_DIR


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Something staged."""
    stage(build_of(tmp_path / "tiny"))
    return tmp_path / "tiny"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the user who runs the tests; the library must not use a token of the node."""
    for name in ("HF_ENDPOINT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    # Without certificates of authorities, which each client would parse for 40 ms.
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", STEP)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


@pytest.fixture
def place(hub: Hub, root: Path) -> Place:
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
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw"
    path.mkdir()
    return path


@pytest.fixture
def snapshots(root: Path) -> Path:
    """Where the snapshots of the shared root lie."""
    return root / CODE_DIR


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
    """Files that a user puts over verl."""
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})
