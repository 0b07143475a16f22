"""The module for real, as Ansible runs it, with the pyarrow of this Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.modules import rl_dataset
from pyarrow import parquet

SHOWN = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    return directory


def run(root: Path, *flags: str, **options: Any) -> dict[str, Any]:
    """What the module returns, and as "failed" and "shown" whether it did and what Ansible shows before."""
    arguments = {"shared_root": str(root), "name": "sums", **options}
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "argus.verl.rl_dataset", *flags]
    variables = ["-e", f"ansible_python_interpreter={sys.executable}", "-a", json.dumps(arguments)]
    done = subprocess.run(
        [*command, *variables], env={**os.environ, **SHOWN}, text=True, capture_output=True, check=False
    )
    shown, _arrow, returned = done.stdout.partition("=> ")
    return {**json.loads(returned), "failed": done.returncode != 0, "shown": shown}


def call(root: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    """What the module returns in this process, which saves the start of Ansible."""
    with patch_module_args({"shared_root": str(root), "name": "sums", **options}), pytest.raises(SystemExit):
        rl_dataset.main()
    returned = json.loads(capsys.readouterr().out)
    assert isinstance(returned, dict)
    return returned


def test_a_dataset_from_first_to_last(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"{number} + 1?", "answer": number + 1} for number in (0, 1, 2, 3, 1)]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {
        "files": {"train": [str(raw)]},
        "columns": {"prompt": "question", "ground_truth": "answer"},
        "data_source": "openai/gsm8k",
        "val_rows": 1,
    }
    target = root / "datasets" / "sums"

    planned = run(root, "--check", "--diff", **options)
    assert (planned["changed"], planned["status"], planned["notes"]) == (True, "staged", [])
    assert f"+rl_dataset {target}" in planned["shown"]
    assert not target.exists()

    warning = "train: has the same prompt as an earlier row: 1 row, counted from 0: 4 (as 1)"
    made = run(root, **options)
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

    again = call(root, capsys, **options)
    assert (again["changed"], again["status"], again["notes"], again["report"]) == (False, "exists", [], [warning])

    gone = call(root, capsys, state="absent")
    assert (gone["changed"], gone["status"], target.exists()) == (True, "removed", False)


def test_all_errors_are_in_the_message(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("question,answer\na,1\n,2\nb,\n")
    said = call(
        root,
        capsys,
        files={"train": [str(raw)]},
        columns={"prompt": "question", "ground_truth": "answer"},
        data_source="x",
        val_rows=1,
    )
    assert said["failed"]
    assert said["finding"]["where"] == f"{root}/datasets/sums"
    assert said["msg"].splitlines() == [
        f"{root}/datasets/sums: is not fit for training:",
        "- train: has an empty user or assistant message: 1 row, counted from 0: 1 (user)",
        "- train: has no reward_model.ground_truth: 1 row, counted from 0: 2 ('')",
        " Correct the rows, and stage it again.",
    ]
    assert list((root / "datasets").iterdir()) == []
