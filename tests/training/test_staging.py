"""stage.yml with a slow hub in the head's container: two runs at once, and a run that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from system import ENVIRONMENT, HEAD, REPO, SHARED_ROOT, Submit, on_node, playbook, playbook_command, said

PORT = 8091
LOG = "/tmp/hub/log.jsonl"
MODELS = SHARED_ROOT / "common" / "models"
LOCK = MODELS / ".slow.lock"
NOTHING_ELSE: dict[str, Any] = {"staging_datasets": [], "staging_snapshots": [], "staging_user_code": []}
STAGE = {
    **NOTHING_ELSE,
    "staging_models": [{"name": "slow", "source": "acme/slow"}],
    "staging_hf_endpoint": f"http://127.0.0.1:{PORT}",
}


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.fixture
def hub(submit: Submit) -> Iterator[None]:
    """The tiny model as acme/slow, whose weights take five seconds. No other test has it in the cache."""
    remove()
    on_node(HEAD, "mkdir", "-p", "/tmp/hub/models/acme")
    on_node(HEAD, "cp", "-r", "/private/common/models/tiny-qwen2", "/tmp/hub/models/acme/slow")
    subprocess.run(["docker", "cp", "--quiet", str(REPO / "tests" / "hub.py"), f"{HEAD}:/tmp/hub.py"], check=True)
    server = ["python3", "/tmp/hub.py", "--root", "/tmp/hub", "--port", str(PORT), "--rate", "100000", "--log", LOG]
    started = ["sh", "-c", 'echo $$ >/tmp/hub/pid; exec "$@"', "sh", *server]
    subprocess.run(["docker", "exec", "--detach", HEAD, *started], check=True)
    until(lambda: "ok" in on_node(HEAD, "sh", "-c", f"bash -c ': < /dev/tcp/127.0.0.1/{PORT}' && echo ok || true"))
    yield
    remove()
    on_node(HEAD, "sh", "-c", "kill $(cat /tmp/hub/pid); rm -rf /tmp/hub")


def remove() -> None:
    playbook("stage", **{**NOTHING_ELSE, "staging_models": [{"name": "slow", "state": "absent"}]})
    assert names() == []


@contextlib.contextmanager
def staging() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        playbook_command("stage", **STAGE),
        cwd=REPO,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def progress() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(LOCK.read_text()))
    return {}


def downloads() -> int:
    """How often a download of the weights was started."""
    requests = [json.loads(line) for line in on_node(HEAD, "cat", LOG).splitlines()]
    return len([request for request in requests if request["method"] == "GET" and request["path"].startswith("/cdn/")])


def names() -> list[str]:
    """The files of the model, including hidden ones."""
    return sorted(path.name for path in MODELS.iterdir() if "slow" in path.name)


def test_two_runs_download_once_even_if_the_first_controller_is_killed(hub: None) -> None:
    with staging() as first:
        until(lambda: progress().get("done"))
        with staging() as second:
            os.killpg(first.pid, signal.SIGKILL)
            output = second.communicate(timeout=300)[0]
            assert second.returncode == 0, output
    assert "model slow exists /private/common/models/slow" in said(output)
    assert downloads() == 1
    assert names() == [".slow.manifest.json", "slow"]


def test_a_killed_module_is_reported_and_the_next_run_completes(hub: None) -> None:
    with staging() as first:
        until(lambda: progress().get("done") and downloads())
        pid = str(progress()["pid"])
        # The stopped process cannot end before it is killed, however late the second run comes.
        on_node(HEAD, "kill", "-STOP", pid)
        with staging() as second:
            time.sleep(2)
            on_node(HEAD, "kill", "-KILL", pid)
            output = first.communicate(timeout=300)[0]
            assert first.returncode != 0
            assert "model slow its process ended without a result, as if it was killed. Run it again" in said(output)
            # The waiting run takes over.
            output = second.communicate(timeout=300)[0]
            assert second.returncode == 0, output
    assert "model slow staged /private/common/models/slow" in said(output)
    assert downloads() == 2
    assert names() == [".slow.manifest.json", "slow"]

    # All of it is there.
    shown = said(playbook("stage", **{**STAGE, "staging_verify": "full"}).stdout)
    assert "model slow exists /private/common/models/slow" in shown
