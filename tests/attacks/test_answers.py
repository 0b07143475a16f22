"""A job answers in place of a module: nothing of its answer becomes a variable, a host or an action of Ansible.

A real Ansible of root runs modules on a host of a Slurm job. In place of srun there is another user, in whose home a
job has left a usercustomize.py, which Python runs before any module.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible
import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from system import REPO, playbook, said

PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
OTHER = 65534
# Runs what a relay on the host would pass on.
SRUN = """#!/bin/sh
while [ "$1" != -c ]; do shift; done
shift 3
exec env -i PATH=/usr/bin:/bin HOME={home} {user} "$@"
"""
JOB = """
import os, sys
home = os.environ["HOME"]
answers = sorted(os.listdir(home + "/answers"))
if answers and sys.argv[0] in ("", "-"):
    sys.stdout.write(open(home + "/answers/" + answers[0], encoding="utf-8").read())
    sys.stdout.flush()
    os.remove(home + "/answers/" + answers[0])
    os._exit(0)
"""
VARIABLES = {
    "cluster_engine": "sh -c 'touch /tmp/argus-verl-attack'",
    "job_notify": "{{ lookup('env', 'AWS_SECRET_ACCESS_KEY') }}",
    **{"ansible_connection": "local", "ansible_python_interpreter": "/bin/false", "ansible_become": True},
    **{"discovered_interpreter_python": "/bin/false", "ansible_host": "192.0.2.1", "forged": True},
}
ADDED = {"host_name": "forged", "groups": ["machines"], "host_vars": VARIABLES}
FACTS = {"ansible_facts": VARIABLES}
# Each has what its module documents, stdout, and something that Ansible acts on.
ANSWERS: list[Any] = [
    FACTS,
    {**FACTS, "_ansible_facts_cacheable": True, "_ansible_delegated_vars": {"ansible_delegated_host": "box"}},
    {"add_host": ADDED, "changed": True},
    {"add_group": "machines", "parent_groups": ["all"], "changed": True},
    {"add_host": {"host_name": "box", "host_vars": VARIABLES}, "changed": True},
    {"ansible_stats": {"data": {"forged": 1}, "per_host": True}},
    {"warnings": ["forged \x1b[2J"], "deprecations": [{"msg": "forged", "version": "9"}]},
    {"invocation": {"module_args": {"forged": True}}},
    {"unreachable": True},
    {"_ansible_notify": ["forged"], "_ansible_no_log": True, "_ansible_item_label": "forged"},
    {"ansible_loop_var": "cluster_engine", "cluster_engine": "forged"},
    {"skipped": True, **FACTS},
    {"failed": True, **FACTS, "exception": "forged"},
    {"results": [FACTS], **FACTS},
]
TAGGED = {"__ansible_type": "_AnsibleTaggedDict", "value": {**FACTS, "stdout": "said"}, "tags": []}
TEXTS = [
    *(json.dumps({"stdout": "said", **answer}) for answer in ANSWERS),
    "forged {\n" + json.dumps({**FACTS, "stdout": "said"}) + "\nforged }x\n",
    json.dumps({**FACTS, "stdout": "said"}).replace("ansible_facts", "\\u0061nsible_facts"),
    '{"ansible_facts": {}, "stdout": "said", ' + json.dumps(FACTS)[1:],
    json.dumps(TAGGED),
]
# failed_when and ignore_unreachable: the play goes on, as those of the collection do where a node may fail.
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Run modules in the node, for all hosts
      ansible.builtin.command: "true"
      delegate_to: node
      run_once: true
      loop: "{{ range(count) | list }}"
      register: asked
      failed_when: false
      ignore_unreachable: true
      changed_when: false
    - name: Run one for the node itself
      ansible.builtin.command: "true"
      register: own
      when: inventory_hostname == "node"
      changed_when: false
    - name: Check what hosts have, and which there are
      ansible.builtin.assert:
        that:
          - cluster_engine == engine
          - job_notify == ''
          - forged is undefined
          - hostvars[inventory_hostname].ansible_facts | default({}) == {}
          - groups.all | sort == ["box", "node"]
          - groups.machines == ["box"]
          - groups | sort == ["all", "machines", "ungrouped"]
          - inventory_hostname != "node" or own.stdout == "said"
          - asked.results | map(attribute="stdout", default="") | select("match", "said") | length == count - 1
          - asked.results | map("list") | flatten | select("match", "warnings|invocation|add_|unreach") | length == 0
        quiet: true
    - name: The machine's modules still run as before
      ansible.builtin.command: "echo here"
      when: inventory_hostname == "box"
      changed_when: false
      register: here
      failed_when: here.stdout != "here"
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the other user reaches, with a command srun and a job's home."""
    with tempfile.TemporaryDirectory(prefix="argus-answers-") as temporary:
        directory = Path(temporary)
        directory.chmod(0o755)
        home, srun = directory / "home", directory / "bin" / "srun"
        srun.parent.mkdir()
        command = [PYTHON, "-c", "import site; print(site.getusersitepackages())"]
        result = subprocess.run(command, env={"HOME": str(home)}, capture_output=True, text=True, check=True)
        site = Path(result.stdout.strip())
        site.mkdir(parents=True)
        (home / "answers").mkdir()
        (site / "usercustomize.py").write_text(JOB)
        for number, text in enumerate([*TEXTS, json.dumps({**FACTS, "stdout": "said"})]):
            (home / "answers" / f"{number:03d}").write_text(text)
        user = ""
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{OTHER}:{OTHER}", str(home)], check=True)
            user = f"setpriv --reuid {OTHER} --regid {OTHER} --clear-groups"
        srun.write_text(SRUN.format(home=home, user=user))
        srun.chmod(0o755)
        yield directory


@pytest.mark.parametrize("injected", [False, True])
def test_an_answer_of_a_job_sets_nothing(place: Path, injected: bool) -> None:
    node = {
        **{"ansible_connection": "argus.verl.srun", "ansible_python_interpreter": PYTHON},
        **{"slurm_job_id": 7, "slurm_node": "node"},
    }
    hosts = {"machines": {"hosts": {"box": {"ansible_connection": "local", "ansible_python_interpreter": PYTHON}}}}
    variables = {"cluster_engine": "docker", "engine": "docker", "job_notify": "", "count": len(TEXTS)}
    inventory, play = place / "hosts.json", place / "play.yml"
    inventory.write_text(json.dumps({"all": {"children": hosts, "hosts": {"node": node}, "vars": variables}}))
    play.write_text(PLAY)
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"ANSIBLE_INJECT_FACT_VARS": str(injected), "ANSIBLE_HOME": str(place / "ansible")}
    environment |= {"ANSIBLE_SHOW_CUSTOM_STATS": "true", "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    command = ["ansible-playbook", "-i", str(inventory), str(play)]
    done = subprocess.run(command, cwd=REPO, env=environment, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # All of them were asked for.
    assert list((place / "home" / "answers").iterdir()) == []
    assert "forged" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("environment", "variables", "sentence"),
    [
        # Of nodes that are reached over SSH without a container, Ansible itself reads the answers.
        ({"ANSIBLE_INJECT_FACT_VARS": "true"}, {}, "set inject_facts_as_vars = false"),
        ({}, {"cluster_engine": "sh -c id"}, "cluster_engine is 'sh -c id'"),
        ({}, {"cluster_engine": ["sh"]}, "cluster_engine is ['sh']"),
    ],
)
def test_what_would_let_answers_act_is_refused(
    environment: dict[str, str], variables: dict[str, Any], sentence: str
) -> None:
    done = playbook("validate", check=False, environment=environment, **variables)
    assert done.returncode == 2 and sentence in said(done.stdout), done.stdout


# What ansible-core reads in results, and does no more with than to judge or to show this one task.
OF_THE_TASK = {
    *("attempts", "changed", "diff", "exception", "failed", "failed_when_result", "failed_when_suppressed_exception"),
    *("finished", "msg", "rc", "results", "retries", "skip_reason", "skipped", "stderr", "stdout", "content"),
    *("stderr_lines", "stdout_lines"),
    *("encoding", "size", "appears_binary", "data", "per_host", "aggregate", "messages", "reason", "state", "error"),
    *("socket_path", "started", "ansible_job_id"),
}


def test_every_key_that_ansible_reads_is_known() -> None:
    """Of the release that runs here: one with a further key is noticed."""
    root = Path(ansible.__file__).parent
    sources = ["strategy/__init__.py", "strategy/linear.py", "action/__init__.py", "action/normal.py"]
    files = [*(root / "plugins" / name for name in sources), *sorted((root / "executor").glob("task_*.py"))]
    of_result = r"(?:result|result_item|_?return_data|data)"
    pattern = re.compile(
        rf"""['"](\w+)['"] (?:not )?in \w*\.?{of_result}\b|{of_result}(?:\.get\(|\.pop\(|\[)['"](\w+)"""
    )
    keys = {name for file in files for pair in pattern.findall(file.read_text()) for name in pair if name}
    assert {"ansible_facts", "add_host", "warnings"} < keys
    assert {key for key in keys - OF_THE_TASK if not streams.is_acted_on(key)} == set()
