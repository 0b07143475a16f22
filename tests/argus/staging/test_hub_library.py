"""The real library of the hub where the hub is silent; more of it is in test_hub.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import huggingface_hub.utils._http
import pytest
from hub import Hub

from argus.staging.hub import Repository, fetch
from argus.staging.lock import Progress

NAME = "org/name"
CONTENT: dict[str, bytes | Path] = {"a.json": b"{}", "b.bin": bytes(1000), "c.bin": b"c"}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        server.add(NAME, CONTENT)
        yield server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def of(hub: Hub, root: Path, **options: object) -> Repository:
    return Repository(NAME, "main", root / "hub", hub.url, **options)  # type: ignore[arg-type]


def test_a_stalled_download_is_repeated(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    hub.fail("b.bin", stall_after=10)
    assert sorted(fetch(of(hub, tmp_path), Progress())) == sorted(CONTENT)
    assert len(hub.gets("b.bin")) == 2


def test_the_list_of_files_without_a_timeout_is_not_requested(hub: Hub, tmp_path: Path) -> None:
    hub.fail("/tree/", 100, silent=True)
    assert sorted(fetch(of(hub, tmp_path), Progress())) == sorted(CONTENT)
