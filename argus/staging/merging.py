# SPDX-License-Identifier: Apache-2.0
"""The function that merges a checkpoint, which runs in a task of Ray on a worker.

Ray sends the code of this file there, so it imports at the top only the standard library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

# verl writes a line for each shard; of its output, the end of a traceback is enough.
MAX_OUTPUT_BYTES = 8192
# The kernel kills this program with its parent, the process of Ray's worker, even if that is killed (PR_SET_PDEATHSIG).
MERGER_PROGRAM = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
runpy.run_module("verl.model_merger", run_name="__main__", alter_sys=True)
"""
# The directory in a merged model in which verl's merger writes a LoRA adapter, beside the weights of the base model.
ADAPTER_DIRECTORY = "lora_adapter"


def merge(
    code_path: str, checkpoint: str, target: str, hf_home: str, seconds: float, adapter: str = ""
) -> tuple[int, str]:
    """Runs verl's model_merger on the shards of a checkpoint. Returns its exit code and the end of its output.

    code_path: the snapshot of verl. seconds: after which it is killed. adapter: the path of the LoRA adapter with which
    the training began; empty if there was none.
    """
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
        [sys.executable, "-P", "-c", MERGER_PROGRAM, *arguments],
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
        # All output is read: a full pipe would stop the process.
        while part := os.read(process.stdout.fileno(), 1 << 16) if process.stdout else b"":
            tail = (tail + part)[-MAX_OUTPUT_BYTES:]
    timer.cancel()
    if not process.returncode and Path(target, ADAPTER_DIRECTORY).is_dir():
        merge_adapter(target, adapter)
    return process.returncode, tail.decode(errors="replace")


def merge_adapter(model: str, initial_adapter: str) -> None:
    """Adds a LoRA adapter to the weights of its base model, as peft does. Raises ValueError if that is not exact.

    model: the directory that verl's merger has written. initial_adapter: the path of the adapter with which the
    training began, whose configuration is complete, unlike the one that verl saves; empty if there was none.
    """
    import peft
    import transformers

    adapter = str(Path(model, ADAPTER_DIRECTORY))
    config = peft.PeftConfig.from_pretrained(initial_adapter or adapter)
    if not config.lora_alpha:
        raise ValueError("the checkpoint does not say the lora_alpha of its adapter")
    (architecture,) = transformers.AutoConfig.from_pretrained(model).architectures
    base, loaded = getattr(transformers, architecture).from_pretrained(model, dtype="auto", output_loading_info=True)
    if loaded["missing_keys"]:
        raise ValueError("the checkpoint has an adapter without its base model, as save_lora_only=True saves it")
    merged = peft.get_peft_model(base, config)
    result = peft.set_peft_model_state_dict(merged, peft.load_peft_weights(adapter, device="cpu"))
    if result.unexpected_keys:
        raise ValueError(f"peft has no place for {result.unexpected_keys[0]} of the adapter")
    merged.merge_and_unload().save_pretrained(model)
    shutil.rmtree(adapter)
