"""The module for real, as Ansible runs it, with the pyarrow of this Python."""

from __future__ import annotations

import hashlib
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


def questions(count: int) -> str:
    return "".join(json.dumps({"question": f"{number} + 1?", "answer": number + 1}) + "\n" for number in range(count))


UPLOADED: dict[str, Any] = {
    "columns": {"prompt": "question", "ground_truth": "answer"},
    "data_source": "openai/gsm8k",
    "val_rows": 1,
}


def test_a_file_of_the_controller_from_first_to_last(tmp_path: Path, root: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text(questions(5))
    options = {**UPLOADED, "files": {"train": [str(raw)]}, "from": "controller"}
    planned = run(root, "--check", **options)
    assert (planned["changed"], planned["status"]) == (True, "staged")
    assert f"sums: would upload {raw.stat().st_size} bytes of raw.jsonl of " in planned["shown"]
    assert list(root.iterdir()) == []
    made = run(root, **options)
    assert (made["status"], made["rows"]) == ("staged", {"train": 4, "val": 1})
    # Nothing of the upload is left.
    assert [path.name for path in (root / "datasets").iterdir()] == ["sums"]
    # Another time and place, the same content: nothing is uploaded.
    raw = raw.rename(tmp_path / "other" / raw.name) if (tmp_path / "other").mkdir() is None else raw
    os.utime(raw, (1, 1))
    again = run(root, **{**options, "files": {"train": [str(raw)]}})
    assert (again["changed"], again["status"]) == (False, "exists")
    raw.write_text(questions(6))
    changed = run(root, **{**options, "files": {"train": [str(raw)]}})
    assert changed["failed"] and f"was staged without {raw} of " in changed["msg"]
    # Who does not have the file can still stage the inventory.
    raw.unlink()
    assert run(root, **{**options, "files": {"train": [str(raw)]}})["status"] == "exists"
    missing = run(root, **{**options, "name": "others"})
    assert "has no file" in missing["msg"] and missing["finding"]["where"] == "files.train"


def test_an_interrupted_upload_continues(tmp_path: Path, root: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text(questions(3000))
    content = raw.read_bytes()
    place = root / "datasets" / ".sums.upload" / hashlib.sha256(content).hexdigest() / "raw.jsonl"
    place.parent.mkdir(parents=True)
    place.write_bytes(content[:1000])
    # What has arrived is not read again from the controller: a wrong beginning shows in the hash.
    options = {**UPLOADED, "files": {"train": [str(raw)]}, "from": "controller"}
    assert run(root, **options)["rows"] == {"train": 2999, "val": 1}
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x" * 1000)
    refused = (
        run(root, **{**options, "name": "other"}) if place.parents[1].rename(root / "datasets/.other.upload") else {}
    )
    assert "changed while it was copied" in refused["msg"]
    assert run(root, **{**options, "name": "other"})["status"] == "staged"
