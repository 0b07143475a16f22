# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What merges a checkpoint on a worker. It arrives there by value, so it imports nothing but the standard library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

# verl writes a line for each shard; the end of a traceback is enough.
SHOWN_BYTES = 8192
# Ends with the process of Ray's worker (PR_SET_PDEATHSIG), also if that one is killed.
PROGRAM = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
runpy.run_module("verl.model_merger", run_name="__main__", alter_sys=True)
"""


def merge(code_path: str, checkpoint: str, target: str, hf_home: str, seconds: float) -> tuple[int, str]:
    """Run verl's model_merger on the shards of a checkpoint; its exit code, and the end of its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(filter(None, (code_path, os.environ.get("PYTHONPATH", "")))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": hf_home,
        "HF_HUB_OFFLINE": "1",
    }
    arguments = ["merge", "--backend", "fsdp", "--local_dir", checkpoint, "--target_dir", target]
    process = subprocess.Popen(
        # -P: nothing is imported from the working directory.
        [sys.executable, "-P", "-c", PROGRAM, *arguments],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    tail = b""
    with process:
        # Read to the end, however much it is: a full pipe would stop the process.
        while part := os.read(process.stdout.fileno(), 1 << 16) if process.stdout else b"":
            tail = (tail + part)[-SHOWN_BYTES:]
    timer.cancel()
    return process.returncode, tail.decode(errors="replace")
