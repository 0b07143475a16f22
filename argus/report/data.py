# SPDX-License-Identifier: Apache-2.0
"""Reads the data of a job's page from its archive. Jobs can write to archives, so all reads are bounded."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive import samples
from ..archive.archive import Archive
from ..archive.plan import Plan
from ..common.text import one_line
from ..evidence import hardware
from ..io.hydra import override_key, override_list, override_text
from ..io.reading import MIB
from ..jobs.describe import describe, read_part, with_checkpoints
from ..jobs.info import JobInfo
from .job_curves import JobCurves, NodeCharts, node_charts, read_curves

MAX_LOG_LINES = 200
MAX_EVENTS, MAX_EVENT_CHARS = 1000, 300
MAX_LINES, MAX_READ_BYTES = 20_000, 4 * MIB
# The steps of which samples are shown, and the samples of each step.
MAX_SAMPLED_STEPS, MAX_SAMPLED_ROWS = 5, 8
# A file of evidence: the time at which it was collected, and the reason.
EVIDENCE_FILE = re.compile(r"debug/(\d{8}T\d{6})\.\d{6}Z-([a-z]+)-")
# The texts of a sample: their titles, and the fields in which verl writes them.
SAMPLE_TEXTS, MAX_TEXT_CHARS = {"Prompt": "input", "Answer": "output", "Expected": "gts"}, 5000
# Fields of events that other parts of the page show, or that are only for programs.
OMITTED_FIELDS = {"time", "event", "failure", "warnings", "workload", "code_id", "pid", "exit_code", "lineage", "tags"}
# How much the clocks of two machines may differ.
MAX_CLOCK_SKEW_SECONDS = 60


@dataclass(frozen=True)
class Event:
    # Seconds since the epoch.
    at: float
    name: str
    text: str


@dataclass(frozen=True)
class Sample:
    step: int
    score: float | None
    # By title, as in SAMPLE_TEXTS.
    texts: Mapping[str, str]


@dataclass(frozen=True)
class JobPage:
    """What a page shows of a job, all of it read from the job's archive."""

    info: JobInfo
    jobspec: Mapping[str, Any]
    plan: Plan
    # All overrides of the trainer: values by key.
    overrides: Mapping[str, str]
    # The keys of those overrides that the JobSpec has.
    jobspec_keys: frozenset[str]
    versions: Mapping[str, Any]
    # The SHA-256 of the job's files at its submission, by their paths.
    files: Mapping[str, Any]
    events: tuple[Event, ...]
    curves: JobCurves
    # By kind, such as rollouts; then by step, and the best first.
    samples: Mapping[str, Sequence[Sample]]
    nodes: NodeCharts
    # What could not be read, or was left out, as sentences for the page.
    problems: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """The duration of the job, so far if it runs; None if it has not started."""
        begin, end = self.info.started_at, self.info.ended_at or self.info.written_at
        return max(0.0, end - begin) if begin and end else None


def read_job(archive: Archive) -> JobPage:
    """The data of a job's page. What cannot be read is empty, and listed in its problems."""
    problems: list[str] = []
    info = with_checkpoints(archive, describe(archive, None, tail=MAX_LOG_LINES))
    jobspec = archive.read_jobspec()
    plan = read_part(archive.plan, None, problems) or Plan()
    start_times = {attempt.attempt: attempt.started_at for attempt in info.attempts if attempt.started_at}
    curves = read_part(lambda: read_curves(archive, start_times), JobCurves(), problems)
    events = [*logged_events(archive, problems), *evidence_events(archive, problems), *checkpoint_events(archive, info)]
    copied = archive.read_mapping("config/files.json").get("files")
    jobspec_overrides: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        jobspec_overrides = override_list(jobspec.get("trainer_overrides") or [])
    return JobPage(
        info=info,
        jobspec=jobspec,
        plan=plan,
        overrides={override_key(override): override_text(override) for override in plan.overrides},
        jobspec_keys=frozenset(map(override_key, jobspec_overrides)),
        versions=archive.read_mapping("config/versions.json"),
        files=copied if isinstance(copied, Mapping) else {},
        events=tuple(sorted(events, key=lambda event: event.at)),
        curves=curves,
        samples=read_part(lambda: read_samples(archive), {}, problems),
        nodes=read_part(lambda: node_charts(hardware.read(archive)), {}, problems),
        problems=(*info.unreadable, *problems, *sorted(curves.problems)),
    )


def read_samples(archive: Archive) -> dict[str, list[Sample]]:
    """Samples of some steps by kind, of each step the best, the worst and some others. Raises UnreadableError."""
    by_kind: dict[str, list[Sample]] = {}
    for kind, steps in samples.kept_steps(archive).items():
        for step in sorted(samples.select_steps(set(steps), MAX_SAMPLED_STEPS)):
            rows = list(samples.read(archive, kind, step))
            edge = MAX_SAMPLED_ROWS // 4
            middle = rows[edge : len(rows) - edge]
            chosen = [*rows[:edge], *middle[:: max(1, len(middle) // (2 * edge))][: 2 * edge], *rows[edge:][-edge:]]
            by_kind.setdefault(kind, []).extend(
                Sample(step, samples.score_of(row), sample_texts(row)) for row in chosen
            )
    return by_kind


def sample_texts(row: Mapping[str, Any]) -> dict[str, str]:
    texts = {title: row.get(name) for title, name in SAMPLE_TEXTS.items()}
    return {title: text[:MAX_TEXT_CHARS] for title, text in texts.items() if isinstance(text, str) and text}


def json_lines(archive: Archive, name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects in the first lines of a file; other lines are skipped. Adds what cannot be read to problems."""

    def content() -> bytes:
        with archive.open(name) as file:
            return file.read(MAX_READ_BYTES)

    for line in read_part(content, b"", problems).split(b"\n", MAX_LINES)[:MAX_LINES]:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry


def logged_events(archive: Archive, problems: list[str]) -> list[Event]:
    """The events in events.jsonl: of too many, the first and the last."""
    events: list[Event] = []
    for entry in json_lines(archive, "events.jsonl", problems):
        with contextlib.suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(str(entry.get("time"))).timestamp()
            events.append(Event(at, one_line(entry.get("event"), 40), event_text(entry)))
    if len(events) > MAX_EVENTS:
        problems.append(f"{len(events) - MAX_EVENTS} of its events are left out.")
        events[MAX_EVENTS // 2 : -MAX_EVENTS // 2] = []
    return events


def event_text(entry: Mapping[str, Any]) -> str:
    """The fields of an event in one line: its reason and its text first, then the others with their names."""
    values = {name: value for name, value in entry.items() if name not in OMITTED_FIELDS and not name.endswith("_at")}
    driver = values.get("driver")
    values["driver"] = driver.get("host") if isinstance(driver, dict) else None
    texts = [str(values.pop(name, None) or "")[:MAX_EVENT_CHARS] for name in ("reason", "text")]
    texts += [f"{name.replace('_', ' ')} {str(value)[:MAX_EVENT_CHARS]}" for name, value in values.items() if value]
    return one_line(", ".join(filter(None, texts)), MAX_EVENT_CHARS)


def evidence_events(archive: Archive, problems: list[str]) -> list[Event]:
    """One event for each moment at which evidence was collected."""
    events: dict[str, Event] = {}
    for entry in json_lines(archive, "debug/index.jsonl", problems):
        match = EVIDENCE_FILE.match(str(entry.get("file")))
        if match and len(events) < MAX_EVENTS:
            with contextlib.suppress(ValueError):
                at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
                events[match[0]] = Event(at, "EVIDENCE", match[2])
    return list(events.values())


def checkpoint_events(archive: Archive, info: JobInfo) -> Iterator[Event]:
    """The checkpoints by the times of their directories. Those of copies are mostly after the end of the job."""
    end = (info.ended_at or info.written_at or 0) + MAX_CLOCK_SKEW_SECONDS
    for step in info.checkpoints[-MAX_EVENTS:]:
        with contextlib.suppress(OSError):
            at = os.lstat(archive.path / "checkpoints" / f"global_step_{step}").st_mtime
            if (info.started_at or end) <= at <= end:
                yield Event(at, "CHECKPOINT", f"step {step}")
