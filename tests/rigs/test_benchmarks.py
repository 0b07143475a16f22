"""The benchmarks run, in their smallest sizes. What they measure here says nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from system import ENVIRONMENT, REPO

BENCHMARKS = REPO / "benchmarks"
# These have a cluster of their own for minutes.
LONG = {"machines", "processes", "slurm", "speed"}
SMALLEST = {
    "archives": (["--archives", "5", "--rounds", "1"], r"cluster_down: archives to be closed +\d+ ms"),
    "dataset_check": (["--rows", "100", "--rounds", "1"], r"columns +[\d.]+ s"),
    "redaction": (["--mib", "0.01"], r"lines of JSON +\d+ MiB/s"),
    "steward": (
        ["--jobs", "6", "--running", "2", "--waiting", "2", "--intervals", "1", "--seconds", "6"],
        r"/s +/api/",
    ),
    "steward_day": (["--hours", "1", "--jobs", "1"], r"events: Counter"),
    "scale": (["2", "--rounds", "1"], r"\n +2  cluster_up +[\d.]+ +[\d.]+"),
}
INVENTORIES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import loopback, machines, processes, raw_way, scale, slurm, speed
pods = processes.Pods("processes", {"ctl": "198.18.78.10", "gpu-0": "198.18.78.11"})
print(json.dumps([scale.inventory(machines.RIG), processes.inventory(pods), slurm.RAW_SCRIPT]))
"""


def test_each_benchmark_is_one_of_these() -> None:
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if path.read_text().startswith("#!")}
    assert scripts == {*LONG, *SMALLEST}


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs(name: str) -> None:
    arguments, expected = SMALLEST[name]
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(expected, done.stdout), done.stdout


def test_what_long_benchmarks_give_to_others_is_valid(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INVENTORIES, str(BENCHMARKS)]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    *inventories, script = json.loads(done.stdout)
    for number, inventory in enumerate(inventories):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(inventory))
        validate = ["ansible-playbook", "-i", str(file), str(REPO / "playbooks" / "validate.yml")]
        done = subprocess.run(validate, env=ENVIRONMENT, text=True, capture_output=True, check=False)
        assert "Inventory fine: " in done.stdout, done.stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
