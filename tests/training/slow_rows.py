"""Rows for a job that has to run until something happens to it: it waits, and leaves the CPUs to others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

LINE = f"{'noise ' * 170}\n"
# The actors that this process has started; they end with it.
SERVERS: list[Any] = []


class SlowRows(MultiTurnSFTDataset):
    def __getitem__(self, item: int) -> Any:
        # A batch has 16 rows; with eight processes of verl that read them at once, it takes two seconds on average.
        time.sleep(float(os.environ.get("SLOW_ROWS_SECONDS", "1")))
        print(end=LINE * int(os.environ.get("SLOW_ROWS_NOISE", "0")), flush=True)
        return super().__getitem__(item)


class EngineRows(SlowRows):
    """Rows that wait for an inference engine forever, as verl's trainer does for vLLM's worker to take its weights."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.killed = Path(os.environ["ARGUS_VERL_ARCHIVE"], "debug", f"killed-{os.getpid()}")

        class vLLMHttpServer:  # noqa: N801 - verl's name
            def __init__(self, *command: str) -> None:
                # Ray ends the actor's group with it, but not another session.
                subprocess.Popen(command, start_new_session=True)

            def ready(self) -> None: ...

        # The files for validation are a second dataset.
        where = {"num_cpus": 0, "resources": {"worker_node": 0.01}}
        server = ray.remote(vLLMHttpServer).options(name="vllm_server_0_0", get_if_exists=True, **where)
        program = Path(__file__).with_name("rollout_engine.py")
        SERVERS.append(server.remote(sys.executable, str(program), "engine", str(self.killed)))
        ray.get(SERVERS[-1].ready.remote())

    def __getitem__(self, item: int) -> Any:
        while self.killed.exists():
            time.sleep(1)
        return super().__getitem__(item)
