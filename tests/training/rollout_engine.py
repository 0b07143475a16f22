"""The processes of vLLM's engine, with their titles and last words, without a GPU: `rollout_engine.py engine FILE`.

The engine says when its worker was killed. It goes on then, and also without the actor of its server; the file tells.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import ray

TITLES = {"engine": "VLLM::EngineCore", "worker": "VLLM::Worker_TP0"}


def main(role: str, killed: str) -> None:
    # As setproctitle does, with which vLLM names its processes: it may overwrite their environment in /proc.
    ray._raylet.setproctitle(TITLES[role])
    if role == "engine":
        worker, server = subprocess.Popen([sys.executable, __file__, "worker", killed]), os.getppid()
        while worker.poll() is None and os.getppid() == server:
            time.sleep(0.1)
        if worker.returncode:
            at = f"(EngineCore_DP0 pid={os.getpid()}) ERROR {time.strftime('%m-%d %H:%M:%S')}"
            print(
                f"{at} [multiproc_executor.py:231] Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
            )
            print(f"{at} [core.py:710] EngineCore encountered a fatal error.", flush=True)
        Path(killed).touch()
    time.sleep(1e6)


if __name__ == "__main__":
    main(*sys.argv[1:])
