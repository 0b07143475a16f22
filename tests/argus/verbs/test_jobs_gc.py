"""argus gc --jobs: which checkpoints and archives are removed, and which stay whatever is asked for."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from argus import cli
from argus.archive.archive import Archive
from argus.jobs.registry import RegisteredJob, Registry
from argus.ray.admission import REGISTRY_VARIABLE
from argus.verbs import jobs_gc

AGES = {"grpo-old": 40, "grpo-named": 30, "sft-failed": 20, "grpo-new": 1}
SHARD = "model_world_size_1_rank_0.pt"


def make(jobs: Path, name: str, state: str, days: float | None = None, **spec: Any) -> Archive:
    """A job that ended so many days ago, or has not ended, with two complete checkpoints and one that is cut."""
    archive = Archive(jobs / name)
    archive.reserve()
    archive.write_json("config/job_spec.json", {"workload": "grpo", **spec})
    closed = {} if days is None else {"closed_at": (datetime.now(UTC) - timedelta(days)).isoformat()}
    archive.set_status(state, workload="grpo", tags={"team": "vision" if "grpo" in name else "text"}, **closed)
    for step in (10, 20, 30):
        actor = archive.path / "checkpoints" / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        for kind in ("model", "optim", "extra_state"):
            with zipfile.ZipFile(actor / f"{kind}_world_size_1_rank_0.pt", "w") as file:
                file.writestr("data", "x" * 2000)
        (actor / "fsdp_config.json").write_text('{"world_size": 1}')
        (actor.parent / "data.pt").write_bytes((actor / SHARD).read_bytes())
    (actor / SHARD).write_bytes(b"cut")
    (archive.path / "checkpoints/latest_checkpointed_iteration.txt").write_text("30")
    return archive


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    jobs = tmp_path / "jobs"
    (tmp_path / "registry").mkdir()
    for name, days in AGES.items():
        make(jobs, name, "FAILED" if "failed" in name else "SUCCEEDED", days)
        time.sleep(0.01)
    # It is old, but runs, and resumed from another one.
    make(jobs, "grpo-runs", "RUNNING", resume_from="grpo-named")
    return jobs


@pytest.fixture
def run(tmp_path: Path, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv(REGISTRY_VARIABLE, str(tmp_path / "registry"))

    def run(**request: Any) -> dict[str, Any]:
        code, answer = ask("gc", "--jobs", shared_root=str(tmp_path), **request)
        assert code == 0
        answer["decisions"] = {row[0]: row[3] for row in answer["result"]["rows"]}
        return dict(answer)

    return run


def steps(jobs: Path) -> dict[str, list[int]]:
    return {path.name: Archive(path).checkpoints() for path in jobs.iterdir()}


EVERY = {name: [10, 20, 30] for name in (*AGES, "grpo-runs")}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, EVERY),
        ({"keep_days": 15}, {"grpo-old": [], "grpo-named": [20], "sft-failed": []}),
        ({"keep_days": 15, "scope": "old_checkpoints"}, {"grpo-old": [20], "grpo-named": [20], "sft-failed": [20]}),
        # The running job is the latest one, grpo-new the second.
        ({"keep": 3}, {"grpo-old": [], "grpo-named": [20]}),
        ({"keep": 2, "keep_days": 25}, {"grpo-old": [], "grpo-named": [20]}),
        ({"keep_days": 15, "tags": {"team": "vision"}}, {"grpo-old": [], "grpo-named": [20]}),
    ],
)
def test_checkpoints_are_removed(
    run: Callable[..., Any], jobs: Path, options: dict[str, Any], left: dict[str, list[int]]
) -> None:
    changed = {name for name in left if left[name] != EVERY[name]}
    for how in ({}, {"remove": True, "check": True}, {"remove": True}):
        answer, is_done = run(**options, **how), how == {"remove": True}
        word = "removed" if is_done else "to be removed"
        assert {name for name, verdict in answer["decisions"].items() if verdict == word} == changed
        assert answer["changed"] == (is_done and bool(changed))
        assert steps(jobs) == ({**EVERY, **left} if is_done else EVERY)


def test_archives_are_removed_unless_another_job_names_them(run: Callable[..., Any], jobs: Path) -> None:
    # By a path, and by what waits for it; a job that has ended counts as well.
    make(jobs, "sft-next", "SUCCEEDED", 50, model=f"{jobs}/grpo-old/checkpoints/global_step_20/actor")
    registry = Registry(jobs.parent / "registry")
    for name in ("sft-failed", "grpo-old"):
        registry.write(RegisteredJob(name, 1.0, {}, str(jobs.parent)))
    answer = run(keep_days=15, scope="archives", remove=True)
    assert registry.ids() == ["grpo-old"]
    assert {path.name for path in jobs.iterdir()} == {"grpo-old", "grpo-named", "grpo-new", "grpo-runs"}
    assert answer["decisions"]["grpo-old"] == "used by sft-next"
    assert {"sft-next", "sft-failed"} == {name for name, text in answer["decisions"].items() if text == "removed"}


def test_a_job_that_is_submitted_meanwhile_keeps_what_it_names(
    run: Callable[..., Any], jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdicts(*arguments: Any) -> Any:
        result = judged(*arguments)
        make(jobs, "grpo-late", "WAITING", depends_on="grpo-old")
        return result

    judged = jobs_gc.decide_all
    monkeypatch.setattr(jobs_gc, "decide_all", verdicts)
    run(keep_days=35, remove=True)
    assert steps(jobs)["grpo-old"] == [20]


def test_what_a_job_left_leads_nowhere(run: Callable[..., Any], jobs: Path, tmp_path: Path) -> None:
    """Links to another job's checkpoints, a status that cannot be read, and one that says what is not so."""
    linked = make(jobs, "grpo-linked", "SUCCEEDED", 60)
    (linked.path / "checkpoints").rename(tmp_path / "moved")
    (linked.path / "checkpoints").symlink_to(jobs / "grpo-new" / "checkpoints")
    step = make(jobs, "grpo-step", "SUCCEEDED", 60).path / "checkpoints" / "global_step_40"
    step.symlink_to(jobs / "grpo-new" / "checkpoints" / "global_step_10")
    make(jobs, "grpo-broken", "SUCCEEDED", 60).path.joinpath("status.json").write_text("{")
    make(jobs, "grpo-timeless", "SUCCEEDED", 60).set_status("SUCCEEDED", closed_at="yesterday")
    verdicts = run(keep_days=35, remove=True)["decisions"]
    assert verdicts["grpo-linked"] == "no such checkpoints"
    assert all(verdicts[name].startswith("cannot be read: ") for name in ("grpo-broken", "grpo-timeless"))
    assert steps(jobs)["grpo-new"] == [10, 20, 30] and step.parent.exists() and not step.is_symlink()


def test_a_checkpoint_that_a_job_names_stays(run: Callable[..., Any], jobs: Path, tmp_path: Path) -> None:
    """By its path, in whatever form; in an override; in the defaults of the inventory, which only the registry has."""
    make(jobs, "grpo-b", "SUCCEEDED", 60)
    make(jobs, "grpo-c", "SUCCEEDED", 60)
    path = f"{jobs}//grpo-old/./checkpoints/global_step_10/actor"
    make(jobs, "sft-path", "RUNNING", model=path)
    plan = {"overrides": [f"trainer.resume_from_path={jobs}/grpo-b/checkpoints/global_step_30"]}
    make(jobs, "sft-plan", "RUNNING").write_json("config/plan.json", plan)
    make(jobs, "sft-late", "QUEUED")
    defaults = {"model": f"{jobs}/grpo-c/checkpoints/global_step_10/huggingface"}
    Registry(tmp_path / "registry").write(RegisteredJob("sft-late", 1.0, {}, str(tmp_path), defaults=defaults))
    run(keep_days=35, remove=True)
    assert [steps(jobs)[f"grpo-{name}"] for name in ("old", "b", "c")] == [[10, 20], [20, 30], [10, 20]]


def test_while_it_is_not_known_what_a_job_needs_all_stay(run: Callable[..., Any], jobs: Path) -> None:
    broken = make(jobs, "grpo-late", "RUNNING")
    (broken.path / "config/job_spec.json").write_bytes(b" " * (5 << 20))
    assert run(keep_days=35, remove=True)["decisions"]["grpo-old"].startswith("may be used by grpo-late")
    # One that has ended needs nothing.
    broken.set_status("FAILED", closed_at=datetime.now(UTC).isoformat())
    run(keep_days=35, remove=True)
    assert steps(jobs)["grpo-old"] == []


def test_numbers_that_are_none_remove_nothing(jobs: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    for invalid in ({"keep": -1}, {"keep_days": -1}, {"keep_days": "nan"}):
        request = {"shared_root": str(tmp_path), "keep": 1, "remove": True, **invalid}
        assert ask("gc", "--jobs", **request)[0] == 2
    assert steps(jobs) == EVERY


def test_people_see_what_would_be_freed(jobs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["gc", "--jobs", "--shared-root", str(jobs.parent)]
    assert cli.main(command) == 1
    assert cli.main([*command, "--keep-days", "35"]) == 0
    assert "would be freed" in capfd.readouterr().out
    assert cli.main([*command, "--keep-days", "35", "--scope", "archives", "--remove"]) == 0
    assert "freed" in capfd.readouterr().out and not (jobs / "grpo-old").exists()
