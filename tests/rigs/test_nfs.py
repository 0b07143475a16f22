"""The shared root on a real NFS 4.2 with root_squash, with two mounts as those of two machines."""

from __future__ import annotations

import json
from typing import Any

from rigs.nfs_guest import COLLECTION, Guest

UID = 1000
MACHINE: dict[str, Any] = {"cluster": "test", "engine": "none", "host": "gpu-0"}
CHECKOUT = """
from pathlib import Path
checkout = Path("/tmp/checkout")
for number in range(400):
    file = checkout / "verl" / f"package{number % 20}" / f"module{number}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"value = {number}\\n" * 400)
(checkout / "verl" / "__init__.py").write_text("")
(checkout / "verl" / "version").mkdir()
(checkout / "verl" / "version" / "version").write_text("0.9.1\\n")
"""
# As a switch that restarts; the two mounts share no connection with anything else.
OUTAGE = """
(until [ -e /tmp/cut ]; do sleep 0.1; done
ip link set lo down; touch /tmp/away; sleep 5; ip link set lo up; touch /tmp/back) </dev/null >/dev/null 2>&1 &
"""
# A run on each mount, as those of two machines.
STAGE = """
import json, sys
from pathlib import Path
from argus.staging.options import StageOptions
from argus.staging.snapshots import build_request
from argus.staging.source_tree import verl_source
from argus.staging.store import stage
source = verl_source(Path("/tmp/checkout"), "/tmp/checkout")
print(json.dumps(stage(build_request(Path(sys.argv[1]), source, "mine"), StageOptions()).status))
"""
BOTH = f"""
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", {STAGE!r}, root]) for root in ("/private", "/again")]
sys.exit(max(process.wait() for process in started))
"""
LEFT = """
from pathlib import Path
for path in sorted(Path("/private/common/code/verl").iterdir()):
    print(path.name)
"""


def root_findings(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings on the shared root. The guest is a small machine, without an engine."""
    return [finding for finding in answer["findings"] if finding["key"].startswith("root.")]


def test_the_mount_is_seen_as_nfs_with_its_server(nfs: Guest) -> None:
    expect = {"shared_root": "/private", "shared_root_fstypes": ["nfs", "nfs4"]}
    answer = nfs.module("machine_info", uid=UID, **MACHINE, expect=expect)
    assert root_findings(answer) == []
    (mount,) = answer["machine"]["mounts"]
    assert (mount["mount_point"], mount["fstype"], mount["source"]) == ("/private", "nfs4", "127.0.0.1:/")
    assert {"vers=4.2", "hard"} <= set(mount["options"])
    assert mount["writable"]


def test_root_without_rights_works_as_the_owner_of_the_shared_root(nfs: Guest) -> None:
    expect = {"shared_root": "/private", "user": f"{UID}:{UID}"}
    assert root_findings(nfs.module("machine_info", **MACHINE, expect=expect)) == []
    (finding,) = root_findings(nfs.module("machine_info", **MACHINE, expect={"shared_root": "/private"}))
    assert (finding["key"], "root_squash" in finding["remedy"]) == ("root.writable", True)

    def run_step(state: str) -> dict[str, Any]:
        return nfs.module("machine_info", **trial(state, "a", "/private", ["a"]))["trial"]  # type: ignore[no-any-return]

    assert run_step("written")["seen_uid"] == UID
    run_step("removed")


def trial(state: str, host: str, shared_root: str, hosts: list[str]) -> dict[str, Any]:
    """The arguments of machine_info for a step of a trial."""
    step = {"state": state, "token": "fedcba9876543210", "hosts": hosts}
    return {**MACHINE, "host": host, "expect": {"shared_root": shared_root}, "trial": step}


def test_trial_of_two_machines(nfs: Guest) -> None:
    machines = {"a": "/private", "b": "/again"}

    def run(state: str) -> list[dict[str, Any]]:
        runs = [("machine_info", UID, trial(state, host, root, list(machines))) for host, root in machines.items()]
        return [answer["trial"] for answer in nfs.modules(*runs)]

    first, second = run("written")
    assert (first["locks"], "locks" in second) == (["flock", "fcntl"], False)
    assert all((answer["renamed"], answer["seen_uid"]) == (True, UID) for answer in (first, second))
    first, second = run("compared")
    assert first["seen"]["b"]["right"]
    assert second["seen"]["a"]["right"]
    assert second["locks"] == {"flock": "held", "fcntl": "held"}
    run("removed")
    assert nfs.run("sh", "-c", "ls -A /private /private/user 2>/dev/null | grep trial").stdout == ""


def test_two_machines_stage_one_snapshot_at_once(nfs: Guest) -> None:
    nfs.python(CHECKOUT, uid=UID)
    assert sorted(nfs.python(BOTH, uid=UID).split()) == ['"exists"', '"staged"']
    # A run that finds the snapshot complete still waits for the lock of the other.
    assert nfs.python(STAGE, "/again", uid=UID).split() == ['"exists"']
    assert [name for name in nfs.python(LEFT).splitlines() if name.startswith(".")] == []


def scene_results(nfs: Guest, *scenes: str) -> dict[str, Any]:
    """The results of scenes in which two machines see each other's jobs."""
    program = f"{COLLECTION}/tests/rigs/jobs_on_two_machines.py"
    return dict(json.loads(nfs.python(program, "/private", "/again", *scenes, uid=UID)))


def test_two_machines_share_archives(nfs: Guest) -> None:
    results = scene_results(nfs, "reserve", "status", "events", "retry")
    one, other = results["reserve"]
    assert [first != second for first, second in zip(one, other, strict=True)] == [True] * len(one)
    # No update of a status that both write in turn is lost, and no reader gets an incomplete or old one.
    assert results["status"] == [[], []]
    assert results["events"] == [60, 60]
    retry = results["retry"]
    # Of step 20, there is one rank of two, then all, then half of a shard.
    assert retry.pop("seen") == [None, 10, 10, 20, 10]
    assert retry == {"code": 0, "state": "SUCCEEDED", "resumed_from_step": 10, "resumes": True}


def test_a_server_that_is_away_delays_the_end_of_a_job_only(nfs: Guest) -> None:
    nfs.run("sh", "-c", OUTAGE)
    assert scene_results(nfs, "outage")["outage"] == {
        "code": 3,
        "errors": "",
        "state": "FAILED",
        "kind": "config",
        "lines": 2000,
        "whole": True,
    }
