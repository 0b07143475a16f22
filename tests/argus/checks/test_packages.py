from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from checked_job import CODE, checked, declare, found, request, rows_with, write

from argus.checks import worker


def test_a_version_that_verl_excludes(root: Path, installed: dict[str, str]) -> None:
    installed["tensordict"] = "0.12.0"
    (finding,) = checked(root)
    assert (finding.key, finding.severity) == ("code_path", "error") and "0.12.0" in finding.what
    assert [severity for _where, _what, severity in found(root, accept=["requirements"])] == ["warning"]


def test_a_package_that_is_not_there(root: Path, installed: dict[str, str]) -> None:
    del installed["numpy"]
    text = "verl 0.9.1 requires numpy>=2.0.0, which the workers do not have"
    assert found(root) == [("code_path", text, "error")]
    assert found(root, accept=["requirements"]) == [("code_path", text, "warning")]


def test_transfer_queue_is_needed_although_verl_does_not_declare_it(root: Path, installed: dict[str, str]) -> None:
    del installed["transferqueue"]
    text = "verl 0.9.1 imports TransferQueue without declaring it, and the workers do not have it"
    assert found(root) == [("code_path", text, "error")]
    assert found(root, accept=["requirements"]) == [("code_path", text, "warning")]
    assert found(root, settings={"trainer.use_v1": False}) == []
    assert ("code_path", text, "error") not in found(root, workload="sft")
    version = root / CODE / "verl/version/version"
    version.parent.mkdir(parents=True, exist_ok=True)
    version.write_text("0.8.0\n")
    assert found(root) == []


def test_packages_that_only_some_jobs_need(root: Path) -> None:
    text = "verl 0.9.1 requires wandb, which the workers do not have"
    assert found(root, settings={"trainer.logger": ["console", "file"]}) == []
    assert found(root, settings={"trainer.logger": ["console", "wandb"]}) == [("code_path", text, "error")]
    text = "verl 0.9.1 requires pybind11, which the workers do not have"
    assert found(root, settings={"actor_rollout_ref.actor.strategy": "megatron"}) == [("code_path", text, "error")]


def test_a_package_of_a_data_source(root: Path) -> None:
    declare(root, "pylatexenc")
    (root / CODE / "verl/utils/reward_score/__init__.py").unlink()
    write(root, rows_with(lambda row: row.update(data_source="numina_cn_k12")))
    assert found(root) == []
    text = "verl 0.9.1 requires pylatexenc, which the workers do not have"
    assert found(root, reward_file=None) == [("code_path", text, "error")]


def test_markers_and_extras(root: Path) -> None:
    declare(root, "a; python_version < '3'", "b; extra == 'mcore'", "vllm>=0.18.0; extra == 'vllm'", "not a line!")
    assert found(root) == []
    text = "verl 0.9.1 requires vllm>=0.18.0, which the workers do not have"
    assert found(root, settings={"actor_rollout_ref.rollout.name": "vllm"}) == [("code_path", text, "error")]
    assert found(root, settings={"actor_rollout_ref.rollout.name": "sglang"}) == []


def test_pins_of_an_engine(root: Path, installed: dict[str, str]) -> None:
    declare(
        root, *(f"{pin}; extra == 'vllm'" for pin in ("verl[verl-core]", "torch==2.11.0", "vllm==0.24.0", "mbridge"))
    )
    vllm = {"actor_rollout_ref.rollout.name": "vllm"}
    installed.update(torch="2.11.0+cu130", vllm="0.24.0")
    assert found(root, settings=vllm) == []
    text = "verl 0.9.1 requires vllm==0.24.0, but the workers have "
    for version in ("0.24.1", "0.27.1+cpu"):
        installed["vllm"] = version
        assert found(root, settings=vllm) == [("code_path", f"{text}{version}", "warning")]
    installed["vllm"] = "0.12.0"
    assert found(root, settings=vllm) == [("code_path", f"{text}0.12.0", "error")]
    installed.update(torch="2.12.0", vllm="0.24.0")
    text = "verl 0.9.1 is tested for vllm with torch==2.11.0 (the workers have 2.12.0)"
    assert found(root, settings=vllm) == [("code_path", text, "warning")]


@pytest.mark.parametrize("rollout", ["vllm", "trtllm", "hf"])
def test_extras_of_extras(root: Path, installed: dict[str, str], rollout: str) -> None:
    # As verl 0.10 has them, with a circle.
    declare(
        root,
        *("verl[verl-core]; extra == 'vllm'", "verl[transferqueue]; extra == 'verl-core'", "vllm; extra == 'vllm'"),
        *("verl[vllm,verl-core]; extra == 'transferqueue'", "TransferQueue>=0.1.10; extra == 'transferqueue'"),
    )
    installed["vllm"] = "0.24.0"
    settings = {"actor_rollout_ref.rollout.name": rollout}
    assert found(root, settings=settings) == []
    installed["transferqueue"] = "0.1.6"
    (finding,) = checked(root, settings=settings)
    assert (finding.key, finding.severity) == ("code_path", "error") and "0.1.6" in finding.what
    # A job that does not import it learns with what verl was tested.
    unused = found(root, settings={**settings, "trainer.use_v1": False})
    assert [severity for *_rest, severity in unused] == (["warning"] if rollout == "vllm" else [])
    del installed["transferqueue"]
    assert [severity for *_rest, severity in found(root, settings=settings)] == ["error"]


def put_package(directory: Path, name: str, version: str, *requirements: str) -> None:
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requirements)]
    (directory / f"{name}.dist-info").mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.dist-info/METADATA").write_text("\n".join([*lines, ""]))


def test_packages_that_do_not_fit_together(root: Path, tmp_path: Path, installed: dict[str, str]) -> None:
    installed["vllm"] = "0.24.0"
    job: dict[str, Any] = {"settings": {"actor_rollout_ref.rollout.name": "vllm"}}
    job["environment"] = {"PYTHONPATH": str(tmp_path / "own")}
    put_package(
        tmp_path / "own", "vllm", "0.24.0", "Inner_Package[fast]>=1", "gone; python_version < '3'", "not a line!"
    )
    put_package(tmp_path / "own", "inner_package", "1.0", "quick==2; extra == 'fast'", "slow; extra == 'other'")
    put_package(tmp_path / "own", "quick", "2", "vllm")
    assert found(root, **job) == []
    # Far from the engine, and what is of no engine.
    put_package(tmp_path / "own", "quick", "3", "missing>=7")
    put_package(tmp_path / "own", "other", "1", "quick==1")
    (finding,) = checked(root, **job)
    assert (finding.key, finding.severity) == ("code_path", "warning")
    assert all(text in finding.what for text in ("inner-package", "quick==2", "3", "missing>=7"))
    assert found(root, environment=job["environment"]) == []


TAG, COMMIT = "v0.8.0", "bbca85c9b8131bacf6efcb4892af882e8ade4b5d"


@pytest.mark.parametrize(
    ("pins", "version", "commit", "severities"),
    [
        (f"# tested\nMODE=pinned_tag\nTAG={TAG}\nCOMMIT={COMMIT}\n", "0.8.0", None, []),
        (f"MODE=pinned_tag\nTAG={TAG}\nCOMMIT={COMMIT}\n", "0.8.0.dev", COMMIT, []),
        (f"MODE=pinned_tag\nTAG={TAG}\nCOMMIT={COMMIT}\n", "0.9.1", "1" * 40, ["warning"]),
        (f"MODE=pinned_commit\nCOMMIT={COMMIT}\n", "0.8.0", "1" * 40, ["warning"]),
        # A release has no commit, and a commit no release.
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
    findings = worker.required_verl_findings(f"{root}/{CODE}", "recipe.gkd.megatron.main_gkd")
    assert [finding.severity for finding in findings] == severities
    assert {finding.key for finding in findings} <= {"code_path"}
    assert worker.required_verl_findings(f"{root}/{CODE}", "verl.trainer.main_ppo") == []


def test_the_version_that_a_job_would_import(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert worker.installed_version(request(root), "pyarrow") == pyarrow.__version__
    assert worker.installed_version(request(root), "no-such-package") is None
    put_package(tmp_path / "own", "pyarrow", "1.0")
    own = request(root, environment={"PYTHONPATH": f"{root}:{tmp_path}/own"})
    assert worker.installed_version(own, "pyarrow") == "1.0"


@pytest.mark.parametrize(
    ("version", "expected"), [(None, False), ("1.7.9", False), ("1.8.0", True), ("1.8", True), ("1.10.0rc1", True)]
)
def test_the_debugger_needs_debugpy(root: Path, installed: dict[str, str], version: str | None, expected: bool) -> None:
    installed.update({"debugpy": version} if version else {})
    assert [finding.key for finding in checked(root, debugger="post_mortem")] == ([] if expected else ["debugger"])
    assert found(root, debugger="legacy") == []
    assert found(root) == []


def test_close_versions_count_only_for_engines(root: Path, installed: dict[str, str]) -> None:
    declare(root, "numpy==2.4.5")
    assert [severity for *_rest, severity in found(root)] == ["error"]
    assert installed["numpy"] == "2.4.6"
