from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.hub import retry
from ansible_collections.argus.verl.plugins.modules import hf_model
from hub import Hub, model

NAME = "org/name"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "QUESTION_WAITS", ())
    with Hub() as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def run(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    """The module's result, as Ansible reads it."""
    with patch_module_args(arguments), pytest.raises(SystemExit):
        hf_model.main()
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert "failed" not in said or said["msg"]
    return said


def test_a_model_is_staged_verified_repaired_and_removed(
    hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub.add(NAME, model())
    given = {"shared_root": str(root), "name": "Name", "source": NAME, "endpoint": hub.url}
    path = f"{root}/common/models/Name"
    there = {
        "commit": commit,
        "bytes": sum(map(len, model().values())),
        "name": "Name",
        "path": path,
        "notes": [],
    }

    def said(status: str, changed: bool, before: str, after: str) -> dict[str, Any]:
        diff = {"before": before and f"model {path}\n", "after": after and f"model {path}\n"}
        return {"status": status, "changed": changed, "diff": diff}

    absent = {key: there[key] for key in ("name", "path", "notes")}

    def result(**further: Any) -> dict[str, Any]:
        # Ansible itself adds owner and mode of what is returned as path.
        ours = {*there, "status", "changed", "diff"}
        return {key: value for key, value in run(capsys, **given, **further).items() if key in ours}

    assert result(_ansible_check_mode=True) == {**absent, **said("staged", True, "", "it")}
    assert result(defer=True) == {**absent, **said("deferred", False, "it", "it")}
    assert result() == {**there, **said("staged", True, "", "it")}
    assert result() == {**there, **said("exists", False, "it", "it")}
    Path(path, "config.json").unlink()
    assert result(repair=True) == {
        **there,
        **said("repaired", True, "it", "it"),
        "notes": ["config.json is missing"],
    }
    assert result(state="absent", _ansible_check_mode=True) == {**there, **said("removed", True, "it", "")}
    assert result(state="absent") == {**absent, **said("removed", True, "it", "")}
    assert result(state="absent") == {**absent, **said("absent", False, "", "")}
    assert not list(root.glob("hf/hub/models--*"))


def test_an_error_is_a_finding_without_the_token(hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add(NAME, model(), private=True)
    hub.echo = "you gave hf_wrong"
    said = run(capsys, shared_root=str(root), name="Name", source=NAME, endpoint=hub.url, token="hf_wrong")
    assert said["failed"]
    assert said["finding"]["where"] == f"{NAME} on {hub.url}"
    assert said["finding"]["what"] == "does not accept the token (401)."
    assert "hf_wrong" not in json.dumps(said)
    assert {each.token for each in hub.asked} == {"hf_wrong"}


def test_a_model_that_a_job_uses_is_not_removed(hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add(NAME, model())
    given = {"shared_root": str(root), "name": "Name", "endpoint": hub.url}
    run(capsys, **given, source=NAME)
    config = root / "jobs" / "grpo-1" / "config"
    config.mkdir(parents=True)
    (config / "job_spec.json").write_text(json.dumps({"model": "Name", "shared_root": str(root)}))
    assert "is used by grpo-1" in run(capsys, **given, state="absent")["msg"]


def test_a_source_is_required(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the following are missing: source" in run(capsys, shared_root=str(root), name="x")["msg"]
    assert "is not a directory here" in run(capsys, shared_root=f"{root}/x", name="x", source="tiny")["msg"]
