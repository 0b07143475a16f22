"""Members: nodes that cannot take part are rows with their reasons, others are named, and a node can be taken out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from system import HEAD, INVENTORY, NODES, REPO, in_ray, on_node, playbook, ray_jobs, said, until

WORKER = NODES[2]
HOLDERS = ("holder-0", "holder-1")
CHECKOUT = "{{ inventory_dir | dirname | dirname }}"


def inventory(path: Path, **settings: Any) -> tuple[Path, ...]:
    """The inventory of the tests, with variables of one worker."""
    path.write_text(yaml.safe_dump({"all": {"hosts": {WORKER: settings}}}))
    return (INVENTORY, path)


def without_the_worker(tmp_path: Path) -> tuple[Path, ...]:
    """The inventory of the tests, which the worker has left."""
    hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text())
    hosts["ray"]["children"]["workers"]["hosts"] = {NODES[1]: None}
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump(hosts))
    # Its variables name directories relative to its own.
    variables = (INVENTORY / "group_vars" / "all" / "cluster.yml").read_text()
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(variables.replace(CHECKOUT, str(REPO)))
    return (file,)


def containers(shown: str = "{{.Names}}") -> list[str]:
    listed = ["docker", "ps", "--all", "--filter", "label=argus.verl.cluster=test", "--format", shown]
    return sorted(subprocess.run(listed, text=True, capture_output=True, check=True).stdout.split())


def state(job: str) -> str:
    return ray_jobs(job)[job]


def placed_on(node: str, seconds: int) -> bool:
    """Whether Ray starts an actor on a node within a time, if it is asked for that node alone or for any worker."""
    code = (
        "import ray, time; from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On\n"
        "ray.init(address='auto', log_to_driver=False)\n"
        f"ids = {{n['NodeName']: n['NodeID'] for n in ray.nodes() if n['Alive']}}; node = ids[{node!r}]\n"
        "@ray.remote(num_cpus=40)\n"
        "class A:\n"
        "    def where(self): return ray.get_runtime_context().get_node_id()\n"
        "actors = [A.remote() for _ in range(2)] + [A.options(scheduling_strategy=On(node, soft=False)).remote()]\n"
        "def where(ref):\n"
        "    try: return ray.get(ref)\n"
        "    except ray.exceptions.RayError: return ''\n"
        f"waiting, places, deadline = [a.where.remote() for a in actors], [], time.monotonic() + {seconds}\n"
        "while waiting and node not in places and time.monotonic() < deadline:\n"
        "    ready, waiting = ray.wait(waiting, timeout=1)\n"
        "    places += map(where, ready)\n"
        "print('PLACED' if node in places else 'NOT PLACED')\n"
    )
    return on_node(HEAD, "python3", "-c", code).split("\n")[-2] == "PLACED"


def test_node_that_cannot_be_planned_stops_the_run_or_is_left_out(tmp_path: Path) -> None:
    """A GPU was lost: without cluster_min_workers nothing changes, with it the others are started."""
    before = containers("{{.ID}}")
    sources = inventory(tmp_path / "lost.yml", ray_node_accelerator="cuda")
    done = playbook("cluster_up", check=False, inventories=sources)
    assert done.returncode != 0
    assert f"{WORKER} requests its share of the GPUs, but localhost has 0" in said(done.stdout), done.stdout
    assert "go on with fewer workers: -e cluster_min_workers=1" in said(done.stdout)
    assert containers("{{.ID}}") == before

    # A node that the engine refuses to start is known at once, too: nothing waits for it.
    sources = inventory(tmp_path / "device.yml", ray_node_devices=["/dev/none:/dev/none"])
    done = playbook("cluster_up", check=False, inventories=sources, ray_node_start_timeout=900)
    assert done.returncode != 0
    assert "Cluster test: 2 of 3 nodes as expected" in done.stdout, done.stdout
    assert "its container could not be started" in said(done.stdout) and "/dev/none" in done.stdout
    again = playbook("cluster_up", inventories=sources, cluster_min_workers=1, ray_node_start_timeout=900)
    assert "Cluster test: 2 of 3 nodes as expected" in again.stdout
    assert "Goes on with fewer workers: cluster_min_workers is 1" in again.stdout
    assert f"{WORKER}" in again.stdout.partition("2 of 3")[2]


@pytest.mark.slow
def test_node_is_taken_out(tmp_path: Path) -> None:
    playbook("cluster_up")
    refused = playbook("drain", check=False, node=HEAD)
    assert refused.returncode != 0 and "is the head" in said(refused.stdout), refused.stdout
    unknown = playbook("drain", check=False, node="test-ray-worker-2")
    assert unknown.returncode != 0 and f'did you mean "{WORKER}"?' in said(unknown.stdout), unknown.stdout

    # It has left the inventory, and is named wherever the cluster is shown.
    sources = without_the_worker(tmp_path)
    status = playbook("cluster_status", inventories=sources)
    assert f"{WORKER} at " in status.stdout and "is not in the inventory, and takes jobs" in status.stdout
    assert f"drain.yml -e node={WORKER}" in status.stdout

    # Jobs hold the workers: no new work comes, and the job there is named.
    for name in HOLDERS:
        in_ray(f"c.submit_job(entrypoint='sleep infinity', submission_id={name!r}, entrypoint_num_cpus=30)")
    until(
        lambda: {**ray_jobs("holder-0"), **ray_jobs("holder-1")} == dict.fromkeys(HOLDERS, "RUNNING"), "they run", 600
    )
    tried = playbook("drain", inventories=sources, arguments=["--check"], node=WORKER)
    assert f"{WORKER} would get no new work, and wait up to 3600 s for holder-" in said(tried.stdout), tried.stdout
    assert f"{WORKER}  draining" not in playbook("cluster_status").stdout
    waiting = playbook("drain", check=False, inventories=sources, node=WORKER, drain_timeout=3)
    assert waiting.returncode != 0
    assert f"{WORKER} gets no new work. Waits for holder-" in said(waiting.stdout), waiting.stdout
    assert f"{WORKER} is still used after" in said(waiting.stdout) and "holder-" in waiting.stdout, waiting.stdout
    # Refused work never starts: a longer look would only notice more.
    assert not placed_on(WORKER, 10)
    shown = playbook("cluster_status")
    assert f"{WORKER}  draining" in shown.stdout, shown.stdout
    ended = playbook("drain", inventories=sources, node=WORKER, allow_disruption=True)
    assert "its removal ends holder-" in said(ended.stdout), ended.stdout
    # The other goes on.
    until(lambda: sorted(map(state, HOLDERS)) == ["FAILED", "RUNNING"], "one has ended", 600)
    for name in HOLDERS:
        in_ray(f"c.stop_job({name!r})")
    assert WORKER not in containers()
    gone = playbook("cluster_status", inventories=sources)
    assert "Cluster test: 2 of 2 nodes as expected" in gone.stdout and "not in the inventory" not in gone.stdout

    # In the inventory it comes back; without work it leaves at once.
    back = playbook("cluster_up")
    assert "Cluster test: 3 of 3 nodes as expected" in back.stdout
    assert placed_on(WORKER, 300)
    left = playbook("drain", node=WORKER)
    assert f"Node {WORKER}: removed from localhost" in left.stdout and "cluster_up.yml starts it again" in left.stdout
    assert containers() == sorted(set(NODES) - {WORKER})
    # Nothing is left to be done, and there is no log to be read.
    again = playbook("drain", node=WORKER)
    assert f"{WORKER} is out already" in said(again.stdout), again.stdout
    status = playbook("cluster_status", check=False)
    assert status.returncode != 0 and "docker logs" not in status.stdout, status.stdout
