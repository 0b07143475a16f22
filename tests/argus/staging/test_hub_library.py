"""The real library of the hub where the hub is silent; more of it is in test_models.py and test_datasets.py."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import huggingface_hub.utils._http
import pytest
from hub import Hub

from argus.staging import hub as staging_hub
from argus.staging.hub import Repository, fetch
from argus.staging.lock import Progress
from argus.staging.models import without
from argus.staging.options import StagingError

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


def test_every_download_has_a_timeout(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = of(hub, tmp_path)
    assert len(repository.files) == 3
    monkeypatch.setattr(staging_hub, "ANSWER_SECONDS", 0.1)
    # The library's own last tries take a minute each.
    monkeypatch.setattr(huggingface_hub.file_download, "_ETAG_RETRY_TIMEOUT", 0.1)
    monkeypatch.setattr(huggingface_hub.utils._http, "time", SimpleNamespace(sleep=lambda seconds: None))
    hub.fail("/resolve/", 100, silent=True)
    with pytest.raises(StagingError, match=f"{NAME} on {hub.url}: cannot be downloaded: TimeoutError: timed out"):
        fetch(repository, Progress())


def test_a_stalled_download_is_repeated(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    hub.fail("b.bin", stall_after=10)
    assert sorted(fetch(of(hub, tmp_path), Progress())) == sorted(CONTENT)
    assert len(hub.gets("b.bin")) == 2


def test_the_list_of_files_without_a_timeout_is_not_requested(hub: Hub, tmp_path: Path) -> None:
    hub.fail("/tree/", 100, silent=True)
    assert sorted(fetch(of(hub, tmp_path), Progress())) == sorted(CONTENT)


def test_requests_without_a_timeout_of_their_own_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_hub, "ANSWER_SECONDS", 0.1)
    library = staging_hub.load_library(tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(httpx.ReadTimeout):
            library.get_session().get(
                f"http://127.0.0.1:{silent.getsockname()[1]}/api/models/{NAME}/xet-read-token/main"
            )


def test_the_library_accepts_a_snapshot_with_exclusions_offline(hub: Hub, tmp_path: Path) -> None:
    """As verl and vLLM ask for a model by its name."""
    repository = of(hub, tmp_path, select=without(["*.bin"]))
    fetch(repository, Progress())
    found = huggingface_hub.snapshot_download(NAME, cache_dir=tmp_path / "hub", local_files_only=True)
    assert Path(found) == repository.snapshot
    assert [path.name for path in Path(found).iterdir()] == ["a.json"]


def test_only_selected_files_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    repository = of(hub, tmp_path, select=lambda names: {name for name in names if "c.bin" in name})
    assert list(fetch(repository, Progress())) == ["c.bin"]
    assert {each.name for each in hub.gets()} == {"c.bin"}


def test_a_full_disk_is_not_reported_as_an_error_of_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(OSError, match="No space left"):
        fetch(of(hub, tmp_path), Progress())
