"""Sources of snapshots, and a shared root for them."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from staging_snapshots import IGNORED, LEFT, TAKEN, SmartHttp, commit, git, put, put_wheel

from argus.common.shared_root import SNAPSHOTS


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A git without the configuration of this machine."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ann@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


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
def spied_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git before the real one, which keeps what it was called with: the files `argv` and `environment`."""
    spied = tmp_path / "spied"
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    script = f'#!/bin/sh\necho "$@" >> {spied}/argv\nenv >> {spied}/environment\nexec {real} "$@"\n'
    put(spied, {"bin/git": script})
    (spied / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{spied}/bin{os.pathsep}{os.environ['PATH']}")
    return spied


@pytest.fixture
def private_host(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a host that requires the token."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler = type("Handler", (SmartHttp,), {"root": repository.parents[1]})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a directory."""
    index = tmp_path / "index"
    index.mkdir()
    put_wheel(index, "0.9.1")
    put_wheel(index, "0.9.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """What a user puts over verl."""
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})
