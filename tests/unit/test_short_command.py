"""bin/argus_command.py: which playbook each verb runs, with which variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest
import yaml
from script_module import script_module

from argus import cli
from argus.jobspec.parse import parse_jobspec

REPO = Path(__file__).parents[2]
ARGUS = REPO / "bin" / "argus_command.py"
CONTROLLER = script_module(ARGUS)
# In place of ansible-playbook: what it was called with, a line for each call, and an exit code.
EXITS = 'exit "${CODE:-0}"\n'
RECORDS = f"""#!/bin/sh
for each; do printf '%s\\0' "$each"; done >>"$CALLS"
echo >>"$CALLS"
{EXITS}"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ansible-playbook").write_text(RECORDS)
    (tmp_path / "bin" / "ansible-playbook").chmod(0o755)
    # So that the script finds this one beside its Python.
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    return tmp_path


def run(directory: Path, *arguments: str, code: int = 0, **variables: str) -> tuple[int, list[list[str]], str]:
    """The exit code, the calls of ansible-playbook without the directory of playbooks, and what was printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"CALLS": str(directory / "calls"), "CODE": str(code), **variables}
    (directory / "calls").unlink(missing_ok=True)
    command = [str(directory / "bin" / "python3"), str(ARGUS), *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    lines = (directory / "calls").read_text().splitlines() if (directory / "calls").exists() else []
    calls = [line.removeprefix(f"{REPO}/playbooks/").strip("\0").split("\0") for line in lines]
    return done.returncode, calls, done.stdout + done.stderr


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """The arguments of ansible-playbook, of a command in this process."""
    lines: list[list[str]] = []

    def recorded(line: list[str], *_rest: Any, **_more: Any) -> None:
        lines.append(line)
        raise SystemExit(0)

    for name in ("run", "open_shell"):
        monkeypatch.setattr(CONTROLLER, name, recorded)
    monkeypatch.chdir(tmp_path)

    def of(typed: str) -> list[str]:
        try:
            CONTROLLER.main(typed.split())
        except SystemExit as ended:
            if ended.code:
                raise
        return [word.removeprefix(f"{REPO}/playbooks/") for word in lines.pop()[1:]]

    with patch.dict(os.environ):
        yield of
    assert lines == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("up", "cluster_up.yml"),
        ("down --force -i lab", "cluster_down.yml -i lab -e allow_disruption=true"),
        ("check --tier deep --check", "preflight.yml -e preflight_tier=deep --check"),
        ("status grpo-1", "status.yml -e submission_id=grpo-1"),
        (
            "logs a -f -n 5 --rank 0",
            "logs.yml -e job_wait=true -e job_log_lines=5 -e job_log_rank=0 -e submission_id=a",
        ),
        ("drain gpu-1 -- -e drain_timeout=5 -vv", "drain.yml -e node=gpu-1 -e drain_timeout=5 -vv"),
        ("gc --keep 5", "stage_gc.yml -e keep=5"),
        ("gc --jobs --keep-days 30 --remove", "jobs_gc.yml -e keep_days=30 -e job_gc_remove=true"),
        ("gc --keep 9 --jobs", "jobs_gc.yml -e keep=9"),
        ("stop grpo-1 sft-1", "stop.yml -e submission_id=grpo-1,sft-1"),
        ("session", f"submit.yml -e jobspec={REPO}/roles/job/files/session.yaml"),
    ],
)
def test_a_verb_is_a_playbook_with_variables(ran: Callable[[str], list[str]], typed: str, expected: str) -> None:
    assert ran(typed) == expected.split()


def test_overrides_and_tags_of_a_job(directory: Path) -> None:
    _code, [call], _text = run(directory, "submit", "a b.yaml", "--wait", "x.y=[1, 2]", "--tag", "team=a", "+z='q'")
    assert [*call[:4], call[5]] == ["submit.yml", "-e", "job_wait=true", "-e", "-e"]
    variables = [json.loads(text) for text in call[4::2]]
    assert variables == [{"jobspec": "a b.yaml"}, {"set": ["tags.team=a", "x.y=[1, 2]", "+z='q'"]}]
    # All are in `set`: the program tells keys of the JobSpec from overrides of the trainer.
    typed = ["submit", "a.yaml", "--retries", "2", "--queue", "2h", "tags.by=me", "--priority", "-5"]
    _code, [call], _text = run(directory, *typed)
    assert json.loads(call[-1]) == {"set": ["retries=2", "wait_for_resources=2h", "priority=-5", "tags.by=me"]}
    _code, [call], _text = run(directory, "session", "--gpus", "2", "--for", "90m")
    assert json.loads(call[-1]) == {"set": ["resources.gpus=2", "deadline=90m"]}
    findings, spec = parse_jobspec(yaml.safe_load((REPO / "roles/job/files/session.yaml").read_text()))
    assert spec and not findings and spec.deadline and not spec.stall_timeout


def test_the_shell_that_a_playbook_names_is_opened(directory: Path) -> None:
    shown = f"{RECORDS.removesuffix(EXITS)}echo Warned; echo echo in a shell; exit $CODE\n"
    (directory / "bin" / "ansible-playbook").write_text(shown)
    code, [call], text = run(directory, "shell", "grpo-1")
    assert (code, call, text) == (0, ["shell.yml", "-e", "submission_id=grpo-1"], "in a shell\n")
    code, _calls, text = run(directory, "shell", "grpo-1", code=3)
    assert code == 3 and "in a shell" not in text


def test_a_sweep(directory: Path) -> None:
    def swept(*arguments: str) -> dict[str, Any]:
        """The variables of the only run for a sweep."""
        _code, [call], _text = run(directory, "submit", "grpo.yaml", *arguments)
        return {name: value for text in call if text.startswith("{") for name, value in json.loads(text).items()}

    axes = ["--sweep", "optim.lr=1e-5,1e-4", "--sweep", "data.n=4,8"]
    variables = swept(*axes, "retries=1", "--at-once", "1")
    assert variables["set"] == ["wait_for_resources=30d", "retries=1"]
    sweep = variables["job_sweep"]
    tags = [f"tags.sweep={sweep['name']}", "tags.lr=1e-5", "tags.n=8"]
    assert sweep["at_once"] == 1 and sweep["jobs"][1]["set"] == ["optim.lr=1e-5", "data.n=8", *tags]
    names = [job["submission_id"] for job in sweep["jobs"]]
    assert names[1].startswith("grpo-") and names[1].endswith("-lr-1e-5-n-8") and len(set(names)) == 4
    assert swept(*axes, "--queue", "1h")["set"] == ["wait_for_resources=1h"]
    # A name that would be too long is cut, and stays unique.
    jobs = swept("--sweep", f"a={'x' * 80},{'y' * 80}")["job_sweep"]["jobs"]
    assert jobs[0]["submission_id"] != jobs[1]["submission_id"] and max(len(job["submission_id"]) for job in jobs) <= 63


def test_the_inventory(directory: Path) -> None:
    (directory / ".argus").write_text("lab/hosts.yml\n")
    below = directory / "below"
    below.mkdir()
    expected = ["cluster_up.yml", "-i", f"{directory}/lab/hosts.yml"]
    assert run(directory, "up")[1] == [expected]
    assert run(directory, "up", "-i", "a", "-i", "b")[1] == [["cluster_up.yml", "-i", "a", "-i", "b"]]
    assert run(directory, "-i", "a", "gc", "--jobs")[1][0][:3] == ["jobs_gc.yml", "-i", "a"]
    assert run(directory, "up", ANSIBLE_INVENTORY="lab")[1] == [["cluster_up.yml"]]
    # It is not looked for above the home directory.
    assert run(directory, "up", HOME=str(directory / "home"))[1] == [["cluster_up.yml"]]
    # What is watched is shown until it fails.
    typed = ("status", "a", "--watch", "-i", "b")
    assert run(directory, *typed, code=3)[:2] == (3, [["status.yml", "-i", "b", "-e", "submission_id=a"]])


def test_ansible_gets_a_locale_that_it_accepts(directory: Path) -> None:
    real = f"#!/bin/sh\nexec {sys.executable} -m ansible playbook --version"
    (directory / "bin" / "ansible-playbook").write_text(real)
    code, _calls, text = run(directory, "validate", LC_ALL="xx_YY.UTF-8")
    assert code == 0 and "ansible-playbook [core" in text


@pytest.mark.parametrize("name", [".", ".argus", "lab", "shared/hosts"])
def test_nobody_else_names_the_inventory(directory: Path, name: str) -> None:
    path = directory / name
    for folder in ("lab", "shared"):
        (directory / folder).mkdir()
        (directory / folder / "hosts").touch()
    (directory / "lab" / "link").symlink_to(directory / "shared" / "hosts")
    (directory / ".argus").write_text("lab/link" if "shared" in name else "lab/hosts")
    (directory / "ansible.cfg").touch()
    _code, [call], text = run(directory, "up")
    assert "-i" in call and "ignored" not in text
    mode = path.stat().st_mode
    path.chmod(mode | 0o002)
    _code, [call], text = run(directory, "up")
    assert call == ["cluster_up.yml"] and f"chmod go-w {path}" in text
    path.chmod(mode & ~0o022)
    if os.geteuid() == 0:
        os.chown(path, 61000, 61000)
        _code, [call], text = run(directory, "up")
        assert call == ["cluster_up.yml"] and str(path) in text


def test_the_settings_are_those_beside_the_inventory_or_of_the_collection(directory: Path) -> None:
    (directory / "bin" / "ansible-playbook").write_text('#!/bin/sh\necho "config: $ANSIBLE_CONFIG"\n')
    (directory / "ansible.cfg").touch()
    local, collection = (f"config: {place / 'ansible.cfg'}\n" for place in (directory, REPO))
    assert collection in run(directory, "up")[2]
    (directory / ".argus").write_text("hosts")
    assert run(directory, "up")[2] == local
    assert run(directory, "up", ANSIBLE_CONFIG="mine")[2] == "config: mine\n"
    (directory / "ansible.cfg").chmod(0o666)
    assert collection in run(directory, "up")[2]


USAGE = ("", "nothing", "status --nothing", "stop", "status a b=c", "submit a.yaml b", "status --json --watch")


@pytest.mark.parametrize("typed", [*USAGE, "submit a.yaml --wait --sweep a=1,2", "gc --remove", "stop {{a}}"])
def test_wrong_usage_runs_nothing(
    ran: Callable[[str], list[str]], typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        ran(typed)
    assert ended.value.code == 2 and "usage: argus" in capsys.readouterr().err


def test_every_verb_has_its_playbook_and_its_variables(directory: Path, ran: Callable[[str], list[str]]) -> None:
    """The variables are those of roles."""
    names = {
        name
        for specs in (REPO / "roles").glob("*/meta/argument_specs.yml")
        for entry in yaml.safe_load(specs.read_text())["argument_specs"].values()
        for name in entry.get("options") or {}
    }
    listed = run(directory, "completion", "bash")[2]
    verbs = listed[listed.index('-W "') + 4 :].partition('"')[0].split()
    for verb in verbs:
        playbook, *variables = ran(verb if verb in NONE else f"{verb} a")
        assert (REPO / "playbooks" / playbook).exists()
        assert {text.partition("=")[0] for text in variables[1::2]} <= names | {"node", "jobspec", "dest"}, variables


NONE = ("status", "session", "pages", "up", "down", "check", "nodes", "stage", "staged", "gc", "validate")


# Options of the controller alone: they are those of Ansible, follow a job to its end, or become KEY=VALUE.
OF_THE_CONTROLLER = {"-h", "--help", "-i", "--inventory", "-v", "--verbose", "--check", "--watch", "--wait", "--force"}
OF_THE_CONTROLLER |= {"--gpus", "--for", "--sweep", "--at-once", "--resume-from", "--priority", "--retries", "--queue"}


def test_a_verb_has_the_same_options_in_a_node() -> None:
    [verbs] = [action.choices for action in CONTROLLER.create_parser()._actions if action.dest == "verb"]
    context = click.Context(cli.program)
    shared = set(verbs) & set(cli.VERBS)
    assert {"submit", "status", "logs", "gc", "gc --jobs"} <= shared
    for name in shared - {"drain", "stage", "pages"}:
        command = cli.program.get_command(context, name)
        assert command
        of_node = {option for parameter in command.params for option in parameter.opts}
        options = {option for action in verbs[name]._actions for option in action.option_strings}
        missing = options - OF_THE_CONTROLLER - of_node - ({"--tag"} if name == "submit" else set())
        assert not missing, f"argus {name} in a node has no {missing}"
