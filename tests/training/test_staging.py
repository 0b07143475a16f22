"""stage.yml with a slow hub in the head's container: two runs at once, a run that is killed, and a script of verl."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


SCRIPTED = {"name": "scripted", "script": "gsm8k.py", "code_path": "verl-scripts"}
# A repository of the hub as that of GSM8K is: its own configurations, and a split in each file.
GSM8K = """
import pathlib
import pandas
repository = pathlib.Path("/tmp/hub/datasets/openai/gsm8k")
(repository / "main").mkdir(parents=True)
splits = "".join(f"  - {{split: {split}, path: main/{split}-*}}\\n" for split in ("train", "test"))
(repository / "README.md").write_text(f"---\\nconfigs:\\n- config_name: main\\n  data_files:\\n{splits}---\\n")
for split, count in (("train", 6), ("test", 2)):
    rows = [{"question": f"{n} + 1000?", "answer": f"Easy.\\n#### {n + 1000:,}"} for n in range(count)]
    pandas.DataFrame(rows).to_parquet(repository / "main" / f"{split}-00000-of-00001.parquet")
"""
# Reads and writes as examples/data_preprocess/gsm8k.py of verl does. No release on PyPI has that file.
SCRIPT = """
import argparse
import os

import datasets
from verl.utils.hdfs_io import makedirs

parser = argparse.ArgumentParser()
parser.add_argument("--local_save_dir", default="~/data/gsm8k")
directory = parser.parse_args().local_save_dir
makedirs(directory, exist_ok=True)
for split, rows in datasets.load_dataset("openai/gsm8k", "main").items():
    rows = rows.map(
        lambda row, index, split=split: {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": row.pop("question")}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row.pop("answer").split("#### ")[1].replace(",", "")},
            "extra_info": {"split": split, "index": index},
        },
        with_indices=True,
    )
    rows.to_parquet(os.path.join(directory, f"{split}.parquet"))
"""
ROWS = """
import json
import pandas
tables = [pandas.read_parquet(f"/private/datasets/scripted/{split}.parquet") for split in ("train", "val")]
print(json.dumps([[row["ground_truth"] for row in table["reward_model"]] for table in tables]))
"""


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
    on_node(HEAD, "python3", "-c", GSM8K)
    subprocess.run(["docker", "cp", "--quiet", str(REPO / "tests" / "hub.py"), f"{HEAD}:/tmp/hub.py"], check=True)
    server = ["python3", "/tmp/hub.py", "--root", "/tmp/hub", "--port", str(PORT), "--rate", "100000", "--log", LOG]
    started = ["sh", "-c", 'echo $$ >/tmp/hub/pid; exec "$@"', "sh", *server]
    subprocess.run(["docker", "exec", "--detach", HEAD, *started], check=True)
    until(lambda: "ok" in on_node(HEAD, "sh", "-c", f"bash -c ': < /dev/tcp/127.0.0.1/{PORT}' && echo ok || true"))
    yield
    remove()
    on_node(HEAD, "sh", "-c", "kill $(cat /tmp/hub/pid); rm -rf /tmp/hub")


def remove() -> None:
    absent = {
        "staging_models": [{"name": "slow", "state": "absent"}],
        "staging_datasets": [{"name": SCRIPTED["name"], "state": "absent"}],
        "staging_snapshots": [{"code_id": SCRIPTED["code_path"], "state": "absent"}],
    }
    playbook("stage", **{**NOTHING_ELSE, **absent})
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
    return len([each for each in requests if each["method"] == "GET" and each["path"].startswith("/cdn/")])


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


def test_a_killed_module_is_reported_and_the_next_run_completes(hub: None, tmp_path: Path) -> None:
    with staging() as first:
        until(lambda: progress().get("done") and downloads())
        pid = str(progress()["pid"])
        # It ends nothing before it is killed, however long the second one takes to come.
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

    # All of it is there, and a script of a checkout gets its rows from the same hub.
    shutil.copytree(SHARED_ROOT / "common/code/verl/verl-0.9.1/verl", tmp_path / "verl")
    script = tmp_path / "examples" / "data_preprocess" / SCRIPTED["script"]
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    checkout = {"source": str(tmp_path), "code_id": SCRIPTED["code_path"]}
    more = {"staging_snapshots": [checkout], "staging_datasets": [SCRIPTED], "staging_verify": "full"}
    shown = said(playbook("stage", **{**STAGE, **more}).stdout)
    assert "model slow exists /private/common/models/slow" in shown
    assert "dataset scripted staged /private/datasets/scripted" in shown
    written = on_node(HEAD, "python3", "-c", ROWS).splitlines()[-1]
    assert json.loads(written) == [[f"{1000 + number}" for number in range(count)] for count in (6, 2)]
