"""Actions of staging for real, as Ansible runs them, with an engine that runs the program with this Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program_machine import node_in
from pyarrow import parquet

from argus.launcher.identity import NODE

SHOWN = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", NODE: "head"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    node_in(directory)
    return directory


def run(root: Path, module: str, *flags: str, **options: Any) -> dict[str, Any]:
    """What the action returns, and as "failed" and "shown" whether it did and what Ansible shows before."""
    place = {"name": "head", "engine": str(root / "engine"), "shared_root": str(root)}
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", f"argus.verl.{module}", *flags]
    variables = ["-e", f"ansible_python_interpreter={sys.executable}", "-a", json.dumps({"node": place, **options})]
    done = subprocess.run(
        [*command, *variables], env={**os.environ, **SHOWN}, text=True, capture_output=True, check=False
    )
    shown, _arrow, returned = done.stdout.partition("=> ")
    assert returned, done.stdout + done.stderr
    return {**json.loads(returned), "failed": done.returncode != 0, "shown": shown}


def test_a_dataset_from_first_to_last(tmp_path: Path, root: Path) -> None:
    rows = [{"question": f"{number} + 1?", "answer": number + 1} for number in (0, 1, 2, 3, 1)]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {
        "name": "sums",
        "files": {"train": [str(raw)]},
        "from": "controller",
        "columns": {"prompt": "question", "ground_truth": "answer"},
        "data_source": "openai/gsm8k",
        "val_rows": 1,
    }
    target = root / "datasets" / "sums"

    planned = run(root, "rl_dataset", "--check", "--diff", **options)
    assert (planned["changed"], planned["status"], planned["notes"]) == (True, "staged", [])
    assert f"+rl_dataset {target}" in planned["shown"]
    assert f"sums: would upload {raw.stat().st_size} bytes of raw.jsonl of " in planned["shown"]
    assert not target.exists()

    warning = "train: has the same prompt as an earlier row: 1 row, counted from 0: 4 (as 1)"
    made = run(root, "rl_dataset", **options)
    assert {key: made[key] for key in ("changed", "name", "path", "status", "notes", "rows", "report")} == {
        "changed": True,
        "name": "sums",
        "path": str(target),
        "status": "staged",
        "notes": [warning],
        "rows": {"train": 4, "val": 1},
        "report": [warning],
    }
    assert parquet.read_table(target / "val.parquet").to_pylist() == [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": "0 + 1?"}],
            "ability": "",
            "reward_model": {"style": "rule", "ground_truth": "1"},
            "extra_info": {"split": "val", "index": 0},
        }
    ]
    again = run(root, "rl_dataset", **options)
    assert (again["changed"], again["status"], again["notes"], again["report"]) == (False, "exists", [], [warning])
    assert [path.name for path in target.parent.iterdir()] == ["sums"]


def test_all_errors_are_in_the_message(tmp_path: Path, root: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("question,answer\na,1\n,2\nb,\n")
    said = run(
        root,
        "rl_dataset",
        name="sums",
        files={"train": [str(raw)]},
        columns={"prompt": "question", "ground_truth": "answer"},
        data_source="x",
        val_rows=1,
    )
    assert said["failed"]
    assert said["finding"]["where"] == f"{root}/datasets/sums"
    assert "counted from 0: 1 (user)" in said["msg"] and "counted from 0: 2 ('')" in said["msg"]
    assert list((root / "datasets").iterdir()) == []


def test_code_of_users(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "reward.py"
    source.write_text("print('new')\n")
    target = root / "user" / "code" / "reward.py"
    target.parent.mkdir(parents=True)
    target.write_text("print('old')\n")
    planned = run(root, "user_code", "--check", "--diff", src=str(source))
    assert planned["changed"] and "-print('old')\n+print('new')" in planned["shown"]
    assert run(root, "user_code", src=str(source))["status"] == "staged"
    assert target.read_text() == source.read_text()
    assert run(root, "user_code", src=str(source))["changed"] is False
    missing = run(root, "user_code", src=f"{source}x")
    assert missing["failed"] and missing["finding"]["where"] == f"{source}x"


def test_a_token_is_not_shown(root: Path) -> None:
    options = {"name": "x", "source": "org/name", "endpoint": "http://hub.example", "token": "hf_secret"}
    said = run(root, "hf_model", "-vvv", **options)
    assert said["failed"] and "hf_secret" not in json.dumps(said)
