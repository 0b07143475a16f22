"""The action of staging for real, as Ansible runs it, with an engine that runs the program with this Python."""

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

from argus.common.identity import NODE

SHOWN = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", NODE: "head"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    node_in(directory)
    return directory


def run(root: Path, *flags: str, report: bool = False, **options: Any) -> dict[str, Any]:
    """What the action returns, with its only item, and as "failed" and "shown" whether it did and what is shown."""
    place = {"name": "head", "engine": str(root / "engine"), "shared_root": str(root)}
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "argus.verl.stage", *flags]
    arguments = json.dumps({"node": place, "report": report, **options})
    variables = ["-e", f"ansible_python_interpreter={sys.executable}", "-a", arguments]
    done = subprocess.run(
        [*command, *variables], env={**os.environ, **SHOWN}, text=True, capture_output=True, check=False
    )
    shown, _arrow, returned = done.stdout.partition("=> ")
    assert returned, done.stdout + done.stderr
    result = json.loads(returned)
    (item,) = result["staged"] if len(result["staged"]) == 1 else [{}]
    return {**item, **result, "failed": done.returncode != 0, "shown": shown}


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

    planned = run(root, "--check", "--diff", datasets=[options])
    assert (planned["changed"], planned["status"], planned["notes"]) == (True, "staged", [])
    assert f"+rl_dataset {target}" in planned["shown"]
    assert f"sums: would upload {raw.stat().st_size} bytes of raw.jsonl of " in planned["shown"]
    assert not target.exists()

    warning = "train: has the same prompt as an earlier row: 1 row, counted from 0: 4 (as 1)"
    made = run(root, datasets=[options])
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
    again = run(root, datasets=[options])
    assert (again["changed"], again["status"], again["notes"], again["report"]) == (False, "exists", [], [warning])
    assert [path.name for path in target.parent.iterdir()] == ["sums"]


def test_all_errors_are_in_the_message(tmp_path: Path, root: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("question,answer\na,1\n,2\nb,\n")
    dataset = {
        "name": "sums",
        "files": {"train": [str(raw)]},
        "columns": {"prompt": "question", "ground_truth": "answer"},
        "data_source": "x",
        "val_rows": 1,
    }
    said = run(root, datasets=[dataset])
    assert said["failed"]
    assert said["findings"][0]["problem"].startswith(f"{root}/datasets/sums: ")
    assert "counted from 0: 1 (user)" in said["msg"] and "counted from 0: 2 ('')" in said["msg"]
    assert list((root / "datasets").iterdir()) == []


def test_code_of_users(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "reward.py"
    source.write_text("print('new')\n")
    target = root / "user" / "code" / "reward.py"
    target.parent.mkdir(parents=True)
    target.write_text("print('old')\n")
    planned = run(root, "--check", "--diff", user_code=[str(source)])
    assert planned["changed"] and "-print('old')\n+print('new')" in planned["shown"]
    assert run(root, user_code=[str(source)])["status"] == "staged"
    assert target.read_text() == source.read_text()
    assert run(root, user_code=[str(source)])["changed"] is False
    for name in ("a.py", "data.txt", "__pycache__/a.pyc"):
        (tmp_path / "pack" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / name).write_text(name)
    packed = run(root, user_code=[str(tmp_path / "pack")])
    assert (packed["path"], packed["changed"]) == (str(target.parent / "pack"), True)
    assert sorted(file.name for file in (target.parent / "pack").iterdir()) == ["a.py", "data.txt"]
    missing = run(root, user_code=[f"{source}x"])
    assert missing["failed"] and missing["findings"][0]["problem"].startswith(f"{source}x: ")


def test_a_token_is_not_shown(root: Path) -> None:
    options = {"hf_endpoint": "http://hub.example", "hf_token": "hf_secret"}
    said = run(root, "-vvv", models=[{"name": "x", "source": "org/name"}], **options)
    assert said["failed"] and "_secret" not in json.dumps(said)


def test_values_of_yaml_and_refused_items_beside_good_ones(root: Path, tmp_path: Path) -> None:
    """Through Ansible's own values: a date, a number and an expression are passed on as the program can read them."""
    file = tmp_path / "play.yml"
    file.write_text(
        f"""
- hosts: localhost
  gather_facts: false
  vars:
    tiny: {{name: "{{{{ 'su' ~ 'ms' }}}}", tiny: "{{{{ 1 == 1 }}}}"}}
  tasks:
    - argus.verl.stage:
        node: {{name: head, engine: {root}/engine, shared_root: {root}}}
        models: [{{name: m, revision: 2026-01-01, source: 7}}]
        datasets: "{{{{ [{{'name': 'x', 'files': {{'train': ['a', '/b']}}}}, tiny] }}}}"
"""
    )
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(file)]
    done = subprocess.run(
        command, env={**os.environ, **SHOWN, "COLUMNS": "300"}, text=True, capture_output=True, check=False
    )
    shown = " ".join(done.stdout.split())
    assert done.returncode and f"dataset sums staged {root}/datasets/sums" in shown, done.stdout + done.stderr
    assert "error dataset x" in shown and "Traceback" not in done.stdout + done.stderr
