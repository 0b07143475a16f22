from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.preflight import reading, software
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation, Problem
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Reader
from ansible_collections.argus.verl.plugins.module_utils.preflight.software import Software
from preflight_tree import context, differences

PYTHON = "/opt/verl/bin/python3"
NCCL = "nvidia-nccl-cu12"
GOOD = Software(PYTHON, "3.12.3", {"ray": "2.60.0", "torch": "2.8.0", NCCL: "2.27.3", "verl": "0.9.1"})


def installed(directory: Path, packages: Mapping[str, str]) -> None:
    """Packages that have nothing but their metadata."""
    for name, number in packages.items():
        metadata = directory / f"{name.replace('-', '_')}-{number}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")


def with_packages(answer: Software, **packages: str) -> Software:
    return replace(answer, packages={**answer.packages, **packages})


def judged(answer: Software, expected: Expectation | None = None) -> list[Problem]:
    return list(software.judge(answer, context(expected=expected)))


def test_a_real_python_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, {"ray": "2.60.0", "Torch": "2.8.0+cu128", "nvidia-nccl-cu12": "2.27.3", "raylet": "1.0"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = software.read(Reader(), Expectation(python=sys.executable))
    assert found == Software(
        sys.executable,
        platform.python_version(),
        {"ray": "2.60.0", "torch": "2.8.0+cu128", "nvidia-nccl-cu12": "2.27.3"},
    )


def test_what_is_found_first_counts_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, directory in (("0.9.1", tmp_path / "first"), ("0.8.0", tmp_path / "second")):
        installed(directory, {"verl": number})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    assert software.read(Reader(), Expectation(python=sys.executable)).packages["verl"] == "0.9.1"


def test_where_nodes_are_containers_nothing_is_started() -> None:
    assert software.read(Reader(), Expectation()) == Software()
    assert judged(Software()) == []


@pytest.mark.parametrize(
    ("code", "out", "err", "problem"),
    [
        (127, "", "No such file or directory", "No such file or directory"),
        (1, "", "Traceback\nImportError: no json", "ImportError: no json"),
        (0, "not JSON", "", "not JSON"),
        (0, "[]", "", "[]"),
        (0, '{"python": "3.12.3"}', "", '{"python": "3.12.3"}'),
        (0, '{"python": "3.12.3", "packages": []}', "", '{"python": "3.12.3", "packages": []}'),
        (124, "", "", "exit code 124"),
    ],
)
def test_a_python_that_does_not_run(
    code: int, out: str, err: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "run_program", lambda _argv, _seconds: (code, out, err))
    found = software.read(Reader(), Expectation(python=PYTHON))
    assert found == Software(PYTHON, problem=problem)
    (only,) = judged(found)
    assert (only.key, only.what) == ("software.python", f"{PYTHON} does not run: {problem}")


def test_an_environment_may_print_something_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = f"module load cuda\n{json.dumps({'python': GOOD.python, 'packages': GOOD.packages})}\n"
    monkeypatch.setattr(reading, "run_program", lambda _argv, _seconds: (0, answer, ""))
    assert software.read(Reader(), Expectation(python=PYTHON)) == GOOD


def test_a_good_python() -> None:
    assert judged(GOOD) == []
    assert judged(with_packages(GOOD, ray="2.52.0")) == []
    assert judged(with_packages(GOOD, ray="3.0.0.dev0")) == []


def test_a_ray_without_tokens() -> None:
    (problem,) = judged(with_packages(GOOD, ray="2.51.9"))
    assert problem.what == f"{PYTHON} has Ray 2.51.9, which has no tokens"
    assert problem.todo == "install Ray 2.57 or later"


def test_a_ray_whose_head_keeps_no_tables() -> None:
    old = with_packages(GOOD, ray="2.56.1")
    (problem,) = judged(old, Expectation(python=PYTHON, head_storage="rocksdb"))
    assert "2.56.1" in problem.what and "cluster_head_storage: memory" in problem.todo
    assert judged(old, Expectation(python=PYTHON, head_storage="memory")) == []


def test_a_python_without_ray() -> None:
    (problem,) = judged(Software(PYTHON, "3.12.3"))
    assert problem.what == f"Ray is not installed for {PYTHON}"


def test_equal_hosts_differ_in_nothing_and_a_head_needs_no_torch() -> None:
    head = Software(PYTHON, GOOD.python, {"ray": "2.60.0"})
    assert differences(software.TOPIC, {"head": head, "gpu-0": GOOD, "gpu-1": GOOD, "engine": Software()}) == []


@pytest.mark.parametrize(
    ("other", "what", "severity"),
    [
        (replace(GOOD, python="3.11.2"), "Python is 3.11.2, on 2 of 3 machines it is 3.12.3", ERROR),
        (with_packages(GOOD, ray="2.59.0"), "Ray is 2.59.0, on 2 of 3 machines it is 2.60.0", ERROR),
        (with_packages(GOOD, torch="2.7.1"), "torch is 2.7.1, on 2 of 3 machines it is 2.8.0", WARNING),
        (
            with_packages(GOOD, **{NCCL: "2.26.2"}),
            "NCCL is 2.26.2, on 2 of 3 machines it is 2.27.3",
            WARNING,
        ),
        (with_packages(GOOD, verl="0.8.0"), "verl is 0.8.0, on 2 of 3 machines it is 0.9.1", WARNING),
    ],
)
def test_a_host_that_differs_is_named(other: Software, what: str, severity: str) -> None:
    (finding,) = differences(software.TOPIC, {"gpu-0": GOOD, "gpu-1": other, "gpu-2": GOOD})
    assert (finding.where, finding.what, finding.severity) == ("gpu-1", what, severity)
