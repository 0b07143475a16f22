"""The block of the README that makes a cluster: its files are what the collection accepts."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path

import yaml

from argus.jobspec.parse import parse_jobspec

REPO = Path(__file__).resolve().parents[2]


def test_the_block_of_the_readme_is_accepted(tmp_path: Path) -> None:
    block = (REPO / "README.md").read_text().partition("```sh\n")[2].partition("```\n")[0]
    files, _export, commands = block.partition("export ANSIBLE_INVENTORY=mine/hosts.yml\n")
    subprocess.run(["bash", "-euc", files], cwd=tmp_path, check=True)
    assert commands.split("\n") == ["argus up", "argus stage", "argus submit grpo.yaml --wait", ""]
    command = ["ansible-playbook", str(REPO / "playbooks/validate.yml")]
    env = {
        **os.environ,
        "ANSIBLE_INVENTORY": str(tmp_path / "mine/hosts.yml"),
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = yaml.safe_load((tmp_path / "mine/jobspecs/grpo.yaml").read_text())
    findings, parsed = parse_jobspec(spec)
    assert parsed and not [finding for finding in findings if finding.severity == "error"], findings
    score = runpy.run_path(str(tmp_path / "mine/rewards/my_rewards.py"))["score"]
    assert (score("gsm8k", "So it is 42.", "42"), score("gsm8k", "So it is 43.", "42")) == (1.0, 0.0)
