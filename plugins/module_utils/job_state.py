# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.findings import duration
from ansible_collections.argus.verl.plugins.module_utils.launcher import attempts, log
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import (
    ENDED,
    ENDING,
    FAILED,
    QUEUED,
    RETRYING,
    RUNNING,
    Archive,
)
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayApiError, RayHead

# The one number that people look at first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# What one look takes from the log for those who follow it.
LOG_BYTES = 1 << 20
# The end of a metrics file: a step of PPO is about 8 KiB.
METRICS_BYTES = 256 << 10
POLL_SECONDS = 0.5
# The keeper gives up waiting for the last evidence after 120 s.
CLOSING_SECONDS = 150
# Submitting takes Ray less than a second.
SUBMITTING_SECONDS = 60
# A launcher gives a sign of life every 2 s.
ALIVE_SECONDS = 30
# An attempt of it has begun.
LIVING = (RUNNING, ENDING, RETRYING)
# In place of the record of a job that the head does not know (any more): a head that is started again has lost all.
FORGOTTEN = {
    "status": "FAILED",
    "message": "the head does not know the job: it was started again, and its jobs are lost",
}

# Lines, and the place after them.
LogPart = tuple[list[str], str]


# --- The log ---------------------------------------------------------------------------------------------------------


def shown_lines(data: bytes) -> list[str]:
    """A log as people see it: of a progress bar, what it showed last; no empty lines."""
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in data.decode(errors="replace").split("\n"))
    return [line for line in shown if line.strip()]


def log_parts(archive: Archive) -> dict[int, Path]:
    """The files of the driver's log, by numbers that stay theirs: driver.log has that of its name to be."""
    files = archive.log_files()
    parts = {int(path.suffix[1:]): path for path in files if path != archive.driver_log}
    if archive.driver_log in files:
        parts[max(parts, default=0) + 1] = archive.driver_log
    return parts


def read_log(archive: Archive, read: Callable[[dict[int, Path]], LogPart], nothing: LogPart) -> LogPart:
    """What `read` makes of the log's files; once more when they were renamed under its hands."""
    for _attempt in range(3):
        parts = log_parts(archive)
        try:
            answer = read(parts)
        except OSError:
            continue
        if log_parts(archive) == parts:
            return answer
    return nothing


def log_tail(archive: Archive, lines: int) -> LogPart:
    """The last lines of the driver's log, and the place after them, see log_since."""

    def read(parts: dict[int, Path]) -> LogPart:
        wanted, data, position = lines * 4096, b"", ""
        for number in sorted(parts, reverse=True):
            with parts[number].open("rb") as log:
                begin = max(0, log.seek(0, 2) - (wanted - len(data)))
                log.seek(begin)
                part = log.read()
            position = position or f"{number}:{begin + len(part)}"
            data = part + data
            if len(data) >= wanted:
                break
        return (shown_lines(data)[-lines:] if lines else []), position or "1:0"

    return read_log(archive, read, ([], "1:0"))


def log_since(archive: Archive, position: str, final: bool = False, size: int = LOG_BYTES) -> LogPart:
    """The whole lines of the driver's log after a place, from at most `size` bytes, and the place after them.

    position: ``FILE:BYTE``, which stays right when driver.log is renamed; empty for the beginning. Raises ValueError.
    final: whether a line without an end counts as well.
    """
    file, _dummy, byte = (position or "1:0").partition(":")
    first, offset = int(file), int(byte)

    def read(parts: dict[int, Path]) -> LogPart:
        chunks, left = [], size
        for number in sorted(number for number in parts if number >= first):
            begin = offset if number == first else 0
            with parts[number].open("rb") as log:
                log.seek(begin)
                chunks.append((number, begin, log.read(left)))
            left -= len(chunks[-1][2])
            if not left:
                break
        data = b"".join(chunk for _number, _begin, chunk in chunks)
        end = len(data) if final and left else data.rfind(b"\n") + 1
        if not end and not left:
            # A line that is longer than one look does not stop the reader.
            end = len(data)
        lines, after = shown_lines(data[:end]), position
        for number, begin, chunk in chunks:
            after = f"{number}:{begin + min(end, len(chunk))}"
            end -= len(chunk)
            if end <= 0:
                break
        return lines, after

    return read_log(archive, read, ([], position))


# --- Progress --------------------------------------------------------------------------------------------------------


def total_steps(archive: Archive, heartbeat: Mapping[str, Any]) -> int | None:
    if heartbeat.get("total_steps") is not None:
        return int(heartbeat["total_steps"])
    try:
        return log.total_steps(archive)
    except OSError:
        return None


def entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Steps from the lines of a metrics file, of which the last one may be half written."""
    for line in lines:
        if line.endswith(b"\n"):
            yield json.loads(line)


def last_entries(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as content:
        begin = max(0, content.seek(0, 2) - METRICS_BYTES)
        content.seek(begin)
        # What is read from the middle begins with a part of a line.
        return list(entries(content.readlines()[bool(begin) :]))


def first_value(files: Sequence[Path], metric: str) -> float | None:
    for file in files:
        with file.open("rb") as lines:
            for entry in entries(lines):
                if metric in entry["data"]:
                    return float(entry["data"][metric])
    return None


def progress(archive: Archive, workload: str, heartbeat: Mapping[str, Any]) -> dict[str, Any]:
    """Steps done and to do, and the first and the last value of the workload's key metric.

    Reads ends of files only: a long job has a hundred megabytes of metrics, and is looked at every few seconds.
    """
    metric = KEY_METRICS.get(workload, "")
    files = sorted(archive.path.glob("logs/metrics-*.jsonl"), key=lambda file: int(file.stem.rpartition("-")[2]))
    step, last = 0, None
    for file in reversed(files):
        found = last_entries(file)
        step = step or (int(found[-1]["step"]) if found else 0)
        values = [float(entry["data"][metric]) for entry in found if metric in entry["data"]]
        if values:
            last = values[-1]
            break
    return {
        "step": step,
        "total_steps": total_steps(archive, heartbeat),
        "metric": metric,
        "first": first_value(files, metric) if last is not None else None,
        "last": last,
    }


def time_left(heartbeat: Mapping[str, Any], total: int | None) -> float | None:
    """Seconds until the last of all steps, from the pace since the first one; None as long as there is none.

    Both times are of the launcher's clock, which may differ from ours.
    """
    step, first, first_at = heartbeat.get("step"), heartbeat.get("first_step"), heartbeat.get("first_step_at")
    if total is None or step is None or first is None or first_at is None or step <= first:
        return None
    pace = (float(heartbeat["time"]) - float(first_at)) / (int(step) - int(first))
    return max(0.0, pace * (total - int(step)))


# --- The state -------------------------------------------------------------------------------------------------------


def merge_states(status: Mapping[str, Any], job: Mapping[str, Any] | None) -> tuple[str, str]:
    """The state and the reason, from the archive and from Ray's own record.

    The archive has the last word on how a job ended: it is written by the launcher. Ray has it when the
    launcher could not write any more, and while the job waits for its driver to be started.
    """
    state, reason = str(status.get("state") or "UNKNOWN"), str(status.get("reason") or "")
    if state in ENDED or job is None:
        return state, reason
    if job["status"] in ENDED:
        return str(job["status"]), reason or str(job.get("message") or "")
    if state in LIVING or job["status"] == RUNNING:
        # "Job is currently running."
        return (state if state in LIVING else RUNNING), reason
    return str(job["status"]), reason or str(job.get("message") or "")


def is_complete(status: Mapping[str, Any], now: float) -> bool:
    """Whether the job has ended and its last evidence is in the archive, or will not come any more."""
    if status.get("state") not in ENDED:
        return False
    return "closed_at" in status or now - float(status.get("ended_at") or 0) > CLOSING_SECONDS


def is_overdue(status: Mapping[str, Any], heartbeat: Mapping[str, Any], now: float) -> bool:
    """Whether the head should know the job: between its archive and its submission lie moments."""
    if "updated_at" not in status or status["state"] == QUEUED:
        return False
    if status["state"] in LIVING:
        # Who shares the shared root with another cluster sees its jobs too, of which this head knows nothing.
        return now - float(heartbeat.get("time") or 0) > ALIVE_SECONDS
    submitted = datetime.fromisoformat(status["updated_at"].replace("Z", "+00:00"))
    return now - submitted.timestamp() > SUBMITTING_SECONDS


def submitted_at(archive: Archive) -> float:
    """When the archive was made. Of all its files the JobSpec is written once, and first."""
    for file in (archive.path / "config" / "job_spec.json", archive.path):
        if file.exists():
            return file.stat().st_mtime
    return 0.0


def describe(archive: Archive, head: RayHead | None, tail: int, position: str | None = None) -> dict[str, Any]:
    """Everything that `ray_job_info` returns of one job.

    position: where the log is read on from, in place of its last `tail` lines, see log_since.
    """
    job, problem = None, ""
    if head:
        try:
            job = head.job(attempts.ray_id(archive.submission_id, attempts.current(archive)))
        except RayApiError as error:
            problem = str(error)
    return merged(archive, job, bool(head) and not problem, tail, position) | {"problem": problem}


def merged(
    archive: Archive, job: Mapping[str, Any] | None, answered: bool, tail: int = 0, position: str | None = None
) -> dict[str, Any]:
    """The archive and Ray's own record of a job, if there is one; answered: whether a head was asked for it."""
    status, now = archive.status(), time.time()
    heartbeat = archive.read_json("heartbeat.json") or {}
    driver = job or {}
    if job and job["status"] in ENDED and archive.is_kept():
        # Its keeper sees the same, and decides whether that is the job's end or another attempt follows.
        job = None
    elif not archive.is_kept() and answered and job is None and is_overdue(status, heartbeat, now):
        job = FORGOTTEN
    state, reason = merge_states(status, job)
    # Ray's own record ends with the launcher; without a head, the archive alone has to tell.
    ended = state in ENDED and (is_complete(status, now) or (job or {}).get("status") in ENDED)
    log, after = log_tail(archive, tail) if position is None else log_since(archive, position, final=state in ENDED)
    living = state == RUNNING and "time" in heartbeat
    done = progress(archive, status.get("workload", ""), heartbeat)
    return {
        "submission_id": archive.submission_id,
        "state": state,
        "ended": ended,
        "reason": reason,
        "failure": failure_of(status, state, reason, job is FORGOTTEN),
        "workload": status.get("workload", ""),
        "code_id": status.get("code_id", ""),
        "tags": status.get("tags") or {},
        "lineage": status.get("lineage") or {},
        "attempt": attempts.current(archive),
        "attempts": status.get("attempts") or [],
        "submitted_at": submitted_at(archive),
        "started_at": status.get("started_at"),
        # An attempt's end is not the job's.
        "ended_at": status.get("ended_at") if state in ENDED else None,
        "silent_for": max(0.0, now - float(heartbeat["time"])) if living else None,
        "time_left": time_left(heartbeat, done["total_steps"]) if state == RUNNING else None,
        "driver_host": (status.get("driver") or {}).get("host"),
        "driver_node_id": driver.get("driver_node_id"),
        "driver_node_ip": (driver.get("driver_info") or {}).get("node_ip_address"),
        "progress": done,
        "checkpoints": archive.checkpoints(),
        "archive": str(archive.path),
        "log": log,
        "log_position": after,
        "problem": "",
    }


def failure_of(status: Mapping[str, Any], state: str, reason: str, forgotten: bool) -> dict[str, Any] | None:
    """What the archive says of a failure, or what can be said of a job whose launcher could not write how it ended."""
    if state == status.get("state"):
        # That of an attempt before this one is history.
        return status.get("failure") if state in (*ENDED, RETRYING) else None
    if state != FAILED:
        return None
    if forgotten:
        kind, todo = "node_lost", "Submit it again; it can go on from its last checkpoint."
    elif status.get("state") in LIVING:
        kind, todo = "killed", "Look who killed its launcher, or whether its node went; the archive has all it wrote."
    else:
        kind, todo = "unknown", "Its launcher was never started: read the reason, which is Ray's."
    return {"kind": kind, "reason": reason, "lines": [], "todo": todo}


def without_archive(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job that Ray knows and we do not: somebody's own, who may hold what ours wait for."""
    return {
        "submission_id": job["submission_id"],
        "state": job["status"],
        "ended": job["status"] in ENDED,
        "reason": job.get("message") or "",
        "failure": None,
        "workload": "",
        "attempt": 1,
        "submitted_at": (job.get("start_time") or 0) / 1000,
        "driver_host": None,
        "driver_node_ip": (job.get("driver_info") or {}).get("node_ip_address"),
        "progress": {"step": 0, "total_steps": None},
        "time_left": None,
        "silent_for": None,
        "archive": "",
    }


def archives_in(jobs: Path) -> list[Archive]:
    return [Archive(path) for path in jobs.glob("[!.]*") if path.is_dir()]


def recent(jobs: Path, head: RayHead | None, limit: int) -> dict[str, Any]:
    """The last jobs below a directory of archives and of the head, the newest first; and how many there are in all."""
    known: dict[str, dict[str, Any]] = {}
    problem = ""
    if head:
        try:
            known = {job["submission_id"]: job for job in head.jobs()}
        except RayApiError as error:
            problem = str(error)
    archives = archives_in(jobs)
    ours = {archive.submission_id for archive in archives}
    foreign = [job for ray_id, job in known.items() if ray_id.partition(attempts.SEPARATOR)[0] not in ours]
    found: list[tuple[float, Archive | dict[str, Any]]] = [(submitted_at(archive), archive) for archive in archives]
    found += [((job.get("start_time") or 0) / 1000, job) for job in foreign]
    found.sort(key=lambda one: one[0], reverse=True)

    def row(one: Archive | dict[str, Any]) -> dict[str, Any]:
        if isinstance(one, dict):
            return without_archive(one)
        ray_id = attempts.ray_id(one.submission_id, attempts.current(one))
        return merged(one, known.get(ray_id), bool(head) and not problem)

    return {
        "jobs": [row(one) for _at, one in found[:limit]],
        "total": len(found),
        "directory": str(jobs),
        "problem": problem,
    }


def unknown_job(jobs: Path, submission_id: str) -> str:
    """Why there is no such job, with those that there are."""
    found = sorted(archives_in(jobs), key=submitted_at, reverse=True)
    last = ", ".join(archive.submission_id for archive in found[:5]) or "none"
    return f"There is no job {submission_id!r} in {jobs}. Say -e submission_id=ID; the last are: {last}."


def wait_for_end(
    archive: Archive, head: RayHead | None, tail: int, timeout: float, position: str | None = None
) -> dict[str, Any]:
    """Describe the job when it has ended, or after `timeout` seconds; or when its log has more after a position."""
    deadline = time.monotonic() + timeout
    while True:
        # Most of the time the archive alone tells; Ray is asked when the time is over.
        if is_complete(archive.status(), time.time()) or time.monotonic() >= deadline:
            break
        # The log is at its end before the evidence is.
        if position is not None and (archive.status().get("state") in ENDED or log_since(archive, position)[0]):
            break
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    return describe(archive, head, tail, position)


# --- For people ------------------------------------------------------------------------------------------------------


def progress_line(info: Mapping[str, Any], now: float) -> str:
    """One line for people who follow: state, step of steps, the key metric, the time since the start, the time left."""
    attempt = f" attempt {info['attempt']}" if info.get("attempt", 1) > 1 else ""
    parts = [str(info["submission_id"]), f"{info['state']}{attempt}"]
    seen = info["progress"]
    if seen["step"] or seen["total_steps"]:
        parts.append(f"step {seen['step']}" + (f"/{seen['total_steps']}" if seen["total_steps"] else ""))
    if seen["last"] is not None:
        parts.append(f"{seen['metric']} {seen['last']:.3f}")
    if info["started_at"]:
        parts.append(duration((info["ended_at"] or now) - info["started_at"]))
    if info.get("time_left") is not None and info["state"] == RUNNING:
        parts.append(f"{duration(info['time_left'])} left")
    if info["state"] not in (RUNNING, *ENDED) and info.get("reason"):
        parts.append(str(info["reason"]))
    return "  ".join(parts)
