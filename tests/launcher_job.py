"""A job with its launcher for tests: run from a copy of the program, with a fake trainer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from archive_files import lines_of
from program import write_program

from argus.archive.archive import Archive

CODE_ID = "verl-0.9.1"
# Stands in for a verl trainer; what it does is its first override.
TRAINER = """
import json, os, signal, subprocess, sys, time

mode = dict(override.split("=", 1) for override in sys.argv[1:])["mode"]
print("overrides", sys.argv[1:], flush=True)
print("deterministic", os.environ.get("VERL_FULL_DETERMINISM"), "path", os.environ["PYTHONPATH"], flush=True)
if mode == "fail":
    print("Traceback: no such thing", file=sys.stderr)
    sys.exit(3)
if mode == "secret":
    for piece in ("it is hf_", "secret and", " hf_secret"):
        print(piece, end="", flush=True)
    print(" of", len(os.environ["HF_TOKEN"]), flush=True)
if mode == "environment":
    print(os.environ)
    print(json.dumps(dict(os.environ)))
    sys.stdout.flush()
    sys.stdout.buffer.write(os.environ["KEY"].encode() + b"\\n")
    sys.stdout.flush()
    print("it begins with", os.environ["KEY"][:20], end="", flush=True)
    os._exit(4)
if mode == "ok":
    import resource
    old = os.umask(0)
    os.umask(old)
    print("core", resource.getrlimit(resource.RLIMIT_CORE), "mask", oct(old), flush=True)
if mode == "saves":
    checkpoints = os.path.join(os.environ["ARGUS_VERL_ARCHIVE"], "checkpoints")
    for step in (3, 4):
        os.makedirs(os.path.join(checkpoints, f"global_step_{step}", "dist_ckpt"))
        with open(os.path.join(checkpoints, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(step))
if mode == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "waits":
    print(f"pids {os.getpid()}", flush=True)
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    for number in range(int(os.environ["LINES"])):
        print(f"{number:05}" + "x" * 94)
    print("ValueError: batch_size should be a positive integer value, but got 0", flush=True)
    sys.exit(3)
if mode != "idle":
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as file:
        for step in (1, 2):
            file.write(json.dumps({"step": step, "data": {"train/loss": 6.0 - step}}) + "\\n")
if mode in ("wait", "deaf", "leaves"):
    # As a data loader: in the trainer's group, deaf to SIGTERM, with the trainer's output open.
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child = subprocess.Popen([sys.executable, "-c", code + "print('child', flush=True); time.sleep(60)"])
    print(f"pids {os.getpid()} {child.pid}", flush=True)
if mode == "detaches":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    print(f"pids {os.getpid()} {child.pid}", flush=True)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
if mode in ("wait", "deaf"):
    time.sleep(60)
print("trained", flush=True)
"""


class Setup:
    """A shared root with a snapshot and one job's archive."""

    def __init__(self, root: Path) -> None:
        self.code_path = root / "common" / "code" / "verl" / CODE_ID
        (self.code_path / "verl" / "trainer").mkdir(parents=True)
        (self.code_path / "verl" / "__init__.py").touch()
        (self.code_path / "verl" / "trainer" / "fake.py").write_text(TRAINER)
        (self.code_path / "mvp_marker.py").write_text(f'MARKER = "{CODE_ID}"\n')
        # Evidence finds no Ray, whatever the machine of the test has.
        (self.code_path / "ray.py").write_text('raise ImportError("there is no Ray here")\n')
        self.path = root / "bin"
        self.path.mkdir()
        self.cwd = root / "cwd"
        self.cwd.mkdir()
        self.archive = Archive(root / "jobs" / "sft-1")
        self.archive.reserve()
        self.program = write_program(root / "program")
        self.started: list[subprocess.Popen[bytes]] = []
        self.policy: dict[str, Any] = {}

    def change(self, constant: str, seconds: object, module: str = "launch") -> None:
        """Another value for a constant, in this job's copy of the program."""
        source = self.program / "argus" / "launcher" / f"{module}.py"
        text, changed = re.subn(rf"^{constant} = [\d., <]+$", f"{constant} = {seconds}", source.read_text(), flags=re.M)
        assert changed == 1
        source.write_text(text)

    def write_plan(self, mode: str) -> None:
        plan = {"code_path": str(self.code_path), "code_id": CODE_ID, "module": "verl.trainer.fake"}
        plan |= {"overrides": [f"mode={mode}", "note='a, b'"], "driver_env": {"VERL_FULL_DETERMINISM": "1"}}
        self.archive.write_json("config/plan.json", {**plan, **self.policy})

    def start(self, mode: str, attempt: int = 1, **env: str) -> subprocess.Popen[bytes]:
        self.write_plan(mode)
        environment = {
            "PATH": str(self.path),
            "PYTHONPATH": str(self.code_path),
            "VERL_FILE_LOGGER_PATH": str(self.archive.path / "logs" / f"metrics-{attempt}.jsonl"),
            "ARGUS_VERL_JOB": self.archive.submission_id,
            "ARGUS_VERL_ARCHIVE": str(self.archive.path),
            **env,
        }
        command = [sys.executable, str(self.program), "launch", "run", str(self.archive.path), str(attempt)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=environment, cwd=self.cwd, **pipes)
        self.started.append(process)
        return process

    def run(self, mode: str, attempt: int = 1, **env: str) -> tuple[int, str]:
        process = self.start(mode, attempt, **env)
        output, errors = process.communicate(timeout=240)
        assert errors == b""
        return process.returncode, output.decode()

    def log(self) -> str:
        return self.archive.driver_log.read_text() if self.archive.driver_log.exists() else ""

    def events(self) -> list[str]:
        return [line["event"] for line in lines_of(self.archive, "events.jsonl")]

    def index(self) -> list[dict[str, Any]]:
        """What evidence there is."""
        return lines_of(self.archive, "debug/index.jsonl")

    def has_ended(self) -> bool:
        """Whether the end is recorded, and the rest is left to the steward."""
        state = self.archive.status_json()["state"]
        return state in ("SUCCEEDED", "FAILED", "STOPPED") and self.events()[-1:] == [state]
