# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters and their jobs: argus up, argus submit grpo.yaml trainer.save_freq=5, argus logs ID -f.

Each verb is one run of ansible-playbook, which -v shows; what follows -- goes to it. The inventory is that of -i, of
ANSIBLE_INVENTORY, or of a file .argus in this directory or one above: a line with its path.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import locale
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

COLLECTION = Path(__file__).resolve().parents[1]
# A file with the path of an inventory, for its directory and those below.
INVENTORY_FILE = ".argus"
SETTINGS = "ansible.cfg"
NOT_INSTALLED = "argus: ansible-playbook is not on the PATH: pip install ansible-core, or make setup"
# The id of a job, or the end of one.
SUBMISSION_ID = r"[a-z0-9][a-z0-9._-]{0,62}"
MAX_ID_CHARS = 63
SESSION_JOBSPEC = COLLECTION / "roles/job/files/session.yaml"
WAIT_OVERRIDE = re.compile("wait_for_resources=")
# The verbs with --watch, and the seconds between two outputs.
WATCHABLE = ("status", "nodes")
WATCH_SECONDS = 5.0
# The verbs that take keys of a JobSpec.
CHANGEABLE = ("submit", "resubmit", "session")
# The verbs whose tasks are shown, because they change or check machines. The others show their answer alone.
SHOW_TASKS = ("up", "down", "check", "stage", "drain", "validate")


class Verb(NamedTuple):
    name: str
    playbook: str
    # The variable that the argument sets, or "" without one. "?" at its end: optional, "+": one or several.
    argument: str
    # Names in OPTIONS. The variable that an option sets for this verb alone follows with "=".
    options: str
    help: str


# Each option: the variable that it sets, the name of its value in the help ("": it has none, and sets true), its help.
OPTIONS = {
    "--wait": ("job_wait", "", "follow the job to its end"),
    "--force": ("allow_disruption", "", "also if that ends running jobs"),
    "--tier": ("preflight_tier", "TIER", "fast or deep"),
    "--tag": ("tag", "NAME=VALUE", "only jobs with this tag"),
    "--follow": ("job_wait", "", "show new lines until its end"),
    "--rank": ("job_log_rank", "N", "only lines of this rank of torch"),
    "--attempt": ("job_log_attempt", "N", "only lines of this attempt"),
    "--first-error": ("job_log_first_errors", "", "the first error of each process"),
    "--lines": ("job_log_lines", "N", "how many lines"),
    "--json": ("job_status_json", "", "as JSON, and nothing else"),
    "--checkpoints": ("job_fetch_checkpoints", "", "with their checkpoints"),
    "--step": ("job_export_step", "N", "of which step"),
    "--keep": ("keep", "N", "so many of the latest stay"),
    "--scope": ("job_gc", "SCOPE", "old_checkpoints, checkpoints or archives"),
    "--keep-days": ("keep_days", "N", "jobs that ended later stay"),
    "--remove": ("job_gc_remove", "", "remove it, rather than only list it"),
    "--output": ("", "FILE", "the file"),
    "--kind": ("kind", "KIND", ", ".join(sorted(path.name for path in (COLLECTION / "inventories").iterdir()))),
    "--hostfile": ("hostfile", "FILE", "a list of hosts, for prod and platform"),
}
# The options of submit and resubmit for keys of the JobSpec: the key, the name of its value in the help, its help.
JOBSPEC_OPTIONS = {
    "--resume-from": ("resume_from", "ID", "begin with the last checkpoint of a job"),
    "--priority": ("priority", "N", "the place in the queue; higher ones come first"),
    "--retries": ("retries", "N", "so many further attempts"),
    "--queue": ("wait_for_resources", "2h", "how long the job may wait for resources"),
}
SESSION_OPTIONS = {
    "--gpus": ("resources.gpus", "N", "how many, of one worker; 1 by default"),
    "--for": ("deadline", "2h", "for how long; 2h by default"),
}
SHORT_OPTIONS = {"--follow": "-f", "--lines": "-n", "--output": "-o"}
JOB, JOBS = "submission_id", "submission_id+"
# `gc --jobs` has other options than `gc`, so it is a verb of its own for argparse.
GC_JOBS = "gc --jobs"
VERBS = [
    Verb("init", "init", "dest", "--kind --hostfile", "write an inventory to begin with"),
    Verb("up", "cluster_up", "", "--force", "bring the cluster up, or repair it"),
    Verb("down", "cluster_down", "", "--force", "remove the cluster; data stays"),
    Verb("check", "preflight", "", "--tier", "check all machines"),
    Verb("nodes", "cluster_status", "", "", "show nodes and the jobs on them"),
    Verb("stage", "stage", "", "", "stage models, datasets and verl"),
    Verb("staged", "staged", "", "", "list what is staged"),
    Verb("submit", "submit", "jobspec", "--wait", "check a JobSpec, and submit it"),
    Verb("status", "status", f"{JOB}?", "--tag --json", "show a job, or the latest ones"),
    Verb("pages", "pages", "", "", "show where a browser finds the pages of jobs"),
    Verb(
        "logs",
        "logs",
        JOB,
        "--follow --lines --rank --attempt --first-error",
        "show the log of a job",
    ),
    Verb("session", "submit", "", "", "hold GPUs for shells: a job that sleeps"),
    Verb("shell", "shell", JOB, "", "open a shell with the environment of a running job"),
    Verb("stop", "stop", JOBS, "", "stop jobs"),
    Verb("resubmit", "resubmit", JOB, "--wait", "submit an earlier job again"),
    Verb("fetch", "fetch", JOBS, "--checkpoints", "copy archives of jobs here, with their pages"),
    Verb("report", "fetch", JOBS, "--output", "fetch jobs, and write a page that compares them"),
    Verb("evidence", "debug_bundle", JOB, "", "collect evidence of a job, and fetch it"),
    Verb("export", "export", JOB, "--step", "make a model of a checkpoint"),
    Verb("drain", "drain", "node", "--force", "take a node out"),
    Verb("gc", "stage_gc", "", "--keep", "remove old snapshots of verl"),
    Verb(GC_JOBS, "jobs_gc", "", "--scope --keep --keep-days --tag --remove", "remove files of old jobs"),
    Verb("validate", "validate", "", "", "check the inventory"),
]
# The scripts of the verb completion. A job chooses names of directories, and what a shell inserts runs with the next
# Enter: only names in the form of an id are offered, and they are never expanded.
COMPLETIONS = {
    "bash": """_argus() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{verbs}" -- "$word")); return; fi
  case ${{COMP_WORDS[1]}} in {verbs_of_ids}) ;; *) return ;; esac
  for path in artifacts/*/ shared/jobs/*/; do
    path=${{path%/}} path=${{path##*/}}
    if [[ $path =~ ^{id}$ && $path == "$word"* ]]; then COMPREPLY+=("$path"); fi
  done
}}
complete -o default -F _argus argus""",
    "zsh": """(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
_argus() {{
  local name
  local -a ids
  if (( CURRENT == 2 )); then compadd -- {verbs}; return; fi
  case $words[2] in ({verbs_of_ids}) ;; (*) _files; return ;; esac
  for name in artifacts/*(N/:t) shared/jobs/*(N/:t); do
    if [[ $name =~ '^{id}$' ]]; then ids+=($name); fi
  done
  compadd -- $ids || _files
}}
compdef _argus argus""",
}


def create_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="argus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # Before the verb or after it, as kubectl accepts its options.
    inventory: dict[str, Any] = {"action": "append", "default": [], "metavar": "INVENTORY", "help": "the inventory"}
    top.add_argument("-i", "--inventory", dest="before", **inventory)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        sub = verbs.add_parser(verb.name, help=verb.help, description=f"{verb.playbook}.yml: {verb.help}")
        sub.add_argument("-i", "--inventory", **inventory)
        sub.add_argument("-v", "--verbose", action="store_true", help="show the command that runs")
        sub.add_argument("--check", action="store_true", help="change nothing")
        for name, variable in options_of(verb):
            _variable, value, about = OPTIONS[name]
            kind: dict[str, Any] = {"metavar": value} if value else {"action": "store_const", "const": "true"}
            names = filter(None, (SHORT_OPTIONS.get(name), name))
            sub.add_argument(*names, dest=variable or "output", help=about, **kind)
        if verb.argument:
            count = verb.argument[-1] if verb.argument[-1] in "?+" else None
            metavar = verb.argument.strip("?+").removeprefix("submission_").upper()
            sub.add_argument("argument", metavar=metavar, nargs=count)
        if verb.name in WATCHABLE:
            sub.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
        if verb.name in CHANGEABLE:
            help_ = "keys of the JobSpec, or overrides of the trainer"
            sub.add_argument("changes", nargs="*", metavar="KEY=VALUE", help=help_)
            for name, (key, value, about) in (SESSION_OPTIONS if verb.name == "session" else JOBSPEC_OPTIONS).items():
                form = f"{key}={{}}".format
                sub.add_argument(name, type=form, action="append", default=[], dest="keys", metavar=value, help=about)
        if verb.name == "submit":
            sub.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="a tag of the job")
            help_text = "a job for each value, or each pair of values"
            sub.add_argument("--sweep", action="append", default=[], metavar="KEY=VALUE,VALUE", help=help_text)
            sub.add_argument("--at-once", type=int, default=0, metavar="N", help="so many jobs of a sweep at once")
    completion = verbs.add_parser("completion", help="print what completes verbs, ids and files in a shell")
    completion.add_argument("shell", choices=("bash", "zsh"))
    return top


def options_of(verb: Verb) -> list[tuple[str, str]]:
    """The options of a verb, each with the variable that it sets."""
    pairs = (option.partition("=") for option in verb.options.split())
    return [(name, variable or OPTIONS[name][0]) for name, _equals, variable in pairs]


def ownership_problem(path: Path, top: Path) -> str:
    """Why another user can change a file, or a directory from `top` down to it; "" if none can."""
    for start in dict.fromkeys((path.resolve(), path)):
        parents = [parent for parent in start.parents if parent.is_relative_to(top)] or [start.parent]
        for part in (start, *parents):
            try:
                status = part.stat()
            except FileNotFoundError:
                # Ansible reports it.
                continue
            except OSError as error:
                return f"{part}: {error.strerror}"
            if status.st_uid not in (0, os.getuid()):
                return f"{part} belongs to another user"
            if status.st_mode & 0o022:
                return f"other users can write to {part} (chmod go-w {shlex.quote(str(part))})"
    return ""


def find_project() -> tuple[Path, Path] | None:
    """The directory of the nearest file .argus, here or above, that no other user can write; and its inventory."""
    above_home = Path.home().resolve().parents
    for directory in (Path.cwd(), *Path.cwd().parents):
        file = directory / INVENTORY_FILE
        if directory in above_home:
            return None
        # Unlike Path.is_file, this is False in a directory that cannot be entered.
        if not os.path.isfile(file):  # noqa: PTH113
            continue
        problem = ownership_problem(file, directory)
        inventory = directory / (problem or file.read_text("utf-8").strip())
        problem = problem or ownership_problem(inventory, directory)
        if not problem:
            return directory, inventory
        print(f"argus: {file} is ignored: {problem}", file=sys.stderr, flush=True)
    return None


def set_ansible_settings(directory: Path | None) -> None:
    """Set the ansible.cfg that Ansible reads: the one beside .argus, or else the collection's.

    Ansible alone would read the one in the current directory. That may be a fetched archive, where a job has put it.
    """
    if COLLECTION.parents[1].name == "ansible_collections":
        path = f"{COLLECTION.parents[2]}:~/.ansible/collections:/usr/share/ansible/collections"
        os.environ.setdefault("ANSIBLE_COLLECTIONS_PATH", path)
    if "ANSIBLE_CONFIG" in os.environ:
        return
    settings, local = COLLECTION / SETTINGS, Path.cwd() / SETTINGS
    if directory and (directory / SETTINGS).is_file() and not ownership_problem(directory / SETTINGS, directory):
        settings = directory / SETTINGS
    os.environ["ANSIBLE_CONFIG"] = str(settings)
    if local.is_file() and local.resolve() != settings.resolve():
        print(f"argus: {local} is ignored: beside it is no {INVENTORY_FILE} that counts", file=sys.stderr, flush=True)


def playbook_command(
    verb: Verb, args: argparse.Namespace, rest: list[str], variables: dict[str, Any], inventories: list[str]
) -> list[str]:
    """The command line of ansible-playbook for a verb. rest: further arguments of ansible-playbook."""
    values = {variable: getattr(args, variable, None) for _name, variable in options_of(verb)}
    settings = [extra_variable(name, value) for name, value in {**values, **variables}.items() if name and value]
    program = Path(sys.executable).with_name("ansible-playbook")
    return [
        str(program) if program.exists() else "ansible-playbook",
        str(COLLECTION / "playbooks" / f"{verb.playbook}.yml"),
        *itertools.chain.from_iterable(("-i", source) for source in inventories),
        *itertools.chain.from_iterable(("-e", value) for value in settings),
        *(["--check"] if args.check else []),
        *rest,
    ]


def extra_variable(name: str, value: Any) -> str:
    """A variable for ansible-playbook -e: as JSON, if the value may have spaces or quotation marks."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./:@%+,=-]+", value)
    return f"{name}={value}" if is_plain else json.dumps({name: without_templates(value)})


def without_templates(value: Any) -> Any:
    """A value in which Ansible expands no template: any text with a brace or # is marked as unsafe."""
    if isinstance(value, dict):
        return {key: without_templates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_templates(item) for item in value]
    return {"__ansible_unsafe": value} if isinstance(value, str) and re.search("[{#]", value) else value


def sweep_variable(args: argparse.Namespace) -> dict[str, Any]:
    """The variable job_sweep: the name of a sweep, how many of its jobs run at once, and each job's id and settings."""
    axes = [
        [(key, value) for value in values.split(",")]
        for key, _equals, values in (axis.partition("=") for axis in args.sweep)
    ]
    name = f"{Path(args.argument).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    jobs = []
    for point in itertools.product(*axes):
        short = {key.rpartition(".")[2]: value for key, value in point}
        ending = "-".join(f"{key}-{value}" for key, value in short.items())
        identifier = re.sub(r"[^a-z0-9._-]", "-", f"{name}-{ending}".lower())
        # An id that is too long ends with the number of the job.
        identifier = identifier if len(identifier) <= MAX_ID_CHARS else f"{identifier[:56]}-{len(jobs)}"
        settings = [f"{key}={value}" for key, value in point]
        tags = [f"tags.{key}={value}" for key, value in {"sweep": name, **short}.items()]
        jobs.append({JOB: identifier, "set": [*settings, *tags]})
    return {"name": name, "at_once": args.at_once, "jobs": jobs}


def run(line: list[str], verbose: bool, is_last: bool) -> None:
    """Run a command, and exit with its code if it fails. is_last: whether the command replaces this process."""
    if verbose:
        print(shlex.join(line), file=sys.stderr, flush=True)
    try:
        if is_last:
            # So the terminal's signals reach the command alone.
            os.execvp(line[0], line)  # noqa: S606 - there is no shell
        if code := subprocess.run(line, check=False).returncode:
            sys.exit(code)
    except FileNotFoundError:
        sys.exit(NOT_INSTALLED)


def watch(line: list[str]) -> None:
    """Run a command again and again, until it fails; on a terminal, its output replaces the earlier one."""
    is_terminal = sys.stdout.isatty()
    if is_terminal:
        # The output goes through a pipe, so that it appears all at once.
        os.environ |= {"COLUMNS": str(shutil.get_terminal_size().columns), "ANSIBLE_FORCE_COLOR": "1"}
    while True:
        result = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print("\x1b[H\x1b[2J" if is_terminal else "", result.stdout.strip("\n"), sep="", flush=True)
        if result.returncode:
            sys.exit(result.returncode)
        time.sleep(WATCH_SECONDS)


def open_shell(line: list[str]) -> None:
    """Replace this process by the shell whose command line a command prints last; exit with its code if it fails."""
    result = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode or not result.stdout.strip():
        sys.exit(result.returncode)
    os.execv("/bin/sh", ["sh", "-c", f"exec {result.stdout.strip().splitlines()[-1]}"])  # noqa: S606 - it has a shell


def write_report(names: list[str], output: str) -> None:
    """Write the page of fetched jobs, and print its path."""
    sys.path.insert(0, str(COLLECTION))
    from argus.archive.archive import Archive
    from argus.report.data import read_job
    from argus.report.page import render_page

    jobs = [fetched_archive(name) for name in names]
    file = Path(output) if output else jobs[0].with_name("report.html") if len(jobs) > 1 else jobs[0] / "report.html"
    file.write_text(render_page([read_job(Archive(job.resolve())) for job in jobs], time.time()), "utf-8")
    print(f"Page: {file.resolve()}")


def fetched_archive(name: str) -> Path:
    """The directory in artifacts/ of a job: by its id, by the end of the id, or "last" for the newest one."""
    matches = [
        path for path in Path("artifacts").glob("*/status.json") if path.parent.name.endswith(name) or name == "last"
    ]
    exact = Path("artifacts", name)
    if not matches and not exact.is_dir():
        sys.exit(f"argus: {name} is not in artifacts/, where its archive is read: leave artifacts_dir as it is")
    return exact if exact.is_dir() else max(matches, key=lambda path: path.stat().st_mtime).parent


def set_locale() -> None:
    """Set a locale with which Ansible starts: one that is installed, with the encoding UTF-8."""
    try:
        locale.setlocale(locale.LC_ALL, "")
        is_usable = locale.getlocale()[1] == "UTF-8"
    except (locale.Error, ValueError):
        is_usable = False
    if not is_usable:
        os.environ["LC_ALL"] = "C.UTF-8"


def completion_script(shell: str) -> str:
    verbs_of_ids = "|".join(verb.name for verb in VERBS if verb.argument.startswith(JOB))
    verbs = " ".join(verb.name for verb in VERBS if verb.name != GC_JOBS)
    return COMPLETIONS[shell].format(verbs=verbs, verbs_of_ids=verbs_of_ids, id=SUBMISSION_ID)


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The words of this command, with `gc --jobs` as one word; and those after --, which go to ansible-playbook."""
    words, rest = arguments, []
    if "--" in arguments:
        words, rest = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    if "gc" in words and "--jobs" in words:
        words = [GC_JOBS if word == "gc" else word for word in words if word != "--jobs"]
    return words, rest


def main(arguments: list[str]) -> int:
    words, rest = split_arguments(arguments)
    top = create_parser()
    args, unparsed = top.parse_known_args(words)
    args.inventory = [*args.before, *getattr(args, "inventory", [])]
    if args.verb == "completion":
        print(completion_script(args.shell))
        return 0
    verb = next(verb for verb in VERBS if verb.name == args.verb)
    changes = [*getattr(args, "changes", []), *getattr(args, "keys", []), *unparsed]
    if unknown := [word for word in changes if "=" not in word or word.startswith("-") or verb.name not in CHANGEABLE]:
        top.error(f"unrecognized: {' '.join(unknown)}")
    argument, variable = getattr(args, "argument", None), verb.argument.strip("?+")
    jobs = argument if verb.argument.endswith("+") else [argument]
    if invalid := [
        name for name in (jobs if variable == JOB else []) if name and not re.fullmatch(SUBMISSION_ID, name)
    ]:
        top.error(f"no ids of jobs: {', '.join(map(repr, invalid))}")
    variables: dict[str, Any] = {variable: ",".join(filter(None, jobs))}
    if verb.name == "session":
        variables["jobspec"] = str(SESSION_JOBSPEC)
    if verb.name == "submit":
        changes = [*(f"tags.{pair}" for pair in args.tag), *changes]
        if args.sweep:
            if args.job_wait:
                top.error("the jobs of a sweep are not followed: leave --wait out")
            variables["job_sweep"] = sweep_variable(args)
            # All jobs of a sweep wait, unless the command says for how long.
            changes = changes if any(map(WAIT_OVERRIDE.match, changes)) else ["wait_for_resources=30d", *changes]
    variables["set"] = changes
    location = find_project()
    set_ansible_settings(location[0] if location else None)
    default = [str(location[1])] if location and "ANSIBLE_INVENTORY" not in os.environ else []
    line = playbook_command(verb, args, rest, variables, args.inventory or default)
    # With it, playbooks suggest commands of this program, for the same inventory.
    os.environ["ARGUS_COMMAND"] = shlex.join(itertools.chain.from_iterable(("-i", path) for path in args.inventory))
    if verb.name not in SHOW_TASKS and not args.verbose:
        os.environ |= {"ARGUS_ANSWER": "true", "ANSIBLE_DISPLAY_FAILED_STDERR": "true"}
    set_locale()
    if getattr(args, "watch", False):
        if getattr(args, "job_status_json", None):
            top.error("--json is printed once: leave --watch out")
        with contextlib.suppress(KeyboardInterrupt):
            watch(line)
        return 130
    if verb.name == "shell":
        open_shell(line)
    run(line, args.verbose, is_last=verb.name != "report")
    write_report(jobs, args.output)
    return 0


def start() -> NoReturn:
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    start()
