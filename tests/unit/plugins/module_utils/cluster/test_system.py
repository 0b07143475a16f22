"""The operating system below a root, and a real Python."""

from __future__ import annotations

import platform
import socket
import sys
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster import system
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import (
    Process,
    Software,
    parse_software,
    read_system,
)

OURS = "a" * 64
PYTHON = "/opt/verl/bin/python3"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         65536                {1}            bytes
Max open files            1024                 {0}               files
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def process(root: Path, pid: int, name: str, state: str = "S", container: str = "") -> None:
    write(root / f"proc/{pid}/stat", f"{pid} ({name}) {state} 1 1 1 0 -1")
    write(root / f"proc/{pid}/cgroup", f"0::/system.slice/docker-{container}.scope\n" if container else "0::/init\n")


def test_a_machine_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    write(tmp_path / "proc/self/limits", LIMITS.format(4096, 8388608))
    process(tmp_path, 31, "gcs_server", container=OURS)
    process(tmp_path, 32, "raylet")
    process(tmp_path, 33, "python3")
    # A process that ends has no cgroup any more.
    process(tmp_path, 34, "raylet", "Z")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ml"))
    write(tmp_path / "home/ml/.ray/auth_token", "")
    # One is stuck if it stays in the kernel.
    process(tmp_path, 5, "nvidia-smi", "D")
    process(tmp_path, 6, "dd", "D")
    monkeypatch.setattr(system.time, "sleep", lambda _seconds: process(tmp_path, 6, "dd", "R"))
    answer = read_system(tmp_path)
    assert (answer.kernel, answer.open_files, answer.locked_memory) == ("6.8.0-45-generic", "4096", "8388608")
    assert answer.stuck == (Process(5, "nvidia-smi", "D"),)
    assert answer.ray == (Process(31, "gcs_server", "S", OURS), Process(32, "raylet", "S", ""))
    assert (answer.token, answer.hostname) == ("/home/ml/.ray/auth_token", socket.gethostname())
    assert answer.tmp_total_bytes > answer.tmp_free_bytes > 0
    assert not [address for address in answer.addresses if ":" in address]
    # Limits are those of the engine, if its user may read them.
    process(tmp_path, 9, "dockerd")
    for limits, open_files in ((LIMITS.format(1048576, "unlimited"), "1048576"), ("", "4096")):
        write(tmp_path / "proc/9/limits", limits)
        assert read_system(tmp_path).open_files == open_files


def test_a_real_python_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two packages with one name, the first counts, as for Python."""
    packages = {"ray": "2.60.0", "torch": "2.8.0+cu128", "nvidia-nccl-cu12": "2.27.3"}
    installed = [*packages.items(), ("raylet", "1.0"), ("ray", "2.59.0")]
    for number, (name, version) in enumerate(installed):
        metadata = tmp_path / str(number // 4) / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        write(
            metadata, f"Metadata-Version: 2.1\nName: {name.title() if name == 'torch' else name}\nVersion: {version}\n"
        )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/0:{tmp_path}/1")
    assert Probe().software(sys.executable) == Software(sys.executable, platform.python_version(), packages)
    assert Probe().software("") is None


@pytest.mark.parametrize(
    ("code", "out", "err", "problem"),
    [
        (127, "", "No such file or directory", "No such file or directory"),
        (1, "", "Traceback\nImportError: no json", "ImportError: no json"),
        (0, "[]", "", "[]"),
        (0, '{"python": "3.12.3", "packages": []}', "", '{"python": "3.12.3", "packages": []}'),
        (124, "", "", "exit code 124"),
    ],
)
def test_a_python_that_does_not_run(code: int, out: str, err: str, problem: str) -> None:
    assert parse_software(PYTHON, code, out, err) == Software(PYTHON, problem=problem)
    # An environment may print something first.
    answer = 'module load cuda\n{"python": "3.12.3", "packages": {"ray": "2.60.0"}}\n'
    assert parse_software(PYTHON, 0, answer, "") == Software(PYTHON, "3.12.3", {"ray": "2.60.0"})
