"""Archives as the code of a job can leave them: each spoils one good archive in one way."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOOD = "good-1"
MIB = 1 << 20
# A job can place a link to what it cannot read itself.
SECRET = Path("/etc/shadow")
Spoil = Callable[[Path], object]
HOSTILE: dict[str, Spoil] = {}


def good(archive: Path) -> None:
    """The archive of a job that runs: a steward, two steps, a log, a checkpoint and evidence."""
    for name in ("config", "logs", "checkpoints/global_step_2/actor", "debug"):
        (archive / name).mkdir(parents=True)
    write(archive / "config" / "job_spec.json", {"workload": "grpo", "code_path": "verl-0.9.1"})
    write(archive / "config" / "plan.json", {"workload": "grpo", "overrides": ["a=1"], "transfer_queue": True})
    write(archive / "status.json", status())
    write(archive / "heartbeat.json", {"time": time.time(), "step": 2, "total_steps": 12})
    write(archive / "steward.json", {"time": time.time(), "host": "head", "pid": 7})
    (archive / "events.jsonl").write_text('{"time": "2026-01-01T12:00:00.000Z", "event": "RUNNING"}\n')
    (archive / "logs" / "driver.log").write_text("Total training steps: 12\nstep:1 - loss\n")
    lines = [json.dumps({"step": step, "data": {"critic/rewards/mean": step / 8}}) + "\n" for step in (1, 2)]
    (archive / "logs" / "metrics-1.jsonl").write_text("".join(lines))
    (archive / "debug" / "index.jsonl").write_text('{"moment": "submit", "file": "debug/x"}\n')
    (archive / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")


def status(**changes: Any) -> dict[str, Any]:
    stored = {
        "state": "RETRYING",
        "submission_id": GOOD,
        "workload": "grpo",
        "tags": {"team": "nlp"},
        "attempt": 1,
        "attempts": [{"attempt": 1, "state": "FAILED", "kind": "killed", "started_at": 1.5}],
        "submitted_at": 1.0,
        "updated_at": "2026-01-01T12:00:00.000Z",
        "driver": {"host": "worker-0", "pid": 7},
        "failure": {"kind": "killed", "reason": "signal 9", "lines": ["a"], "todo": "wait"},
    }
    return stored | changes


def write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value))


def make(jobs: Path, *kinds: str) -> None:
    """A good archive, and a hostile one of each kind."""
    good(jobs / GOOD)
    for kind in kinds:
        good(jobs / f"bad-{kind}")
        HOSTILE[kind](jobs / f"bad-{kind}")


def replaced(file: Path) -> Path:
    """The path of something that was removed."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    return file


# --- What can be in the place of a file ------------------------------------------------------------------------------


def fifo(file: Path) -> None:
    os.mkfifo(replaced(file))


def unix_socket(file: Path) -> None:
    here = os.open(replaced(file).parent, os.O_RDONLY)
    try:
        # The path of a socket has at most 107 bytes.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{here}/{file.name}")
    finally:
        os.close(here)


def sparse(file: Path) -> None:
    with replaced(file).open("wb") as stream:
        stream.truncate(1 << 40)


PLACES: dict[str, Spoil] = {
    "link": lambda file: replaced(file).symlink_to(SECRET),
    "loop": lambda file: replaced(file).symlink_to(file),
    "fifo": fifo,
    "unix-socket": unix_socket,
    "directory": lambda file: (replaced(file) / "x").mkdir(parents=True),
    "looped-directory": lambda file: replaced(file).symlink_to(file.parent),
    "sparse": sparse,
    "unreadable": lambda file: file.chmod(0),
}
FILES = (
    "status.json",
    "heartbeat.json",
    "steward.json",
    "events.jsonl",
    "config/job_spec.json",
    "config/plan.json",
    "config/verdict-1.json",
    "config/stop_requested",
    "logs/driver.log",
    "logs/driver.log.1",
    "logs/metrics-1.jsonl",
    "debug/index.jsonl",
    "checkpoints/latest_checkpointed_iteration.txt",
)


def in_place_of(name: str, spoil: Spoil) -> Spoil:
    def place(archive: Path) -> None:
        (archive / name).touch()
        spoil(archive / name)

    return place


# One function refuses what is no file; a link, a FIFO and a file without an end show that each reader uses it.
for file_name in FILES:
    for place_name in PLACES if file_name == "status.json" else ("link", "fifo", "sparse"):
        HOSTILE[f"{file_name.lower().replace('/', '.')}-{place_name}"] = in_place_of(file_name, PLACES[place_name])
for file_name in ("config", "logs", "checkpoints", "debug", "checkpoints/global_step_2"):
    for place in ("fifo", "loop", "looped-directory", "unreadable") if file_name == "logs" else ("looped-directory",):
        HOSTILE[f"{file_name.replace('/', '.')}-{place}"] = in_place_of(file_name, PLACES[place])
    HOSTILE[f"{file_name.replace('/', '.')}-file"] = in_place_of(file_name, lambda path: replaced(path).touch())

# --- What can be in a file -------------------------------------------------------------------------------------------

DEEP = "[" * 100_000
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "list": b"[]",
    "not-utf-8": b'{"state": "\xff"}',
    "deep": DEEP.encode(),
    "large": b'{"state": "' + b"x" * (40 * MIB) + b'"}',
    "many-keys": b"{" + b",".join(b'"%d": 1' % number for number in range(100_000)) + b"}",
    "longer-number": b'{"time": ' + b"9" * 1_000_000 + b"}",
    "infinite": b'{"time": Infinity, "started_at": Infinity, "attempt": Infinity}',
    "too-large": b'{"time": 1e999, "started_at": -1e999, "step": 1e999}',
    "not-a-number": b'{"time": NaN, "started_at": NaN}',
}
# The values of keys that a status has; those of OF_OTHERS are in other files, too.
VALUES: dict[str, Any] = {
    "state-unknown": {"state": "EXPLODED"},
    "attempts-of-text": {"attempts": ["a", None]},
    "attempts-many": {"attempts": [{"attempt": 1, "state": "FAILED"}] * 100_000},
    "driver-options": {"driver": {"host": "ansible-playbook" + " ----" * 120}},
    "started-late": {"started_at": 3e19, "time": 3e19},
    "updated-late": {"state": "SUBMITTED", "updated_at": "+1000000000000-01-01T00:00:00Z"},
    "failure-lines": {"state": "FAILED", "failure": {"kind": [], "lines": 7, "reason": {}}},
    "other-id": {"submission_id": "../../../etc"},
    "surrogate": {"state": "FAILED", "reason": "\ud800", "tags": {"\udfff": "\udfff"}},
    "null-byte": {"workload": "a\0b", "reason": "\0"},
    "long-text": {"state": "FAILED", "reason": "x" * 500_000},
    "steps-text": {"steps": "7", "step": "7", "total_steps": "x"},
    "steps-large": {"step": 10**300, "total_steps": 10**300, "first_step": 1, "first_step_at": 0},
    "overrides-text": {"overrides": "a=1", "secrets": "HF_TOKEN", "retries": "many", "transfer_queue": "yes"},
    "host-list": {"host": ["head"], "time": [1], "pid": "x"},
}
STATUSES = CONTENTS | {name: json.dumps(status() | value).encode() for name, value in VALUES.items()}
OF_OTHERS = {
    "heartbeat.json": ("started-late", "steps-text", "steps-large", "host-list"),
    "steward.json": ("started-late", "host-list", "long-text"),
    "config/plan.json": ("overrides-text", "surrogate", "null-byte"),
    "config/job_spec.json": ("overrides-text", "surrogate", "null-byte"),
}


def with_content(name: str, content: bytes) -> Spoil:
    def spoil(archive: Path) -> None:
        (archive / name).write_bytes(content)

    return spoil


for file_name in ("status.json", *OF_OTHERS):
    contents = ("list", "deep", "large", "longer-number", "infinite", *OF_OTHERS.get(file_name, ()))
    for content_name in STATUSES if file_name == "status.json" else contents:
        HOSTILE[f"{file_name.replace('/', '.')}-{content_name}"] = with_content(file_name, STATUSES[content_name])

# --- Logs, metrics and checkpoints -----------------------------------------------------------------------------------

LINE = json.dumps({"step": 3, "data": {"critic/rewards/mean": 1.0}}).encode() + b"\n"
METRICS: dict[str, bytes] = {
    "long-line": b"x" * (64 * MIB) + b"\n",
    "many-lines": b"{}\n" * 1_000_000,
    "many-steps": LINE * 200_000,
    "deep": (DEEP + "\n").encode(),
    "nul-bytes": b"\0" * MIB,
    "infinite-value": b'{"step": 1, "data": {"critic/rewards/mean": 1e999}}\n',
    "other-types": b'[]\n7\n"x"\nnull\n{"step": null, "data": []}\n{"step": 1, "data": {"critic/rewards/mean": []}}\n',
}
for content_name, content in METRICS.items():
    HOSTILE[f"metrics-{content_name}"] = with_content("logs/metrics-1.jsonl", content)
HOSTILE["events-many"] = with_content("events.jsonl", b"{}\n" * 1_000_000)
HOSTILE["index-many"] = with_content("debug/index.jsonl", b"[]\n" * 1_000_000)
HOSTILE["log-many-digits"] = with_content("logs/driver.log", b"Total training steps: " + b"9" * (8 * MIB))
HOSTILE["log-one-line"] = with_content("logs/driver.log", b"\x1b[31m" * (4 * MIB))
HOSTILE["tracker-many-digits"] = with_content("checkpoints/latest_checkpointed_iteration.txt", b"9" * MIB)
HOSTILE["tracker-other-digits"] = with_content("checkpoints/latest_checkpointed_iteration.txt", "²".encode())


def spoiler(spoil: Spoil) -> Spoil:
    HOSTILE[spoil.__name__.replace("_", "-")] = spoil
    return spoil


@spoiler
def names_with_other_digits(archive: Path) -> None:
    for number in ("²", "0", "9" * 100, "-1", "x"):
        (archive / f"logs/driver.log.{number}").write_text("x\n")
        (archive / f"logs/metrics-{number}.jsonl").write_text("x\n")
    for name in ("global_step_²", "global_step_" + "9" * 200, "global_step_-1", "global_step_"):
        (archive / "checkpoints" / name).mkdir()


@spoiler
def many_checkpoints(archive: Path) -> None:
    for number in range(1500):
        (archive / "checkpoints" / f"global_step_{number}").mkdir(exist_ok=True)
    (archive / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("999999")


@spoiler
def nested_deeply(archive: Path) -> None:
    here = os.open(archive / "debug", os.O_RDONLY)
    for _level in range(2000):
        os.mkdir("d" * 200, dir_fd=here)
        above, here = here, os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)


@spoiler
def strange_names(archive: Path) -> None:
    debug = archive / "debug"
    for name in ("a\nb", "\x1b[2J", "\u202egnp", "a\rb", "b\\c", "x" * 255, "A", "a", "ﬁ", "fi", "-rf", "~", "$(id)"):
        (debug / name).write_text("x")
    (debug / os.fsdecode(b"\xff\xfe")).write_text("x")


HOSTILE |= {
    "everything-removed": lambda archive: replaced(archive).mkdir(),
    "a-link-to-another": lambda archive: replaced(archive).symlink_to(archive.parent / GOOD),
    "a-link-to-the-machine": lambda archive: replaced(archive).symlink_to("/etc"),
    "a-file": lambda archive: replaced(archive).touch(),
    "a-fifo": lambda archive: os.mkfifo(replaced(archive)),
    "closed-to-all": lambda archive: archive.chmod(0),
}
