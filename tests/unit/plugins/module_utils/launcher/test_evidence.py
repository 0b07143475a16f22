from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import evidence
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "grpo-1")
    made.reserve()
    return made


def no_ray() -> str:
    raise ConnectionError("Ray is gone")


def test_what_cannot_be_had_does_not_keep_the_rest_away(archive: Archive) -> None:
    sources = {"one.txt": lambda: "first\n", "two.json": no_ray, "three.txt": lambda: "third\n"}
    names = evidence.collect(archive, "end", sources)
    stamps = {name.partition("-")[0] for name in names}
    assert len(stamps) == 1
    assert re.fullmatch(r"debug/\d{8}T\d{6}\.\d{6}Z", stamps.pop())
    assert [name.partition("-")[2] for name in names] == ["end-one.txt", "end-two.json.error", "end-three.txt"]
    assert [(archive.path / name).read_text() for name in names] == [
        "first\n",
        "ConnectionError: Ray is gone\n",
        "third\n",
    ]


def test_two_moments_are_two_sets_of_files_in_their_order(archive: Archive) -> None:
    for moment in ("start", "end"):
        evidence.collect(archive, moment, {"one.txt": lambda: ""})
    files = sorted(path.name for path in (archive.path / "debug").iterdir())
    assert [name.partition("-")[2] for name in files] == ["start-one.txt", "end-one.txt"]


def test_nothing_to_collect_is_not_everything(archive: Archive) -> None:
    assert evidence.collect(archive, "end", {}) == []


def test_the_sources_are_those_of_the_contract() -> None:
    assert list(evidence.SOURCES) == [
        "ray_status.txt",
        "ray_job_list.json",
        "ray_list_nodes.json",
        "ray_list_actors.json",
    ]


def test_ray_status_is_what_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "ray"
    command.write_text('#!/bin/sh\necho "asked for $*"\necho "no cluster" >&2\nexit 1\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert evidence.SOURCES["ray_status.txt"]() == "asked for status -v\nno cluster\n"


def test_records_of_ray_become_plain() -> None:
    @dataclass
    class Node:
        node_id: str

    class Job:
        def dict(self) -> dict[str, str]:
            return {"submission_id": "grpo-1"}

    assert json.dumps([Node("a"), Job(), Path("/x")], default=evidence._plain) == (
        '[{"node_id": "a"}, {"submission_id": "grpo-1"}, "/x"]'
    )
