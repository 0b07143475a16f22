"""An earlier system that was made by hand: shown, and removed by name only, on real containers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from system import playbook, said

HEAD, WORKER, OURS = "old-ray-head", "old-ray-worker-0", "old-ray-worker-9"


def docker(*arguments: str, check: bool = True) -> str:
    return subprocess.run(["docker", *arguments], check=check, capture_output=True, text=True).stdout


def run(name: str, title: str, *options: str) -> None:
    command = f"exec -a '{title}' sleep 600"
    docker(
        "run",
        "--detach",
        "--name",
        name,
        "--network",
        "none",
        *options,
        "argus-verl-base:bookworm",
        "bash",
        "-c",
        command,
    )


def names() -> set[str]:
    return set(docker("ps", "-a", "--format", "{{.Names}}", "--filter", "name=old-ray-").split())


@pytest.fixture
def old() -> Iterator[None]:
    try:
        run(HEAD, "gcs_server")
        run(WORKER, "ray::TaskRunner.run")
        run(OURS, "raylet", "--label", "argus.verl.cluster=another")
        yield
    finally:
        docker("rm", "--force", HEAD, WORKER, OURS, check=False)


def test_what_is_named_is_removed_and_nothing_else(old: None) -> None:
    shown = said(playbook("cleanup_legacy").stdout)
    assert f"{HEAD} container root" in shown and "ray::TaskRunner.run" in shown
    assert OURS not in shown and "Nothing was removed" in shown

    # What belongs to a cluster, is misspelt, or has a job, is refused, and then nothing else is removed.
    refused = playbook("cleanup_legacy", check=False, legacy_remove=[HEAD, OURS, "old-ray-haed", WORKER])
    assert refused.returncode and names() == {HEAD, WORKER, OURS}
    text = said(refused.stdout)
    assert f"On no machine: {OURS}, old-ray-haed" in text
    assert f"{WORKER} runs ray::TaskRunner.run" in text and "allow_disruption" in text

    assert "changed=1" in playbook("cleanup_legacy", legacy_remove=[HEAD], arguments=["--check"]).stdout
    assert names() == {HEAD, WORKER, OURS}
    # As the command line passes it.
    playbook("cleanup_legacy", arguments=["-e", f"legacy_remove={HEAD},{WORKER}", "-e", "allow_disruption=true"])
    assert names() == {OURS}
