# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page shows of a job, read from its archive. Jobs can write to archives: all reads are bounded."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..common.text import duration, one_line
from ..jobs.info import JobInfo
from ..jobs.state import describe, readable, with_checkpoints
from ..launcher.archive import Archive
from ..launcher.hydra import override_key, override_list, override_text
from ..launcher.plan import Plan
from ..launcher.reading import MIB
from .curves import Curves, read_curves

LOG_LINES = 200
MOST_EVENTS, EVENT_LENGTH = 1000, 300
LINES_BYTES = 4 * MIB
STAMP = re.compile(r"debug/(?P<stamp>\d{8}T\d{6})\.\d{6}Z-(?P<moment>[a-z]+)-")
# In events, what other columns tell, and what is only of use to programs.
DETAILS_LEFT_OUT = {
    "time",
    "event",
    "failure",
    "warnings",
    "workload",
    "code_id",
    "pid",
    "exit_code",
    "lineage",
    "tags",
}
# A checkpoint that was copied has another time than that at which it was written.
CLOCKS_SECONDS = 60


@dataclass(frozen=True)
class Event:
    at: float
    name: str
    text: str


@dataclass(frozen=True)
class Job:
    """overrides: values by key. own: the keys of those that the JobSpec has."""

    info: JobInfo
    jobspec: Mapping[str, Any]
    plan: Plan
    overrides: Mapping[str, str]
    own: frozenset[str]
    versions: Mapping[str, str]
    events: tuple[Event, ...]
    curves: Curves
    problems: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        start, end = self.info.started_at, self.info.ended_at or self.info.written_at
        return max(0.0, end - start) if start and end else None


def read_job(archive: Archive) -> Job:
    """All that a page shows of a job. What cannot be read is among its problems."""
    problems: list[str] = []
    info = with_checkpoints(archive, describe(archive, None, tail=LOG_LINES))
    jobspec = archive.read_jobspec()
    plan = readable(archive.plan, None, problems) or Plan()
    with_index = [*archive_events(archive, problems), *evidence(archive, problems), *checkpoints(archive, info)]
    starts = {attempt.attempt: attempt.started_at for attempt in info.attempts if attempt.started_at}
    curves = readable(lambda: read_curves(archive, starts), Curves(), problems)
    if curves.left_out:
        problems.append("It has too many metrics: some are left out.")
    if curves.is_sampled:
        problems.append("Its metrics files are very large: only parts of them were read, from beginning to end.")
    own: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        own = override_list(jobspec.get("trainer_overrides") or [])
    versions = archive.read_mapping("config/versions.json")
    return Job(
        info=info,
        jobspec=jobspec,
        plan=plan,
        overrides={override_key(each): override_text(each) for each in plan.overrides},
        own=frozenset(map(override_key, own)),
        versions={name: value for name, value in versions.items() if isinstance(value, str)},
        events=tuple(sorted(with_index, key=lambda event: event.at)),
        curves=curves,
        problems=(*info.unreadable, *problems),
    )


def json_lines(archive: Archive, name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The mappings in the first lines of a file."""

    def content() -> bytes:
        with archive.open(name) as file:
            return file.read(LINES_BYTES)

    for line in readable(content, b"", problems).split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry


def archive_events(archive: Archive, problems: list[str]) -> list[Event]:
    events: list[Event] = []
    for entry in json_lines(archive, "events.jsonl", problems):
        with contextlib.suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(str(entry.get("time"))).timestamp()
            events.append(Event(at, one_line(entry.get("event"), 40), details(entry)))
    if len(events) > MOST_EVENTS:
        problems.append(f"{len(events) - MOST_EVENTS} of its events are left out.")
    # How it began, and how it ended.
    return [*events[: MOST_EVENTS // 2], *events[MOST_EVENTS // 2 :][-MOST_EVENTS // 2 :]]


def details(entry: Mapping[str, Any]) -> str:
    """The short values of an event in one line."""
    parts = []
    for name, value in entry.items():
        if name in DETAILS_LEFT_OUT or name.endswith("_at") or value in (None, "", [], {}):
            continue
        if name in ("reason", "text"):
            parts.append(str(value))
        elif name == "away_for" and isinstance(value, (int, float)) and abs(value) < MIB * MIB:
            parts.append(f"away for {duration(value)}")
        elif name == "driver" and isinstance(value, dict):
            parts.append(f"driver on {value.get('host')}")
        elif isinstance(value, (str, int, float)):
            parts.append(f"{name.replace('_', ' ')} {value}")
    return one_line(", ".join(part[:EVENT_LENGTH] for part in parts), EVENT_LENGTH)


def evidence(archive: Archive, problems: list[str]) -> list[Event]:
    """One event for each moment at which evidence was collected."""
    found = {}
    for entry in json_lines(archive, "debug/index.jsonl", problems):
        match = STAMP.match(str(entry.get("file")))
        if match and len(found) < MOST_EVENTS:
            with contextlib.suppress(ValueError):
                at = datetime.fromisoformat(f"{match['stamp']}Z").timestamp()
                found[match[0]] = Event(at, "EVIDENCE", match["moment"])
    return list(found.values())


def checkpoints(archive: Archive, info: JobInfo) -> Iterator[Event]:
    end = info.ended_at or info.written_at
    for step in info.checkpoints[-MOST_EVENTS:]:
        with contextlib.suppress(OSError):
            at = os.lstat(archive.path / "checkpoints" / f"global_step_{step}").st_mtime
            if info.started_at and end and info.started_at <= at <= end + CLOCKS_SECONDS:
                yield Event(at, "CHECKPOINT", f"step {step}")
