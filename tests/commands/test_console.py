"""The output of real runs of ansible-playbook, without a terminal unless a test says otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from argus.common.text import CONTROL

REPO = Path(__file__).resolve().parents[2]
SECRET = "wandb-3f7c9a1b"
CRASHING_MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
AnsibleModule(argument_spec={})
raise ZeroDivisionError("boom")
"""


def run(tmp_path: Path, tasks: str, *arguments: str, hosts: str = "a", **environment: str) -> tuple[int, list[str]]:
    """Run tasks on local hosts; the exit code, and the lines of the output without banners' stars."""
    (tmp_path / "library").mkdir(exist_ok=True)
    (tmp_path / "library" / "crash.py").write_text(CRASHING_MODULE)
    book = tmp_path / "play.yml"
    head = "- name: Try\n  hosts: all\n  gather_facts: false\n"
    book.write_text(tasks if tasks.startswith("- hosts") else f"{head}  tasks:\n{tasks}")
    interpreter = f"ansible_python_interpreter={sys.executable}"
    inventory = ["-i", "".join(f"{host}," for host in hosts.split()), "-c", "local", "-e", interpreter]
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "ANSIBLE_FORCE_COLOR")}
    done = subprocess.run(
        ["ansible-playbook", *inventory, str(book), *arguments],
        cwd=tmp_path,
        env={**env, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path / "home"), **environment},
        text=True,
        capture_output=True,
        check=False,
    )
    lines = [line.rstrip("* ") if line.startswith(("PLAY", "TASK", "RUNNING")) else line for line in
             done.stdout.splitlines()]  # fmt: skip
    return done.returncode, [line for line in [*lines, *done.stderr.splitlines()] if line]


def test_errors_of_other_modules(tmp_path: Path) -> None:
    tasks = """
    - name: Program
      ansible.builtin.command: sh -c 'seq 2; echo broken >&2; exit 3'
      ignore_errors: true
    - name: Variable
      ansible.builtin.debug: {msg: "{{ missing.one }}"}
      ignore_errors: true
    - name: Check
      argus.verl.report:
        title: Inventory
        findings: [{where: head, problem: has no hosts, remedy: add one, severity: error}]
      ignore_errors: true
    - name: Crash
      crash:
      ignore_errors: true
    - name: Judged
      ansible.builtin.command: "true"
      failed_when: true
      ignore_errors: true
    - name: Items
      ansible.builtin.command: sh -c 'exit {{ item }}'
      loop: [0, 4]
      changed_when: false
      ignore_errors: true
    - name: Around
      block:
        - name: Inside
          block:
            - name: Handled
              ansible.builtin.fail: {msg: not here}
      rescue:
        - name: Rescue
          ansible.builtin.fail: {msg: "not there\\e[2J"}
"""
    assert run(tmp_path, tasks) == (
        2,
        [
            "PLAY [Try]",
            "TASK [Program]",
            "ignored: [a]: non-zero return code",
            "  broken",
            "TASK [Variable]",
            "ignored: [a]: Finalization of task args for 'ansible.builtin.debug' failed: Error while resolving value "
            "for 'msg': 'missing' is undefined",
            # An error is shown once.
            "Inventory",
            "SEVERITY  WHERE  WHAT          WHAT TO DO",
            "error     head   has no hosts  add one",
            "TASK [Check]",
            "ignored: [a]: 1 error, see the table above",
            "TASK [Crash]",
            "ignored: [a]: Module failed: boom",
            "TASK [Judged]",
            "ignored: [a]: it failed without a message",
            "TASK [Items]",
            "ignored: [a, 4]: non-zero return code",
            "TASK [Handled]",
            "rescued: [a]: not here",
            "TASK [Rescue]",
            "failed: [a]: not there\\x1b[2J",
            "Failed: a  ok=6 changed=2 failed=1 rescued=1 ignored=6",
        ],
    )


HOSTILE_MODULE = r"""#!/usr/bin/python
# AnsibleModule
import json
evil = "evil \x1b[2J\x1b]0;title\x07 \x9b31m \u202e \r\x08 end"
diff = {"before": "a\n", "after": evil + "\n", "before_header": evil, "after_header": evil}
shown = {"warnings": [evil], "deprecations": [{"msg": evil, "version": "99"}], "diff": diff, "changed": True}
print(evil + json.dumps({**shown, "msg": evil, "exception": evil, "failed": __FAILED__}).join("\n\n") + evil + "\n")
"""


def test_nothing_that_is_shown_controls_the_terminal(tmp_path: Path) -> None:
    """Warnings, deprecations, differences, what surrounds the answer of a module, and errors."""
    (tmp_path / "library").mkdir()
    for name, failed in (("hostile", "False"), ("failing", "True")):
        (tmp_path / "library" / f"{name}.py").write_text(HOSTILE_MODULE.replace("__FAILED__", failed))
    tasks = """
    - name: Answer
      hostile:
    - name: Fail
      failing:
      ignore_errors: true
    - name: Show
      ansible.builtin.debug: {msg: "evil \\e[2J end"}
"""
    for arguments in ([], ["-vvv"]):
        # Colours are not controls: Ansible's own stay.
        colour = {"ANSIBLE_FORCE_COLOR": "true"} if not arguments else {}
        code, lines = run(tmp_path, tasks, "--diff", *arguments, ANSIBLE_DEPRECATION_WARNINGS="true", **colour)
        text = "\n".join(lines)
        assert code == 0 and ("\x1b[0;" in text) == bool(colour)
        for shown in ("[WARNING]: evil", "[DEPRECATION WARNING]: evil", "junk after the JSON data", "+evil", "--- "):
            assert shown in text, text
        assert not CONTROL.search(re.sub(r"\x1b\[[0-9;]*m", "", text) if colour else text)


def test_secrets_stay_hidden(tmp_path: Path) -> None:
    tasks = f"""
    - name: Direct
      ansible.builtin.command: sh -c 'echo {SECRET}; exit 3'
      no_log: true
      ignore_errors: true
    - name: Items
      ansible.builtin.command: sh -c 'echo {{{{ item }}}}; exit 3'
      loop: [{SECRET}]
      no_log: true
      ignore_errors: true
    - name: Template
      ansible.builtin.command: "echo {{{{ ['{SECRET}'].nothing }}}}"
      no_log: true
"""
    code, lines = run(tmp_path, tasks)
    assert code == 2
    assert SECRET not in "\n".join(lines)
    labels = ["ignored: [a]", "ignored: [a, (censored due to no_log)]", "failed: [a]"]
    assert [line.split(": the output has been hidden")[0] for line in lines if "hidden" in line] == labels


def test_several_hosts_with_one_reason(tmp_path: Path) -> None:
    tasks = """- hosts: all
  name: Try
  gather_facts: false
  strategy: ansible.builtin.free
  tasks:
    - name: Leave
      ansible.builtin.meta: end_host
      when: inventory_hostname == 'd'
    - name: Stop
      ansible.builtin.fail: {msg: "no {{ 'disk' if inventory_hostname == 'c' else 'room' }}"}
"""
    code, lines = run(tmp_path, tasks, hosts="a b c d", ANSIBLE_FORKS="1")
    assert code == 2
    assert [line for line in lines if not line.startswith("TASK")] == [
        "PLAY [Try]",
        "failed: [a]: no room",
        "failed: [b]: the same as a",
        "failed: [c]: no disk",
        "Failed: a, b, c of 3 hosts  changed=0 failed=3",
    ]


def test_a_host_that_cannot_be_reached_is_named_once(tmp_path: Path) -> None:
    tasks = "    - ansible.builtin.ping:\n      ignore_unreachable: true\n    - ansible.builtin.ping:\n"
    code, lines = run(tmp_path, tasks, "-e", "ansible_connection=ssh", "-e", "ansible_host=nowhere.invalid")
    shown = [line.partition("]")[0] for line in lines if "[a]" in line]
    assert (code, shown) == (4, ["unreachable, ignored: [a", "unreachable: [a"])
    assert lines[-1].startswith("Failed: a  ")


def test_what_changed_is_shown_and_what_did_not_is_not(tmp_path: Path) -> None:
    (tmp_path / "more.yml").write_text("- name: Included\n  ansible.builtin.command: 'true'\n")
    tasks = f"""
    - name: Quiet
      ansible.builtin.command: "true"
      changed_when: false
    - name: Skipped
      ansible.builtin.command: "true"
      when: false
    - name: Include
      ansible.builtin.include_tasks: more.yml
    - name: File
      ansible.builtin.copy: {{content: "x\\n", dest: "{tmp_path}/x"}}
      notify: Tell
    - name: Elsewhere
      ansible.builtin.command: "true"
      delegate_to: localhost
  handlers:
    - name: Tell
      ansible.builtin.command: "true"
"""
    code, lines = run(tmp_path, tasks, "--diff")
    shown = [line for line in lines if not line.startswith(("---", "+++"))]
    assert (code, shown[0], shown[-1]) == (0, "PLAY [Try]", "Done: 1 host  ok=6 changed=4")
    diff = ["TASK [File]", "@@ -0,0 +1 @@", "+x", "changed: [a]"]
    elsewhere = ["TASK [Elsewhere]", "changed: [a -> localhost]", "RUNNING HANDLER [Tell]", "changed: [a]"]
    assert shown[1:-1] == ["TASK [Included]", "changed: [a]", *diff, *elsewhere]


def test_an_answer_is_all_that_is_shown(tmp_path: Path) -> None:
    """As for the command argus: neither plays nor tasks, and what failed among the errors."""
    tasks = """
    - name: Change something
      ansible.builtin.copy: {content: a, dest: "{{ playbook_dir }}/a"}
    - name: Each
      ansible.builtin.debug: {msg: "{{ item }}"}
      loop: [1, 2]
      changed_when: true
    - name: Show
      argus.verl.report: {title: Jobs, text: [none]}
"""
    assert run(tmp_path, tasks, ARGUS_ANSWER="true") == (0, ["Jobs", "none"])
    tasks += "    - name: Fail\n      ansible.builtin.fail: {msg: no head}\n"
    assert run(tmp_path, tasks, ARGUS_ANSWER="true") == (2, ["Jobs", "none", "failed: [a]: no head"])
