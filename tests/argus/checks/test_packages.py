from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from checked_job import (
    CODE,
    REQUIREMENTS,
    REWARD_FILE,
    checked,
    declare,
    findings_of,
    keys,
    request,
    rows_with,
    version,
    write,
)

from argus.checks import packages

VLLM = {"actor_rollout_ref.rollout.name": "vllm"}
PINS = [f"{pin}; extra == 'vllm'" for pin in ("verl[verl-core]", "torch==2.11.0", "vllm==0.24.0", "mbridge")]
# The requirements of verl 0.10, which have a circle.
CIRCLE = [
    *("verl[verl-core]; extra == 'vllm'", "verl[transferqueue]; extra == 'verl-core'", "vllm; extra == 'vllm'"),
    *("verl[vllm,verl-core]; extra == 'transferqueue'", "TransferQueue>=0.1.10; extra == 'transferqueue'"),
]
OTHERS = ["a; python_version < '3'", "b; extra == 'mcore'", "vllm>=0.18.0; extra == 'vllm'", "not a line!"]


@pytest.mark.parametrize(
    ("declared", "versions", "settings", "expected"),
    [
        (REQUIREMENTS, {"tensordict": "0.12.0"}, {}, ["error 0.12.0"]),
        (REQUIREMENTS, {"numpy": None}, {}, ["error numpy>=2.0.0"]),
        (REQUIREMENTS, {"transferqueue": None}, {}, ["error TransferQueue"]),
        (REQUIREMENTS, {"transferqueue": None}, {"trainer.use_v1": False}, []),
        (REQUIREMENTS, {}, {"trainer.logger": ["console", "file"]}, []),
        (REQUIREMENTS, {}, {"trainer.logger": ["console", "wandb"]}, ["error wandb"]),
        (REQUIREMENTS, {}, {"actor_rollout_ref.actor.strategy": "megatron"}, ["error pybind11"]),
        (OTHERS, {}, {}, []),
        (OTHERS, {}, VLLM, ["error vllm>=0.18.0"]),
        (OTHERS, {}, {"actor_rollout_ref.rollout.name": "sglang"}, []),
        (PINS, {"torch": "2.11.0+cu130", "vllm": "0.24.0"}, VLLM, []),
        # A newer version of the engine may do.
        (PINS, {"torch": "2.11.0", "vllm": "0.27.1+cpu"}, VLLM, ["warning 0.27.1+cpu"]),
        (PINS, {"torch": "2.11.0", "vllm": "0.12.0"}, VLLM, ["error 0.12.0"]),
        (PINS, {"torch": "2.12.0", "vllm": "0.24.0"}, VLLM, ["warning torch==2.11.0 (the workers have 2.12.0)"]),
        (CIRCLE, {"vllm": "0.24.0", "transferqueue": "0.1.6"}, VLLM, ["error 0.1.6"]),
        # A job that does not import it is warned that verl was tested with another version.
        (CIRCLE, {"vllm": "0.24.0", "transferqueue": "0.1.6"}, {**VLLM, "trainer.use_v1": False}, ["warning 0.1.6"]),
        (CIRCLE, {"transferqueue": "0.1.6"}, {"actor_rollout_ref.rollout.name": "hf"}, ["error 0.1.6"]),
        (CIRCLE, {"transferqueue": "0.1.6"}, {"trainer.use_v1": False}, []),
        (CIRCLE, {"transferqueue": None}, {}, ["error TransferQueue>=0.1.10"]),
    ],
)
def test_what_verl_requires(
    root: Path,
    installed: dict[str, str],
    declared: Sequence[str],
    versions: dict[str, str | None],
    settings: dict[str, Any],
    expected: Sequence[str],
) -> None:
    declare(root, *declared)
    installed.update({name: version for name, version in versions.items() if version})
    for name in (name for name, release in versions.items() if not release):
        del installed[name]
    findings = findings_of(root, settings=settings)
    assert [(key, severity) for key, _text, severity in findings] == [
        ("code_path", text.split()[0]) for text in expected
    ]
    assert all(text.partition(" ")[2] in one[1] for text, one in zip(expected, findings, strict=True))
    accepted = keys(root, settings=settings, accept=["requirements"])
    assert accepted == [("code_path", "warning")] * len(expected)


def test_transfer_queue_is_of_verl_0_9(root: Path, installed: dict[str, str]) -> None:
    del installed["transferqueue"]
    assert keys(root, workload="sft") == []
    version(root, "0.8.0")
    assert keys(root) == []


def test_a_package_of_a_data_source(root: Path) -> None:
    declare(root, "pylatexenc")
    (root / CODE / "verl/utils/reward_score/__init__.py").unlink()
    assert keys(root) == []
    write(root, rows_with(lambda row: row.update(data_source="numina_cn_k12")))
    assert keys(root) == [("code_path", "error")]
    assert keys(root, reward_file=f"{root}/{REWARD_FILE}") == []


def put_package(directory: Path, name: str, version: str, *requirements: str) -> None:
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requirements)]
    (directory / f"{name}.dist-info").mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.dist-info/METADATA").write_text("\n".join([*lines, ""]))


def test_packages_that_do_not_fit_together(root: Path, tmp_path: Path, installed: dict[str, str]) -> None:
    installed["vllm"] = "0.24.0"
    job: dict[str, Any] = {"settings": VLLM, "environment": {"PYTHONPATH": str(tmp_path)}}
    put_package(tmp_path, "vllm", "0.24.0", "Inner_Package[fast]>=1", "gone; python_version < '3'", "not a line!")
    put_package(tmp_path, "inner_package", "1.0", "quick==2; extra == 'fast'", "slow; extra == 'other'")
    put_package(tmp_path, "quick", "2", "vllm")
    assert keys(root, **job) == []
    # A finding names a package far from the engine, but none that the engine does not need.
    put_package(tmp_path, "quick", "3", "missing>=7")
    put_package(tmp_path, "other", "1", "quick==1")
    (finding,) = checked(root, **job)
    assert (finding.key, finding.severity) == ("code_path", "warning")
    assert all(text in finding.problem for text in ("inner-package", "quick==2", "3", "missing>=7"))
    assert keys(root, environment=job["environment"]) == []


def test_the_version_that_a_job_would_import(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert packages.installed_version(request(root), "pyarrow") == pyarrow.__version__
    assert packages.installed_version(request(root), "no-such-package") is None
    put_package(tmp_path / "own", "pyarrow", "1.0")
    job = request(root, environment={"PYTHONPATH": f"{root}:{tmp_path}/own"})
    assert packages.installed_version(job, "pyarrow") == "1.0"


COMMIT = "bbca85c9b8131bacf6efcb4892af882e8ade4b5d"
TAG = f"# tested\nMODE=pinned_tag\nTAG=v0.8.0\nCOMMIT={COMMIT}\n"


@pytest.mark.parametrize(
    ("pins", "version", "commit", "severities"),
    [
        (TAG, "0.8.0", None, []),
        (TAG, "0.9.1", "1" * 40, ["warning"]),
        (f"MODE=pinned_commit\nCOMMIT={COMMIT}\n", "0.8.0", "1" * 40, ["warning"]),
        # A release has no commit.
        (f"MODE=pinned_commit\nCOMMIT={COMMIT}\n", "0.8.0", None, []),
        # It follows the main branch.
        (f"MODE=rolling\nBRANCH=main\nVERL_COMMIT={COMMIT}\n", "0.9.1", "1" * 40, []),
        ("=\nMODE", "0.9.1", "1" * 40, []),
    ],
)
def test_a_recipe_names_its_verl(
    root: Path, pins: str, version: str, commit: str | None, severities: list[str]
) -> None:
    recipe = root / CODE / "recipe/gkd/megatron"
    recipe.mkdir(parents=True)
    manifest = {"verl_version": version, **({"commit": commit} if commit else {})}
    (root / CODE / "manifest.json").write_text(json.dumps(manifest))
    (recipe / "REQUIRED_VERL.txt").write_text(pins)
    findings = packages.required_verl_findings(f"{root}/{CODE}", "recipe.gkd.megatron.main_gkd")
    assert [(finding.key, finding.severity) for finding in findings] == [("code_path", level) for level in severities]
    assert packages.required_verl_findings(f"{root}/{CODE}", "verl.trainer.main_ppo") == []


@pytest.mark.parametrize(("version", "fits"), [(None, False), ("1.7.9", False), ("1.8", True), ("1.10.0rc1", True)])
def test_the_debugger_needs_debugpy(root: Path, installed: dict[str, str], version: str | None, fits: bool) -> None:
    installed.update({"debugpy": version} if version else {})
    assert keys(root, debugger="post_mortem") == ([] if fits else [("debugger", "error")])
    assert keys(root, debugger="legacy") == keys(root) == []
